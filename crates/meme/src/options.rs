//! Options of several commands, parsers for their values, and the message about an invalid one.

use std::error::Error;

use anyhow::bail;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, Command};
use envs::EnvId;
use train::config::{Kind, fields};
use train::number_format::parse_integer;

/// Parses an integer from `low` to `high`, also in forms such as 1_000_000, 1e6 and 1M.
pub fn integer<T: TryFrom<u64>>(low: i64, high: i64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = parse_integer(text).filter(|&number| number >= low as u64 && number <= high as u64);
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("expected {}", Kind::Integer(low, high)))
    }
}

/// Parses a number of things, at least one.
pub fn count<T: TryFrom<u64>>() -> impl Fn(&str) -> Result<T, String> + Clone {
    integer(1, u32::MAX.into())
}

/// Parses the value of an option that stands for a config field.
pub fn field(path: &str) -> impl Fn(&str) -> Result<u64, String> + Clone {
    match fields().find(|field| field.path == path).map(|field| field.kind) {
        Some(Kind::Integer(low, high)) => integer(low, high),
        _ => integer(0, i64::MAX),
    }
}

/// Help of every argument ENVIRONMENT.
pub fn environment_help() -> String {
    format!("A game (`meme games` lists them), a task ({}) or gym:ENV_ID", envs::task_names())
}

/// Probability of a repeated action with `--sticky`.
const STICKY: f64 = 0.25;

/// The option `--sticky`.
#[derive(Args)]
pub struct StickyArg {
    #[arg(long, help = format!(
        "Use sticky actions: repeat the previous action with probability {STICKY} at each frame of an Atari game"
    ))]
    pub sticky: bool,
}

impl StickyArg {
    /// Returns the probability of a repeated action if sticky actions are requested.
    ///
    /// Only Atari games have them.
    pub fn probability(&self, environment: &EnvId) -> anyhow::Result<Option<f64>> {
        if self.sticky {
            check_atari("--sticky", environment)?;
        }
        Ok(self.sticky.then_some(STICKY))
    }
}

/// Rejects an option that applies to Atari games only.
pub fn check_atari(option: &str, environment: &EnvId) -> anyhow::Result<()> {
    if environment.game().is_none() {
        bail!("{option} applies to Atari games only, not to {environment}");
    }
    Ok(())
}

/// Makes clap take `-1` after an option as its value, not as an unknown option.
pub fn with_negative_values(command: Command) -> Command {
    let allow = |arg: Arg| match arg.get_long().is_some() && arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(allow).mut_subcommands(with_negative_values)
}

/// Returns a one-line message about an option's invalid value, or `None` for other errors.
pub fn invalid_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let reason = match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::ValueValidation, _) => error.source()?.to_string(),
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(words))) => format!("expected {}", words.join(" or ")),
        _ => return None,
    };
    // `--seed <SEED>`
    let option = text(ContextKind::InvalidArg)?.split(' ').next()?;
    // clap has its own message about a missing value.
    let value = text(ContextKind::InvalidValue).filter(|value| !value.is_empty())?;
    Some(format!("invalid value \"{value}\" for {option}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_is_accepted_within_its_range() {
        let parsed = |text| integer::<u32>(2, 1_000_000)(text);
        for text in ["1000000", "1_000_000", "1e6", "1M"] {
            assert_eq!(parsed(text), Ok(1_000_000), "{text}");
        }
        assert_eq!(parsed("2"), Ok(2));
        for text in ["1", "1000001", "-2", "2.5", "", "many", "99999999999999999999"] {
            assert_eq!(parsed(text), Err("expected an integer from 2 to 1_000_000".to_owned()), "{text}");
        }
        assert!(integer::<u8>(0, 1000)("256").is_err());
    }

    #[test]
    fn option_accepts_what_its_config_field_accepts() {
        for path in ["run.seed", "run.frames"] {
            let kind = fields().find(|field| field.path == path).unwrap().kind;
            assert_eq!(field(path)("x"), Err(format!("expected {kind}")));
        }
        assert_eq!(field("run.frames")("2.5M"), Ok(2_500_000));
    }
}
