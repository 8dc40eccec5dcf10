//! Whole checkpoints and folders of them: what is read is what was written, or nothing is.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::run::scratch::{Random, Scratch, names};

/// Parts whose bytes follow from the frame count.
fn parts(frames: u64) -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random(frames);
    vec![("networks", random.bytes(300)), ("empty", Vec::new()), ("replay", random.bytes(700))]
}

fn save(store: &CheckpointStore, frames: u64) -> Saved {
    store.save(frames, &mut |_| {}, |writer| write_parts(writer, frames)).unwrap()
}

fn write_parts(writer: &mut CheckpointWriter, frames: u64) -> Result<(), CheckpointError> {
    parts(frames).iter().try_for_each(|(name, bytes)| writer.part_bytes(name, bytes))
}

fn assert_whole(checkpoint: &Checkpoint, frames: u64) {
    assert_eq!(checkpoint.frames(), frames);
    let read: Vec<_> =
        checkpoint.part_names().map(|name| (name.to_owned(), checkpoint.part_bytes(name).unwrap())).collect();
    let written: Vec<_> = parts(frames).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    assert_eq!(read, written);
}

/// The newest one, and what was said on the way.
fn resume(store: &CheckpointStore) -> (Option<u64>, Vec<String>) {
    let mut said = Vec::new();
    let checkpoint = store.resume(&mut |sentence| said.push(sentence.to_owned())).unwrap();
    if let Some(checkpoint) = &checkpoint {
        assert_whole(checkpoint, checkpoint.frames());
    }
    (checkpoint.map(|checkpoint| checkpoint.frames()), said)
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn parts_come_back_in_order_and_by_name() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 2).unwrap();
    let saved = save(&store, 4_000_000);
    assert_eq!(scratch.names(), ["000004000000.ckpt"]);
    assert_eq!(saved.bytes, fs::metadata(&saved.path).unwrap().len());
    let checkpoint = store.checkpoints().at(4_000_000).unwrap();
    assert_whole(&checkpoint, 4_000_000);
    assert_eq!(checkpoint.score(), None);

    // Two readers at once, one of them slow, while the file is removed.
    fs::remove_file(&saved.path).unwrap();
    let (mut networks, mut replay) = (checkpoint.part("networks").unwrap(), checkpoint.part("replay").unwrap());
    let mut first = [0; 100];
    networks.read_exact(&mut first).unwrap();
    let mut whole = Vec::new();
    replay.read_to_end(&mut whole).unwrap();
    assert_eq!((replay.length(), &whole), (700, &parts(4_000_000)[2].1));
    assert_eq!(first, parts(4_000_000)[0].1[..100]);

    let error = checkpoint.part("bandit").unwrap_err().to_string();
    assert!(error.ends_with("has no part `bandit`, only networks, empty, replay"), "{error}");
}

#[test]
fn a_large_part_is_streamed_with_progress() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    let block = Random(9).bytes(100_003);
    let mut heard = Vec::new();
    let mut hear = |progress: Progress| heard.push(progress.bytes);
    let saved = store.save(7, &mut hear, |writer| {
        writer.part_bytes("small", b"x")?;
        writer.part("replay", |part| (0..300).try_for_each(|_| part.write_all(&block)))
    });
    saved.unwrap();
    assert_eq!((heard[0], *heard.last().unwrap()), (25, 25 + 300 * 100_003));
    assert_eq!(heard.len(), 2 + 3, "{heard:?}");
    assert!(heard.is_sorted());

    let checkpoint = store.checkpoints().at(7).unwrap();
    let mut reader = checkpoint.part("replay").unwrap();
    let mut read = vec![0; block.len()];
    for _ in 0..300 {
        reader.read_exact(&mut read).unwrap();
        assert!(read == block);
    }
    assert_eq!(reader.read(&mut read).unwrap(), 0);
}

