//! A worker's first reply, which describes its environments.

use serde::Deserialize;

use super::message::PROTOCOL;
use crate::environments::EnvSpec;

const MAGIC: &str = "meme-worker";
const MOST_ACTIONS: usize = 65_536;
const MOST_OBSERVATION_BYTES: usize = 1 << 28;

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
    let shape = &spec.observation_shape;
    let bytes = shape.iter().try_fold(spec.observation_kind.size(), |bytes, side| bytes.checked_mul(*side));
    if !(1..=3).contains(&shape.len()) || !bytes.is_some_and(|bytes| (1..=MOST_OBSERVATION_BYTES).contains(&bytes)) {
        return Err(format!("observations of shape {shape:?}"));
    }
    if !(1..=MOST_ACTIONS).contains(&spec.actions()) {
        return Err(format!("{} actions", spec.actions()));
    }
    if !(1..=1000).contains(&spec.frames_per_step) {
        return Err(format!("{} frames per step", spec.frames_per_step));
    }
    Ok(spec)
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
