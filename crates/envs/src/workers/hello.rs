//! A worker's first reply, which describes its environments.

use std::collections::HashSet;

use serde::Deserialize;

use super::message::PROTOCOL;
use crate::environments::{EnvSpec, ObservationKind, ObservationPart};

const MAGIC: &str = "meme-worker";
const MAX_ACTIONS: usize = 65_536;
const MAX_OBSERVATION_BYTES: usize = 1 << 28;
/// Maximum number of parts of an observation: each has networks of its own.
const MAX_PARTS: usize = 64;

#[derive(Deserialize)]
struct Hello {
    magic: String,
    protocol: u32,
    #[serde(flatten)]
    spec: EnvSpec,
}

/// Reads the spec of a hello, or says what is wrong with it.
pub fn read_hello(name: &str, bytes: &[u8]) -> Result<EnvSpec, String> {
    let hello: Hello = serde_json::from_slice(bytes).map_err(|error| format!("a malformed hello: {error}"))?;
    if hello.magic != MAGIC {
        return Err(format!("a hello with the magic word `{}`, expected `{MAGIC}`", hello.magic));
    }
    if hello.protocol != PROTOCOL {
        return Err(format!(
            "python/meme_worker speaks version {} of the protocol and this binary version {PROTOCOL}: they are from \
             different commits; `make build` builds the binary of this checkout",
            hello.protocol
        ));
    }
    let spec = EnvSpec { name: name.to_owned(), ..hello.spec };
    check_shape(&spec.observation_shape, spec.observation_kind)?;
    check_parts(&spec)?;
    if !(1..=MAX_ACTIONS).contains(&spec.actions()) {
        return Err(format!("{} actions", spec.actions()));
    }
    if !(1..=1000).contains(&spec.frames_per_step) {
        return Err(format!("{} frames per step", spec.frames_per_step));
    }
    Ok(spec)
}

fn check_shape(shape: &[usize], kind: ObservationKind) -> Result<(), String> {
    let bytes = shape.iter().try_fold(kind.size(), |bytes, side| bytes.checked_mul(*side));
    if (1..=3).contains(&shape.len()) && bytes.is_some_and(|bytes| (1..=MAX_OBSERVATION_BYTES).contains(&bytes)) {
        return Ok(());
    }
    Err(format!("observations of shape {shape:?}"))
}

/// Refuses parts that are not two or more distinct arrays which together are the observation.
fn check_parts(spec: &EnvSpec) -> Result<(), String> {
    let parts = &spec.observation_parts;
    if parts.is_empty() {
        return Ok(());
    }
    if !(2..=MAX_PARTS).contains(&parts.len()) {
        return Err(format!("observations of {} parts; expected 2 to {MAX_PARTS}", parts.len()));
    }
    let mut names = HashSet::new();
    for ObservationPart { name, shape, kind } in parts {
        check_shape(shape, *kind).map_err(|error| format!("{error} as the part `{name}`"))?;
        if name.is_empty() || !names.insert(name) {
            return Err(format!("observations with the part `{name}`; expected distinct names"));
        }
    }
    let bytes = ObservationPart::total_bytes(parts);
    if (&spec.observation_shape[..], spec.observation_kind) != (&[bytes][..], ObservationKind::U8) {
        let shape = &spec.observation_shape;
        return Err(format!("observations of shape {shape:?}, whose parts take {bytes} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn hello() -> Value {
        json!({
            "magic": "meme-worker",
            "protocol": PROTOCOL,
            "observation_shape": [210, 160],
            "observation_kind": "u8",
            "action_names": ["noop", "fire"],
            "frames_per_step": 4,
        })
    }

    fn refused(field: &str, value: Value) -> String {
        let mut hello = hello();
        hello[field] = value;
        read_hello("pong", hello.to_string().as_bytes()).unwrap_err()
    }

    #[test]
    fn reads_valid_hellos() {
        let spec = read_hello("pong", hello().to_string().as_bytes()).unwrap();
        assert_eq!((spec.observation_bytes(), spec.actions(), spec.frames_per_step), (33_600, 2, 4));
    }

    #[test]
    fn reads_parts_and_refuses_those_that_are_not_the_observation() {
        let part = |name: &str, shape: Value, kind: &str| json!({"name": name, "shape": shape, "kind": kind});
        let read = |bytes: usize, parts: Value| {
            let mut hello = hello();
            hello["observation_shape"] = json!([bytes]);
            hello["observation_parts"] = parts;
            read_hello("gym:Both-v0", hello.to_string().as_bytes())
        };
        let picture = || part("picture", json!([5, 3]), "u8");
        // 15 bytes, one of padding, and 8.
        let spec = read(24, json!([picture(), part("place.0", json!([2]), "f32")])).unwrap();
        assert_eq!(ObservationPart::places(&spec.observation_parts), [0..15, 16..24]);
        assert_eq!(spec.observation_bytes(), ObservationPart::total_bytes(&spec.observation_arrays()));
        for (parts, reason) in [
            (json!([picture()]), "of 1 parts; expected 2 to 64"),
            (json!([picture(), picture()]), "with the part `picture`; expected distinct names"),
            (json!([picture(), part("", json!([2]), "f32")]), "with the part ``; expected distinct names"),
            (json!([picture(), part("place", json!([0]), "f32")]), "of shape [0] as the part `place`"),
            (json!([picture(), part("place", json!([3]), "f32")]), "of shape [24], whose parts take 28 bytes"),
        ] {
            let error = read(24, parts).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn names_each_invalid_field() {
        assert!(refused("magic", json!("x")).contains("magic word `x`"));
        let other = refused("protocol", json!(99));
        assert!(other.contains("version 99 of the protocol") && other.contains("`make build`"), "{other}");
        assert!(refused("observation_kind", json!("f64")).contains("`f64`"));
        for shape in [json!([]), json!([0]), json!([1, 2, 3, 4]), json!([u64::MAX, 2]), json!([1_u64 << 40])] {
            assert!(refused("observation_shape", shape).contains("observations of shape"));
        }
        assert!(refused("action_names", json!([])).contains("0 actions"));
        assert!(refused("frames_per_step", json!(0)).contains("0 frames per step"));
        assert!(read_hello("pong", b"\xff{").unwrap_err().contains("malformed"));
    }
}
