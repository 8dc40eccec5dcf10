//! Damaged checkpoints, and those of other formats, are refused.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rand::RngExt;

use super::*;

/// Every way to damage a file must be refused: no panic, no hang, no wrong data.
#[test]
fn damaged_files_are_never_read() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 1).unwrap();
    let path = save(&store, 100).path;
    let mut random = Random::seed_from_u64(77);
    let mut refused = 0;
    for name in ["manifest.json", "networks", "empty", "replay"] {
        let whole = fs::read(path.join(name)).unwrap();
        // Written in place: emptying a file and filling it again makes some file systems wait for the disk.
        let file = File::options().write(true).open(path.join(name)).unwrap();
        let mut refuse = |bytes: &[u8], what: &str| {
            assert_ne!(bytes, whole);
            file.set_len(bytes.len() as u64).unwrap();
            file.write_all_at(bytes, 0).unwrap();
            let error = Checkpoint::open(&path).expect_err(what);
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{name}, {what}: {error}");
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
        for case in 0..1000 {
            let mut bytes = whole.clone();
            let what = match case % 5 {
                // Stretches of zeros, as a lost sector leaves them.
                0 if !bytes.is_empty() => {
                    let start = random.random_range(0..bytes.len());
                    let end = (start + 1 + random.random_range(0..512)).min(bytes.len());
                    bytes[start..end].fill(0);
                    "zeros"
                }
                1 if !bytes.is_empty() => {
                    let start = random.random_range(0..bytes.len());
                    let end = (start + 1 + random.random_range(0..64)).min(bytes.len());
                    bytes.drain(start..end);
                    "bytes removed"
                }
                2 => {
                    let length = random.random_range(0..2000);
                    bytes = random_bytes(&mut random, length);
                    "random bytes"
                }
                3 if !bytes.is_empty() => {
                    let (head, tail) = (random.random_range(0..bytes.len()), random.random_range(0..bytes.len()));
                    let byte = bytes[head];
                    bytes[tail] = byte.wrapping_add(1 + random.random::<u64>() as u8 % 254);
                    bytes[head] = random.random::<u64>() as u8;
                    "two bytes"
                }
                _ => {
                    let (at, length) = (random.random_range(0..bytes.len() + 1), 1 + random.random_range(0..64));
                    let inserted = random_bytes(&mut random, length);
                    bytes.splice(at..at, inserted);
                    "bytes inserted"
                }
            };
            if bytes != whole {
                refuse(&bytes, what);
            }
        }
        fs::write(path.join(name), &whole).unwrap();
        assert_intact(&Checkpoint::open(&path).unwrap(), 100);
    }
    assert!(refused > 10_000, "{refused}");
    for name in ["manifest.json", "networks"] {
        fs::rename(path.join(name), scratch.path().join("aside")).unwrap();
        let error = Checkpoint::open(&path).unwrap_err().to_string();
        assert!(error.ends_with(&format!("is damaged: its {name} is missing")), "{error}");
        fs::create_dir(path.join(name)).unwrap();
        let error = Checkpoint::open(&path).unwrap_err().to_string();
        assert!(error.ends_with(&format!("is damaged: its {name} is not a file")), "{error}");
        fs::remove_dir(path.join(name)).unwrap();
        fs::rename(scratch.path().join("aside"), path.join(name)).unwrap();
    }
}

/// A manifest that was written with a right hash and says impossible things.
#[test]
fn manifest_that_lies_is_refused() {
    let scratch = tempdir().unwrap();
    let path = scratch.path().join("000000000100");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("x"), [0; 4]).unwrap();
    let entry = |bytes| manifest::FileEntry { name: "x".to_owned(), bytes, xxh3: manifest::hash_text(0) };
    for lengths in [vec![u64::MAX, 2], vec![1 << 62; 4], vec![0], vec![4], vec![5]] {
        let mut manifest = manifest::Manifest::new(100, None);
        manifest.files = lengths.into_iter().map(entry).collect();
        fs::write(path.join(manifest::MANIFEST), manifest.to_text().unwrap()).unwrap();
        let error = Checkpoint::open(&path).unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
    }
}

#[test]
fn checkpoint_of_a_later_format_stops_the_run() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    save(&store, 100);
    let path = save(&store, 200).path.join(manifest::MANIFEST);
    let text = fs::read_to_string(&path).unwrap();
    let (body, _) = text.rsplit_once(",\n").unwrap();
    let body = body.replace("\"format\": 8", "\"format\": 9");
    let hash = manifest::hash_text(xxhash_rust::xxh3::xxh3_64(body.as_bytes()));
    fs::write(&path, format!("{body},\n  \"manifest_xxh3\": \"{hash}\"\n}}\n")).unwrap();
    let error = store.resume(&mut |_| {}).unwrap_err();
    assert!(matches!(error, CheckpointError::Format { found: 9, .. }), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("has format 9, but this program reads format 8; use the version of meme that wrote it")
    );
    assert_eq!(store.checkpoints.list().unwrap(), [100, 200]);
}

#[test]
fn damage_in_a_skipped_file_does_not_matter() {
    let scratch = tempdir().unwrap();
    let store = CheckpointStore::open(scratch.path(), 3).unwrap();
    let write = |writer: &mut CheckpointWriter| {
        write_bytes(writer, "agent.json", &[1; 300])?;
        write_bytes(writer, "replay.bin", &[2; 700])
    };
    store.save(100, &mut |_| {}, write).unwrap();
    let path = store.save(200, &mut |_| {}, write).unwrap().path;
    let checkpoints = Checkpoints::in_directory(scratch.path()).for_playing();
    for (name, newest) in [("agent.json", 100), ("replay.bin", 200)] {
        flip(&path.join(name), 250);
        let checkpoint = checkpoints.newest_intact(&mut |_| {}).unwrap().unwrap();
        assert_eq!(checkpoint.frames(), newest, "a flipped bit in {name}");
        assert_eq!(checkpoint.file_names().collect::<Vec<_>>(), ["agent.json"]);
        assert!(matches!(checkpoint.file("replay.bin").map(drop), Err(CheckpointError::NoFile { .. })));
        assert_eq!(checkpoint.file_bytes("agent.json").unwrap().len(), 300);
        flip(&path.join(name), 250);
    }
}
