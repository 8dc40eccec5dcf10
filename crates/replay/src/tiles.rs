//! A frame as the tiles that differ from the previous frame.
//!
//! A tile is 16 bytes of a frame, a region 8 tiles. Changes go to four streams:
//!
//! - map: one bit per region of a frame, set if a tile of it changed;
//! - marks: two bytes per changed region with one bit per tile: which changed, which of those are coarse;
//! - coarse: four bytes per changed tile in which each group of four bytes is equal, as in an Atari game's background;
//! - fine: the sixteen bytes of every other changed tile.
//!
//! Most pixels of a game stand still, and most of the others are coarse, so this shrinks a frame by a factor of ten to
//! a hundred before zstd. Tiles lie on a fixed grid: positions of changes at arbitrary bytes would be noise too, at the
//! price of a mispredicted branch each. Decoding copies the previous frame and patches it.

use serde::{Deserialize, Serialize};

/// Number of streams: map, marks, coarse and fine tiles.
pub(crate) const STREAMS: usize = 4;

/// Bytes of a tile.
const TILE: usize = 16;
/// Stored bytes of a coarse tile.
const COARSE: usize = 4;
/// Bytes of marks per changed region.
const MARKS: usize = 2;
/// Bytes of a region.
const REGION: usize = size_of::<Region>();

/// As many tiles as a byte of marks has bits.
type Region = [[u8; TILE]; 8];

/// The most bytes of one frame in all streams together.
pub(crate) const fn max_bytes(observation_bytes: usize) -> usize {
    let regions = observation_bytes.div_ceil(REGION);
    map_bytes(observation_bytes) + MARKS * regions + observation_bytes.next_multiple_of(TILE)
}

const fn map_bytes(observation_bytes: usize) -> usize {
    observation_bytes.div_ceil(REGION).div_ceil(8)
}

/// Changed tiles of a growing number of frames; keeps its memory when cleared.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tiles {
    streams: [Vec<u8>; STREAMS],
}

impl Tiles {
    pub(crate) fn streams(&self) -> &[Vec<u8>; STREAMS] {
        &self.streams
    }

    pub(crate) fn clear(&mut self) {
        self.streams.iter_mut().for_each(Vec::clear);
    }

    /// Appends the tiles that turn `before` into `frame`, which has the same length, and updates `before`.
    pub(crate) fn push(&mut self, before: &mut [u8], frame: &[u8]) {
        let map = self.streams[0].len();
        self.streams[0].resize(map + map_bytes(frame.len()), 0);
        let (regions, tail) = split(frame);
        let (regions_before, tail_before) = split_mut(before);
        for (number, (before, region)) in regions_before.iter_mut().zip(regions).enumerate() {
            self.push_region(map, number, before, region);
        }
        if !tail.is_empty() {
            self.push_region(map, regions.len(), &mut padded(tail_before), &padded(tail));
            tail_before.copy_from_slice(tail);
        }
    }

    #[inline]
    fn push_region(&mut self, map_at: usize, number: usize, before: &mut Region, region: &Region) {
        let changed = changed_tiles(before, region);
        if changed == 0 {
            return;
        }
        *before = *region;
        let [map, marks, coarse, fine] = &mut self.streams;
        map[map_at + number / 8] |= 1 << (number % 8);
        let coarse_tiles = Bits(changed).fold(0, |bits, tile| bits | (u8::from(is_coarse(&region[tile])) << tile));
        marks.extend([changed, coarse_tiles]);
        for tile in Bits(coarse_tiles) {
            coarse.extend::<[u8; COARSE]>(std::array::from_fn(|i| region[tile][i * TILE / COARSE]));
        }
        for tile in Bits(changed & !coarse_tiles) {
            fine.extend(region[tile]);
        }
    }
}

