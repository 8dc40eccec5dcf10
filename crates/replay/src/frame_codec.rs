//! Observations of several environments on their way between machines, as the tiles that changed.
//!
//! Both ends keep the last observation of each environment. A message holds the changes since then, compressed
//! together.

use zstd_safe::DCtx;

use crate::chunk::Compressor;
use crate::error::{ReplayError, Result};
use crate::tiles::{STREAMS, TileReader, Tiles, max_bytes};

/// Observations, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedFrames {
    /// Uncompressed bytes of each stream.
    pub streams: [u32; STREAMS],
    /// The streams one after another, compressed.
    pub bytes: Vec<u8>,
}

/// Encodes the observations of several environments.
pub struct FrameEncoder {
    before: Vec<Vec<u8>>,
    tiles: Tiles,
    compressor: Compressor,
}

impl FrameEncoder {
    /// An encoder for this many environments.
    pub fn new(environments: usize, observation_bytes: usize) -> Result<Self> {
        let before = vec![vec![0; observation_bytes]; environments];
        Ok(Self { before, tiles: Tiles::default(), compressor: Compressor::new()? })
    }

    /// Adds an observation of an environment to the message.
    pub fn push(&mut self, environment: usize, observation: &[u8]) -> Result<()> {
        let environments = self.before.len();
        let Some(before) = self.before.get_mut(environment) else {
            return Err(ReplayError::NoSuchEnvironment { environment, environments });
        };
        crate::columns::expect_length("observation", observation.len(), before.len())?;
        self.tiles.push(before, observation);
        Ok(())
    }

    /// Returns the message with all observations that were added since the last one.
    pub fn finish(&mut self) -> Result<EncodedFrames> {
        let (streams, compressed) = self.compressor.tiles(&self.tiles)?;
        let bytes = compressed.to_vec();
        self.tiles.clear();
        Ok(EncodedFrames { streams, bytes })
    }
}

/// Decodes the observations of several environments. Nothing that a message holds makes it panic or take more memory
/// than the observations themselves.
pub struct FrameDecoder {
    before: Vec<Vec<u8>>,
    context: DCtx<'static>,
    plain: Vec<u8>,
}

impl FrameDecoder {
    /// A decoder for this many environments.
    pub fn new(environments: usize, observation_bytes: usize) -> Self {
        let before = vec![vec![0; observation_bytes]; environments];
        Self { before, context: DCtx::create(), plain: Vec::new() }
    }

    /// Decodes a message with one observation for each of `environments`, in order, and passes each on. After an error
    /// the decoder is useless: it no longer knows what the other end has.
    pub fn decode(
        &mut self,
        frames: &EncodedFrames,
        environments: &[usize],
        mut take: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let damaged = |reason: &str| ReplayError::DamagedFrames { reason: reason.to_owned() };
        let observation = self.before.first().map_or(0, Vec::len);
        let length = frames.streams.iter().map(|&length| length as usize).sum::<usize>();
        if length > environments.len() * max_bytes(observation) {
            return Err(damaged("too many tiles"));
        }
        self.plain.resize(length, 0);
        let written = self.context.decompress(&mut self.plain[..], &frames.bytes);
        if written.map_err(|code| damaged(zstd_safe::get_error_name(code)))? != length {
            return Err(damaged("too few bytes"));
        }
        let unfit = || damaged("the tiles do not fit the observations");
        let mut tiles = TileReader::new(&self.plain, frames.streams).ok_or_else(unfit)?;
        for &environment in environments {
            let count = self.before.len();
            let Some(before) = self.before.get_mut(environment) else {
                return Err(ReplayError::NoSuchEnvironment { environment, environments: count });
            };
            tiles.patch(before).ok_or_else(unfit)?;
            take(environment, before)?;
        }
        if tiles.is_empty() { Ok(()) } else { Err(damaged("more tiles than observations")) }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const BYTES: usize = 1_000;

    /// A message with new observations of environments 1, 0 and 1 again.
    fn message(random: &mut Xoshiro256PlusPlus, encoder: &mut FrameEncoder) -> (EncodedFrames, Vec<Vec<u8>>) {
        let mut observations = Vec::new();
        for environment in [1, 0, 1] {
            let mut observation = vec![7; BYTES];
            observation.iter_mut().step_by(97).for_each(|byte| *byte = random.random());
            encoder.push(environment, &observation).unwrap();
            observations.push(observation);
        }
        (encoder.finish().unwrap(), observations)
    }

    #[test]
    fn observations_arrive_as_they_were_sent() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut encoder, mut decoder) = (FrameEncoder::new(2, BYTES).unwrap(), FrameDecoder::new(2, BYTES));
        for number in 0..20 {
            let (frames, sent) = message(&mut random, &mut encoder);
            assert!(number == 0 || frames.bytes.len() < BYTES, "{}", frames.bytes.len());
            let mut arrived = Vec::new();
            let take = |_, observation: &[u8]| {
                arrived.push(observation.to_vec());
                Ok(())
            };
            decoder.decode(&frames, &[1, 0, 1], take).unwrap();
            assert_eq!(arrived, sent);
        }
        assert!(encoder.push(2, &[0; BYTES]).is_err() && encoder.push(0, &[0; 3]).is_err());
    }

    #[test]
    fn damaged_messages_are_refused() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let mut encoder = FrameEncoder::new(2, BYTES).unwrap();
        let (frames, _) = message(&mut random, &mut encoder);
        let refused = |frames: &EncodedFrames, environments: &[usize]| {
            FrameDecoder::new(2, BYTES).decode(frames, environments, |_, _| Ok(())).is_err()
        };
        assert!(!refused(&frames, &[1, 0, 1]));
        assert!(refused(&frames, &[1, 0]) && refused(&frames, &[1, 0, 1, 0]) && refused(&frames, &[1, 0, 2]));
        for huge in [u32::MAX, 10_000] {
            assert!(refused(&EncodedFrames { streams: [huge; 4], ..frames.clone() }, &[1, 0, 1]));
        }
        for _ in 0..5_000 {
            let mut frames = frames.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..frames.bytes.len());
                frames.bytes[at] = random.random();
                frames.streams[random.random_range(0..4)] ^= 1 << random.random_range(0..12);
            }
            // Whatever it decodes to, it does not panic.
            let _ = refused(&frames, &[1, 0, 1]);
        }
    }
}
