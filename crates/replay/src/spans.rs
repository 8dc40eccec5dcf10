//! A frame as the bytes in which it differs from the one before.
//!
//! A frame becomes a list of spans, closed by a length of zero: `skip` bytes are as before, the next `length` are new.
//! Lengths and skips go to one stream, as little-endian base-128, the new bytes to another: apart they compress faster,
//! and better where it matters. A span runs on until 32 bytes in a row are unchanged: shorter gaps cost less as bytes
//! than as numbers.
//!
//! Most pixels of a game stand still, so this shrinks a frame by ten to a hundred before zstd sees it. Going back is a
//! copy of the frame before and a few patches, where undoing an xor would touch every byte three times.

/// Bytes that are unchanged in a row where a span ends.
const GAP: usize = 2 * WORD;

/// Bytes that are compared at once.
const WORD: usize = 16;

/// The most that one frame takes as spans: all of its bytes, the numbers of one span and the closing zero. Every
/// further span comes after a gap that saved more than its own numbers cost.
pub(crate) const fn most_bytes(observation_bytes: usize) -> usize {
    observation_bytes + 2 * MOST_VARINT + 1
}

const MOST_VARINT: usize = 5;

/// Spans of a growing number of frames; keeps its memory when cleared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    numbers: Vec<u8>,
    /// Longer than what is used, so that spans can be copied in whole blocks.
    buffer: Vec<u8>,
    used: usize,
}

impl Spans {
    pub(crate) fn from_parts(numbers: Vec<u8>, bytes: Vec<u8>) -> Self {
        Self { numbers, used: bytes.len(), buffer: bytes }
    }

    /// Lengths and skips.
    pub(crate) fn numbers(&self) -> &[u8] {
        &self.numbers
    }

    /// New bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.used = 0;
    }

    pub(crate) fn capacity(&self) -> usize {
        self.numbers.capacity() + self.buffer.capacity()
    }

    /// Appends the spans that turn `before` into `frame`, which are equally long.
    pub(crate) fn push(&mut self, before: &[u8], frame: &[u8]) {
        let room = self.used + frame.len() + GAP;
        if self.buffer.len() < room {
            self.buffer.resize(room.next_power_of_two(), 0);
        }
        let mut at = 0;
        let mut done = 0;
        while let Some(start) = next_change(before, frame, at) {
            at = span_end(before, frame, start + 1);
            self.number(at - start);
            self.number(start - done);
            self.copy(frame, start, at);
            done = at;
        }
        self.number(0);
    }

    fn number(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.numbers.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.numbers.push(value as u8);
    }

    fn copy(&mut self, frame: &[u8], start: usize, end: usize) {
        let length = end - start;
        let blocks = length.next_multiple_of(GAP);
        // Whole blocks run over the span's end into room that the next span overwrites; they compile to single moves,
        // which matters where a frame has hundreds of short spans.
        match frame.get(start..start + blocks) {
            Some(source) => {
                let target = &mut self.buffer[self.used..self.used + blocks];
                for (to, from) in target.chunks_exact_mut(GAP).zip(source.chunks_exact(GAP)) {
                    to.copy_from_slice(from);
                }
            }
            None => self.buffer[self.used..self.used + length].copy_from_slice(&frame[start..end]),
        }
        self.used += length;
    }
}

/// The first byte at or after `at` that differs.
fn next_change(before: &[u8], frame: &[u8], mut at: usize) -> Option<usize> {
    const BLOCK: usize = 64;
    while let (Some(a), Some(b)) = (before.get(at..at + BLOCK), frame.get(at..at + BLOCK)) {
        if a != b {
            break;
        }
        at += BLOCK;
    }
    while let Some(changed) = difference(before, frame, at) {
        if changed != 0 {
            return Some(at + changed.trailing_zeros() as usize / 8);
        }
        at += WORD;
    }
    (at..frame.len()).find(|&i| before[i] != frame[i])
}

/// One past the last byte of the span that goes on at `at`, the byte before which differs.
fn span_end(before: &[u8], frame: &[u8], mut at: usize) -> usize {
    while let Some(later) = difference(before, frame, at + WORD) {
        if later != 0 {
            at += GAP - later.leading_zeros() as usize / 8;
            continue;
        }
        match difference(before, frame, at) {
            Some(sooner) if sooner != 0 => at += WORD - sooner.leading_zeros() as usize / 8,
            _ => return at,
        }
    }
    (at..frame.len()).rev().find(|&i| before[i] != frame[i]).map_or(at, |last| last + 1)
}

