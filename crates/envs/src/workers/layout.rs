//! Offsets in the memory shared with a worker.
//!
//! In this order, little-endian, for each environment: its action (u32), the number of the episode to begin at the next
//! reset (u64), a record of the last request's outcome, the requested bytes of an Atari game's RAM after the last step,
//! and three observations. Two of them are slots that take turns, so that the observation for which an action was
//! chosen stays intact while the worker writes the next one; the third is the one that ended the last episode.

use serde::Serialize;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 48;
/// Observations begin at multiples of this, so that no two environments share a cache line.
const ALIGNMENT: usize = 64;
/// The place of the observation that ended an episode, after the two slots.
pub const LAST: usize = 2;
const PLACES: usize = 3;
/// Maximum size of the shared memory: more than any sensible set of environments needs.
const MAX_BYTES: usize = 1 << 38;

/// Offsets into the shared memory, as the worker receives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Bytes per observation.
    pub observation_bytes: usize,
    /// Bytes of RAM reported by each step.
    pub ram_bytes: usize,
    /// Bytes of the whole memory.
    pub total: usize,
    environments: usize,
    actions: usize,
    episodes: usize,
    records: usize,
    record_bytes: usize,
    ram: usize,
    observations: usize,
    stride: usize,
}

impl Layout {
    /// Lays out the memory of this many environments; `None` if it would be absurdly large.
    pub fn new(environments: usize, observation_bytes: usize, ram_bytes: usize) -> Option<Self> {
        let after = |start: usize, bytes: usize| start + (environments * bytes).next_multiple_of(ALIGNMENT);
        let actions = 0;
        let episodes = after(actions, 4);
        let records = after(episodes, 8);
        let ram = after(records, RECORD_BYTES);
        let observations = after(ram, ram_bytes);
        let stride = observation_bytes.checked_next_multiple_of(ALIGNMENT)?;
        let total = stride.checked_mul(PLACES)?.checked_mul(environments)?.checked_add(observations)?;
        (total <= MAX_BYTES).then_some(Self {
            observation_bytes,
            ram_bytes,
            total,
            environments,
            actions,
            episodes,
            records,
            record_bytes: RECORD_BYTES,
            ram,
            observations,
            stride,
        })
    }

    /// Offset of an environment's action.
    pub fn action(&self, env: usize) -> usize {
        self.actions + env * 4
    }

    /// Offset of the number of the episode to begin.
    pub fn episode(&self, env: usize) -> usize {
        self.episodes + env * 8
    }

    /// Offset of an environment's record.
    pub fn record(&self, env: usize) -> usize {
        self.records + env * RECORD_BYTES
    }

    /// Offset of the reported bytes of an environment's RAM.
    pub fn ram(&self, env: usize) -> usize {
        self.ram + env * self.ram_bytes
    }

    /// Offset of an observation: slot 0 or 1, or [`LAST`].
    pub fn observation(&self, env: usize, place: usize) -> usize {
        self.observations + (env * PLACES + place) * self.stride
    }
}

/// The outcome of a request in one environment: six little-endian numbers of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Reward of the step; 0 after a reset or a restore.
    pub reward: f64,
    /// Score of the episode, including the step.
    pub score: f64,
    /// Frames of the episode, including the step.
    pub frames: u64,
    /// 0 if the episode continues, 1 if it terminated, 2 if it was truncated.
    pub ending: u64,
    /// Number of the episode of the observation in the slot.
    pub episode: u64,
    /// Frames of the new episode at its first observation if the step ended one, otherwise 0.
    pub first_frames: u64,
}

impl Record {
    /// Reads a record.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let (numbers, _) = bytes.as_chunks();
        let integer = |i: usize| u64::from_le_bytes(numbers[i]);
        Self {
            reward: f64::from_bits(integer(0)),
            score: f64::from_bits(integer(1)),
            frames: integer(2),
            ending: integer(3),
            episode: integer(4),
            first_frames: integer(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_disjoint_and_inside() {
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
    fn refuses_absurd_sizes() {
        assert_eq!(Layout::new(8, usize::MAX, 3), None);
        assert_eq!(Layout::new(8, usize::MAX / 8, 3), None);
        assert_eq!(Layout::new(8, 1 << 37, 0), None);
    }
}
