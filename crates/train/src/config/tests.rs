//! The config as a whole: layers, declarations, presets, round trips and malformed input.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Bound;
use std::path::PathBuf;

use agent::Random;
use config_schema::text::written;
use config_schema::value_at;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use tempfile::{TempDir, tempdir};
use toml::{Table, Value};

use super::*;

fn sources(set: &[&str]) -> Sources {
    Sources { set: set.iter().map(|setting| (*setting).to_owned()).collect(), ..Sources::default() }
}

fn with_preset(name: &str, set: &[&str]) -> Sources {
    Sources { preset: Some(name.to_owned()), ..sources(set) }
}

/// Writes a file for one test.
fn file(directory: &TempDir, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

fn problems(sources: &Sources) -> Vec<String> {
    sources.load().unwrap_err().problems().iter().map(ConfigProblem::to_string).collect()
}

/// Paths of all values in a table; lists are values.
fn leaves(table: &Table, section: &str, paths: &mut Vec<String>) {
    for (key, value) in table {
        let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        match value {
            Value::Table(inner) => leaves(inner, &path, paths),
            _ => paths.push(path),
        }
    }
}

fn value(config: &Config, path: &str) -> Value {
    value_at(&Table::try_from(config).unwrap(), path).unwrap().clone()
}

#[test]
fn every_field_is_declared_once_with_a_description() {
    let mut paths = Vec::new();
    leaves(&Table::try_from(Config::default()).unwrap(), "", &mut paths);
    let declared: Vec<_> = fields().map(|field| field.path.clone()).collect();
    let unique: BTreeSet<_> = declared.iter().cloned().collect();
    assert_eq!(unique.len(), declared.len(), "a field is declared twice");
    assert_eq!(unique, paths.into_iter().collect::<BTreeSet<_>>());
    for section in SECTIONS.iter() {
        for field in &section.fields {
            assert_eq!(field.path, format!("{}.{}", section.path, field.name));
            assert!(field.about.trim().ends_with(['.', ')']), "{}", field.path);
        }
        assert!(section.about.trim().ends_with('.'), "{}", section.path);
    }
}

/// The paper's values, from its tables of hyperparameters.
const PAPER: &str = r#"
    run.frames = 200_000_000
    env = { sticky_probability = 0.0, frame_cap = 108_000, action_repeat = 4, max_side = 0, resize = 0, frame_stack = 1 }
    actors = { environments = 128, environments_per_worker = 2 }
    bandit = { kind = "discounted_ucb", discount = 0.999, bonus = 1.0, epsilon = 0.5 }
    intrinsic = { rnd_scale = 0.5, rnd_clip = 5.0 }
    learner.batch_size = 64
    evaluation.evaluators = 5
    evaluation.refresh = "during"
    evaluation.frame_cap = 108_000
    [replay]
    capacity = 200_000
    shards = 8
    trace = 160
    period = 80
    priority_exponent = 0.6
    importance_exponent = 0.4
    samples_per_insert = 6.0
    online_share = 0.0
    [agent]
    policies = { count = 16, beta_max = 0.1, beta_slope = 8.0, gamma_max = 0.9997, gamma_min = 0.97, discounts = "log_spaced", greedy = "policy", sampled = false }
    returns = { kind = "soft_watkins", lambda = 0.95, kappa = 0.01, temperature = 0.25, bootstrap = "online" }
    optimizer = { kind = "adamw", learning_rate = 0.0003, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.05 }
    intrinsic.action_prediction = { learning_rate = 0.0006, weight_decay = 0.05 }
    intrinsic.rnd.learning_rate = 0.0006
    copies.ema_decay = 0.995
    [agent.loss]
    q_heads = "combined"
    trained_policies = "all"
    cross_mixture = 0.5
    trust_region = true
    functional_regularisation = 0.0
    burn_in = 0
    td_normalisation = true
    sigma_floor = 0.01
    distillation = true
    distillation_epsilon = 0.0001
    kl_bound = 0.5
    priority_max_share = 0.9
    [agent.network]
    policy_input = "heads"
    value_networks = "shared"
    inputs = "all"
    action_embedding = 32
    features = 256
    recurrent = true
    core = 1024
    head_hidden = 1024
    head_layers = 2
    head_skip = true
    intrinsic.embedding = 32
    [agent.network.torso]
    kind = "nfnet"
    stages = [
      { blocks = 2, channels = 64, stride = 1 }, { blocks = 3, channels = 128, stride = 2 },
      { blocks = 4, channels = 128, stride = 2 }, { blocks = 4, channels = 64, stride = 2 },
    ]
    stem = { kernel = 7, stride = 4 }
    stochastic_depth = { rate = 0.25, acting = "never", acting_steps = 100 }
"#;

#[test]
fn defaults_are_the_papers_values() {
    let paper: Table = PAPER.parse().unwrap();
    let defaults = Config::default();
    for field in fields() {
        let (default, paper) = (value(&defaults, &field.path), value_at(&paper, &field.path));
        match field.paper {
            Paper::Default => assert_eq!(Some(&default), paper, "{}", field.path),
            Paper::Other(text) => {
                assert_eq!(paper.map(written).as_deref(), Some(text), "{}", field.path);
                assert_ne!(Some(&default), paper, "{}", field.path);
            }
            Paper::Silent | Paper::Ours => assert_eq!(paper, None, "{}", field.path),
        }
    }
}

#[test]
fn structs_can_hold_every_value_in_range() {
    let defaults = Config::default();
    for field in fields() {
        let extremes: Vec<Value> = match field.kind {
            Kind::Switch => vec![true.into(), false.into()],
            Kind::Integer(low, high) => vec![low.into(), high.into()],
            Kind::IntegerOrNone(low, high) => vec![0.into(), low.into(), high.into()],
            Kind::Number(low, high) => [low, high]
                .into_iter()
                .map(|bound| match bound {
                    Bound::Included(number) => number.into(),
                    Bound::Excluded(number) => ((number + 0.5) / 2.0).into(),
                    Bound::Unbounded => panic!("{} has no bound", field.path),
                })
                .collect(),
            Kind::Choice(words) => words.iter().map(|&(word, _)| word.into()).collect(),
            Kind::Integers { shortest, longest, low, high } => {
                vec![vec![low; shortest].into(), vec![low].into(), vec![high; longest].into()]
            }
            Kind::Rows(longest, columns) => {
                let row = |bound: fn(&config_schema::Column) -> i64| {
                    Value::Table(columns.iter().map(|column| (column.name.to_owned(), bound(column).into())).collect())
                };
                let (low, high) = (row(|column| *column.range.start()), row(|column| *column.range.end()));
                vec![vec![low].into(), vec![high; longest].into()]
            }
        };
        for extreme in extremes {
            let accepted = field.kind.accept(&extreme).unwrap_or_else(|refusal| panic!("{}: {refusal:?}", field.path));
            let setting = format!("{}={}", field.path, written(&accepted));
            // Extreme values may break a rule together with the defaults, but nothing else.
            match sources(&[&setting]).load() {
                Ok(effective) => {
                    assert_eq!(value(&effective.config, &field.path), accepted, "{setting}");
                    assert!(accepted == value(&defaults, &field.path) || effective.config != defaults, "{setting}");
                }
                Err(error) => {
                    for problem in error.problems() {
                        assert!(matches!(problem.fault, ConfigFault::Rule(_)), "{setting}: {problem}");
                    }
                }
            }
        }
    }
}

/// Otherwise a new evaluation would begin with each step, and no actor would ever play.
#[test]
fn evaluators_of_a_lockstep_run_have_to_rest() {
    let lockstep = ["run.lockstep=true", "evaluation.share=1.0"];
    assert!(problems(&sources(&lockstep))[0].contains("evaluation.share is 1, but with run.lockstep"));
    assert!(sources(&[lockstep[0], lockstep[1], "evaluation.evaluators=0"]).load().is_ok());
    assert!(sources(&[lockstep[0]]).load().is_ok());
}

/// Quadratic work would take hours.
#[test]
fn hundreds_of_thousands_of_unknown_keys_are_all_counted() {
    let folder = tempdir().unwrap();
    let text: String = (0..200_000).map(|i| format!("key_{i} = {i}\n")).collect();
    let error = Sources { file: Some(file(&folder, "many.toml", &text)), ..Sources::default() }.load().unwrap_err();
    assert_eq!(error.problems().len(), 200_000);
    assert!(error.problems()[199_999].to_string().contains("line 200000: unknown field key_199999"));
}

#[test]
fn choices_are_the_variants_of_the_enums() {
    for field in fields() {
        let Kind::Choice(words) = field.kind else { continue };
        // Serde lists the variants of an enum when it meets an unknown word.
        let mut value = Value::String("none of them".to_owned());
        for key in field.path.rsplit('.') {
            value = Value::Table(toml::Table::from_iter([(key.to_owned(), value)]));
        }
        let message = Config::deserialize(value).unwrap_err().message().to_owned();
        let listed: BTreeSet<_> = message.split('`').skip(3).step_by(2).collect();
        assert_eq!(listed, words.iter().map(|(word, _)| *word).collect(), "{}: {message}", field.path);
    }
}

#[test]
fn later_layers_override_earlier_ones_and_keep_their_origin() {
    let directory = tempdir().unwrap();
    let file = file(&directory, "mine.toml", "[replay]\ntrace = 30\ncapacity = 7000\n[learner]\nbatch_size = 8\n");
    let all = Sources {
        file: Some(file.clone()),
        ..with_preset("tiny", &["learner.batch_size=4", "run.seed=7", "run.seed=9", "env.action_set=minimal"])
    };
    let effective = all.load().unwrap();
    let config = &effective.config;
    assert_eq!((config.replay.trace, config.replay.period, config.replay.capacity), (30, 10, 7000));
    assert_eq!((config.learner.batch_size, config.run.seed), (4, 9));
    assert_eq!(config.env.action_set, ActionSet::Minimal);
    assert_eq!(
        config.agent,
        Sources { preset: Some("tiny".into()), ..Sources::default() }.load().unwrap().config.agent
    );
    assert_eq!(*effective.origin("replay.trace"), Origin::File { path: file, line: Some(2) });
    assert!(matches!(effective.origin("replay.period"), Origin::Preset { name, .. } if name == "tiny"));
    assert_eq!(*effective.origin("run.seed"), Origin::Set("run.seed=9".into()));
    assert_eq!(*effective.origin("bandit.bonus"), Origin::Default);
    let text = effective.to_toml(Origin::to_string).unwrap();
    assert!(text.contains("seed = 9  # run.seed=9\n"), "{text}");
    assert!(text.contains("bonus = 1.0\n"), "{text}");
    let line = text.lines().find(|line| line.starts_with("trace = ")).unwrap();
    assert!(line.starts_with("trace = 30  # ") && line.ends_with("mine.toml, line 2"), "{line}");
}

#[test]
fn all_problems_of_all_layers_are_reported_at_once() {
    let directory = tempdir().unwrap();
    let text = "colour = 3\n\n[learner]\nbatch_sise = 3\nprefetch = \"two\"\n[replay]\ntrace = 1\nperiod = 200\n\
                shards.x = 1\n[run]\ndevice = \"cdua\"\n";
    let file = file(&directory, "bad.toml", text);
    let name = file.display();
    let found =
        problems(&Sources { file: Some(file.clone()), ..sources(&["lerner.batch_size=3", "agent=4", "replay.trace"]) });
    let expected = [
        format!("{name}, line 1: unknown field colour"),
        format!("{name}, line 4: unknown field learner.batch_sise; did you mean learner.batch_size?"),
        format!("{name}, line 5: learner.prefetch is \"two\" (a string); it must be an integer from 0 to 64"),
        format!("{name}, line 7: replay.trace is 1; it must be an integer from 2 to 65_536"),
        format!("{name}, line 9: unknown field replay.shards.x; did you mean replay.shards?"),
        format!("{name}, line 11: run.device is \"cdua\"; it must be one of auto, cpu, cuda; did you mean cuda?"),
        "lerner.batch_size=3: unknown field lerner.batch_size; did you mean learner.batch_size?".to_owned(),
        "agent=4: agent is a section with the fields policies, returns, loss, optimizer, intrinsic, copies, network; \
         it cannot be 4"
            .to_owned(),
        "replay.trace: expected path=value, for example learner.batch_size=32".to_owned(),
        format!(
            "{name}, line 8: replay.period is 200; it must be below replay.trace, 160: the last observation of a \
             sequence only bootstraps, so some steps would be in no sequence"
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn missing_files_and_presets_are_reported() {
    let directory = tempdir().unwrap();
    let missing = directory.path().join("none.toml");
    assert_eq!(
        problems(&Sources { file: Some(missing.clone()), ..with_preset("papr", &[]) }),
        [
            "preset papr: unknown preset; available: paper, quick, cpu, tiny, r2d2, ngu, agent57; did you mean \
             paper?"
                .to_owned(),
            format!("{}: cannot be read: No such file or directory (os error 2)", missing.display()),
        ]
    );
    let latin = file(&directory, "latin.toml", [b'a', 0xe4, b'\n']);
    assert_eq!(
        problems(&Sources { file: Some(latin.clone()), ..Sources::default() }),
        [format!("{}: cannot be read: it is not UTF-8 text", latin.display())]
    );
    let torn = file(&directory, "torn.toml", "[replay]\ntrace = 3.\nperiod = \n");
    let found = problems(&Sources { file: Some(torn.clone()), ..Sources::default() });
    assert!(
        found.len() == 2 && found[0].starts_with(&format!("{}, line 2: invalid TOML: ", torn.display())),
        "{found:?}"
    );
}

/// Writes a config and reads it again, as a run does.
fn read_back(config: &Config) -> Result<Config, ConfigError> {
    let directory = tempdir().unwrap();
    Config::read(&file(&directory, "config.toml", config.to_toml()?))
}

#[test]
fn config_made_in_code_is_checked_the_same_way() {
    let mut config = Config::default();
    read_back(&config).unwrap();
    config.replay.priority_exponent = f64::NAN;
    config.replay.trace = 1;
    config.learner.batch_size = 0;
    let error = read_back(&config).unwrap_err().to_string();
    for part in [
        "replay.priority_exponent is nan; it must be a number from 0.0 to 1.0",
        "replay.trace is 1;",
        "learner.batch_size is 0;",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    let mut config = Config::default();
    config.run.seed = u64::MAX;
    let error = read_back(&config).unwrap_err().to_string();
    assert!(error.starts_with("the config cannot be written as TOML: "), "{error}");
}

#[test]
fn presets_load_and_hold_only_what_differs_from_the_defaults() {
    for preset in PRESETS {
        with_preset(preset.name, &[]).load().unwrap_or_else(|error| panic!("{}:\n{error}", preset.name));
        for entry in layer::read_text(preset.text).unwrap() {
            let kind = fields().find(|field| field.path == entry.path).unwrap().kind;
            let default = value(&Config::default(), &entry.path);
            assert_ne!(kind.accept(&entry.value).unwrap(), default, "{} {}", preset.name, entry.path);
        }
    }
    assert_eq!(with_preset("paper", &[]).load().unwrap().config, Config::default());
}

/// The paper's agent in other sizes differs only in sizes and time spans; the constants of learning stay the paper's,
/// except for those of `quick`.
#[test]
fn sizes_leave_the_learning_constants_alone() {
    let paper = Config::default();
    for preset in PRESETS.iter().filter(|preset| !AGENTS.contains(&preset.name)) {
        let mut config = with_preset(preset.name, &[]).load().unwrap().config;
        let mut agent = config.agent.clone();
        agent.network = paper.agent.network.clone();
        // Images are averaged down where the network is small.
        config.env.max_side = paper.env.max_side;
        if preset.name == "quick" {
            // As many frames per update from fewer sequences.
            agent.intrinsic.steps = paper.agent.intrinsic.steps;
            // The same share of fewer episodes.
            config.bandit.discount = paper.bandit.discount;
            // What pays in minutes; the preset gives the reasons.
            agent.policies = paper.agent.policies.clone();
            config.env.action_set = paper.env.action_set;
        }
        if ["cpu", "tiny"].contains(&preset.name) {
            // Novelty on the scale of rewards, and the values choose the actions; the presets give the reasons.
            agent.policies.beta_max = paper.agent.policies.beta_max;
            agent.policies.greedy = paper.agent.policies.greedy;
        }
        if preset.name == "tiny" {
            // Episodes have 10 to 100 steps and runs take minutes, so spans in steps or updates are shorter.
            agent.policies.gamma_max = paper.agent.policies.gamma_max;
            agent.optimizer.learning_rate = paper.agent.optimizer.learning_rate;
            agent.intrinsic.steps = paper.agent.intrinsic.steps;
            // Networks without strides learn slowly so that they stay stable.
            agent.intrinsic.action_prediction.learning_rate = paper.agent.intrinsic.action_prediction.learning_rate;
            agent.intrinsic.rnd.learning_rate = paper.agent.intrinsic.rnd.learning_rate;
        }
        // The same holds for the distances between embeddings.
        if preset.name == "tiny" {
            config.intrinsic.kernel.mean_span = paper.intrinsic.kernel.mean_span;
        }
        // How often f is published depends on the number of updates per episode, which is a matter of size.
        config.intrinsic.embedding_every = paper.intrinsic.embedding_every;
        config.intrinsic.embedding_share = paper.intrinsic.embedding_share;
        assert_eq!(agent, paper.agent, "{}", preset.name);
        assert_eq!(
            (config.bandit, config.intrinsic),
            (paper.bandit.clone(), paper.intrinsic.clone()),
            "{}",
            preset.name
        );
        let mixture =
            |replay: &ReplaySection| (replay.priority_exponent, replay.importance_exponent, replay.samples_per_insert);
        assert_eq!(mixture(&config.replay), mixture(&paper.replay), "{}", preset.name);
        let epsilon = |actors: &ActorsConfig| (actors.epsilon_base, actors.epsilon_exponent);
        assert_eq!(epsilon(&config.actors), epsilon(&paper.actors), "{}", preset.name);
        assert_eq!(config.env, paper.env, "{}", preset.name);
    }
}

#[test]
fn configs_directory_holds_exactly_the_presets() {
    let directory = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs"));
    let files: BTreeSet<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(files, PRESETS.iter().map(|preset| preset.name.to_owned()).collect());
}

#[test]
fn config_of_a_run_reads_back_to_the_same_bits() {
    let directory = tempdir().unwrap();
    for preset in PRESETS {
        let config = with_preset(preset.name, &[]).load().unwrap().config;
        fs::write(directory.path().join(CONFIG_FILE), config.to_toml().unwrap()).unwrap();
        assert_eq!(Config::read(directory.path()).unwrap(), config, "{}", preset.name);
        assert_eq!(Config::read(&directory.path().join(CONFIG_FILE)).unwrap(), config, "{}", preset.name);
    }
    let mut random = Random::seed_from_u64(1);
    for _ in 0..200 {
        let mut config = Config::default();
        config.run.seed = u64::from(random.random::<u32>());
        config.bandit.discount = random.random::<f64>();
        config.agent.optimizer.learning_rate = random.random::<f64>() * 10_f64.powi(-random.random_range(0..300));
        config.agent.optimizer.epsilon = f64::MIN_POSITIVE * (1.0 + random.random::<f64>());
        config.agent.policies.gamma_max = 1.0_f64.next_down();
        config.replay.memory_limit_gb = 1.0 + random.random::<f64>() * 1e5;
        config.intrinsic.rnd_clip = 1.0 + random.random::<f64>() * 1e-9;
        fs::write(directory.path().join(CONFIG_FILE), config.to_toml().unwrap()).unwrap();
        let back = Config::read(directory.path()).unwrap();
        assert_eq!(back, config);
        assert_eq!(back.agent.optimizer.epsilon.to_bits(), config.agent.optimizer.epsilon.to_bits());
        assert_eq!(back.to_toml().unwrap(), config.to_toml().unwrap());
    }
}

#[test]
fn file_cut_off_anywhere_is_refused() {
    let directory = tempdir().unwrap();
    let text = with_preset("tiny", &[]).load().unwrap().config.to_toml().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for kept in (0..lines.len()).step_by(7).chain([lines.len() - 1]) {
        let file = file(&directory, CONFIG_FILE, lines[..kept].join("\n").as_bytes());
        let error = Config::read(&file).unwrap_err().to_string();
        let sentence = "it was cut off: agent.network.intrinsic.rnd_output is missing";
        assert_eq!(error, format!("{}: {sentence}", file.display()));
    }
}

#[test]
fn differences_are_listed_field_by_field() {
    let left = with_preset("paper", &[]).load().unwrap().config;
    let right = sources(&["learner.batch_size=32", "env.max_side=84"]).load().unwrap().config;
    assert_eq!(
        differences(&left, &right).unwrap(),
        [
            Difference { path: "env.max_side", left: 0.into(), right: 84.into() },
            Difference { path: "learner.batch_size", left: 64.into(), right: 32.into() },
        ]
    );
    assert_eq!(differences(&left, &left).unwrap(), []);
}

/// Changes a few bytes, words and lines of a text, some to pieces of TOML syntax.
fn mutated(text: &str, random: &mut Random) -> Vec<u8> {
    const PIECES: [&str; 22] = [
        "=",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "\"",
        "'''",
        "\n",
        ".",
        "#",
        "nan",
        "-inf",
        "1e999",
        "0xffffffffffffffff",
        "1979-05-27",
        "true",
        "\u{1F600}",
        "\\u0000",
        "a.b.c = {}",
        "replay.trace = -1\n",
    ];
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.random_range(0..6) {
        let at = random.random_range(0..bytes.len() + 1);
        let end = (at + random.random_range(0..12)).min(bytes.len());
        match random.random_range(0..6) {
            0 => drop(bytes.drain(at..end)),
            1 => drop(bytes.splice(at..at, PIECES[random.random_range(0..PIECES.len())].bytes())),
            2 => drop(bytes.splice(at..end, PIECES[random.random_range(0..PIECES.len())].bytes())),
            3 => {
                let piece = bytes[at..end].to_vec();
                let to = random.random_range(0..bytes.len() + 1);
                drop(bytes.splice(to..to, piece));
            }
            4 if at < bytes.len() => bytes[at] = random.random::<u8>(),
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes
}

#[test]
fn malformed_text_never_panics() {
    let rounds = if std::env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1") { 30_000 } else { 2_000 };
    let directory = tempdir().unwrap();
    let full = Config::default().to_toml().unwrap();
    let mut random = Random::seed_from_u64(7);
    let (mut valid, mut refused) = (0, 0);
    for round in 0..rounds {
        let text = if round % 2 == 0 { &full } else { PRESETS[random.random_range(0..PRESETS.len())].text };
        let bytes = mutated(text, &mut random);
        let setting: String = String::from_utf8_lossy(&bytes)
            .chars()
            .skip(random.random_range(0..40))
            .take(random.random_range(0..60))
            .collect();
        let file = file(&directory, "fuzz.toml", &bytes);
        match (Sources { file: Some(file), ..sources(&[]) }).load() {
            Ok(effective) => {
                valid += 1;
                assert_eq!(read_back(&effective.config).unwrap(), effective.config);
            }
            Err(error) => {
                refused += 1;
                assert!(!error.problems().is_empty());
                for problem in error.problems() {
                    let line = problem.to_string();
                    assert!(!line.contains('\n') && line.chars().count() < 1000, "{line}");
                }
            }
        }
        if let Err(error) = sources(&[&setting]).load() {
            assert!(error.problems().iter().all(|problem| !problem.to_string().contains('\n')), "{setting:?}");
        }
    }
    // Unless both outcomes occur, the mutations are too strong or too weak.
    assert!(valid > rounds / 20 && refused > rounds / 20, "{valid} valid, {refused} refused");
}

#[test]
fn deep_and_huge_texts_are_refused_without_panic() {
    let directory = tempdir().unwrap();
    for text in [
        "[".repeat(100_000),
        format!("x = {}", "[".repeat(100_000)),
        format!("x = {}", "{a=".repeat(50_000)),
        format!("{} = 1", "a.".repeat(50_000) + "a"),
        format!("{} = 1", "k".repeat(1_000_000)),
        format!("replay.trace = \"{}\"", "v".repeat(1_000_000)),
    ] {
        let file = file(&directory, "huge.toml", &text);
        let found = problems(&Sources { file: Some(file), ..Sources::default() });
        assert!(found.iter().all(|line| line.len() < 2000), "{}", &text[..40]);
    }
}