/// The xor of a word from `at` on, its first byte in the lowest bits; none where fewer bytes are left.
fn difference(before: &[u8], frame: &[u8], at: usize) -> Option<u128> {
    let word = |bytes: &[u8]| Some(u128::from_le_bytes(*bytes.get(at..at + WORD)?.first_chunk()?));
    Some(word(before)? ^ word(frame)?)
}

/// Both streams of spans, read from the front.
pub(crate) struct SpanReader<'a> {
    numbers: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> SpanReader<'a> {
    pub(crate) fn new(numbers: &'a [u8], bytes: &'a [u8]) -> Self {
        Self { numbers, bytes }
    }

    /// Patches a frame, which holds the frame before it; none where the spans do not fit it.
    pub(crate) fn patch(&mut self, frame: &mut [u8]) -> Option<()> {
        let mut at = 0usize;
        loop {
            let length = self.number()?;
            if length == 0 {
                return Some(());
            }
            at = at.checked_add(self.number()?)?;
            let end = at.checked_add(length)?;
            let (now, later) = self.bytes.split_at_checked(length)?;
            frame.get_mut(at..end)?.copy_from_slice(now);
            self.bytes = later;
            at = end;
        }
    }

    fn number(&mut self) -> Option<usize> {
        let mut value = 0;
        for (i, &byte) in self.numbers.iter().take(MOST_VARINT).enumerate() {
            value |= usize::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.numbers = &self.numbers[i + 1..];
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Frames of the given length in which each byte changes with this probability.
    fn frames(rng: &mut Rng, length: usize, count: usize, changes: f64) -> Vec<Vec<u8>> {
        let mut frame = vec![0; length];
        (0..count)
            .map(|_| {
                for byte in &mut frame {
                    if rng.uniform() < changes {
                        *byte = rng.below(256) as u8;
                    }
                }
                frame.clone()
            })
            .collect()
    }

    #[test]
    fn frames_come_back_whatever_changes() {
        let mut rng = Rng::new(1);
        for length in [1, 2, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 80, 129, 1_000] {
            for changes in [0.0, 0.002, 0.05, 0.1, 0.5, 1.0] {
                let frames = frames(&mut rng, length, 20, changes);
                let mut spans = Spans::default();
                let mut before = vec![0; length];
                for frame in &frames {
                    let size = |spans: &Spans| spans.numbers().len() + spans.bytes().len();
                    let before_it = size(&spans);
                    spans.push(&before, frame);
                    assert!(size(&spans) - before_it <= most_bytes(length));
                    before.clone_from(frame);
                }
                let mut reader = SpanReader::new(spans.numbers(), spans.bytes());
                let mut decoded = vec![0; length];
                for frame in &frames {
                    reader.patch(&mut decoded).unwrap();
                    assert_eq!(&decoded, frame, "length {length}, changes {changes}");
                }
                assert!(reader.numbers.is_empty() && reader.bytes.is_empty());
            }
        }
    }

    #[test]
    fn the_spans_of_a_small_change_are_as_described() {
        let before = [0; 200];
        let mut frame = [0; 200];
        frame[3] = 9;
        frame[150..153].copy_from_slice(&[7, 0, 8]);
        let mut spans = Spans::default();
        spans.push(&before, &frame);
        assert_eq!(spans.numbers(), [1, 3, 3, 0x80 | 18, 1, 0]);
        assert_eq!(spans.bytes(), [9, 7, 0, 8]);
    }

    #[test]
    fn spans_that_do_not_fit_are_refused() {
        let mut frame = [0; 8];
        let refused: [(&[u8], &[u8]); 7] = [
            (&[], &[]),
            (&[1], &[5]),
            (&[1, 8, 0], &[5]),
            (&[9, 0, 0], &[5; 9]),
            (&[2, 7, 0], &[5; 2]),
            (&[0xff; 12], &[5]),
            (&[2, 0, 0], &[5]),
        ];
        for (numbers, bytes) in refused {
            assert!(SpanReader::new(numbers, bytes).patch(&mut frame).is_none(), "{numbers:?} {bytes:?}");
        }
    }
}