/// A disk that has no room until `room` checkpoints or fewer are on it.
fn save_on_small_disk(store: &CheckpointStore, frames: u64, room: usize) -> Result<Saved, CheckpointError> {
    store.save(frames, &mut |_| {}, |writer| {
        if store.checkpoints().list()?.len() > room {
            let full = io::Error::from(io::ErrorKind::StorageFull);
            return Err(FileError { done: "written", path: PathBuf::from("x"), cause: full }.into());
        }
        write_parts(writer, frames)
    })
}

#[test]
fn on_a_full_disk_older_ones_make_room() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    let saved = [100, 200, 300].map(|frames| save(&store, frames));
    assert!(saved.iter().all(|saved| saved.made_room.is_empty()));
    let [oldest, older, _] = saved.map(|saved| saved.path);
    let saved = save_on_small_disk(&store, 400, 1).unwrap();
    assert_eq!(saved.made_room, [oldest, older]);
    assert_eq!(store.checkpoints().list().unwrap(), [300, 400]);
    // A damaged one is no reason to remove the one before it.
    fs::write(saved.path, b"rubbish").unwrap();
    assert!(save_on_small_disk(&store, 500, 1).is_err());
    assert_eq!(store.checkpoints().list().unwrap(), [300, 400]);
    // The last whole one stays where not even one more has room.
    save(&store, 600);
    assert!(save_on_small_disk(&store, 700, 0).is_err());
    assert_eq!(store.checkpoints().list().unwrap(), [600]);
}

#[test]
fn a_part_that_fails_leaves_no_trace() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    save(&store, 100);
    let fail = |writer: &mut CheckpointWriter| {
        write_parts(writer, 200)?;
        writer.part("bandit", |part| {
            part.write_all(b"half")?;
            Err::<(), _>(io::Error::other("arm 3 is NaN"))
        })
    };
    let error = store.save(200, &mut |_| {}, fail).unwrap_err().to_string();
    assert_eq!(error, "part `bandit` of the checkpoint could not be written: arm 3 is NaN");
    let double = |writer: &mut CheckpointWriter| {
        write_parts(writer, 200)?;
        writer.part_bytes("replay", b"")
    };
    let error = store.save(200, &mut |_| {}, double).unwrap_err().to_string();
    assert_eq!(error, "a checkpoint can't have a part named \"replay\": there is one already");
    assert!(store.save(200, &mut |_| {}, |writer| writer.part_bytes("", b"")).is_err());
    assert_eq!(scratch.names(), ["000000000100.ckpt"]);
    assert_eq!(resume(&store), (Some(100), vec![]));
}

#[test]
fn the_newest_are_kept() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    assert!(store.resume(&mut |_| {}).unwrap().is_none());
    for frames in 1..=6 {
        assert!(save(&store, frames * 1000).not_removed.is_empty());
    }
    assert_eq!(store.checkpoints().list().unwrap(), [4000, 5000, 6000]);
    // Saved again at the same moment, as at Ctrl-C right after a save.
    save(&store, 6000);
    assert_eq!(store.checkpoints().list().unwrap(), [4000, 5000, 6000]);
    assert_eq!(resume(&store), (Some(6000), vec![]));

    let error = store.checkpoints().at(1000).unwrap_err().to_string();
    assert!(error.starts_with("there is no checkpoint at 1000 frames in "), "{error}");
    assert!(error.ends_with("there are: 4000, 5000, 6000"), "{error}");
    // None to keep means one.
    save(&CheckpointStore::open(scratch.path(), 0).unwrap(), 7000);
    assert_eq!(store.checkpoints().list().unwrap(), [7000]);
}

#[test]
fn one_that_can_not_be_removed_does_not_fail_the_save() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    fs::create_dir(scratch.path().join("000000000100.ckpt")).unwrap();
    let saved = save(&store, 200);
    assert_eq!(saved.not_removed.len(), 1);
    let said = saved.not_removed[0].to_string();
    assert!(said.contains("000000000100.ckpt can't be removed: "), "{said}");
    assert_eq!(resume(&store), (Some(200), vec![]));
}

