//! The config as a whole: layers, completeness of the table, presets, the page, and texts that make no sense.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Bound;
use std::path::PathBuf;

use agent::config::NetworkPreset;
use serde::Deserialize;
use toml::Value;

use super::text::written;
use super::*;

fn sources(set: &[&str]) -> Sources {
    Sources { set: set.iter().map(|setting| (*setting).to_owned()).collect(), ..Sources::default() }
}

fn with_preset(name: &str, set: &[&str]) -> Sources {
    Sources { preset: Some(name.to_owned()), ..sources(set) }
}

/// A directory of this test's own, gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("meme-config-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn problems(sources: &Sources) -> Vec<String> {
    sources.load().unwrap_err().problems().iter().map(Problem::to_string).collect()
}

/// Paths of all values in a table; lists are values.
fn leaves(table: &toml::Table, section: &str, paths: &mut Vec<String>) {
    for (key, value) in table {
        let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        match value {
            Value::Table(inner) => leaves(inner, &path, paths),
            _ => paths.push(path),
        }
    }
}

#[test]
fn every_field_has_one_entry_and_every_entry_a_field() {
    // A field that may be absent is present in this one.
    let mut config = Config::default();
    config.agent.network.max_side = Some(84);
    let mut paths = Vec::new();
    leaves(&toml::Table::try_from(&config).unwrap(), "", &mut paths);
    let entries: Vec<_> = fields().map(|field| field.path.to_owned()).collect();
    let unique: BTreeSet<_> = entries.iter().cloned().collect();
    assert_eq!(unique.len(), entries.len(), "an entry stands twice");
    assert_eq!(unique, paths.into_iter().collect::<BTreeSet<_>>());
    for section in SECTIONS {
        for field in section.fields {
            assert_eq!(field.path, format!("{}.{}", section.path, field.key()));
            assert!(field.meaning.trim().ends_with('.'), "{}", field.path);
        }
        assert!(section.about.trim().ends_with('.'), "{}", section.path);
    }
}

#[test]
fn the_defaults_are_what_the_paper_says() {
    let defaults = Config::default().values().unwrap();
    for field in fields() {
        let default = written(&defaults[field.path]);
        match field.paper {
            Paper::Says(value) => assert_eq!(default, value, "{}", field.path),
            Paper::Differs(value) => assert_ne!(default, value, "{}", field.path),
            Paper::Silent | Paper::Ours => (),
        }
    }
}

#[test]
fn the_structs_can_hold_all_that_the_kinds_allow() {
    let defaults = Config::default();
    for field in fields() {
        let extremes: Vec<Value> = match field.kind {
            Kind::Switch => vec![true.into(), false.into()],
            Kind::Whole(low, high) => vec![low.into(), high.into()],
            Kind::WholeOrNone(low, high) => vec![0.into(), low.into(), high.into()],
            Kind::Number(low, high) => [low, high]
                .into_iter()
                .map(|bound| match bound {
                    Bound::Included(number) => number.into(),
                    Bound::Excluded(number) => ((number + 0.5) / 2.0).into(),
                    Bound::Unbounded => panic!("{} has no bound", field.path),
                })
                .collect(),
            Kind::Choice(words) => words.iter().map(|&word| word.into()).collect(),
            Kind::Wholes(longest, low, high) => vec![vec![low].into(), vec![high; longest].into()],
            Kind::WholesOrNone(longest, low, high) => {
                vec![Value::Array(Vec::new()), vec![low].into(), vec![high; longest].into()]
            }
            Kind::Tables(longest, columns) => {
                let table = |value: fn(&Column) -> i64| {
                    let cells = columns.iter().map(|column| (column.key.to_owned(), value(column).into()));
                    Value::Table(cells.collect())
                };
                vec![vec![table(|column| column.low)].into(), vec![table(|column| column.high); longest].into()]
            }
        };
        for value in extremes {
            let accepted = field.kind.accept(&value).unwrap_or_else(|refusal| panic!("{}: {refusal:?}", field.path));
            let setting = format!("{}={}", field.path, written(&accepted));
            // Extreme values may be impossible together with the defaults, but nothing else.
            match sources(&[&setting]).load() {
                Ok(effective) => {
                    assert_eq!(effective.config.values().unwrap()[field.path], accepted, "{setting}");
                    assert!(
                        accepted == defaults.values().unwrap()[field.path] || effective.config != defaults,
                        "{setting}"
                    );
                }
                Err(error) => {
                    for problem in error.problems() {
                        assert!(matches!(problem.fault, Fault::Impossible { .. }), "{setting}: {problem}");
                        assert_ne!(problem.origin, Origin::Code, "{setting}: {problem}");
                    }
                }
            }
        }
    }
}

