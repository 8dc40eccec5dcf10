//! What is said where a GPU is asked for and none can be used.

use std::process::Command;

use crate::runs::{Ended, Runs, ended, meme};

/// On a machine without a GPU, whatever this one has.
fn without_gpu(mut command: Command) -> Ended {
    ended(command.env("CUDA_VISIBLE_DEVICES", ""))
}

fn train(runs: &Runs, device: &str) -> Ended {
    without_gpu(runs.train(&["--frames", "60", "--set", &format!("run.device={device}")]))
}

/// What it said last; it must have failed with one sentence.
fn sentence(Ended { status, said, .. }: &Ended) -> String {
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked") && !said.contains("frame #"), "{said}");
    said.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_gpu_that_is_not_there_is_told_before_a_run_begins() {
    let runs = Runs::new();
    let said = sentence(&train(&runs, "cuda"));
    assert!(said.starts_with("meme: run.device is cuda, but "), "{said}");
    assert!(said.contains("`--set run.device=cpu`"), "{said}");
    assert!(!runs.folder().join("run").exists());
    // The name is free for the run that does without.
    assert!(train(&runs, "cpu").status.success());
}

#[test]
fn a_build_for_a_gpu_says_why_auto_takes_the_cpu() {
    let runs = Runs::new();
    let reasons = |device| {
        let Ended { status, said, .. } = train(&runs, device);
        assert!(status.success(), "{said}");
        let reasons = said.lines().filter_map(|line| line.strip_prefix("meme: the networks run on the CPU: "));
        reasons.map(str::to_owned).collect::<Vec<_>>()
    };
    let said = reasons("auto");
    assert_eq!(said.len(), usize::from(cfg!(feature = "cuda")), "{said:?}");
    assert!(said.iter().all(|reason| !reason.is_empty()), "{said:?}");
    // Now it is finished, and nothing runs anywhere.
    assert!(reasons("auto").is_empty());
}

#[test]
fn a_measurement_on_no_gpu_says_how_to_do_without() {
    for part in ["inference", "learner"] {
        let said = sentence(&without_gpu(meme(&["bench", part, "--device", "cuda", "--preset", "tiny"])));
        assert!(said.contains("--device cpu"), "{said}");
    }
}

#[test]
fn there_is_one_gpu_and_it_has_no_number() {
    let said = sentence(&train(&Runs::new(), "cuda:7"));
    assert!(said.contains("run.device") && said.contains("cuda"), "{said}");
}
