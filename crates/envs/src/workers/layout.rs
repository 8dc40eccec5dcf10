//! Where everything lies in the memory shared with a worker.
//!
//! In this order, little-endian, for each environment: its action (u32), the number of the episode to begin at the next
//! reset (u64), a record of what the last request led to, the bytes of an Atari game's RAM that were asked for, as the
//! last step left them, and three observations: two slots that take turns, so that the observation an action was chosen
//! for stays whole while the worker writes the next one, and the one that ended the last episode.

use serde_json::{Value, json};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 48;
/// Observations begin at multiples of this, so that no two environments share a cache line.
const ALIGNMENT: usize = 64;
/// The place of the observation that ended an episode, after the two slots.
pub const LAST: usize = 2;
const PLACES: usize = 3;
/// More than any sensible set of environments needs.
const MOST_BYTES: usize = 1 << 38;

/// Offsets into the shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of one observation.
    pub observation_bytes: usize,
    /// Bytes of RAM that each step reports.
    pub ram_bytes: usize,
    /// Bytes of the whole memory.
    pub total: usize,
    environments: usize,
    episodes: usize,
    records: usize,
    ram: usize,
    observations: usize,
    stride: usize,
}

impl Layout {
    /// The layout for so many environments, with so many bytes of RAM reported for each; `None` if it would be absurdly
    /// large.
    pub fn new(environments: usize, observation_bytes: usize, ram_bytes: usize) -> Option<Self> {
        let episodes = (environments * 4).next_multiple_of(ALIGNMENT);
        let records = episodes + (environments * 8).next_multiple_of(ALIGNMENT);
        let ram = records + (environments * RECORD_BYTES).next_multiple_of(ALIGNMENT);
        let observations = ram + (environments * ram_bytes).next_multiple_of(ALIGNMENT);
        let stride = observation_bytes.checked_next_multiple_of(ALIGNMENT)?;
        let total = stride.checked_mul(PLACES)?.checked_mul(environments)?.checked_add(observations)?;
        (total <= MOST_BYTES).then_some(Self {
            observation_bytes,
            ram_bytes,
            total,
            environments,
            episodes,
            records,
            ram,
            observations,
            stride,
        })
    }

    /// Where an environment's action lies.
    pub fn action(&self, env: usize) -> usize {
        env * 4
    }

    /// Where the number of the episode to begin lies.
    pub fn episode(&self, env: usize) -> usize {
        self.episodes + env * 8
    }

    /// Where an environment's record lies.
    pub fn record(&self, env: usize) -> usize {
        self.records + env * RECORD_BYTES
    }

    /// Where the reported bytes of an environment's RAM lie.
    pub fn ram(&self, env: usize) -> usize {
        self.ram + env * self.ram_bytes
    }

    /// Where an observation lies: slot 0 or 1, or [`LAST`].
    pub fn observation(&self, env: usize, place: usize) -> usize {
        self.observations + (env * PLACES + place) * self.stride
    }

    /// What the worker is told.
    pub fn to_json(&self) -> Value {
        json!({
            "total": self.total,
            "environments": self.environments,
            "actions": self.action(0),
            "episodes": self.episodes,
            "records": self.records,
            "record_bytes": RECORD_BYTES,
            "ram": self.ram,
            "ram_bytes": self.ram_bytes,
            "observations": self.observations,
            "observation_bytes": self.observation_bytes,
            "stride": self.stride,
        })
    }
}

/// What a request led to in one environment: six little-endian numbers of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Reward of the step; 0 after a reset or a restore.
    pub reward: f64,
    /// Score of the episode, up to and with the step.
    pub score: f64,
    /// Frames of the episode, up to and with the step.
    pub frames: u64,
    /// 0 if the episode goes on, 1 if it terminated, 2 if it was truncated.
    pub ending: u64,
    /// Number of the episode that the observation in the slot belongs to.
    pub episode: u64,
    /// Frames of the new episode at its first observation, if the step ended one; else 0.
    pub first_frames: u64,
}

impl Record {
    /// The record in these bytes.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let eight = |at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&bytes[at..at + 8]);
            value
        };
        Self {
            reward: f64::from_le_bytes(eight(0)),
            score: f64::from_le_bytes(eight(8)),
            frames: u64::from_le_bytes(eight(16)),
            ending: u64::from_le_bytes(eight(24)),
            episode: u64::from_le_bytes(eight(32)),
            first_frames: u64::from_le_bytes(eight(40)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_is_inside() {
        for (environments, observation_bytes, ram_bytes) in [(1, 1, 0), (3, 4, 8), (8, 33_600, 3), (128, 16, 0)] {
            let layout = Layout::new(environments, observation_bytes, ram_bytes).unwrap();
            let mut ranges: Vec<(usize, usize)> = Vec::new();
            for env in 0..environments {
                ranges.push((layout.action(env), 4));
                ranges.push((layout.episode(env), 8));
                ranges.push((layout.record(env), RECORD_BYTES));
                ranges.extend((ram_bytes > 0).then(|| (layout.ram(env), ram_bytes)));
                for place in 0..PLACES {
                    ranges.push((layout.observation(env, place), observation_bytes));
                }
            }
            ranges.sort();
            for pair in ranges.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
            }
            let (offset, length) = ranges[ranges.len() - 1];
            assert!(offset + length <= layout.total);
        }
    }

    #[test]
    fn an_absurd_size_is_refused() {
        assert_eq!(Layout::new(8, usize::MAX, 3), None);
        assert_eq!(Layout::new(8, usize::MAX / 8, 3), None);
        assert_eq!(Layout::new(8, 1 << 37, 0), None);
    }
}