#[test]
fn choices_are_all_that_the_enums_have() {
    for field in fields() {
        let Kind::Choice(words) = field.kind else { continue };
        // Serde lists the variants of an enum when it meets a word that is none.
        let mut value = Value::String("none of them".to_owned());
        for key in field.path.rsplit('.') {
            value = Value::Table(toml::Table::from_iter([(key.to_owned(), value)]));
        }
        let message = Config::deserialize(value).unwrap_err().message().to_owned();
        let listed: BTreeSet<_> = message.split('`').skip(3).step_by(2).collect();
        assert_eq!(listed, words.iter().copied().collect(), "{}: {message}", field.path);
    }
}

#[test]
fn later_layers_count_and_say_where_they_were_written() {
    let folder = Folder::new("layers");
    let file = folder.file("mine.toml", "[replay]\ntrace = 30\ncapacity = 7000\n[learner]\nbatch_size = 8\n");
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
    let text = effective.to_toml().unwrap();
    assert!(text.contains("seed = 9  # --set run.seed=9\n"), "{text}");
    assert!(text.contains("bonus = 1.0\n"), "{text}");
    let line = text.lines().find(|line| line.starts_with("trace = ")).unwrap();
    assert!(line.starts_with("trace = 30  # ") && line.ends_with("mine.toml, line 2"), "{line}");
}

