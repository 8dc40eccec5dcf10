//! Checkpoints and directories of them: what is read is what was written, or nothing is.

mod damage;

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use agent::tensor_file::{HostTensor, SafeTensors};
use tch::kind::FLOAT_CPU;

use super::*;
use crate::run::test_support::{names, random_bytes};
use agent::Random;
use rand::SeedableRng;
use tempfile::tempdir;

/// Files whose bytes follow from the frame count.
fn files(frames: u64) -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random::seed_from_u64(frames);
    vec![
        ("networks", random_bytes(&mut random, 300)),
        ("empty", Vec::new()),
        ("replay", random_bytes(&mut random, 700)),
    ]
}

fn save(store: &CheckpointStore, frames: u64) -> SavedCheckpoint {
    store.save(frames, &mut |_| {}, |writer| write_files(writer, frames)).unwrap()
}

fn write_files(writer: &mut CheckpointWriter, frames: u64) -> Result<(), CheckpointError> {
    files(frames).iter().try_for_each(|(name, bytes)| write_bytes(writer, name, bytes))
}

fn write_bytes(writer: &mut CheckpointWriter, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
    writer.file(name, |out| out.write_all(bytes))
}

fn assert_intact(checkpoint: &Checkpoint, frames: u64) {
    assert_eq!(checkpoint.frames(), frames);
    let read: Vec<_> =
        checkpoint.file_names().map(|name| (name.to_owned(), checkpoint.file_bytes(name).unwrap())).collect();
    let written: Vec<_> = files(frames).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    assert_eq!(read, written);
}

/// The newest one, and what was said on the way.
fn resume(store: &CheckpointStore) -> (Option<u64>, Vec<String>) {
    let mut said = Vec::new();
    let checkpoint = store.resume(&mut |warning| said.push(warning.to_owned())).unwrap();
    if let Some(checkpoint) = &checkpoint {
        assert_intact(checkpoint, checkpoint.frames());
    }
    (checkpoint.map(|checkpoint| checkpoint.frames()), said)
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn files_come_back_in_order_and_by_name() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 2).unwrap();
    let saved = save(&store, 4_000_000);
    assert_eq!(names(scratch.path()), ["000004000000"]);
    assert_eq!(names(&saved.path), ["empty", "manifest.json", "networks", "replay"]);
    let sizes = names(&saved.path).iter().map(|name| fs::metadata(saved.path.join(name)).unwrap().len()).sum::<u64>();
    assert_eq!(saved.bytes, sizes);
    let checkpoint = store.checkpoints.at(4_000_000).unwrap();
    assert_intact(&checkpoint, 4_000_000);
    assert_eq!(checkpoint.score(), None);

    // Two readers at once, one of them slow, while the checkpoint is removed.
    fs::remove_dir_all(&saved.path).unwrap();
    let (mut networks, mut replay) = (checkpoint.file("networks").unwrap(), checkpoint.file("replay").unwrap());
    let mut first = [0; 100];
    networks.read_exact(&mut first).unwrap();
    let mut whole = Vec::new();
    replay.read_to_end(&mut whole).unwrap();
    assert_eq!(whole, files(4_000_000)[2].1);
    assert_eq!(first, files(4_000_000)[0].1[..100]);

    let error = checkpoint.file("bandit").map(drop).unwrap_err().to_string();
    assert!(error.ends_with("has no bandit, only networks, empty, replay"), "{error}");
}

#[test]
fn tensors_open_with_any_safetensors_reader() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    let tensor = |shape: &[i64]| HostTensor::from_tensor(&tch::Tensor::ones(shape, FLOAT_CPU)).unwrap();
    let tensors = [("online.a.weight".to_owned(), tensor(&[2, 3])), ("online.a.bias".to_owned(), tensor(&[3]))].into();
    let path = store.save(1, &mut |_| {}, |writer| writer.tensors("weights.safetensors", &tensors)).unwrap().path;
    let bytes = fs::read(path.join("weights.safetensors")).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(read.tensor("online.a.weight").unwrap().shape(), [2, 3]);
    assert_eq!(read.tensor("online.a.bias").unwrap().data(), [1.0_f32; 3].map(f32::to_le_bytes).concat());
    assert_eq!(store.checkpoints.at(1).unwrap().file_bytes("weights.safetensors").unwrap(), bytes);
}

