//! A PNG encoder for pages: true colour, every row but the first as its difference from the one above.
//!
//! A page is mostly white and repeats itself from row to row, so a deflate with fixed codes that looks for one earlier
//! match makes it a hundredth of its pixels; more than that is not worth a dependency.

/// Length of the table that remembers where three bytes were last seen.
const TABLE: usize = 1 << 15;
/// The farthest that a match may lie behind.
const WINDOW: usize = 1 << 15;
const SHORTEST: usize = 3;
const LONGEST: usize = 258;

/// The bytes of a PNG file with these pixels, three bytes each, row by row.
pub fn encode(width: usize, height: usize, pixels: &[u8]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::new();
    header.extend((width as u32).to_be_bytes());
    header.extend((height as u32).to_be_bytes());
    // Eight bits a channel, true colour, deflate, filters by row, not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    chunk(&mut file, b"IHDR", &header);
    chunk(&mut file, b"IDAT", &zlib(&filtered(width, pixels)));
    chunk(&mut file, b"IEND", &[]);
    file
}

/// Rows with their filter: 0 for none, 2 for the difference from the row above.
fn filtered(width: usize, pixels: &[u8]) -> Vec<u8> {
    let row = width * 3;
    let mut bytes = Vec::with_capacity(pixels.len() + pixels.len() / row.max(1));
    for (number, now) in pixels.chunks_exact(row.max(1)).enumerate() {
        match number.checked_sub(1) {
            None => {
                bytes.push(0);
                bytes.extend_from_slice(now);
            }
            Some(before) => {
                bytes.push(2);
                let above = &pixels[before * row..number * row];
                bytes.extend(now.iter().zip(above).map(|(now, above)| now.wrapping_sub(*above)));
            }
        }
    }
    bytes
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) {
    file.extend((content.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend_from_slice(kind);
    file.extend_from_slice(content);
    let checksum = crc32(&file[start..]);
    file.extend(checksum.to_be_bytes());
}

fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |crc, _| if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 })
    });
    !bytes.iter().fold(u32::MAX, |crc, &byte| table[(crc as u8 ^ byte) as usize] ^ (crc >> 8))
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for part in bytes.chunks(5000) {
        for &byte in part {
            a += u32::from(byte);
            b += a;
        }
        (a, b) = (a % 65_521, b % 65_521);
    }
    b << 16 | a
}

/// Bits, the first ones lowest.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    waiting: u64,
    count: u32,
}

impl Bits {
    fn push(&mut self, value: u32, count: u32) {
        self.waiting |= u64::from(value) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.waiting as u8);
            self.waiting >>= 8;
            self.count -= 8;
        }
    }

    /// A Huffman code, whose highest bit goes first.
    fn code(&mut self, code: u32, count: u32) {
        self.push(code.reverse_bits() >> (32 - count), count);
    }

    /// A literal byte or a length's symbol, in deflate's fixed code.
    fn symbol(&mut self, symbol: u32) {
        match symbol {
            0..144 => self.code(0x30 + symbol, 8),
            144..256 => self.code(0x190 + symbol - 144, 9),
            256..280 => self.code(symbol - 256, 7),
            _ => self.code(0xc0 + symbol - 280, 8),
        }
    }

    fn copy(&mut self, length: usize, distance: usize) {
        let (symbol, extra, bits) = length_symbol(length);
        self.symbol(symbol);
        self.push(extra, bits);
        let (symbol, extra, bits) = distance_symbol(distance);
        self.code(symbol, 5);
        self.push(extra, bits);
    }
}

/// Symbol, extra bits and their number for a length from 3 to 258.
fn length_symbol(length: usize) -> (u32, u32, u32) {
    match length - SHORTEST {
        offset @ 0..8 => (257 + offset as u32, 0, 0),
        255 => (285, 0, 0),
        offset => {
            let bits = (offset as u32).ilog2() - 2;
            let group = offset as u32 >> bits;
            (257 + 4 * bits + group, offset as u32 - (group << bits), bits)
        }
    }
}

