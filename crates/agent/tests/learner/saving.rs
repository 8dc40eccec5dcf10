//! Saving, restoring, and weights in and out.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::process::Command;

use agent::learner::ParameterSource;
use agent::weights::import;
use agent::{AgentError, Learner, NetworkParameters, TensorFile};
use tch::Device;

use crate::setup::{self, ACTIONS};

/// Where the child process of the test below finds the saved learner.
const CHILD: &str = "AGENT_TEST_CONTINUE_FROM";

fn continue_steps(learner: &mut Learner, from: u64, to: u64) -> Vec<String> {
    (from..to)
        .map(|step| {
            let batch = setup::batch(learner, step % 3);
            serde_json::to_string(&learner.step(&batch).unwrap()).unwrap()
        })
        .collect()
}

/// Five updates, or two, a new process and three more: the same to the last bit.
#[test]
fn a_saved_learner_continues_bit_for_bit_in_a_new_process() {
    let mut config = setup::config();
    // So that the target is copied on either side of the break.
    config.copies.target_period = 2;
    if let Some(path) = std::env::var_os(CHILD) {
        let file = TensorFile::read_from(&mut BufReader::new(File::open(&path).unwrap())).unwrap();
        let mut learner = Learner::restore(&config, &setup::image(), ACTIONS, &file, Device::Cpu).unwrap();
        assert_eq!(learner.updates(), 2);
        continue_steps(&mut learner, 2, 5);
        let mut out = BufWriter::new(File::create(&path).unwrap());
        learner.save().unwrap().write_to(&mut out).unwrap();
        out.flush().unwrap();
        return;
    }
    let mut whole = setup::learner(&config);
    let reports = continue_steps(&mut whole, 0, 5);

    let mut broken = setup::learner(&config);
    assert_eq!(continue_steps(&mut broken, 0, 2), reports[..2]);
    let path = std::env::temp_dir().join(format!("agent-continue-{}.safetensors", std::process::id()));
    let mut out = BufWriter::new(File::create(&path).unwrap());
    broken.save().unwrap().write_to(&mut out).unwrap();
    out.flush().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "saving::a_saved_learner_continues_bit_for_bit_in_a_new_process"])
        .env(CHILD, &path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let continued = TensorFile::read_from(&mut BufReader::new(File::open(&path).unwrap())).unwrap();
    std::fs::remove_file(&path).unwrap();
    let expected = whole.save().unwrap();
    assert!(continued.metadata == expected.metadata, "{:?}\n{:?}", continued.metadata, expected.metadata);
    for (name, tensor) in &expected.tensors {
        assert!(continued.tensors[name] == *tensor, "{name} differs");
    }
    assert_eq!(continued, expected);
    // And it was not the identity: the child did move on.
    assert_ne!(
        continued.tensors["online.torso.stem.weight"],
        broken.save().unwrap().tensors["online.torso.stem.weight"]
    );
}

#[test]
fn updates_depend_on_the_seed_alone() {
    let config = setup::config();
    let run = |seed| {
        let mut learner = Learner::new(&config, &setup::image(), ACTIONS, seed, Device::Cpu).unwrap();
        continue_steps(&mut learner, 0, 4)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn refuses_states_of_other_networks_and_damaged_ones() {
    let config = setup::config();
    let state = setup::learner(&config).save().unwrap();
    let restore = |config: &agent::AgentConfig, file: &TensorFile| {
        Learner::restore(config, &setup::image(), ACTIONS, file, Device::Cpu).unwrap_err().to_string()
    };
    assert!(restore(&config, &TensorFile::default()).contains("it holds no learner"));
    let mut other = config.clone();
    other.network.core = 11;
    let error = restore(&other, &state);
    assert!(error.contains("online.lstm.weight_hh is F32 [40, 10], not F32 [44, 11]"), "{error}");
    let mut other = config.clone();
    other.loss.q_heads = agent::config::QHeads::Separate;
    assert!(restore(&other, &state).contains("TD scales"));
    let mut damaged = state.clone();
    damaged.metadata.insert("learner".to_owned(), "{\"version\": 1}".to_owned());
    assert!(restore(&config, &damaged).starts_with("not a valid learner state"));
    let mut newer = state;
    let numbers = newer.metadata["learner"].replace("\"version\":1", "\"version\":9");
    newer.metadata.insert("learner".to_owned(), numbers);
    assert!(restore(&config, &newer).contains("version 9"));
}

#[test]
fn names_all_mismatched_weights_and_copies_none() {
    let config = setup::config();
    let learner = setup::learner(&config);
    let mut file = learner.weights(ParameterSource::Online).unwrap();
    let mut parameters = NetworkParameters::zeros(learner.networks(), Device::Cpu).unwrap();
    let mut load = |file: &TensorFile| import(file, &mut parameters.sets_mut().map(|set| ("", set)));
    load(&file).unwrap();

    let stem = file.tensors.remove("torso.stem.gain").unwrap();
    file.tensors.insert("torso.extra".to_owned(), stem.clone());
    file.tensors.insert("heads.policy.output.bias".to_owned(), stem);
    let error = load(&file).unwrap_err();
    let AgentError::Weights(problems) = &error else { panic!("{error}") };
    assert_eq!(problems.len(), 3, "{error}");
    let sentence = error.to_string();
    for part in [
        "torso.stem.gain is missing",
        "heads.policy.output.bias is F32 [4], not F32 [16]",
        "torso.extra is not part of the network",
    ] {
        assert!(sentence.contains(part), "{sentence}");
    }
    let whole = learner.parameters(ParameterSource::Online).unwrap();
    for (loaded, set) in parameters.sets().into_iter().zip(whole.sets()) {
        assert_eq!(loaded.flat(), set.flat());
    }
}

/// EMA and target start as copies; one moves slowly, the other jumps.
#[test]
fn ema_and_target_follow_the_online_parameters() {
    let mut config = setup::config();
    config.copies.target_period = 3;
    config.copies.ema_decay = 0.9;
    let mut learner = setup::learner(&config);
    let get = |learner: &Learner, copy: &str| -> Vec<f32> {
        let name = format!("{copy}.heads.policy.output.weight");
        learner.save().unwrap().tensors[&name].tensor().unwrap().reshape([-1]).try_into().unwrap()
    };
    let start = get(&learner, "online");
    let mut ema = start.clone();
    assert!(get(&learner, "ema") == start && get(&learner, "target") == start);
    for update in 1..=4 {
        learner.step(&setup::batch(&learner, update)).unwrap();
        let online = get(&learner, "online");
        ema.iter_mut().zip(&online).for_each(|(e, o)| *e = 0.9 * *e + 0.1 * o);
        for (found, expected) in get(&learner, "ema").iter().zip(&ema) {
            assert!((found - expected).abs() < 1e-6);
        }
        assert_eq!(get(&learner, "target") == online, update == 3);
        assert_eq!(get(&learner, "target") == start, update < 3);
    }
}
