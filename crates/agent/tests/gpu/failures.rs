//! A GPU that fails or runs out of memory, each in its own process, since the GPU is unusable there afterwards.

use std::process::{Command, Output, exit};

use agent::Random;
use agent::learner::StepOptions;
use agent::{AgentError, Learner, random_batch};
use rand::SeedableRng;
use tch::{Kind, Tensor};

use crate::setup::{GPU, config, screen};

/// Marks the child process, which fails.
const CHILD: &str = "MEME_TEST_FAILING_GPU";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs this test in a child process.
fn in_child(name: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap()
}

/// Asserts that it ended with one message that has all these words.
fn ended_with(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let sentences: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(!sentences.is_empty(), "{said}");
    for sentence in sentences {
        assert!(words.iter().all(|word| sentence.contains(word)), "{sentence}");
    }
    for word in ["panicked", "terminate called", "frame #"] {
        assert!(!said.contains(word), "{said}");
    }
}

fn learner() -> Learner {
    Learner::new(&config(), &screen(), 18, 11, GPU).unwrap()
}

/// The loaded batch was used by two streams, so giving its memory back takes a call that fails: C++ ends the process.
#[test]
fn a_failed_gpu_ends_in_an_error_message() {
    if !is_child() {
        let name = "failures::a_failed_gpu_ends_in_an_error_message";
        return ended_with(&in_child(name), &["the GPU stopped working", "nvidia-smi", "checkpoint"]);
    }
    torch_ext::install_terminate_handler();
    let mut learner = learner();
    let sequences = random_batch(&learner.networks, 7, &[7, 7], &mut Random::seed_from_u64(1));
    let loader = learner.loader().unwrap();
    let mut memory = loader.memory(2, 7).unwrap();
    memory.bytes().unwrap().copy_from_slice(&sequences.observations);
    let loaded = loader.load(&sequences, &mut memory).unwrap();
    learner.step_loaded(&loaded, StepOptions::default()).unwrap();
    // An index out of range fails on the GPU, some time after this call.
    let beyond = Tensor::from_slice(&[1000i64]).to_device(GPU);
    let _ = Tensor::zeros([4], (Kind::Float, GPU)).f_index_select(0, &beyond);
    let error = learner.step_loaded(&loaded, StepOptions::default()).unwrap_err();
    eprintln!("error: {error}");
    drop((loaded, memory, learner));
    exit(1);
}

#[test]
fn running_out_of_memory_is_an_error_and_the_learner_continues() {
    if !is_child() {
        let name = "failures::running_out_of_memory_is_an_error_and_the_learner_continues";
        return ended_with(&in_child(name), &["the GPU is out of memory", "1024.00 GiB", "nvidia-smi"]);
    }
    let mut learner = learner();
    let sequences = random_batch(&learner.networks, 7, &[7, 7], &mut Random::seed_from_u64(1));
    learner.step(&sequences).unwrap();
    let error: AgentError = Tensor::f_empty([1i64 << 40], (Kind::Uint8, GPU)).unwrap_err().into();
    eprintln!("error: {error}");
    learner.step(&sequences).unwrap();
    exit(1);
}
