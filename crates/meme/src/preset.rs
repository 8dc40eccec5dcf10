//! The preset that suits an environment and a machine, and a warning about one that does not.

use envs::EnvId;
use tch::Device;

/// Starts a run that any machine finishes in minutes.
pub const FIRST_RUN: &str = "meme train catch";

/// A preset chosen for the user.
#[derive(Debug)]
pub struct DefaultPreset {
    pub name: &'static str,
    /// What it is made for, and which other presets there are.
    pub purpose: &'static str,
}

/// Returns the preset to use if none is requested.
pub fn default_preset(environment: &EnvId, gpu: bool) -> DefaultPreset {
    let (name, purpose) = match environment {
        EnvId::Task(_) => ("tiny", "for the built-in tasks"),
        EnvId::Gym { .. } => ("tiny", "for small observations; images need a larger one"),
        EnvId::Atari(_) if gpu => ("quick", "for results in minutes; `--preset paper` is the paper's agent"),
        EnvId::Atari(_) => ("cpu", "for a first look at games without a GPU"),
    };
    DefaultPreset { name, purpose }
}

/// Returns a warning if the preset is too large for the environment or the machine.
pub fn preset_warning(environment: &EnvId, preset: &str, device: Device) -> Option<String> {
    // Another agent has a size of its own unless it was given one.
    let (agent, size) = preset.split_once('-').unwrap_or((preset, preset));
    let of_size = |size: &str| match train::config::AGENTS.contains(&agent) {
        true => format!("`--preset {agent} --size {size}`"),
        false => format!("`--preset {size}`"),
    };
    let is_slow = !["cpu", "tiny"].contains(&size) && !device.is_cuda();
    let slow = || format!("preset {preset} takes weeks without a GPU; use {}", of_size("cpu"));
    match environment {
        EnvId::Task(task) if size != "tiny" => {
            Some(format!("preset {preset} is made for Atari games; use {} for tasks such as {task}", of_size("tiny")))
        }
        EnvId::Gym { .. } if is_slow => {
            Some(format!("{} for images or {} for small observations", slow(), of_size("tiny")))
        }
        EnvId::Atari(_) if is_slow => Some(slow()),
        EnvId::Task(_) | EnvId::Gym { .. } | EnvId::Atari(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(environment: &str, preset: &str, device: Device) -> String {
        preset_warning(&environment.parse().unwrap(), preset, device).unwrap_or_default()
    }

    #[test]
    fn default_preset_exists_and_raises_no_warning() {
        for (environment, with_gpu, without) in
            [("catch", "tiny", "tiny"), ("gym:CartPole-v1", "tiny", "tiny"), ("pong", "quick", "cpu")]
        {
            for (device, expected) in [(Device::Cuda(0), with_gpu), (Device::Cpu, without)] {
                let chosen = default_preset(&environment.parse().unwrap(), device.is_cuda());
                assert_eq!(chosen.name, expected, "{environment} on {device:?}");
                assert!(train::config::PRESETS.iter().any(|preset| preset.name == chosen.name));
                assert_eq!(warning(environment, chosen.name, device), "");
            }
        }
    }

    #[test]
    fn tasks_need_preset_tiny_on_every_machine() {
        for device in [Device::Cpu, Device::Cuda(0)] {
            let expected = "preset paper is made for Atari games; use `--preset tiny` for tasks such as catch";
            assert_eq!(warning("catch", "paper", device), expected);
            assert!(warning("memory:20", "cpu", device).contains("--preset tiny"));
            assert_eq!(warning("catch", "tiny", device), "");
        }
    }

    #[test]
    fn other_agents_need_a_size_that_suits() {
        let expected = "preset r2d2 is made for Atari games; use `--preset r2d2 --size tiny` for tasks such as catch";
        assert_eq!(warning("catch", "r2d2", Device::Cuda(0)), expected);
        assert!(warning("pong", "agent57-quick", Device::Cpu).contains("use `--preset agent57 --size cpu`"));
        for (environment, preset) in [("catch", "r2d2-tiny"), ("pong", "ngu-cpu"), ("gym:CartPole-v1", "ngu-tiny")] {
            assert_eq!(warning(environment, preset, Device::Cpu), "");
        }
        assert_eq!(warning("pong", "agent57", Device::Cuda(0)), "");
    }

    #[test]
    fn large_presets_need_a_gpu() {
        for preset in ["paper", "quick"] {
            let slow = format!("preset {preset} takes weeks without a GPU; use `--preset cpu`");
            assert_eq!(warning("pong", preset, Device::Cpu), slow);
            let gym = warning("gym:CartPole-v1", preset, Device::Cpu);
            assert_eq!(gym, format!("{slow} for images or `--preset tiny` for small observations"));
            assert_eq!(warning("pong", preset, Device::Cuda(0)), "");
        }
        for (environment, preset) in [("pong", "cpu"), ("pong", "tiny"), ("gym:CartPole-v1", "tiny")] {
            assert_eq!(warning(environment, preset, Device::Cpu), "");
        }
    }
}