#[test]
fn a_damaged_newest_falls_back_and_does_not_come_back() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    for frames in [100, 200, 300] {
        save(&store, frames);
    }
    flip(&scratch.path().join("000000000300.ckpt"), 200);
    fs::write(scratch.path().join("000000000200.ckpt"), "").unwrap();
    let mut said = Vec::new();
    let newest = store.checkpoints().newest_valid(&mut |sentence| said.push(sentence.to_owned()));
    assert_eq!(newest.unwrap().unwrap().frames(), 100);
    assert_eq!(store.checkpoints().list().unwrap(), [100, 200, 300]);

    let (frames, said_again) = resume(&store);
    assert_eq!(frames, Some(100));
    let folder = scratch.path().display();
    for (i, (name, how)) in [
        ("000000000300.ckpt", "the hash of its part `networks` is wrong"),
        ("000000000200.ckpt", "its 0 bytes are too few for a checkpoint"),
    ]
    .into_iter()
    .enumerate()
    {
        let damaged = format!("checkpoint {folder}/{name} is damaged: {how}");
        let instead = "000000000100.ckpt is used instead";
        assert_eq!(said[i], format!("{damaged}; {instead}"));
        assert_eq!(said_again[i], format!("{damaged}; it is now {name}.damaged, and {instead}"));
    }
    assert_eq!((said.len(), said_again.len()), (2, 2));
    assert_eq!(scratch.names(), ["000000000100.ckpt", "000000000200.ckpt.damaged", "000000000300.ckpt.damaged"]);
    // Training goes on from 100 and saves before it is at 300 again: that one counts, even as the only one to keep.
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    save(&store, 150);
    assert_eq!(resume(&store), (Some(150), vec![]));
}

#[test]
fn a_damaged_best_makes_way_for_the_next_and_is_kept() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 2).unwrap();
    let keep = |score| store.save_best(100, score, |writer| write_parts(writer, 100)).unwrap();
    let looked_at = || {
        let mut said = Vec::new();
        store.set_damaged_best_aside(&mut |sentence| said.push(sentence.to_owned())).unwrap();
        said
    };
    assert_eq!(looked_at(), Vec::<String>::new());
    let best = keep(9.0).unwrap().path;
    assert_eq!(looked_at(), Vec::<String>::new());
    for (score, aside) in [(2.0, "best.ckpt.damaged"), (1.0, "best.ckpt.damaged.1")] {
        // In a part: the index still shows the score.
        flip(&best, 200);
        let damaged = fs::read(&best).unwrap();
        assert!(keep(score).is_none());
        let how = format!("checkpoint {} is damaged: the hash of its part `networks` is wrong", best.display());
        assert_eq!(looked_at(), [format!("{how}; it is now {aside}, and the next evaluation takes its place")]);
        assert_eq!(fs::read(scratch.path().join(aside)).unwrap(), damaged);
        assert!(keep(score).is_some());
        assert_whole(&store.checkpoints().best().unwrap().unwrap(), 100);
    }
    assert_eq!(scratch.names(), ["best.ckpt", "best.ckpt.damaged", "best.ckpt.damaged.1"]);
}

/// An error of the disk, the network or the permissions may pass; what it says nothing about is the checkpoint.
#[test]
fn one_that_can_not_be_read_just_now_stops_the_start_and_stays_what_it_is() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    save(&store, 100);
    let path = save(&store, 200).path;
    let elsewhere = scratch.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    // A link to itself: the system refuses to open it, whoever asks.
    symlink(&path, &path).unwrap();
    let refused = format!("{} can't be opened: ", path.display());
    for error in [store.resume(&mut |_| {}).unwrap_err(), store.checkpoints().newest_valid(&mut |_| {}).unwrap_err()] {
        assert!(matches!(error, CheckpointError::File(_)) && error.to_string().starts_with(&refused), "{error}");
    }
    assert_eq!(scratch.names(), ["000000000100.ckpt", "000000000200.ckpt", "elsewhere"]);
    fs::rename(&elsewhere, &path).unwrap();
    assert_eq!(resume(&store), (Some(200), vec![]));

    // The best is not replaced by a lesser one either.
    store.save_best(200, 5.0, |writer| write_parts(writer, 200)).unwrap().unwrap();
    let best = scratch.path().join("best.ckpt");
    fs::rename(&best, &elsewhere).unwrap();
    symlink(&best, &best).unwrap();
    let error = store.save_best(300, 1.0, |writer| write_parts(writer, 300)).unwrap_err();
    assert!(matches!(error, CheckpointError::File(_)), "{error}");
    fs::rename(&elsewhere, &best).unwrap();
    assert_whole(&store.checkpoints().best().unwrap().unwrap(), 200);
}

