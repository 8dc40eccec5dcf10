//! The envelope around a saved environment: the environment it belongs to, and a checksum.
//!
//! The layout is `MEMEENV2`, then label and content as `postcard` encodes them, then their CRC-32.

use crc::{CRC_32_ISCSI, Crc};
use serde::{Deserialize, Serialize};

use crate::environments::EnvSpec;

const MAGIC: &[u8; 8] = b"MEMEENV2";
static CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    label: &'a str,
    #[serde(with = "serde_bytes")]
    content: &'a [u8],
}

/// Returns what a saved environment must have in common with the one that continues it.
pub fn label(spec: &EnvSpec) -> String {
    let EnvSpec { name, observation_shape: shape, observation_kind: kind, observation_parts: parts, .. } = spec;
    let parts: String = parts.iter().map(|part| format!(" {} {:?} {:?}", part.name, part.shape, part.kind)).collect();
    format!("{name} {shape:?} {kind:?}{parts} {} actions", spec.actions())
}

/// Puts `content` into an envelope.
pub fn seal(label: &str, content: &[u8]) -> Vec<u8> {
    let envelope = postcard::to_stdvec_crc32(&Envelope { label, content }, CHECKSUM.digest());
    [&MAGIC[..], &envelope.expect("text and bytes always serialize")].concat()
}

/// Takes the content out of an envelope with this label, or says why it cannot.
pub fn open<'a>(label: &str, bytes: &'a [u8]) -> Result<&'a [u8], String> {
    let bytes = bytes.strip_prefix(MAGIC).ok_or("it does not begin like a saved environment")?;
    let damaged = |error| format!("it is damaged ({error})");
    let (found, rest): (Envelope<'a>, _) =
        postcard::take_from_bytes_crc32(bytes, CHECKSUM.digest()).map_err(damaged)?;
    if !rest.is_empty() {
        return Err(format!("it is damaged ({} bytes too long)", rest.len()));
    }
    if found.label != label {
        return Err(format!("it belongs to `{}`, not to `{label}`", found.label));
    }
    Ok(found.content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_it_sealed() {
        for content in [&b""[..], b"x", &[7; 1000]] {
            assert_eq!(open("pong", &seal("pong", content)).unwrap(), content);
        }
    }

    #[test]
    fn refuses_every_cut_and_every_changed_bit() {
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
    fn names_other_environment() {
        let reason = open("pong", &seal("breakout", b"x")).unwrap_err();
        assert_eq!(reason, "it belongs to `breakout`, not to `pong`");
    }
}
