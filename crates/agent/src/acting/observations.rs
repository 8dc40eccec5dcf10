//! Memory for the environments' current observations, which a GPU reads directly.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use torch_ext::PinnedPart;
use torch_ext::upload::Piece;

use crate::error::{AgentError, Result};

/// The current observations of several environments, one per row.
///
/// Allocated by [`ActingNetwork::observation_rows`](super::ActingNetwork::observation_rows). A GPU reads them from here
/// without another copy on the host. A deserialised copy is plain memory.
#[derive(Debug, Default)]
pub struct ObservationRows {
    memory: RowStorage,
    row_bytes: usize,
    /// Identifies the content of each row.
    stamps: Vec<Stamp>,
}

/// Unique identifier of a row's content, by which uploads recognise observations already on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64);

impl Stamp {
    pub(super) fn new() -> Self {
        static STAMPS: AtomicU64 = AtomicU64::new(0);
        Self(STAMPS.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Debug)]
enum RowStorage {
    Host(Vec<u8>),
    Pinned(Arc<PinnedPart>),
}

impl Default for RowStorage {
    fn default() -> Self {
        Self::Host(Vec::new())
    }
}

impl RowStorage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Host(bytes) => bytes,
            Self::Pinned(part) => part,
        }
    }
}

/// One observation, as its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    bytes: &'a [u8],
    /// Where a GPU can read it, if it can.
    pinned: Option<Pinned<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Pinned<'a> {
    part: &'a Arc<PinnedPart>,
    start: usize,
    stamp: Stamp,
}

impl<'a> From<&'a [u8]> for Observation<'a> {
    /// Bytes anywhere; uploading them to a GPU takes another copy.
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, pinned: None }
    }
}

impl Deref for Observation<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl<'a> Observation<'a> {
    /// Its pinned memory, if any.
    pub(super) fn piece(&self) -> Option<Piece<'a>> {
        self.pinned.map(|Pinned { part, start, .. }| Piece::Of(part, start..start + self.bytes.len()))
    }

    /// Identifier of its content, if in pinned memory.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        self.pinned.map(|pinned| pinned.stamp)
    }
}

impl ObservationRows {
    /// Rows of plain memory, all zero.
    pub fn on_host(rows: usize, row_bytes: usize) -> Self {
        Self::new(RowStorage::Host(vec![0; rows * row_bytes]), row_bytes)
    }

    fn new(memory: RowStorage, row_bytes: usize) -> Self {
        let rows = memory.bytes().len() / row_bytes.max(1);
        Self { memory, row_bytes, stamps: (0..rows).map(|_| Stamp::new()).collect() }
    }

    /// Sets of rows in pinned memory, all zero, adjacent so that the GPU reads neighbouring sets in one copy.
    pub(super) fn pinned(rows: &[usize], row_bytes: usize) -> Result<Vec<Self>> {
        let lengths: Vec<usize> = rows.iter().map(|rows| rows * row_bytes).collect();
        let set = |part| Self::new(RowStorage::Pinned(Arc::new(part)), row_bytes);
        Ok(PinnedPart::allocate(&lengths)?.into_iter().map(set).collect())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.stamps.len()
    }

    /// The observation in a row.
    pub fn row(&self, row: usize) -> Result<Observation<'_>> {
        let start = self.start(row)?;
        let pinned = match &self.memory {
            RowStorage::Host(_) => None,
            RowStorage::Pinned(part) => Some(Pinned { part, start, stamp: self.stamps[row] }),
        };
        Ok(Observation { bytes: &self.memory.bytes()[start..start + self.row_bytes], pinned })
    }

    /// A row to write the next observation to.
    ///
    /// Fails while a GPU may still read these rows: from the first upload or step with one of them until a step of the
    /// same network is finished or dropped.
    pub fn row_mut(&mut self, row: usize) -> Result<&mut [u8]> {
        let (start, length) = (self.start(row)?, self.row_bytes);
        let bytes = match &mut self.memory {
            RowStorage::Host(bytes) => bytes.as_mut_slice(),
            RowStorage::Pinned(part) => Arc::get_mut(part).ok_or(AgentError::InFlight { row })?,
        };
        self.stamps[row] = Stamp::new();
        Ok(&mut bytes[start..start + length])
    }

    fn start(&self, row: usize) -> Result<usize> {
        let rows = self.rows();
        if row < rows {
            return Ok(row * self.row_bytes);
        }
        let (place, expected) = ("the observation rows".to_owned(), format!("one of {rows} rows"));
        Err(AgentError::Value { field: "row", place, value: row.to_string(), expected })
    }
}

impl Serialize for ObservationRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        (self.row_bytes, self.memory.bytes()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ObservationRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let (row_bytes, bytes) = <(usize, Vec<u8>)>::deserialize(deserializer)?;
        if !bytes.len().is_multiple_of(row_bytes.max(1)) {
            return Err(D::Error::custom(format!(
                "{} bytes are not a multiple of the row size {row_bytes}",
                bytes.len()
            )));
        }
        Ok(Self::new(RowStorage::Host(bytes), row_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_separate_and_survive_serialisation() {
        let mut rows = ObservationRows::on_host(3, 2);
        for row in 0..3 {
            rows.row_mut(row).unwrap().fill(row as u8 + 1);
        }
        let text = serde_json::to_string(&rows).unwrap();
        let there: ObservationRows = serde_json::from_str(&text).unwrap();
        assert_eq!(there.rows(), 3);
        for row in 0..3 {
            assert_eq!(*there.row(row).unwrap(), [row as u8 + 1; 2]);
            assert!(there.row(row).unwrap().piece().is_none());
        }
        assert!(serde_json::from_str::<ObservationRows>("[2,[1,2,3]]").is_err());
    }

    #[test]
    fn every_write_gets_a_new_stamp() {
        let mut sets = [ObservationRows::on_host(2, 3), ObservationRows::on_host(2, 3)];
        let mut seen: Vec<Stamp> = sets.iter().flat_map(|set| set.stamps.clone()).collect();
        for write in 0..3 {
            for set in &mut sets {
                let other = set.stamps[1];
                set.row_mut(0).unwrap().fill(write);
                assert_eq!(set.stamps[1], other);
                seen.push(set.stamps[0]);
            }
        }
        assert!((0..seen.len()).all(|i| !seen[..i].contains(&seen[i])), "{seen:?}");
    }

    #[test]
    fn refuses_a_missing_row() {
        let mut rows = ObservationRows::on_host(3, 2);
        let error = rows.row_mut(3).unwrap_err().to_string();
        assert!(error.contains("one of 3 rows"), "{error}");
        assert!(rows.row(3).is_err());
        assert!(ObservationRows::default().row(0).is_err());
    }
}