#[test]
fn a_link_to_what_is_away_stops_the_start_and_stays() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 2).unwrap();
    save(&store, 4);
    let link = scratch.path().join("000000000008.ckpt");
    symlink(scratch.path().join("away"), &link).unwrap();
    let error = Checkpoints::in_folder(scratch.path()).newest_valid(&mut |said| panic!("{said}")).unwrap_err();
    assert!(error.to_string().starts_with(&format!("{} can't be read: ", link.display())), "{error}");
    assert!(link.symlink_metadata().is_ok());
}

#[test]
fn a_folder_that_was_removed_is_made_again_but_not_the_runs_own() {
    let scratch = Scratch::new();
    let run = scratch.path().join("run");
    fs::create_dir_all(run.join("checkpoints")).unwrap();
    let store = CheckpointStore::open(&run.join("checkpoints"), 2).unwrap();
    save(&store, 4);
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    save(&store, 8);
    assert_eq!(resume(&store).0, Some(8));
    fs::rename(&run, scratch.path().join("elsewhere")).unwrap();
    assert!(store.save(12, &mut |_| (), |writer| write_parts(writer, 12)).is_err());
    assert!(!run.exists());
}

#[test]
fn nothing_is_started_over_silently() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    let path = save(&store, 100).path;
    let whole = fs::read(&path).unwrap();
    flip(&path, 30);
    let error = store.resume(&mut |_| {}).unwrap_err().to_string();
    assert!(error.starts_with("none of the 1 checkpoints in "), "{error}");
    assert_eq!(scratch.names(), ["000000000100.ckpt"]);

    // A checkpoint under another's name would put training at a wrong place.
    fs::write(&path, &whole).unwrap();
    fs::rename(&path, scratch.path().join("000000000900.ckpt")).unwrap();
    let error = store.checkpoints().at(900).unwrap_err().to_string();
    assert!(error.ends_with("is damaged: it was taken at 100 frames, which its name does not say"), "{error}");
}

#[test]
fn names_that_are_not_of_checkpoints_are_left_alone() {
    let scratch = Scratch::new();
    for name in ["notes.txt", "12.ckpt", "+00000000012.ckpt", "000000000001.ckpt.damaged", "x.ckpt", ".ckpt"] {
        fs::write(scratch.path().join(name), "").unwrap();
    }
    let before = scratch.names();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    assert!(store.checkpoints().list().unwrap().is_empty());
    assert_eq!(scratch.names(), before);
    // More than twelve digits are fine.
    save(&store, 10_u64.pow(13));
    assert_eq!(store.checkpoints().list().unwrap(), [10_u64.pow(13)]);
}

#[test]
fn what_a_crash_left_is_removed_at_opening() {
    let scratch = Scratch::new();
    save(&CheckpointStore::open(scratch.path(), 2).unwrap(), 100);
    for name in ["000000000200.tmp", "best.tmp"] {
        fs::write(scratch.path().join(name), "half").unwrap();
    }
    let store = CheckpointStore::open(scratch.path(), 2).unwrap();
    assert_eq!(scratch.names(), ["000000000100.ckpt"]);
    assert_eq!(resume(&store), (Some(100), vec![]));
}