#[test]
fn large_files_are_streamed_with_progress() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    let block = random_bytes(&mut Random::seed_from_u64(9), 100_003);
    let mut reported = Vec::new();
    let saved = store.save(7, &mut |bytes| reported.push(bytes), |writer| {
        write_bytes(writer, "small", b"x")?;
        writer.file("replay", |out| (0..300).try_for_each(|_| out.write_all(&block)))
    });
    saved.unwrap();
    assert_eq!((reported[0], *reported.last().unwrap()), (1, 1 + 300 * 100_003));
    assert_eq!(reported.len(), 2 + 3, "{reported:?}");
    assert!(reported.is_sorted());

    let checkpoint = store.checkpoints.at(7).unwrap();
    let mut reader = checkpoint.file("replay").unwrap();
    let mut read = vec![0; block.len()];
    for _ in 0..300 {
        reader.read_exact(&mut read).unwrap();
        assert!(read == block);
    }
    assert_eq!(reader.read(&mut read).unwrap(), 0);
}

/// Saves on a disk that is full while it holds more than `room` checkpoints.
fn save_on_small_disk(store: &CheckpointStore, frames: u64, room: usize) -> Result<SavedCheckpoint, CheckpointError> {
    store.save(frames, &mut |_| {}, |writer| {
        if store.checkpoints.list()?.len() > room {
            let full = io::Error::from(io::ErrorKind::StorageFull);
            return Err(FileError { done: "written", path: PathBuf::from("x"), cause: full }.into());
        }
        write_files(writer, frames)
    })
}

#[test]
fn older_checkpoints_make_room_on_a_full_disk() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    let saved = [100, 200, 300].map(|frames| save(&store, frames));
    assert!(saved.iter().all(|saved| saved.made_room.is_empty()));
    let [oldest, older, _] = saved.map(|saved| saved.path);
    let saved = save_on_small_disk(&store, 400, 1).unwrap();
    assert_eq!(saved.made_room, [oldest, older]);
    assert_eq!(store.checkpoints.list().unwrap(), [300, 400]);
    // A damaged one is no reason to remove the one before it.
    fs::write(saved.path.join("networks"), b"rubbish").unwrap();
    assert!(save_on_small_disk(&store, 500, 1).is_err());
    assert_eq!(store.checkpoints.list().unwrap(), [300, 400]);
    // The last intact one stays if there is no room for another.
    save(&store, 600);
    assert!(save_on_small_disk(&store, 700, 0).is_err());
    assert_eq!(store.checkpoints.list().unwrap(), [600]);
}

#[test]
fn failed_file_leaves_no_trace() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    save(&store, 100);
    let fail = |writer: &mut CheckpointWriter| {
        write_files(writer, 200)?;
        writer.file("bandit", |out| {
            out.write_all(b"half")?;
            Err::<(), _>(io::Error::other("arm 3 is NaN"))
        })
    };
    let error = store.save(200, &mut |_| {}, fail).unwrap_err().to_string();
    assert_eq!(error, "cannot write bandit of the checkpoint: arm 3 is NaN");
    let double = |writer: &mut CheckpointWriter| {
        write_files(writer, 200)?;
        write_bytes(writer, "replay", b"")
    };
    let error = store.save(200, &mut |_| {}, double).unwrap_err().to_string();
    assert!(error.contains("000000000200.tmp/replay cannot be created: "), "{error}");
    assert!(store.save(200, &mut |_| {}, |writer| write_bytes(writer, "", b"")).is_err());
    assert_eq!(names(scratch.path()), ["000000000100"]);
    assert_eq!(resume(&store), (Some(100), vec![]));
}

#[test]
fn keeps_the_newest() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    assert!(store.resume(&mut |_| {}).unwrap().is_none());
    for frames in 1..=6 {
        assert!(save(&store, frames * 1000).not_removed.is_empty());
    }
    assert_eq!(store.checkpoints.list().unwrap(), [4000, 5000, 6000]);
    // Saved again at the same moment, as at Ctrl-C right after a save.
    save(&store, 6000);
    assert_eq!(store.checkpoints.list().unwrap(), [4000, 5000, 6000]);
    assert_eq!(resume(&store), (Some(6000), vec![]));

    let error = store.checkpoints.at(1000).unwrap_err().to_string();
    assert!(error.starts_with("there is no checkpoint at 1000 frames in "), "{error}");
    assert!(error.ends_with("there are: 4000, 5000, 6000"), "{error}");
    // Keeping none means keeping one.
    save(&CheckpointStore::open(scratch.path(), 0).unwrap(), 7000);
    assert_eq!(store.checkpoints.list().unwrap(), [7000]);
}

