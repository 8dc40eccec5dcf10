//! What the next start finds after `kill -9` and after a full disk.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use super::checkpoint::{Checkpoint, CheckpointStore, Checkpoints};
use super::test_support::{child, child_role, names, random_bytes};
use super::{
    ExistingRun, MetricsWriter, OpenedRun, Row, Rows, RunDescription, RunDirectory, RunFiles, TensorBoardWriter,
    durable,
};
use agent::Random;
use rand::{RngExt, SeedableRng};
use tempfile::tempdir;

const DIRECTORY: &str = "MEME_TEST_DIRECTORY";

fn open(root: &Path) -> (RunDirectory, OpenedRun) {
    RunDirectory::open(root, "pong", ExistingRun::Resume, RunDescription::new("pong", "tiny", 1), "seed = 1\n").unwrap()
}

/// Replay of a checkpoint: the frames determine its length and bytes.
fn replay(frames: u64) -> Vec<u8> {
    let mut random = Random::seed_from_u64(frames);
    let length = 1 + random.random_range(0..400_000);
    random_bytes(&mut random, length)
}

fn assert_intact(checkpoint: &Checkpoint) {
    let frames = checkpoint.frames();
    assert_eq!(checkpoint.file_bytes("frames").unwrap(), frames.to_le_bytes());
    assert!(checkpoint.file_bytes("replay").unwrap() == replay(frames));
}

/// A run without an agent: it continues, measures and saves, until it is killed.
fn train(root: &Path) -> ! {
    let (run, _) = open(root);
    let store = CheckpointStore::open(&run.files.checkpoints_directory(), 2).unwrap();
    let checkpoint = store.resume(&mut |sentence| panic!("{sentence}")).unwrap();
    checkpoint.iter().for_each(assert_intact);
    let start = checkpoint.map(|checkpoint| checkpoint.frames());
    let (mut metrics, _) = MetricsWriter::open(&run.files.metrics_file(), start).unwrap();
    let mut events = TensorBoardWriter::create(&run.files.events_directory(), start).unwrap();
    let mut frames = start.unwrap_or(0);
    loop {
        for _ in 0..3 {
            frames += 4;
            let mut row = Row::new(frames);
            row.vector("long", vec![frames as f64; 500]);
            metrics.append(&row).unwrap();
            events.append(&row).unwrap();
        }
        metrics.sync().unwrap();
        let write = move |writer: &mut super::checkpoint::CheckpointWriter| {
            writer.file("frames", |out| out.write_all(&frames.to_le_bytes()))?;
            writer.file("replay", |out| out.write_all(&replay(frames)))
        };
        let saving = store.save_in_background(frames, write).unwrap();
        store
            .save_best(frames, frames as f64, |writer| {
                writer.file("frames", |out| out.write_all(&frames.to_le_bytes()))
            })
            .unwrap();
        saving.finish().unwrap();
        run.note_saved().unwrap();
    }
}