#[test]
fn all_problems_of_all_layers_are_listed_at_once() {
    let folder = Folder::new("problems");
    let text = "colour = 3\n\n[learner]\nbatch_sise = 3\nprefetch = \"two\"\n[replay]\ntrace = 1\nperiod = 200\n\
                shards.x = 1\n[run]\ndevice = \"cdua\"\n";
    let file = folder.file("bad.toml", text);
    let name = file.display();
    let found =
        problems(&Sources { file: Some(file.clone()), ..sources(&["lerner.batch_size=3", "agent=4", "replay.trace"]) });
    let expected = [
        format!("{name}, line 1: there is no field colour"),
        format!("{name}, line 4: there is no field learner.batch_sise; did you mean learner.batch_size?"),
        format!("{name}, line 5: learner.prefetch must be a whole number from 0 to 64, not \"two\" (text)"),
        format!("{name}, line 7: replay.trace is 1; it must be a whole number from 2 to 65_536"),
        format!("{name}, line 9: there is no field replay.shards.x: replay.shards is a whole number from 1 to 1024"),
        format!("{name}, line 11: run.device is \"cdua\"; it must be one of auto, cpu, cuda; did you mean cuda?"),
        "--set lerner.batch_size=3: there is no field lerner.batch_size; did you mean learner.batch_size?".to_owned(),
        "--set agent=4: agent is a section with fields of its own (policies, returns, loss, optimizer, intrinsic, \
         copies, network), and 4 was given"
            .to_owned(),
        "--set replay.trace: must be written path=value, for instance learner.batch_size=32".to_owned(),
        format!(
            "{name}, line 8: replay.period is 200; it must be below replay.trace, 160: the last observation of a \
             sequence only bootstraps, so some steps would be in no sequence"
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn files_and_presets_that_are_not_there_are_told() {
    let folder = Folder::new("missing");
    let missing = folder.0.join("none.toml");
    assert_eq!(
        problems(&Sources { file: Some(missing.clone()), ..with_preset("papr", &[]) }),
        [
            "preset papr: there is no such preset; there are paper, quick, desktop, cpu, tiny; did you mean paper?"
                .to_owned(),
            format!("{}: can't be read: No such file or directory (os error 2)", missing.display()),
        ]
    );
    let latin = folder.file("latin.toml", [b'a', 0xe4, b'\n']);
    assert_eq!(
        problems(&Sources { file: Some(latin.clone()), ..Sources::default() }),
        [format!("{}: can't be read: it is not UTF-8 text", latin.display())]
    );
    let torn = folder.file("torn.toml", "[replay]\ntrace = 3.\nperiod = \n");
    let found = problems(&Sources { file: Some(torn.clone()), ..Sources::default() });
    assert!(found.len() == 2 && found[0].starts_with(&format!("{}, line 2: not TOML: ", torn.display())), "{found:?}");
}

#[test]
fn a_config_made_in_code_is_checked_the_same_way() {
    let mut config = Config::default();
    config.validate().unwrap();
    config.replay.priority_exponent = f64::NAN;
    config.replay.trace = 1;
    config.learner.batch_size = 0;
    let error = config.validate().unwrap_err().to_string();
    for part in [
        "config: replay.priority_exponent is nan; it must be a number from 0.0 to 1.0",
        "config: replay.trace is 1;",
        "config: learner.batch_size is 0;",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    let mut config = Config::default();
    config.run.seed = u64::MAX;
    let error = config.validate().unwrap_err().to_string();
    assert!(error.starts_with("the config can't be written as TOML: "), "{error}");
}

#[test]
fn presets_load_and_hold_only_what_differs() {
    let defaults = Config::default().values().unwrap();
    for preset in PRESETS {
        with_preset(preset.name, &[]).load().unwrap_or_else(|error| panic!("{}:\n{error}", preset.name));
        for entry in layer::read_text(preset.text).unwrap() {
            let kind = fields().find(|field| field.path == entry.path).unwrap().kind;
            assert_ne!(
                kind.accept(&entry.value).unwrap(),
                defaults[entry.path.as_str()],
                "{} {}",
                preset.name,
                entry.path
            );
        }
    }
    assert_eq!(with_preset("paper", &[]).load().unwrap().config, Config::default());
}

#[test]
fn presets_have_the_networks_of_the_agent_crate() {
    for (name, network) in
        [("paper", NetworkPreset::Paper), ("desktop", NetworkPreset::Desktop), ("tiny", NetworkPreset::Tiny)]
    {
        assert_eq!(with_preset(name, &[]).load().unwrap().config.agent.network, network.network(), "{name}");
    }
}

/// Presets change sizes and spans of time only: what the agent learns from and towards stays the paper's.
#[test]
fn presets_leave_the_learning_constants_alone() {
    let paper = Config::default();
    for preset in PRESETS {
        let mut config = with_preset(preset.name, &[]).load().unwrap().config;
        let mut agent = config.agent.clone();
        agent.network = paper.agent.network.clone();
        if preset.name == "quick" {
            // As many frames an update from fewer sequences.
            agent.intrinsic.steps = paper.agent.intrinsic.steps;
            // A memory for as large a part of fewer episodes.
            config.bandit.discount = paper.bandit.discount;
        }
        if preset.name == "tiny" {
            // A run of minutes over episodes of 10 to 100 steps: what counts in steps or updates is shorter with it.
            agent.policies.gamma_max = paper.agent.policies.gamma_max;
            agent.optimizer.learning_rate = paper.agent.optimizer.learning_rate;
            agent.intrinsic.steps = paper.agent.intrinsic.steps;
            // Networks without strides hold still by learning slowly.
            agent.intrinsic.action_prediction.learning_rate = paper.agent.intrinsic.action_prediction.learning_rate;
            agent.intrinsic.rnd.learning_rate = paper.agent.intrinsic.rnd.learning_rate;
        }
        // And so does what f's distances are compared with.
        if preset.name == "tiny" {
            config.intrinsic.kernel.mean_span = paper.intrinsic.kernel.mean_span;
        }
        // How often f moves follows from how many updates an episode spans: a matter of size.
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
            |replay: &ReplayConfig| (replay.priority_exponent, replay.importance_exponent, replay.samples_per_insert);
        assert_eq!(mixture(&config.replay), mixture(&paper.replay), "{}", preset.name);
        let epsilon = |actors: &ActorsConfig| (actors.epsilon_base, actors.epsilon_exponent);
        assert_eq!(epsilon(&config.actors), epsilon(&paper.actors), "{}", preset.name);
        assert_eq!(config.env, paper.env, "{}", preset.name);
    }
}

#[test]
fn the_folder_holds_exactly_the_presets() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs"));
    let files: BTreeSet<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(files, PRESETS.iter().map(|preset| preset.name.to_owned()).collect());
}

#[test]
fn the_page_is_the_committed_one() {
    let committed = include_str!("../../../../docs/config.md");
    assert!(committed == page().unwrap(), "docs/config.md is out of date: run `meme config doc > docs/config.md`");
}

/// Small, fast and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn share(&mut self) -> f64 {
        self.next() as f64 / (1_u64 << 48) as f64
    }
}

#[test]
fn a_run_directory_gives_back_the_same_bits() {
    let folder = Folder::new("round-trip");
    for preset in PRESETS {
        let config = with_preset(preset.name, &[]).load().unwrap().config;
        fs::write(folder.0.join(CONFIG_FILE), config.to_toml().unwrap()).unwrap();
        assert_eq!(Config::read(&folder.0).unwrap(), config, "{}", preset.name);
        assert_eq!(Config::read(&folder.0.join(CONFIG_FILE)).unwrap(), config, "{}", preset.name);
    }
    let mut random = Random(1);
    for _ in 0..200 {
        let mut config = Config::default();
        config.run.seed = random.next() & 0xffff_ffff;
        config.bandit.discount = random.share();
        config.agent.optimizer.learning_rate = random.share() * 10_f64.powi(-(random.below(300) as i32));
        config.agent.optimizer.epsilon = f64::MIN_POSITIVE * (1.0 + random.share());
        config.agent.policies.gamma_max = 1.0_f64.next_down();
        config.replay.memory_limit_gb = 1.0 + random.share() * 1e5;
        config.intrinsic.rnd_clip = 1.0 + random.share() * 1e-9;
        fs::write(folder.0.join(CONFIG_FILE), config.to_toml().unwrap()).unwrap();
        let back = Config::read(&folder.0).unwrap();
        assert_eq!(back, config);
        assert_eq!(back.agent.optimizer.epsilon.to_bits(), config.agent.optimizer.epsilon.to_bits());
        assert_eq!(back.to_toml().unwrap(), config.to_toml().unwrap());
    }
}

#[test]
fn a_file_that_was_cut_off_is_refused_wherever_that_was() {
    let folder = Folder::new("cut-off");
    let text = with_preset("tiny", &[]).load().unwrap().config.to_toml().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for kept in (0..lines.len()).step_by(7).chain([lines.len() - 1]) {
        let file = folder.file(CONFIG_FILE, lines[..kept].join("\n").as_bytes());
        let error = Config::read(&file).unwrap_err().to_string();
        let sentence = "it ends before agent.network.intrinsic.rnd_output, so it was cut off";
        assert_eq!(error, format!("{}: {sentence}", file.display()));
    }
}

#[test]
fn differences_are_told_field_by_field() {
    let left = with_preset("paper", &[]).load().unwrap().config;
    let right = sources(&["learner.batch_size=32", "agent.network.max_side=84"]).load().unwrap().config;
    assert_eq!(
        differences(&left, &right).unwrap(),
        [
            Difference { path: "learner.batch_size", left: 64.into(), right: 32.into() },
            Difference { path: "agent.network.max_side", left: 0.into(), right: 84.into() },
        ]
    );
    assert_eq!(differences(&left, &left).unwrap(), []);
}

/// Changes a few places of a text: bytes, words and lines, its own or ones that TOML gives a meaning to.
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
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(12)).min(bytes.len());
        match random.below(6) {
            0 => drop(bytes.drain(at..end)),
            1 => drop(bytes.splice(at..at, PIECES[random.below(PIECES.len())].bytes())),
            2 => drop(bytes.splice(at..end, PIECES[random.below(PIECES.len())].bytes())),
            3 => {
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                drop(bytes.splice(to..to, piece));
            }
            4 if at < bytes.len() => bytes[at] = random.next() as u8,
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes
}

