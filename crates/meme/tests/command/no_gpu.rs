//! Messages when a GPU is requested and none can be used.

use std::path::Path;
use std::process::Command;

use crate::runs::{Ended, Runs, ended, meme};

/// Runs a command as on a machine without a GPU.
fn without_gpu(mut command: Command) -> Ended {
    ended(command.env("CUDA_VISIBLE_DEVICES", ""))
}

fn train(runs: &Runs, device: &str) -> Ended {
    without_gpu(runs.train(&["--frames", "60", "--set", &format!("run.device={device}")]))
}

/// The last message of a command that must fail without a panic.
fn sentence(Ended { status, said, .. }: &Ended) -> String {
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked") && !said.contains("frame #"), "{said}");
    said.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn missing_gpu_is_reported_before_a_run_starts() {
    let runs = Runs::new();
    let said = sentence(&train(&runs, "cuda"));
    assert!(said.starts_with("error: run.device is cuda, but "), "{said}");
    assert!(said.contains("`--set run.device=cpu`"), "{said}");
    assert!(!runs.directory().join("run").exists());
    // The name is free for a run on the CPU.
    assert!(train(&runs, "cpu").status.success());
}

#[test]
fn says_why_auto_uses_the_cpu_where_there_is_a_driver() {
    let runs = Runs::new();
    let reasons = |device| {
        let Ended { status, said, .. } = train(&runs, device);
        assert!(status.success(), "{said}");
        let reasons = said.lines().filter_map(|line| line.strip_prefix("warning: the networks run on the CPU: "));
        reasons.map(str::to_owned).collect::<Vec<_>>()
    };
    let said = reasons("auto");
    // A driver's library without its device is possible, a device without a library is not.
    let device = Path::new("/dev/nvidiactl").exists();
    assert!(said.len() == 1 || said.is_empty() && !device, "{said:?}");
    assert!(said.iter().all(|reason| !reason.is_empty()), "{said:?}");
    // A finished run starts no networks.
    assert!(reasons("auto").is_empty());
}

#[test]
fn benchmark_without_gpu_suggests_the_cpu() {
    for part in ["inference", "learner"] {
        let said = sentence(&without_gpu(meme(&["bench", part, "--device", "cuda", "--preset", "tiny"])));
        assert!(said.contains("--device cpu"), "{said}");
    }
}

#[test]
fn device_with_an_index_is_rejected() {
    let said = sentence(&train(&Runs::new(), "cuda:7"));
    assert!(said.contains("run.device") && said.contains("cuda"), "{said}");
}
