//! The envelope around a saved environment: what it is of, and a checksum.
//!
//! Layout, little-endian: `MEMEENV1`, length of the label (u32), label, length of the content (u64), content, FNV-1a of
//! all before it (u64). The label says which environment the content belongs to; another label is foreign.

use crate::environments::EnvSpec;

const MAGIC: &[u8; 8] = b"MEMEENV1";

/// What a saved environment must agree on with the one that goes on from it.
pub fn label(spec: &EnvSpec) -> String {
    format!("{} {:?} {:?} {} actions", spec.name, spec.observation_shape, spec.observation_kind, spec.actions())
}

/// Puts `content` into an envelope.
pub fn seal(label: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAGIC.len() + 4 + label.len() + 8 + content.len() + 8);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(label.len() as u32).to_le_bytes());
    bytes.extend_from_slice(label.as_bytes());
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(&fnv1a(&bytes).to_le_bytes());
    bytes
}

/// Takes the content out of an envelope with this label; otherwise says what is wrong with it.
pub fn open<'a>(label: &str, bytes: &'a [u8]) -> Result<&'a [u8], String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| "it does not begin like a saved environment".to_owned())?;
    let cut_short = || "it is cut short".to_owned();
    let (body, sum) = bytes.split_last_chunk::<8>().ok_or_else(cut_short)?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_short)?;
    let (found, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(cut_short)?;
    let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(cut_short)?;
    let content_length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut_short())?;
    if rest.len().checked_sub(8) != Some(content_length) {
        return Err(cut_short());
    }
    if fnv1a(body) != u64::from_le_bytes(*sum) {
        return Err("its checksum is wrong: the bytes were changed".to_owned());
    }
    if found != label.as_bytes() {
        return Err(format!("it belongs to `{}`, not to `{label}`", String::from_utf8_lossy(found)));
    }
    Ok(&rest[..content_length])
}

/// The 64-bit FNV-1a hash. Each byte's step is a bijection, so that no change of one byte goes unnoticed.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        for content in [&b""[..], b"x", &[7; 1000]] {
            assert_eq!(open("pong", &seal("pong", content)).unwrap(), content);
        }
    }

    #[test]
    fn the_hash_has_its_published_values() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused() {
        let sealed = seal("pong", b"some content");
        for length in 0..sealed.len() {
            assert!(open("pong", &sealed[..length]).is_err(), "cut to {length}");
        }
        for i in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[i] ^= 1 << bit;
                assert!(open("pong", &changed).is_err(), "bit {bit} of byte {i}");
            }
        }
        let mut longer = sealed;
        longer.push(0);
        assert!(open("pong", &longer).is_err());
    }

    #[test]
    fn another_environment_is_named() {
        let reason = open("pong", &seal("breakout", b"x")).unwrap_err();
        assert_eq!(reason, "it belongs to `breakout`, not to `pong`");
    }
}