#[test]
fn newest_checkpoint_is_intact_after_every_kill() {
    if child_role().is_some() {
        train(Path::new(&env::var_os(DIRECTORY).unwrap()));
    }
    let scratch = tempdir().unwrap();
    let root = scratch.path();
    let mut random = Random::seed_from_u64(2026);
    let kills = if env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1") { 200 } else { 20 };
    let mut last = None;
    let mut advances = 0;
    for kill in 0..kills {
        let mut command = child(&[], module_path!(), "newest_checkpoint_is_intact_after_every_kill", "train");
        let mut process = command.env(DIRECTORY, root).stdout(Stdio::piped()).spawn().unwrap();
        // The test runner's first line: the run starts now.
        let mut said = BufReader::new(process.stdout.take().unwrap());
        while !{
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            line.starts_with("running")
        } {}
        let checkpoints = Checkpoints::in_directory(&root.join("pong/checkpoints"));
        // Every other kill comes after a save, however slow the machine; the others may hit the start too.
        let deadline = Instant::now() + Duration::from_secs(60);
        while kill % 2 == 0 && checkpoints.list().unwrap().last().copied() <= last && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(random.random_range(0..100_000) as u64));
        assert_eq!(process.try_wait().unwrap(), None, "kill {kill}: the run has ended early");
        process.kill().unwrap();
        process.wait().unwrap();

        let newest = checkpoints.newest_intact(&mut |sentence| panic!("kill {kill}: {sentence}")).unwrap();
        newest.iter().for_each(assert_intact);
        let newest = newest.map(|checkpoint| checkpoint.frames());
        assert!(newest >= last, "kill {kill}: {newest:?} after {last:?}");
        advances += usize::from(newest > last);
        last = newest;
        // Or the next start would miss a checkpoint that never existed.
        if let Ok(run) = RunFiles::find(root, "pong") {
            assert!(last.is_some() || !run.description().unwrap().saved, "kill {kill}");
        }
        if let Some(best) = checkpoints.best().unwrap() {
            assert_eq!(best.file_bytes("frames").unwrap(), best.frames().to_le_bytes());
        }
    }
    // Kills before the first save would prove nothing.
    assert!(advances >= kills / 2, "{advances} of {kills}");

    let (run, opening) = open(root);
    assert_eq!(opening, OpenedRun::Resumed);
    let store = CheckpointStore::open(&run.files.checkpoints_directory(), 2).unwrap();
    let files = names(&run.files.checkpoints_directory());
    assert!(files.iter().all(|name| name == "best" || name.bytes().all(|byte| byte.is_ascii_digit())), "{files:?}");
    let checkpoint = store.resume(&mut |sentence| panic!("{sentence}")).unwrap();
    MetricsWriter::open(&run.files.metrics_file(), checkpoint.map(|checkpoint| checkpoint.frames())).unwrap();
    let rows: Vec<u64> = Rows::open(&run.files.metrics_file()).unwrap().map(|row| row.unwrap().frames).collect();
    let expected: Vec<u64> = (1..=last.unwrap() / 4).map(|step| step * 4).collect();
    assert_eq!(rows, expected, "one row per step up to the checkpoint, none lost, none twice");
}

/// The shell limits the size of files, as if the disk were full.
#[test]
fn full_disk_costs_one_save_and_nothing_else() {
    let test = "full_disk_costs_one_save_and_nothing_else";
    if child_role().is_none() {
        let shell = ["sh", "-c", "trap '' XFSZ; ulimit -f 160; exec \"$0\" \"$@\""];
        let output = child(&shell, module_path!(), test, "full disk").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("all of it was done"), "{said}");
        return;
    }
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 2).unwrap();
    let save = |frames, bytes: usize| {
        store.save(frames, &mut |_| {}, |writer| {
            writer.file("replay", |out| (0..bytes / 1000).try_for_each(|_| out.write_all(&[7; 1000])))
        })
    };
    save(100, 10_000).unwrap();
    // The first fails while it streams, the second when its buffer is flushed at the end.
    for bytes in [5_000_000, 500_000] {
        let error = save(200, bytes).unwrap_err().to_string();
        assert!(error.contains("000000000200.tmp/replay cannot be written: "), "{error}");
        assert_eq!(names(scratch.path()), ["000000000100"]);
        let newest = store.resume(&mut |sentence| panic!("{sentence}")).unwrap().unwrap();
        assert_eq!(newest.file_bytes("replay").unwrap(), [7; 10_000]);
    }
    save(300, 10_000).unwrap();
    assert_eq!(store.checkpoints.list().unwrap(), [100, 300]);

    let config = scratch.path().join("config.toml");
    durable::replace(&config, b"seed = 1\n").unwrap();
    durable::replace(&config, &[b'#'; 1_000_000]).unwrap_err();
    assert_eq!(fs::read(&config).unwrap(), b"seed = 1\n");
    assert!(!names(scratch.path()).iter().any(|name| name.ends_with(".tmp")));

    let path = scratch.path().join("metrics.jsonl");
    let (mut metrics, _) = MetricsWriter::open(&path, None).unwrap();
    let rows = (0..).take_while(|&frames| metrics.append(Row::new(frames).vector("x", [0.1; 300])).is_ok()).count();
    assert!(rows > 20);
    assert!(fs::read(&path).unwrap().ends_with(b"}\n"));
    assert_eq!(Rows::open(&path).unwrap().map(Result::unwrap).count(), rows);
    // A short row still fits in front of the limit.
    metrics.append(&Row::new(rows as u64)).unwrap();
    assert_eq!(Rows::open(&path).unwrap().map(Result::unwrap).count(), rows + 1);
    println!("all of it was done");
}