/// Splits a frame into whole regions and the remaining bytes.
fn split(frame: &[u8]) -> (&[Region], &[u8]) {
    let (whole, tail) = frame.split_at(frame.len() - frame.len() % REGION);
    (whole.as_chunks().0.as_chunks().0, tail)
}

fn split_mut(frame: &mut [u8]) -> (&mut [Region], &mut [u8]) {
    let (whole, tail) = frame.split_at_mut(frame.len() - frame.len() % REGION);
    (whole.as_chunks_mut().0.as_chunks_mut().0, tail)
}

/// A region that begins with these bytes, padded with zeros.
fn padded(tail: &[u8]) -> Region {
    let mut region = [[0; TILE]; 8];
    region.as_flattened_mut()[..tail.len()].copy_from_slice(tail);
    region
}

/// Sets one bit per tile that differs.
fn changed_tiles(before: &Region, region: &Region) -> u8 {
    let pairs = before.iter().zip(region);
    pairs.rev().fold(0, |bits, (before, tile)| (bits << 1) | u8::from(before != tile))
}

/// Returns whether each group of four bytes is equal.
fn is_coarse(tile: &[u8; TILE]) -> bool {
    const ALL_BUT_FIRST: u128 = 0xffff_ff00_ffff_ff00_ffff_ff00_ffff_ff00;
    let tile = u128::from_le_bytes(*tile);
    (tile ^ (tile << 8)) & ALL_BUT_FIRST == 0
}

/// Indices of the set bits, lowest first.
struct Bits(u8);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let lowest = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (lowest < 8).then_some(lowest)
    }
}

/// The streams of some frames, read from the front.
pub(crate) struct TileReader<'a> {
    streams: [&'a [u8]; STREAMS],
}

impl<'a> TileReader<'a> {
    /// Reads streams of these lengths that follow one another; `None` if `bytes` is too short.
    pub(crate) fn new(mut bytes: &'a [u8], lengths: [u32; STREAMS]) -> Option<Self> {
        let mut streams = [&bytes[..0]; STREAMS];
        for (stream, length) in streams.iter_mut().zip(lengths) {
            (*stream, bytes) = bytes.split_at_checked(length as usize)?;
        }
        Some(Self { streams })
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.iter().all(|stream| stream.is_empty())
    }

    /// Turns the previous frame into the next one; `None` if the tiles do not fit it.
    pub(crate) fn patch(&mut self, frame: &mut [u8]) -> Option<()> {
        let (map, later) = self.streams[0].split_at_checked(map_bytes(frame.len()))?;
        self.streams[0] = later;
        let (regions, tail) = split_mut(frame);
        let whole = regions.len();
        for (i, &bits) in map.iter().enumerate() {
            for bit in Bits(bits) {
                let number = 8 * i + bit;
                if let Some(region) = regions.get_mut(number) {
                    self.patch_region(region)?;
                } else if number == whole && !tail.is_empty() {
                    let mut region = padded(tail);
                    self.patch_region(&mut region)?;
                    tail.copy_from_slice(&region.as_flattened()[..tail.len()]);
                } else {
                    return None;
                }
            }
        }
        Some(())
    }

    #[inline]
    fn patch_region(&mut self, region: &mut Region) -> Option<()> {
        let [_, marks, coarse, fine] = &mut self.streams;
        let &[changed, coarse_tiles] = take(marks)?;
        for tile in Bits(changed & coarse_tiles) {
            let bytes: &[u8; COARSE] = take(coarse)?;
            region[tile] = std::array::from_fn(|i| bytes[i * COARSE / TILE]);
        }
        for tile in Bits(changed & !coarse_tiles) {
            region[tile] = *take(fine)?;
        }
        Some(())
    }
}