#[test]
fn failed_removal_does_not_fail_the_save() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    save(&store, 100);
    // A directory cannot be renamed to the name of a file.
    fs::write(scratch.path().join("000000000100.tmp"), "").unwrap();
    let saved = save(&store, 200);
    assert_eq!(saved.not_removed.len(), 1);
    let error = saved.not_removed[0].to_string();
    assert!(error.contains("000000000100 cannot be removed: "), "{error}");
    assert_eq!(resume(&store), (Some(200), vec![]));
}

#[test]
fn resumes_from_previous_checkpoint_when_newest_is_damaged() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    for frames in [100, 200, 300] {
        save(&store, frames);
    }
    flip(&scratch.path().join("000000000300/networks"), 200);
    fs::remove_file(scratch.path().join("000000000200/replay")).unwrap();
    let mut said = Vec::new();
    let newest = store.checkpoints.newest_intact(&mut |warning| said.push(warning.to_owned()));
    assert_eq!(newest.unwrap().unwrap().frames(), 100);
    assert_eq!(store.checkpoints.list().unwrap(), [100, 200, 300]);

    let (frames, said_again) = resume(&store);
    assert_eq!(frames, Some(100));
    let directory = scratch.path().display();
    let damage = [("000000000300", "the hash of its networks is wrong"), ("000000000200", "its replay is missing")];
    for (i, (name, how)) in damage.into_iter().enumerate() {
        let damaged = format!("checkpoint {directory}/{name} is damaged: {how}");
        let instead = "using 000000000100 instead";
        assert_eq!(said[i], format!("{damaged}; {instead}"));
        assert_eq!(said_again[i], format!("{damaged}; renamed it to {name}.damaged, {instead}"));
    }
    assert_eq!((said.len(), said_again.len()), (2, 2));
    assert_eq!(names(scratch.path()), ["000000000100", "000000000200.damaged", "000000000300.damaged"]);
    // Training continues from 100 and saves before it reaches 300 again: that one counts, even as the only one to keep.
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    save(&store, 150);
    assert_eq!(resume(&store), (Some(150), vec![]));
}

#[test]
fn damaged_best_makes_way_for_the_next_and_is_kept() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 2).unwrap();
    let keep = |score| store.save_best(100, score, |writer| write_files(writer, 100)).unwrap();
    let warnings = || {
        let mut warnings = Vec::new();
        store.set_damaged_best_aside(&mut |warning| warnings.push(warning.to_owned())).unwrap();
        warnings
    };
    assert_eq!(warnings(), Vec::<String>::new());
    let best = keep(9.0).unwrap().path;
    assert_eq!(warnings(), Vec::<String>::new());
    for (score, aside) in [(2.0, "best.damaged"), (1.0, "best.damaged.1")] {
        // The manifest still shows the score.
        flip(&best.join("networks"), 200);
        let damaged = fs::read(best.join("networks")).unwrap();
        assert!(keep(score).is_none());
        let how = format!("checkpoint {} is damaged: the hash of its networks is wrong", best.display());
        assert_eq!(warnings(), [format!("{how}; renamed it to {aside}, the next evaluation replaces it")]);
        assert_eq!(fs::read(scratch.path().join(aside).join("networks")).unwrap(), damaged);
        assert!(keep(score).is_some());
        assert_intact(&store.checkpoints.best().unwrap().unwrap(), 100);
    }
    assert_eq!(names(scratch.path()), ["best", "best.damaged", "best.damaged.1"]);
}

/// An error of the disk, the network or the permissions may pass, and says nothing about the checkpoint.
#[test]
fn unreadable_checkpoint_stops_the_start_and_stays() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    save(&store, 100);
    let path = save(&store, 200).path;
    let elsewhere = scratch.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    // A link to itself, which cannot be opened.
    symlink(&path, &path).unwrap();
    let refused = format!("{} cannot be opened: ", path.display());
    for error in [store.resume(&mut |_| {}).unwrap_err(), store.checkpoints.newest_intact(&mut |_| {}).unwrap_err()] {
        assert!(matches!(error, CheckpointError::File(_)) && error.to_string().starts_with(&refused), "{error}");
    }
    assert_eq!(names(scratch.path()), ["000000000100", "000000000200", "elsewhere"]);
    fs::remove_file(&path).unwrap();
    fs::rename(&elsewhere, &path).unwrap();
    assert_eq!(resume(&store), (Some(200), vec![]));

    // Nor does a lower score replace an unreadable best.
    store.save_best(200, 5.0, |writer| write_files(writer, 200)).unwrap().unwrap();
    let best = scratch.path().join("best");
    fs::rename(&best, &elsewhere).unwrap();
    symlink(&best, &best).unwrap();
    let error = store.save_best(300, 1.0, |writer| write_files(writer, 300)).unwrap_err();
    assert!(matches!(error, CheckpointError::File(_)), "{error}");
    fs::remove_file(&best).unwrap();
    fs::rename(&elsewhere, &best).unwrap();
    assert_intact(&store.checkpoints.best().unwrap().unwrap(), 200);
}

