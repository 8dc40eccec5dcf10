//! `docs/metrics.md` lists every metric that a run writes, and no other.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use support::{config, files, train};
use tempfile::tempdir;
use train::run::Rows;

/// Returns the names in the first column of the page's tables.
fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = fs::read_to_string(path).unwrap();
    let named = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    named.map(|(name, _)| name.to_owned()).collect()
}

fn written(root: &Path, name: &str) -> BTreeSet<String> {
    let rows = Rows::open(&files(root, name).metrics_file()).unwrap();
    rows.flat_map(|row| row.unwrap().values.into_keys()).collect()
}

#[test]
fn documented_and_written_metrics_are_the_same() {
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    train(root, "lockstep", "catch", &config(&["run.lockstep=true", "run.frames=300"]));
    train(root, "threads", "catch", &config(&["run.frames=300", "metrics.interval_seconds=0.02"]));
    let (lockstep, threads) = (written(root, "lockstep"), written(root, "threads"));
    // Lockstep leaves out what depends on the clock.
    let by_the_clock: Vec<&String> = threads.difference(&lockstep).filter(|name| !name.starts_with("time/")).collect();
    let memory = ["memory/process", "memory/replay", "memory/workers"];
    let speed = ["replay/bytes_per_step", "speed/frames_per_second", "speed/seconds", "speed/updates_per_second"];
    let expected: Vec<&str> = memory.into_iter().chain(speed).collect();
    assert_eq!(by_the_clock, expected);
    let settings = ["run.lockstep=true", "run.frames=1600", "env.ram=[3, 42, 43]", "env.frame_cap=100"];
    train(root, "positions", "montezuma_revenge", &config(&settings));
    let positions = written(root, "positions");
    let of_positions: Vec<&String> = positions.difference(&lockstep).collect();
    assert_eq!(of_positions, ["actor/episode_positions", "actor/positions", "actor/positions_in_first_area"]);
    let (written, documented) = (&(&lockstep | &threads) | &positions, documented());
    assert_eq!(&written - &documented, BTreeSet::new(), "written, but not in docs/metrics.md");
    assert_eq!(&documented - &written, BTreeSet::new(), "in docs/metrics.md, but not written");
}
