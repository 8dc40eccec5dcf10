//! The bytes of a checkpoint file.
//!
//! ```text
//! header   magic "MEMECKPT" | format u32 | 0 u32 | hash of these 16 bytes u64
//! parts    the bytes of each, one after the other
//! index    JSON: frames, score, and name, length and hash of each part in order
//! footer   index offset u64 | index length u64 | hash of header, index and these 16 bytes u64 | magic "MEMEDONE"
//! ```
//! Numbers are little-endian. Lengths stand at the end because a part's length is known only once it has been
//! streamed. The footer's hash covers the parts' hashes, so it covers the file.
//!
//! The hash is XXH3, 64 bits: it reads memory faster than any disk delivers, in pure Rust without dependencies, and
//! misses accidental damage once in 2^64. Nobody is kept from forging a file; a cryptographic hash would cost a build
//! of C or assembler for a threat that is not there: who can write the file can write its hash.

use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::CheckpointError;

/// The format that this program writes and reads.
pub(super) const VERSION: u32 = 6;
/// Length of the header.
pub(super) const HEADER: usize = 24;
/// Length of the footer.
pub(super) const FOOTER: usize = 32;
/// The longest index that is believed: a few hundred parts need far less, and a damaged length must not eat the memory.
const MAX_INDEX: u64 = 1 << 20;

const MAGIC: &[u8; 8] = b"MEMECKPT";
const END: &[u8; 8] = b"MEMEDONE";

/// What a checkpoint holds.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    pub(super) frames: u64,
    pub(super) score: Option<f64>,
    pub(super) parts: Vec<PartEntry>,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartEntry {
    pub(super) name: String,
    pub(super) length: u64,
    /// In hexadecimal, because JSON's numbers are exact to 53 bits only in many programs.
    pub(super) hash: String,
}

/// A hash as the index has it.
pub(super) fn hash_text(hash: u64) -> String {
    format!("{hash:016x}")
}

pub(super) fn header() -> [u8; HEADER] {
    header_of(VERSION)
}

fn header_of(version: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&version.to_le_bytes());
    let hash = xxh3_64(&header[..16]);
    header[16..].copy_from_slice(&hash.to_le_bytes());
    header
}

/// What follows the parts: index and footer.
pub(super) fn ending(index: &Index, offset: u64) -> serde_json::Result<Vec<u8>> {
    let mut ending = serde_json::to_vec(index)?;
    let length = ending.len() as u64;
    let hash = total_hash(&header(), &ending, offset, length);
    for number in [offset, length, hash] {
        ending.extend(number.to_le_bytes());
    }
    ending.extend(END);
    Ok(ending)
}

fn total_hash(header: &[u8], index: &[u8], offset: u64, length: u64) -> u64 {
    xxh3_64(&[header, index, &offset.to_le_bytes(), &length.to_le_bytes()].concat())
}

/// Refuses what does not begin as a checkpoint of this format. A version is believed only with the header's hash
/// right, so that a flipped bit is damage and not a file from the future.
pub(super) fn check_header(path: &Path, header: &[u8; HEADER]) -> Result<(), CheckpointError> {
    let damaged = |how: &str| Err(CheckpointError::Damaged { path: path.to_path_buf(), how: how.to_owned() });
    if header[..8] != *MAGIC {
        return damaged("it does not begin as a checkpoint does, so it may be another kind of file");
    }
    let found = u32_at(header, 8);
    match header[..] == header_of(found) {
        false => damaged("the hash of its header is wrong"),
        true if found == VERSION => Ok(()),
        true => Err(CheckpointError::Version { path: path.to_path_buf(), found }),
    }
}

/// Where the index is, from a footer and the file's length.
pub(super) struct Footer {
    pub(super) offset: u64,
    pub(super) length: u64,
    hash: u64,
}

impl Footer {
    pub(super) fn parse(footer: &[u8; FOOTER], file_length: u64) -> Result<Self, String> {
        if footer[24..] != *END {
            return Err("its end is missing".to_owned());
        }
        let (offset, length, hash) = (u64_at(footer, 0), u64_at(footer, 8), u64_at(footer, 16));
        let fits = length <= MAX_INDEX
            && offset >= HEADER as u64
            && offset.checked_add(length).and_then(|end| end.checked_add(FOOTER as u64)) == Some(file_length);
        if !fits {
            return Err(format!("its index of {length} bytes at {offset} does not fit its {file_length} bytes"));
        }
        Ok(Self { offset, length, hash })
    }

    /// The index, once its bytes prove to be those that were written and to describe the whole file.
    pub(super) fn parse_index(&self, header: &[u8; HEADER], index: &[u8]) -> Result<Index, String> {
        if total_hash(header, index, self.offset, self.length) != self.hash {
            return Err("the hash of its index is wrong".to_owned());
        }
        let index: Index = serde_json::from_slice(index).map_err(|cause| format!("its index is no index: {cause}"))?;
        let end = index.parts.iter().try_fold(HEADER as u64, |end, part| end.checked_add(part.length));
        if end != Some(self.offset) {
            return Err("its parts do not fill it".to_owned());
        }
        Ok(index)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_as_documented() {
        let header = header();
        assert_eq!(header[..16], *b"MEMECKPT\x06\0\0\0\0\0\0\0");
        assert_eq!(u64_at(&header, 16), xxh3_64(b"MEMECKPT\x06\0\0\0\0\0\0\0"));
        check_header(Path::new("x"), &header).unwrap();
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let path = Path::new("a.ckpt");
        let error = check_header(path, &header_of(7)).unwrap_err().to_string();
        assert_eq!(
            error,
            "checkpoint a.ckpt has format 7, and this program reads format 6; use the version of meme that wrote it"
        );
        let mut flipped = header();
        flipped[8] ^= 2;
        assert!(matches!(check_header(path, &flipped), Err(CheckpointError::Damaged { .. })));
    }

    #[test]
    fn the_footer_names_the_index_and_nothing_may_be_left_over() {
        let part = PartEntry { name: "bandit".to_owned(), length: 10, hash: hash_text(0xab) };
        let index = Index { frames: 3, score: None, parts: vec![part] };
        let ending = ending(&index, 34).unwrap();
        let text = r#"{"frames":3,"score":null,"parts":[{"name":"bandit","length":10,"hash":"00000000000000ab"}]}"#;
        assert_eq!(ending[..text.len()], *text.as_bytes());
        let footer: [u8; FOOTER] = ending[text.len()..].try_into().unwrap();
        let whole = 34 + ending.len() as u64;
        let parsed = Footer::parse(&footer, whole).unwrap();
        assert_eq!(parsed.parse_index(&header(), text.as_bytes()).unwrap(), index);
        for length in [0, whole - 1, whole + 1, u64::MAX] {
            assert!(Footer::parse(&footer, length).is_err());
        }

        let short = Footer::parse(&footer, whole).unwrap();
        let other = text.replace("10", "11");
        let hash = total_hash(&header(), other.as_bytes(), short.offset, short.length);
        let error = Footer { hash, ..short }.parse_index(&header(), other.as_bytes()).unwrap_err();
        assert_eq!(error, "its parts do not fill it");
    }
}