#[test]
fn dangling_link_stops_the_start_and_stays() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 2).unwrap();
    save(&store, 4);
    let link = scratch.path().join("000000000008");
    symlink(scratch.path().join("away"), &link).unwrap();
    let error = Checkpoints::in_directory(scratch.path()).newest_intact(&mut |said| panic!("{said}")).unwrap_err();
    assert!(error.to_string().starts_with(&format!("{} cannot be read: ", link.display())), "{error}");
    assert!(link.symlink_metadata().is_ok());
}

#[test]
fn creates_a_removed_directory_again_but_not_that_of_the_run() {
    let scratch = tempdir().unwrap();
    let run = scratch.path().join("run");
    fs::create_dir_all(run.join("checkpoints")).unwrap();
    let store = CheckpointStore::open(&run.join("checkpoints"), 2).unwrap();
    save(&store, 4);
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    save(&store, 8);
    assert_eq!(resume(&store).0, Some(8));
    fs::rename(&run, scratch.path().join("elsewhere")).unwrap();
    assert!(store.save(12, &mut |_| (), |writer| write_files(writer, 12)).is_err());
    assert!(!run.exists());
}

#[test]
fn never_starts_over_silently() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    let path = save(&store, 100).path;
    flip(&path.join("networks"), 30);
    let error = store.resume(&mut |_| {}).unwrap_err().to_string();
    assert!(error.starts_with("none of the 1 checkpoints in "), "{error}");
    assert_eq!(names(scratch.path()), ["000000000100"]);

    // A checkpoint under another's name would resume training at the wrong frame.
    flip(&path.join("networks"), 30);
    fs::rename(&path, scratch.path().join("000000000900")).unwrap();
    let error = store.checkpoints.at(900).unwrap_err().to_string();
    assert!(error.ends_with("is damaged: it was saved at 100 frames, which is not its name"), "{error}");
}

#[test]
fn other_names_are_left_alone() {
    let scratch = tempdir().unwrap();
    for name in ["notes.txt", "12", "+00000000012", "000000000001.damaged", "x", "notes.tmp", "x.ckpt"] {
        fs::write(scratch.path().join(name), "").unwrap();
    }
    let before = names(scratch.path());
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    assert!(store.checkpoints.list().unwrap().is_empty());
    assert_eq!(names(scratch.path()), before);
    // More than twelve digits are fine.
    save(&store, 10_u64.pow(13));
    assert_eq!(store.checkpoints.list().unwrap(), [10_u64.pow(13)]);
}

#[test]
fn checkpoints_of_the_old_format_are_refused() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    let path = scratch.path().join("000000000100.ckpt");
    fs::write(&path, "MEMECKPT").unwrap();
    let checkpoints = &store.checkpoints;
    let message = format!(
        "checkpoint {} is in the single-file format of an older version; use the version of meme that wrote it",
        path.display()
    );
    for error in [
        store.resume(&mut |_| {}).unwrap_err(),
        checkpoints.newest_intact(&mut |_| {}).unwrap_err(),
        checkpoints.at(100).unwrap_err(),
        checkpoints.best().unwrap_err(),
        checkpoints.gone(),
    ] {
        assert_eq!(error.to_string(), message);
    }
    fs::rename(&path, scratch.path().join("best.ckpt")).unwrap();
    assert!(matches!(checkpoints.best(), Err(CheckpointError::OldFormat { .. })));
}