/// Takes the next bytes of a stream.
#[inline]
fn take<'a, const N: usize>(stream: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (bytes, later) = stream.split_first_chunk()?;
    *stream = later;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Frames in which each run of `width` equal bytes changes with probability `changes`.
    fn frames(rng: &mut Xoshiro256PlusPlus, length: usize, width: usize, count: usize, changes: f64) -> Vec<Vec<u8>> {
        let mut frame = vec![0; length];
        (0..count)
            .map(|_| {
                for run in frame.chunks_mut(width) {
                    if rng.random_bool(changes) {
                        run.fill(rng.random());
                    }
                }
                frame.clone()
            })
            .collect()
    }

    fn lengths(tiles: &Tiles) -> [u32; STREAMS] {
        tiles.streams().each_ref().map(|stream| stream.len() as u32)
    }

    #[test]
    fn decodes_any_change() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for length in [1, 2, 7, 15, 16, 17, 31, 32, 33, 64, 112, 127, 128, 129, 160, 1_000, 1_024, 1_025, 1_100] {
            for (width, changes) in [(1, 0.0), (1, 0.002), (1, 0.05), (1, 0.5), (1, 1.0), (4, 0.1), (4, 1.0), (3, 0.5)]
            {
                let frames = frames(&mut rng, length, width, 20, changes);
                let mut tiles = Tiles::default();
                let mut before = vec![0; length];
                for frame in &frames {
                    let size = |tiles: &Tiles| lengths(tiles).iter().sum::<u32>() as usize;
                    let before_it = size(&tiles);
                    tiles.push(&mut before, frame);
                    assert!(size(&tiles) - before_it <= max_bytes(length));
                    assert_eq!(&before, frame);
                }
                let bytes = tiles.streams().concat();
                let mut reader = TileReader::new(&bytes, lengths(&tiles)).unwrap();
                let mut decoded = vec![0; length];
                for frame in &frames {
                    reader.patch(&mut decoded).unwrap();
                    assert_eq!(&decoded, frame, "length {length}, width {width}, changes {changes}");
                }
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn writes_the_documented_streams() {
        let mut before = [0; 1_200];
        let mut frame = [0; 1_200];
        // Region 0: a fine tile and a coarse one. Region 9, which is not whole: a coarse one at the frame's end.
        frame[3] = 9;
        frame[36..40].fill(7);
        frame[44..48].fill(8);
        frame[1_184..].fill(6);
        let mut tiles = Tiles::default();
        tiles.push(&mut before, &frame);
        let [map, marks, coarse, fine] = tiles.streams();
        assert_eq!(map, &[0b1, 0b10]);
        assert_eq!(marks, &[0b101, 0b100, 0b100, 0b100]);
        assert_eq!(coarse, &[0, 7, 0, 8, 6, 6, 6, 6]);
        assert_eq!(fine, &[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn stores_a_coarse_frame_in_a_quarter() {
        let frames = frames(&mut Xoshiro256PlusPlus::seed_from_u64(2), 33_600, 4, 1, 1.0);
        let mut tiles = Tiles::default();
        tiles.push(&mut vec![0; 33_600], &frames[0]);
        assert_eq!(lengths(&tiles), [33, 2 * 263, 33_600 / 4, 0]);
    }

    #[test]
    fn refuses_tiles_that_do_not_fit() {
        let refused: [(usize, [&[u8]; STREAMS]); 7] = [
            (8, [&[], &[], &[], &[]]),
            (8, [&[1], &[], &[], &[]]),
            (8, [&[1], &[1], &[], &[]]),
            (8, [&[1], &[1, 0], &[], &[5; 15]]),
            (8, [&[1], &[1, 1], &[5; 3], &[5; 16]]),
            (8, [&[2], &[1, 0], &[], &[5; 16]]),
            (128, [&[2], &[1, 0], &[], &[5; 16]]),
        ];
        for (length, streams) in refused {
            let patched = TileReader { streams }.patch(&mut vec![0; length]);
            assert!(patched.is_none(), "{length} bytes: {streams:?}");
        }
        assert!(TileReader::new(&[0; 9], [1, 2, 3, 4]).is_none());
    }
}
