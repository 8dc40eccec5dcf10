//! The presets, compiled in so that the binary needs no folder; `configs/` holds the same files.

use super::problem::Fault;
use crate::suggestion::suggest_word;

/// A preset: what differs from the defaults, as commented TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// The name a user types.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

/// Every preset, from the largest to the smallest.
pub const PRESETS: &[Preset] = &[
    Preset { name: "paper", text: include_str!("../../../../configs/paper.toml") },
    Preset { name: "quick", text: include_str!("../../../../configs/quick.toml") },
    Preset { name: "desktop", text: include_str!("../../../../configs/desktop.toml") },
    Preset { name: "cpu", text: include_str!("../../../../configs/cpu.toml") },
    Preset { name: "tiny", text: include_str!("../../../../configs/tiny.toml") },
];

/// The preset of this name.
pub fn preset(name: &str) -> Result<Preset, Fault> {
    let names = || PRESETS.iter().map(|preset| preset.name);
    PRESETS.iter().copied().find(|preset| preset.name == name).ok_or_else(|| Fault::UnknownPreset {
        known: names().collect::<Vec<_>>().join(", "),
        nearest: suggest_word(name, names()).map(str::to_owned),
    })
}
