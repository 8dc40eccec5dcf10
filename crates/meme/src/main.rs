//! `meme`: trains human-level Atari agents on one GPU.

mod bench;
mod chosen_run;
mod config;
mod doctor;
mod eval;
mod games;
mod home;
mod options;
mod output;
mod play;
mod plot;
mod preset;
mod record;
mod runs;
mod short_waits;
mod train;
mod video;
mod voice;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Trains human-level Atari agents on one GPU: MEME, "Human-level Atari 200x faster".
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the 57 Atari games with their actions and scores
    Games(games::GamesArgs),
    /// Train an agent, or go on with a run
    Train(train::TrainArgs),
    /// Show, check and compare configs
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// List runs
    Runs(runs::RunsArgs),
    /// Draw what a run has measured, and say what looks wrong
    Plot(plot::PlotArgs),
    /// Measure how well a run plays, greedily and usually with the averaged parameters
    Eval(eval::EvalArgs),
    /// Make a video of a run's play, with what the agent thinks beside the game
    Record(record::RecordArgs),
    /// Play a game or task with a simple policy, and make a video of it
    Play(play::PlayArgs),
    /// Measure one part of the system
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Say what was found on this machine, what is missing, and how to mend it
    Doctor(doctor::DoctorArgs),
}

fn run(command: Command) -> Result<ExitCode> {
    if matches!(command, Command::Train(_) | Command::Eval(_) | Command::Record(_) | Command::Bench(_)) {
        short_waits::wait_shortly();
    }
    match command {
        Command::Train(args) => train::run(&args)?,
        Command::Config(command) => return config::run(command),
        Command::Runs(args) => runs::run(&args)?,
        Command::Plot(args) => plot::run(&args)?,
        Command::Eval(args) => eval::run(&args)?,
        Command::Record(args) => record::run(&args)?,
        Command::Games(args) => games::run(&args)?,
        Command::Play(args) => play::run(&args)?,
        Command::Bench(bench) => bench::run(bench)?,
        Command::Doctor(args) => return doctor::run(&args),
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    torch_ext::end_in_a_sentence();
    let code = command();
    voice::settle();
    code
}

fn command() -> ExitCode {
    let arguments = match parsed() {
        Ok(arguments) => arguments,
        Err(error) => return unparsed(&error),
    };
    match run(arguments.command) {
        Ok(code) => code,
        // A reader that has seen enough, `meme games | head`, is no failure.
        Err(error) if error.is::<output::Unread>() => ExitCode::SUCCESS,
        Err(error) => {
            output::say(format_args!("meme: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn parsed() -> Result<Arguments, clap::Error> {
    let matches = options::with_negative_values(Arguments::command()).try_get_matches()?;
    Arguments::from_arg_matches(&matches)
}

/// Help that was asked for, or what is wrong with the arguments, which begins as every other error does.
fn unparsed(error: &clap::Error) -> ExitCode {
    let rendered = error.render().to_string();
    let complaint = options::refused_value(error).or(rendered.strip_prefix("error: ").map(str::to_owned));
    let Some(complaint) = complaint else { return helped(error) };
    output::say(format_args!("meme: {}", complaint.trim_end()));
    ExitCode::from(2)
}

/// Help, where it goes, with the status that comes with it.
fn helped(error: &clap::Error) -> ExitCode {
    match error.print().and_then(|()| io::stdout().flush()) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
            output::say(format_args!("meme: {}: {cause}", output::UNWRITTEN));
            ExitCode::FAILURE
        }
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_takes_a_run_takes_it_by_name_or_by_folder() {
        let means = "A run's name (`meme runs` lists them) or its folder";
        for path in [&["eval"][..], &["record"], &["plot"], &["config", "show"], &["config", "diff"]] {
            let mut command = &mut Arguments::command();
            for name in path {
                command = command.find_subcommand_mut(name).unwrap();
            }
            let help = command.render_help().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(help.contains(means) && help.contains("--runs <FOLDER> Where runs are"), "{path:?}: {help}");
        }
    }
}
