//! What the user can do about an error, in terms of this program's options.
//!
//! The libraries return typed errors that say what happened, with names and values. They know nothing of command-line
//! options: every sentence about those is here.

use std::error::Error;

use agent::AgentError;
use envs::{EnvError, NameHint};
use remote::TlsMismatch;
use train::TrainError;
use train::run::checkpoint::CheckpointError;
use train::run::{DirectoryError, LockError};
use train::runtime::resume::ResumeError;

macro_rules! start_over {
    ($advice:literal) => {
        concat!($advice, "`meme train --fresh` moves the run aside and starts over")
    };
}

/// Returns the advice for the first error of the chain that has one.
pub fn advice(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(of_cause)
}

/// A `transparent` variant hides its inner error from the chain, so the functions below pass it on.
fn of_cause(error: &(dyn Error + 'static)) -> Option<&'static str> {
    (error.downcast_ref().and_then(of_training))
        .or_else(|| error.downcast_ref().and_then(of_agent))
        .or_else(|| error.downcast_ref().and_then(of_resuming))
        .or_else(|| error.downcast_ref().and_then(of_checkpoint))
        .or_else(|| error.downcast_ref().and_then(of_directory))
        .or_else(|| error.downcast_ref().and_then(of_gpu))
        .or_else(|| error.downcast_ref().and_then(of_environment))
}

fn of_agent(error: &AgentError) -> Option<&'static str> {
    if let AgentError::Torch(error) = error { of_gpu(error) } else { None }
}

fn of_training(error: &TrainError) -> Option<&'static str> {
    match error {
        TrainError::NoGpu { .. } => Some("use `--set run.device=cpu` to train without one, slowly"),
        TrainError::Agent(error) => of_agent(error),
        TrainError::Environment(error) => of_environment(error),
        TrainError::NoCheckpoint { .. } => {
            Some("`--checkpoint best` plays the best so far, once an evaluation has finished")
        }
        TrainError::NoBest { .. } => Some("`--checkpoint last` plays the newest one"),
        TrainError::OnlyAveraged => Some("`--checkpoint last` has the online ones too"),
        TrainError::NoRoomForEpisode { .. } => Some("lower it with `--set intrinsic.memory_capacity=...`"),
        TrainError::SavedAfter { .. } => Some("`meme train --resume RUN` resumes it"),
        TrainError::Checkpoint(error) => of_checkpoint(error),
        TrainError::Directory(error) => of_directory(error),
        _ => None,
    }
}

fn of_resuming(error: &ResumeError) -> Option<&'static str> {
    match error {
        ResumeError::OtherConfig { .. } => Some(
            "leave them as they were, give this run another --name, or use --fresh to move the old run aside and start \
             over",
        ),
        ResumeError::FewerFrames { .. } => Some("use a higher --frames to train longer"),
        ResumeError::Checkpoint(error) => of_checkpoint(error),
        ResumeError::Train(error) => of_training(error),
        ResumeError::Config(_) => None,
    }
}

fn of_checkpoint(error: &CheckpointError) -> Option<&'static str> {
    match error {
        CheckpointError::NoneUsable { best: true, .. } => Some(start_over!("`--checkpoint best` plays it; ")),
        CheckpointError::NoneUsable { best: false, .. } | CheckpointError::OldFormat { .. } => Some(start_over!("")),
        CheckpointError::Gone { best: true, .. } => {
            Some(start_over!("put them back, or play the best with `--checkpoint best`; "))
        }
        CheckpointError::Gone { best: false, .. } => Some(start_over!("put them back; ")),
        _ => None,
    }
}

fn of_directory(error: &DirectoryError) -> Option<&'static str> {
    match error {
        DirectoryError::NoSuchRun { known, .. } if known.is_empty() => Some("use --runs to name another directory"),
        DirectoryError::NotARun { .. } => Some("use another --name"),
        DirectoryError::OtherTask { .. } => Some("use another --name, or --fresh to start over"),
        DirectoryError::Lock(LockError::Held { .. }) => Some("wait for it or stop it, or use another --name"),
        _ => None,
    }
}

fn of_gpu(error: &torch_ext::Error) -> Option<&'static str> {
    match error {
        torch_ext::Error::OutOfMemory(_) => Some(
            "reduce learner.batch_size, replay.trace or actors.environments with `--set`, or use `--preset quick`, \
             which needs 10 GB; a network larger than the preset's (agent.network) needs more of everything",
        ),
        torch_ext::Error::HostMemory(_) => Some(
            "reduce the sizes in agent.network if you raised them, or learner.batch_size, replay.trace, learner.prefetch \
             or actors.environments, with `--set`",
        ),
        _ => None,
    }
}

/// Returns the advice for a connection to a learner that uses TLS otherwise than this machine.
pub fn of_tls(mismatch: TlsMismatch) -> &'static str {
    match mismatch {
        TlsMismatch::PerhapsRequired => "if it uses TLS, add --fingerprint or --ca",
        TlsMismatch::NotUsed => "leave out --fingerprint and --ca, or check the port",
    }
}

fn of_environment(error: &EnvError) -> Option<&'static str> {
    match error {
        EnvError::UnknownEnvironment { hint: NameHint::NothingSimilar, .. } => {
            Some("`meme games` lists the Atari games")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advised(error: impl Error + Send + Sync + 'static) -> Option<&'static str> {
        advice(&anyhow::Error::new(error).context("while training"))
    }

    #[test]
    fn advises_on_exhausted_memory_however_deep_the_error_is() {
        let error = || torch_ext::Error::OutOfMemory("2 GiB requested".to_owned());
        let agent = || AgentError::from(error());
        for advice in [advised(error()), advised(agent()), advised(TrainError::from(agent()))] {
            assert!(advice.unwrap().contains("`--preset quick`"));
        }
        let host = advised(torch_ext::Error::HostMemory("8 bytes".to_owned()));
        assert!(host.unwrap().contains("learner.prefetch"));
        assert_eq!(advised(torch_ext::Error::NoDriver), None);
    }

    #[test]
    fn points_to_the_list_of_games_if_no_name_is_similar() {
        assert!(advised("chess_on_mars".parse::<envs::EnvId>().unwrap_err()).unwrap().contains("meme games"));
        assert_eq!(advised("pon".parse::<envs::EnvId>().unwrap_err()), None);
    }
}
