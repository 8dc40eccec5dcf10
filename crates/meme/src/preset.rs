//! Which preset fits an environment and a machine, and a word to who trains with one that they are too small for.

use envs::EnvId;
use tch::Device;

/// What starts a run that any machine finishes in minutes.
pub const FIRST_RUN: &str = "meme train catch";

/// A preset for who names none.
#[derive(Debug)]
pub struct Fitting {
    /// Its name.
    pub name: &'static str,
    /// What it is, and what else there is.
    pub about: &'static str,
}

/// What to train with on a machine with or without a GPU.
pub fn fitting(environment: &EnvId, gpu: bool) -> Fitting {
    let (name, about) = match environment {
        EnvId::Task(_) => ("tiny", "for tasks"),
        EnvId::Gym { .. } => ("tiny", "for small observations; pictures want a larger one"),
        EnvId::Atari(_) if gpu => (
            "quick",
            "the paper's agent with smaller batches, for a run of minutes; `--preset paper` has the paper's, `--preset \
             desktop` takes less memory",
        ),
        EnvId::Atari(_) => ("cpu", "for games without a GPU, to see it run"),
    };
    Fitting { name, about }
}

/// What to do instead, where the preset was made for something larger.
pub fn preset_hint(environment: &EnvId, preset: &str, device: Device) -> Option<String> {
    let needs_gpu = ["paper", "quick", "desktop"].contains(&preset);
    match environment {
        EnvId::Task(task) if preset != "tiny" => {
            Some(format!("preset {preset} is made for Atari games; for a task such as {task} there is `--preset tiny`"))
        }
        EnvId::Gym { .. } if needs_gpu && !device.is_cuda() => Some(format!(
            "without a GPU preset {preset} takes weeks; `--preset cpu` is for pictures without one, `--preset tiny` for \
             small observations"
        )),
        EnvId::Atari(_) if needs_gpu && !device.is_cuda() => Some(format!(
            "without a GPU preset {preset} takes weeks; `--preset cpu` is made for Atari games without one"
        )),
        EnvId::Task(_) | EnvId::Gym { .. } | EnvId::Atari(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(environment: &str, preset: &str, device: Device) -> String {
        preset_hint(&environment.parse().unwrap(), preset, device).unwrap_or_default()
    }

    #[test]
    fn what_fits_is_there_and_needs_no_word() {
        for (environment, with_gpu, without) in
            [("catch", "tiny", "tiny"), ("gym:CartPole-v1", "tiny", "tiny"), ("pong", "quick", "cpu")]
        {
            for (device, expected) in [(Device::Cuda(0), with_gpu), (Device::Cpu, without)] {
                let fits = fitting(&environment.parse().unwrap(), device.is_cuda());
                assert_eq!(fits.name, expected, "{environment} on {device:?}");
                assert!(train::config::PRESETS.iter().any(|preset| preset.name == fits.name));
                assert_eq!(hint(environment, fits.name, device), "");
            }
        }
    }

    #[test]
    fn a_task_is_for_tiny_on_every_machine() {
        for device in [Device::Cpu, Device::Cuda(0)] {
            let said = "preset paper is made for Atari games; for a task such as catch there is `--preset tiny`";
            assert_eq!(hint("catch", "paper", device), said);
            assert!(hint("memory:20", "cpu", device).contains("--preset tiny"));
            assert_eq!(hint("catch", "tiny", device), "");
        }
    }

    #[test]
    fn large_presets_want_a_gpu() {
        for preset in ["paper", "quick", "desktop"] {
            let said = hint("pong", preset, Device::Cpu);
            assert!(said.starts_with(&format!("without a GPU preset {preset} takes weeks; `--preset cpu`")), "{said}");
            assert!(hint("gym:CartPole-v1", preset, Device::Cpu).ends_with("`--preset tiny` for small observations"));
            assert_eq!(hint("pong", preset, Device::Cuda(0)), "");
        }
        for (environment, preset) in [("pong", "cpu"), ("pong", "tiny"), ("gym:CartPole-v1", "tiny")] {
            assert_eq!(hint(environment, preset, Device::Cpu), "");
        }
    }
}