#[test]
fn opening_removes_what_a_crash_left() {
    let scratch = tempdir().unwrap();
    let path = save(&CheckpointStore::open(scratch.path(), 2).unwrap(), 100).path;
    for name in ["000000000200.tmp", "best.tmp", "000000000100.replaced"] {
        fs::create_dir(scratch.path().join(name)).unwrap();
        fs::write(scratch.path().join(name).join("networks"), "half").unwrap();
    }
    // A file system without atomic exchange was interrupted between its two renames.
    fs::rename(&path, scratch.path().join("best.replaced")).unwrap();
    fs::rename(scratch.path().join("000000000100.replaced"), &path).unwrap();
    fs::create_dir(scratch.path().join("000000000100.replaced")).unwrap();
    let store = CheckpointStore::open(scratch.path(), 2).unwrap();
    assert_eq!(names(scratch.path()), ["000000000100", "best"]);
    assert_intact(&store.checkpoints.best().unwrap().unwrap(), 100);
}

#[test]
fn replaces_a_checkpoint_without_atomic_exchange() {
    let scratch = tempdir().unwrap();
    let [aside, path] = ["best.tmp", "best"].map(|name| scratch.path().join(name));
    for directory in [&aside, &path] {
        fs::create_dir(directory).unwrap();
    }
    fs::write(aside.join("new"), "").unwrap();
    writer::exchange_stepwise(&aside, &path).unwrap();
    assert_eq!((names(&path), names(&aside)), (vec!["new".to_owned()], vec![]));
    assert_eq!(names(scratch.path()), ["best", "best.tmp"]);
}

#[test]
fn best_is_kept_apart() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    assert!(store.checkpoints.best().unwrap().is_none());
    let offer = |frames, score| store.save_best(frames, score, |writer| write_files(writer, frames)).unwrap();
    assert!(offer(100, f64::NAN).is_none());
    assert!(offer(100, -21.0).is_some());
    assert!(offer(200, -3.5).is_some());
    assert!(offer(300, -3.5).is_none());
    assert!(offer(400, -20.0).is_none());
    let best = store.checkpoints.best().unwrap().unwrap();
    assert_intact(&best, 200);
    assert_eq!(best.score(), Some(-3.5));
    for frames in [500, 600] {
        save(&store, frames);
    }
    assert_eq!(names(scratch.path()), ["000000000600", "best"]);

    flip(&scratch.path().join("best/replay"), 400);
    let error = store.checkpoints.best().unwrap_err().to_string();
    assert!(error.contains("best is damaged: "), "{error}");
    fs::remove_dir_all(scratch.path().join("best")).unwrap();
    fs::write(scratch.path().join("best"), "rubbish").unwrap();
    assert!(offer(700, -100.0).is_some());
    assert_intact(&store.checkpoints.best().unwrap().unwrap(), 700);
}

#[test]
fn saves_in_the_background() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 5).unwrap();
    let (gate, open) = std::sync::mpsc::channel::<()>();
    let saving = store.save_in_background(100, move |writer| {
        write_bytes(writer, "networks", &[1; 50])?;
        open.recv().ok();
        write_bytes(writer, "replay", &[2; 50])
    });
    let saving = saving.unwrap();
    while saving.bytes() < 50 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!saving.is_finished());
    // The best does not wait for it.
    assert!(store.would_be_best(1.0).unwrap());
    let keep =
        |score| store.save_best_in_background(100, score, |writer| write_bytes(writer, "networks", b"")).unwrap();
    assert!(keep(1.0).finish().unwrap().is_some());
    assert!(!store.would_be_best(1.0).unwrap() && keep(1.0).finish().unwrap().is_none());
    assert_eq!(names(scratch.path()), ["000000000100.tmp", "best"]);
    drop(gate);
    assert_eq!(saving.finish().unwrap().path, scratch.path().join("000000000100"));

    let died = store.save_in_background(200, |_| panic!("a test's panic")).unwrap().finish().unwrap_err();
    assert_eq!(died.to_string(), "the thread that saves the checkpoint at 200 frames panicked");
    save(&store, 300);
    assert_eq!(store.checkpoints.list().unwrap(), [100, 300]);
    assert_eq!(names(scratch.path()), ["000000000100", "000000000300", "best"]);
}

#[test]
fn readers_find_a_checkpoint_while_old_ones_are_removed() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    save(&store, 0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for frames in 1..200 {
                save(&store, frames);
                store.save_best(frames, frames as f64, |writer| write_files(writer, frames)).unwrap();
            }
        });
        let reader = Checkpoints::in_directory(scratch.path());
        let mut last = 0;
        while !writing.is_finished() {
            let newest = reader.newest_intact(&mut |warning| panic!("{warning}")).unwrap().unwrap();
            assert!(newest.frames() >= last);
            last = newest.frames();
            assert_intact(&newest, last);
            if let Some(best) = reader.best().unwrap() {
                assert_intact(&best, best.frames());
            }
        }
    });
}
