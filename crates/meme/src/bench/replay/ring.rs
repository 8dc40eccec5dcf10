//! The baseline of the replay benchmark: an uncompressed ring buffer of observations.

use rand::RngExt;
use rand_xoshiro::SplitMix64;
use replay::Layout;

use super::recording::RecordedEpisode;

/// Uncompressed observations and the sequences in them.
pub struct RingBuffer {
    layout: Layout,
    observations: Vec<u8>,
    /// First byte and number of observations of each sequence.
    sequences: Vec<(usize, usize)>,
}

impl RingBuffer {
    /// Reserves memory for a number of observations.
    pub fn new(layout: Layout, observations: usize) -> Self {
        Self {
            layout,
            observations: Vec::with_capacity(observations * layout.observation_bytes),
            sequences: Vec::new(),
        }
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.observations.clear();
        self.sequences.clear();
    }

    /// Inserts an episode, cut into the same sequences as in replay.
    pub fn insert(&mut self, episode: &RecordedEpisode) {
        let Layout { observation_bytes, trace, period, .. } = self.layout;
        let total = episode.observations.len() / observation_bytes;
        let begin = self.observations.len();
        let mut first = 0;
        loop {
            self.sequences.push((begin + first * observation_bytes, trace.min(total - first)));
            if first + trace >= total {
                break;
            }
            first += period;
        }
        self.observations.extend_from_slice(&episode.observations);
    }

    /// Copies a batch of random sequences on a number of threads.
    pub fn sample(&self, random: &mut SplitMix64, batch: &mut [u8], threads: usize) {
        let sequence_bytes = self.layout.trace * self.layout.observation_bytes;
        let size = batch.len() / sequence_bytes;
        let picks: Vec<(usize, usize)> =
            (0..size).map(|_| self.sequences[random.random_range(0..self.sequences.len())]).collect();
        let part = size.div_ceil(threads);
        let copy = |picks: &[(usize, usize)], out: &mut [u8]| {
            for (&(first, length), out) in picks.iter().zip(out.chunks_exact_mut(sequence_bytes)) {
                let bytes = length * self.layout.observation_bytes;
                out[..bytes].copy_from_slice(&self.observations[first..first + bytes]);
                out[bytes..].fill(0);
            }
        };
        std::thread::scope(|scope| {
            let mut parts = picks.chunks(part).zip(batch.chunks_mut(part * sequence_bytes));
            let own = parts.next();
            for (picks, out) in parts {
                scope.spawn(move || copy(picks, out));
            }
            if let Some((picks, out)) = own {
                copy(picks, out);
            }
        });
    }
}
