//! `meme`: trains human-level Atari agents on one GPU.

mod actors;
mod advice;
mod bench;
mod chart;
mod child;
mod cluster;
mod config;
mod config_page;
mod console;
mod display;
mod doctor;
mod eval;
mod games;
mod install;
mod listen;
mod locked;
mod openmp;
mod options;
mod output;
mod panel;
mod partial_file;
mod play;
mod plot;
mod preset;
mod python;
mod record;
mod report;
mod run_args;
mod run_log;
mod runs;
mod settings;
mod step_table;
mod sweep;
mod train;
mod video;
mod watch;
mod working_directory;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Trains human-level Atari agents on one GPU with MEME ("Human-level Atari 200x faster").
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the 57 Atari games with their action counts and reference scores
    Games(games::GamesArgs),
    /// Train an agent, or resume a run
    Train(train::TrainArgs),
    /// Train one run on several machines of a Ray cluster
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Run environments on this machine for a learner on another one
    Actors(actors::ActorsArgs),
    /// Train many runs: games, seeds and settings, on this machine or a cluster
    Sweep(sweep::SweepArgs),
    /// Show, check and compare configs
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// List runs with their progress and scores
    Runs(runs::RunsArgs),
    /// Draw charts of a run's metrics and warn about what looks wrong
    Plot(plot::PlotArgs),
    /// Report on many runs: the paper's tables and figures as one HTML page
    Report(report::ReportArgs),
    /// Show runs in a web browser while they train
    Watch(watch::WatchArgs),
    /// Evaluate a run: mean score of greedy episodes and the full protocol
    Eval(eval::EvalArgs),
    /// Record a video of a trained agent, with its values and policy next to the game
    Record(record::RecordArgs),
    /// Write a run's agent for other programs: ONNX, TorchScript or safetensors
    Export(python::ExportArgs),
    /// Send a run's metrics, config and videos to a tracker of experiments
    Track(python::TrackArgs),
    /// Play a game or task with a simple policy, optionally recording a video
    Play(play::PlayArgs),
    /// Measure the speed of one part of the system
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Check this machine for everything that training needs
    Doctor(doctor::DoctorArgs),
}

fn main() -> ExitCode {
    if working_directory::is_removed() {
        console::error("the current directory was removed; change to one that exists");
        console::flush();
        return ExitCode::FAILURE;
    }
    torch_ext::install_terminate_handler();
    let code = match parse() {
        Ok(arguments) => exit_code(run(arguments.command)),
        Err(error) => explain(&error),
    };
    console::flush();
    code
}

fn run(command: Command) -> Result<ExitCode> {
    if matches!(command, Command::Train(_) | Command::Eval(_) | Command::Record(_) | Command::Bench(_)) {
        openmp::limit_spinning();
    }
    match command {
        Command::Train(args) => train::run(&args)?,
        Command::Actors(args) => actors::run(&args)?,
        Command::Cluster(command) => return cluster::run(&command),
        Command::Sweep(args) => return sweep::run(&args),
        Command::Config(command) => return config::run(command),
        Command::Runs(args) => runs::run(&args)?,
        Command::Plot(args) => plot::run(&args)?,
        Command::Report(args) => report::run(&args)?,
        Command::Watch(args) => watch::run(&args)?,
        Command::Eval(args) => eval::run(&args)?,
        Command::Record(args) => record::run(&args)?,
        Command::Export(args) => return python::export(&args),
        Command::Track(args) => return python::track(&args),
        Command::Games(args) => games::run(&args)?,
        Command::Play(args) => play::run(&args)?,
        Command::Bench(command) => bench::run(command)?,
        Command::Doctor(args) => return doctor::run(&args),
    }
    Ok(ExitCode::SUCCESS)
}

fn exit_code(outcome: Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // `meme games | head` has read enough, which is not a failure.
        Err(error) if error.is::<output::ClosedOutput>() => ExitCode::SUCCESS,
        Err(error) => {
            let advice = advice::advice(&error).map_or(String::new(), |advice| format!("; {advice}"));
            console::error(format_args!("{error:#}{advice}"));
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Arguments, clap::Error> {
    let matches = options::with_negative_values(Arguments::command()).try_get_matches()?;
    Arguments::from_arg_matches(&matches)
}

/// Prints the requested help, or what is wrong with the arguments.
fn explain(error: &clap::Error) -> ExitCode {
    if let Some(message) = options::invalid_value(error) {
        console::error(message);
    } else if let Err(cause) = error.print().and_then(|()| io::stdout().flush())
        && cause.kind() != ErrorKind::BrokenPipe
    {
        console::error(format_args!("{}: {cause}", output::WRITE_FAILED));
        return ExitCode::FAILURE;
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_takes_a_run_accepts_a_name_or_a_directory() {
        let run = "A run's name (`meme runs` lists them) or its directory";
        let runs = "--runs <DIR> Directory that contains the runs";
        for path in [&["eval"][..], &["record"], &["export"], &["track"], &["plot"]] {
            let mut command = &mut Arguments::command();
            for name in path {
                command = command.find_subcommand_mut(name).unwrap();
            }
            let help = command.render_help().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(help.contains(run) && help.contains(runs), "{path:?}: {help}");
        }
    }
}
