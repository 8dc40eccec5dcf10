//! What a worker says of its environments when it is opened.

use serde::Deserialize;

use super::message::PROTOCOL;
use crate::environments::{EnvSpec, ObservationKind};

const MAGIC: &str = "meme-worker";
const MOST_ACTIONS: usize = 65_536;
const MOST_OBSERVATION_BYTES: usize = 1 << 28;

#[derive(Deserialize)]
struct Hello {
    magic: String,
    protocol: u32,
    observation_shape: Vec<usize>,
    observation_kind: String,
    action_names: Vec<String>,
    frames_per_step: u32,
}

/// The spec in a hello, or what is wrong with it.
pub fn read_hello(name: &str, bytes: &[u8]) -> Result<EnvSpec, String> {
    let hello: Hello = serde_json::from_slice(bytes).map_err(|error| format!("its hello cannot be read: {error}"))?;
    if hello.magic != MAGIC {
        return Err(format!("its hello begins with `{}`, not with `{MAGIC}`", hello.magic));
    }
    if hello.protocol != PROTOCOL {
        return Err(format!(
            "python/meme_worker speaks version {} of the protocol and this binary {PROTOCOL}: they are of different \
             commits; `make build` builds the binary that belongs to the checkout",
            hello.protocol
        ));
    }
    let observation_kind = match hello.observation_kind.as_str() {
        "u8" => ObservationKind::U8,
        "f32" => ObservationKind::F32,
        other => return Err(format!("its observations are of the unknown kind `{other}`")),
    };
    let shape = &hello.observation_shape;
    let bytes = shape.iter().try_fold(observation_kind.size(), |bytes, side| bytes.checked_mul(*side));
    if !(1..=3).contains(&shape.len()) || !bytes.is_some_and(|bytes| (1..=MOST_OBSERVATION_BYTES).contains(&bytes)) {
        return Err(format!("its observations have the impossible shape {shape:?}"));
    }
    if !(1..=MOST_ACTIONS).contains(&hello.action_names.len()) {
        return Err(format!("it has {} actions", hello.action_names.len()));
    }
    if !(1..=1000).contains(&hello.frames_per_step) {
        return Err(format!("it has {} frames a step", hello.frames_per_step));
    }
    Ok(EnvSpec {
        name: name.to_owned(),
        observation_shape: hello.observation_shape,
        observation_kind,
        action_names: hello.action_names,
        frames_per_step: hello.frames_per_step,
    })
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
    fn a_good_hello_is_read() {
        let spec = read_hello("pong", hello().to_string().as_bytes()).unwrap();
        assert_eq!((spec.observation_bytes(), spec.actions(), spec.frames_per_step), (33_600, 2, 4));
    }

    #[test]
    fn each_wrong_field_is_named() {
        assert!(refused("magic", json!("x")).contains("begins with `x`"));
        let other = refused("protocol", json!(99));
        assert!(other.contains("version 99 of the protocol") && other.contains("`make build`"), "{other}");
        assert!(refused("observation_kind", json!("f64")).contains("`f64`"));
        for shape in [json!([]), json!([0]), json!([1, 2, 3, 4]), json!([u64::MAX, 2]), json!([1_u64 << 40])] {
            assert!(refused("observation_shape", shape).contains("impossible shape"));
        }
        assert!(refused("action_names", json!([])).contains("0 actions"));
        assert!(refused("frames_per_step", json!(0)).contains("0 frames"));
        assert!(read_hello("pong", b"\xff{").unwrap_err().contains("cannot be read"));
    }
}