#[test]
fn the_best_is_kept_apart() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    assert!(store.checkpoints().best().unwrap().is_none());
    let offer = |frames, score| store.save_best(frames, score, |writer| write_parts(writer, frames)).unwrap();
    assert!(offer(100, f64::NAN).is_none());
    assert!(offer(100, -21.0).is_some());
    assert!(offer(200, -3.5).is_some());
    assert!(offer(300, -3.5).is_none());
    assert!(offer(400, -20.0).is_none());
    let best = store.checkpoints().best().unwrap().unwrap();
    assert_whole(&best, 200);
    assert_eq!(best.score(), Some(-3.5));
    for frames in [500, 600] {
        save(&store, frames);
    }
    assert_eq!(scratch.names(), ["000000000600.ckpt", "best.ckpt"]);

    flip(&scratch.path().join("best.ckpt"), 400);
    let error = store.checkpoints().best().unwrap_err().to_string();
    assert!(error.contains("best.ckpt is damaged: "), "{error}");
    fs::write(scratch.path().join("best.ckpt"), "rubbish").unwrap();
    assert!(offer(700, -100.0).is_some());
    assert_whole(&store.checkpoints().best().unwrap().unwrap(), 700);
}

#[test]
fn saving_goes_on_beside_other_work() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 5).unwrap();
    let (gate, open) = std::sync::mpsc::channel::<()>();
    let saving = store.save_in_background(100, move |writer| {
        writer.part_bytes("networks", &[1; 50])?;
        open.recv().ok();
        writer.part_bytes("replay", &[2; 50])
    });
    let saving = saving.unwrap();
    while saving.bytes() < 74 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!saving.is_finished());
    // The best does not wait for it.
    assert!(store.would_be_best(1.0).unwrap());
    let keep = |score| store.save_best_in_background(100, score, |writer| writer.part_bytes("networks", b"")).unwrap();
    assert!(keep(1.0).finish().unwrap().is_some());
    assert!(!store.would_be_best(1.0).unwrap() && keep(1.0).finish().unwrap().is_none());
    assert_eq!(scratch.names(), ["000000000100.tmp", "best.ckpt"]);
    drop(gate);
    assert_eq!(saving.finish().unwrap().path, scratch.path().join("000000000100.ckpt"));

    let died = store.save_in_background(200, |_| panic!("a test's panic")).unwrap().finish().unwrap_err();
    assert_eq!(died.to_string(), "the thread that saves the checkpoint at 200 frames ended by a panic");
    save(&store, 300);
    assert_eq!(store.checkpoints().list().unwrap(), [100, 300]);
    assert_eq!(names(scratch.path()), ["000000000100.ckpt", "000000000300.ckpt", "best.ckpt"]);
}

#[test]
fn a_reader_finds_one_while_old_ones_are_removed() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    save(&store, 0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| (1..200).for_each(|frames| drop(save(&store, frames))));
        let reader = Checkpoints::in_folder(scratch.path());
        let mut last = 0;
        while !writing.is_finished() {
            let newest = reader.newest_valid(&mut |sentence| panic!("{sentence}")).unwrap().unwrap();
            assert!(newest.frames() >= last);
            last = newest.frames();
            assert_whole(&newest, last);
        }
    });
}

