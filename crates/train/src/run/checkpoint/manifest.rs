//! The manifest of a checkpoint: what the directory holds, with a hash of every file and of the manifest itself.
//!
//! Hashes are XXH3 with 64 bits, the fastest that detects accidental damage. They are no defence against forgery:
//! whoever can write a file can write its hash.

use std::io;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Name of the manifest's file.
pub(super) const MANIFEST: &str = "manifest.json";
/// The format that this program writes and reads. Up to 6, a checkpoint was a single file.
pub(super) const FORMAT: u32 = 8;
/// What stands between the hashed text and its hash, which ends the manifest.
const SEAL: &str = ",\n  \"manifest_xxh3\": \"";

/// Contents of a checkpoint.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Manifest {
    format: u32,
    pub(super) frames: u64,
    pub(super) score: Option<f64>,
    pub(super) files: Vec<FileEntry>,
}

/// One file of a checkpoint.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct FileEntry {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// In hexadecimal: many programs read JSON numbers with 53 bits only.
    pub(super) xxh3: String,
}

/// Why a manifest is refused.
#[derive(Debug, PartialEq)]
pub(super) enum ManifestProblem {
    Damaged(String),
    Format(u32),
}

impl Manifest {
    pub(super) fn new(frames: u64, score: Option<f64>) -> Self {
        Self { format: FORMAT, frames, score, files: Vec::new() }
    }

    /// Returns the manifest's text. Its last line is the hash of everything before that line.
    pub(super) fn to_text(&self) -> io::Result<String> {
        let text = serde_json::to_string_pretty(self)?;
        let body = text.strip_suffix("\n}").unwrap_or(&text);
        Ok(format!("{body}{SEAL}{}\"\n}}\n", hash_text(xxh3_64(body.as_bytes()))))
    }

    /// Parses a manifest whose hash is right. Only then is its format number believed.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ManifestProblem> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let damaged = |how: String| ManifestProblem::Damaged(format!("its {MANIFEST} {how}"));
        let text = str::from_utf8(bytes).map_err(|cause| damaged(format!("is not text: {cause}")))?;
        let (body, seal) = text.rsplit_once(SEAL).ok_or_else(|| damaged("has no end".to_owned()))?;
        if seal != format!("{}\"\n}}\n", hash_text(xxh3_64(body.as_bytes()))) {
            return Err(damaged("has a wrong hash".to_owned()));
        }
        let json = |cause: serde_json::Error| damaged(format!("is invalid: {cause}"));
        match serde_json::from_str(text).map_err(json)? {
            Format { format: FORMAT } => serde_json::from_str(text).map_err(json),
            Format { format } => Err(ManifestProblem::Format(format)),
        }
    }
}

/// A hash as the manifest has it.
pub(super) fn hash_text(hash: u64) -> String {
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_is_json_that_ends_with_its_hash() {
        let file = FileEntry { name: "replay.bin".to_owned(), bytes: 10, xxh3: hash_text(0xab) };
        let manifest = Manifest { files: vec![file], ..Manifest::new(3, Some(1.5)) };
        let text = manifest.to_text().unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["format"], &value["frames"], &value["score"]), (&8.into(), &3.into(), &1.5.into()));
        assert_eq!(value["files"][0]["xxh3"], "00000000000000ab");
        assert_eq!(Manifest::parse(text.as_bytes()), Ok(manifest));
    }

    #[test]
    fn another_format_is_distinguished_from_damage() {
        let other = Manifest { format: 9, ..Manifest::new(3, None) }.to_text().unwrap();
        assert_eq!(Manifest::parse(other.as_bytes()), Err(ManifestProblem::Format(9)));
        let flipped = Manifest::new(3, None).to_text().unwrap().replace("\"format\": 8", "\"format\": 6");
        let problem = Manifest::parse(flipped.as_bytes());
        assert_eq!(problem, Err(ManifestProblem::Damaged("its manifest.json has a wrong hash".to_owned())));
    }
}