/// The same for a distance from 1.
fn distance_symbol(distance: usize) -> (u32, u32, u32) {
    match distance - 1 {
        offset @ 0..4 => (offset as u32, 0, 0),
        offset => {
            let bits = (offset as u32).ilog2() - 1;
            let group = offset as u32 >> bits;
            (2 * bits + group, offset as u32 - (group << bits), bits)
        }
    }
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut bits = Bits::default();
    // A window of 32 kB, no dictionary, fast; then one last block with fixed codes.
    bits.push(0x78, 8);
    bits.push(0x01, 8);
    bits.push(0b011, 3);
    let mut seen = vec![usize::MAX; TABLE];
    let place = |at: usize| {
        let three = u32::from(bytes[at]) << 16 | u32::from(bytes[at + 1]) << 8 | u32::from(bytes[at + 2]);
        (three.wrapping_mul(0x9e37_79b1) >> 17) as usize
    };
    let mut at = 0;
    while at < bytes.len() {
        let mut length = 0;
        let mut from = 0;
        if at + SHORTEST <= bytes.len() {
            from = std::mem::replace(&mut seen[place(at)], at);
            if from != usize::MAX && at - from <= WINDOW {
                let most = LONGEST.min(bytes.len() - at);
                length = (0..most).take_while(|&i| bytes[from + i] == bytes[at + i]).count();
            }
        }
        if length < SHORTEST {
            bits.symbol(u32::from(bytes[at]));
            at += 1;
            continue;
        }
        bits.copy(length, at - from);
        // Of a long match, a few places are enough to be found again.
        for inner in at + 1..(at + length).min(at + 16) {
            if inner + SHORTEST <= bytes.len() {
                seen[place(inner)] = inner;
            }
        }
        at += length;
    }
    bits.symbol(256);
    bits.push(0, (8 - bits.count) % 8);
    let mut stream = bits.bytes;
    stream.extend(adler32(bytes).to_be_bytes());
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plain inflate of one block with fixed codes, read bit by bit, written apart from the encoder.
    fn inflate(stream: &[u8]) -> Vec<u8> {
        let mut position = 16 + 3;
        let bit = |position: &mut usize| {
            let value = stream[*position / 8] >> (*position % 8) & 1;
            *position += 1;
            usize::from(value)
        };
        let number = |position: &mut usize, count: usize| (0..count).map(|i| bit(position) << i).sum::<usize>();
        let code = |position: &mut usize, count: usize| (0..count).fold(0, |code, _| code << 1 | bit(position));
        const LENGTHS: [usize; 29] = [
            3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
            227, 258,
        ];
        const DISTANCES: [usize; 30] = [
            1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073,
            4097, 6145, 8193, 12289, 16385, 24577,
        ];
        let mut out = Vec::new();
        loop {
            let mut symbol = code(&mut position, 7);
            if symbol < 24 {
                symbol += 256;
            } else {
                symbol = symbol << 1 | bit(&mut position);
                symbol = match symbol {
                    0x30..0xc0 => symbol - 0x30,
                    0xc0..0xc8 => symbol - 0xc0 + 280,
                    _ => (symbol << 1 | bit(&mut position)) - 0x190 + 144,
                };
            }
            match symbol {
                0..256 => out.push(symbol as u8),
                256 => return out,
                _ => {
                    let symbol = symbol - 257;
                    let extra = if symbol < 8 || symbol == 28 { 0 } else { symbol / 4 - 1 };
                    let length = LENGTHS[symbol] + number(&mut position, extra);
                    let symbol = code(&mut position, 5);
                    let extra = if symbol < 4 { 0 } else { symbol / 2 - 1 };
                    let distance = DISTANCES[symbol] + number(&mut position, extra);
                    for _ in 0..length {
                        out.push(out[out.len() - distance]);
                    }
                }
            }
        }
    }

    fn pseudorandom(length: usize, levels: u64) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..length).map(|_| (next() % levels) as u8).collect()
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let mut cases = vec![vec![], vec![7], vec![0; 70_000], b"abcabcabcabcabd".repeat(3)];
        for levels in [2, 5, 256] {
            cases.push(pseudorandom(40_000, levels));
        }
        // Matches at the farthest distance and beyond it.
        let noise = pseudorandom(32_768, 256);
        cases.push([&noise[..], &noise[..]].concat());
        for bytes in cases {
            let stream = zlib(&bytes);
            assert_eq!(inflate(&stream), bytes);
            assert_eq!(stream[stream.len() - 4..], adler32(&bytes).to_be_bytes());
        }
    }

    #[test]
    fn every_length_and_distance_has_its_symbol() {
        for (length, expected) in [(3, (257, 0, 0)), (10, (264, 0, 0)), (11, (265, 0, 1)), (257, (284, 30, 5))] {
            assert_eq!(length_symbol(length), expected, "{length}");
        }
        assert_eq!(length_symbol(258), (285, 0, 0));
        for (distance, expected) in [(1, (0, 0, 0)), (4, (3, 0, 0)), (5, (4, 0, 1)), (32_768, (29, 8191, 13))] {
            assert_eq!(distance_symbol(distance), expected, "{distance}");
        }
    }

    #[test]
    fn checksums_are_the_known_ones() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn the_file_has_the_chunks_of_a_png() {
        let pixels = [255, 0, 0, 0, 255, 0, 250, 0, 0, 0, 255, 1];
        let file = encode(2, 2, &pixels);
        assert_eq!(file[..8], *b"\x89PNG\r\n\x1a\n");
        assert_eq!(file[8..29], *b"\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x02\x08\x02\0\0\0");
        let data = u32::from_be_bytes(file[33..37].try_into().unwrap()) as usize;
        assert_eq!(file[37..41], *b"IDAT");
        assert_eq!(inflate(&file[41..41 + data]), [0, 255, 0, 0, 0, 255, 0, 2, 251, 0, 0, 0, 0, 1]);
        assert_eq!(file[file.len() - 12..], *b"\0\0\0\0IEND\xae\x42\x60\x82");
    }
}