/// Every way to damage a file must be refused: no panic, no hang, no wrong data.
#[test]
fn no_damaged_file_is_ever_read() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    let path = save(&store, 100).path;
    let whole = fs::read(&path).unwrap();
    let mut random = Random(77);
    // Written in place: emptying a file and filling it again makes some file systems wait for the disk.
    let file = File::options().write(true).open(&path).unwrap();
    let mut refused = 0;
    let mut refuse = |bytes: &[u8], what: &str| {
        assert_ne!(bytes, whole);
        file.set_len(bytes.len() as u64).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        let error = Checkpoint::open(&path).expect_err(what);
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{what}: {error}");
        refused += 1;
    };

    // Every single bit, every length.
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        refuse(&bytes, &format!("bit {bit} flipped"));
    }
    for length in 0..whole.len() {
        refuse(&whole[..length], &format!("cut to {length}"));
        refuse(&whole[length + 1..], &format!("{} bytes missing in front", length + 1));
    }
    for case in 0..3000 {
        let mut bytes = whole.clone();
        let what = match case % 6 {
            // Stretches of zeros, as a lost sector leaves them.
            0 => {
                let start = random.below(bytes.len());
                let end = (start + 1 + random.below(512)).min(bytes.len());
                bytes[start..end].fill(0);
                "zeros"
            }
            1 => {
                let (at, length) = (random.below(bytes.len() + 1), 1 + random.below(64));
                let inserted = random.bytes(length);
                bytes.splice(at..at, inserted);
                "bytes inserted"
            }
            2 => {
                let start = random.below(bytes.len());
                let end = (start + 1 + random.below(64)).min(bytes.len());
                bytes.drain(start..end);
                "bytes removed"
            }
            // The numbers of the footer, where lengths are believed too easily.
            3 => {
                let at = bytes.len() - 32 + 8 * random.below(3);
                let number = [random.next(), u64::MAX, 0, 1 << 63, bytes.len() as u64, 24][random.below(6)];
                bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
                "footer overwritten"
            }
            4 => {
                let length = random.below(2000);
                bytes = random.bytes(length);
                "random bytes"
            }
            _ => {
                let (head, tail) = (random.below(bytes.len()), random.below(bytes.len()));
                let byte = bytes[head];
                bytes[tail] = byte.wrapping_add(1 + random.next() as u8 % 254);
                bytes[head] = random.next() as u8;
                "two bytes"
            }
        };
        if bytes != whole {
            refuse(&bytes, what);
        }
    }
    assert!(refused > 10_000, "{refused}");
    fs::write(&path, &whole).unwrap();
    assert_whole(&Checkpoint::open(&path).unwrap(), 100);
}

/// An index that was written with right hashes and says impossible things.
#[test]
fn an_index_that_lies_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.path().join("000000000100.ckpt");
    let entry = |length| format::PartEntry { name: "x".to_owned(), length, hash: format::hash_text(0) };
    for lengths in [vec![u64::MAX, 2], vec![1 << 62; 4], vec![0], vec![4], vec![5]] {
        let index = format::Index { frames: 100, score: None, parts: lengths.into_iter().map(entry).collect() };
        let mut bytes = format::header().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(format::ending(&index, 28).unwrap());
        fs::write(&path, bytes).unwrap();
        let error = Checkpoint::open(&path).unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_checkpoint_of_a_later_format_stops_the_run() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    save(&store, 100);
    let path = save(&store, 200).path;
    let mut bytes = fs::read(&path).unwrap();
    let later = format::VERSION + 1;
    bytes[8..12].copy_from_slice(&later.to_le_bytes());
    let hash = xxhash_rust::xxh3::xxh3_64(&bytes[..16]);
    bytes[16..24].copy_from_slice(&hash.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = store.resume(&mut |_| {}).unwrap_err();
    assert!(matches!(error, CheckpointError::Version { found, .. } if found == later), "{error}");
    assert_eq!(store.checkpoints().list().unwrap(), [100, 200]);
}

#[test]
fn damage_in_a_part_that_is_left_out_does_not_matter() {
    let scratch = Scratch::new();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    save(&store, 100);
    let path = save(&store, 200).path;
    let whole = fs::read(&path).unwrap();
    let checkpoints = Checkpoints::in_folder(scratch.path()).without("replay");
    let first = format::HEADER;
    // The parts are `networks` of 300 bytes, `empty` and `replay` of 700.
    for (at, newest) in [(first + 299, 100), (first + 300, 200), (first + 999, 200)] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let checkpoint = checkpoints.newest_valid(&mut |_| {}).unwrap().unwrap();
        assert_eq!(checkpoint.frames(), newest, "a flipped bit at {at}");
        assert_eq!(checkpoint.part_names().collect::<Vec<_>>(), ["networks", "empty"]);
        assert!(matches!(checkpoint.part("replay"), Err(CheckpointError::NoPart { .. })));
        assert_eq!(checkpoint.part_bytes("networks").unwrap().len(), 300);
    }
}