#[test]
fn no_text_makes_it_panic() {
    let rounds = if std::env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1") { 30_000 } else { 2_000 };
    let folder = Folder::new("fuzz");
    let full = Config::default().to_toml().unwrap();
    let mut random = Random(7);
    let (mut valid, mut refused) = (0, 0);
    for round in 0..rounds {
        let text = if round % 2 == 0 { &full } else { PRESETS[random.below(PRESETS.len())].text };
        let bytes = mutated(text, &mut random);
        let setting: String =
            String::from_utf8_lossy(&bytes).chars().skip(random.below(40)).take(random.below(60)).collect();
        let file = folder.file("fuzz.toml", &bytes);
        match (Sources { file: Some(file), ..sources(&[]) }).load() {
            Ok(effective) => {
                valid += 1;
                effective.config.validate().unwrap();
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
    // Both sides of the check must have been met, or the mutations are too strong or too weak.
    assert!(valid > rounds / 20 && refused > rounds / 20, "{valid} valid, {refused} refused");
}

#[test]
fn deep_and_huge_texts_are_refused_without_a_panic() {
    let folder = Folder::new("huge");
    for text in [
        "[".repeat(100_000),
        format!("x = {}", "[".repeat(100_000)),
        format!("x = {}", "{a=".repeat(50_000)),
        format!("{} = 1", "a.".repeat(50_000) + "a"),
        format!("{} = 1", "k".repeat(1_000_000)),
        format!("replay.trace = \"{}\"", "v".repeat(1_000_000)),
    ] {
        let file = folder.file("huge.toml", &text);
        let found = problems(&Sources { file: Some(file), ..Sources::default() });
        assert!(found.iter().all(|line| line.len() < 2000), "{}", &text[..40]);
    }
}
