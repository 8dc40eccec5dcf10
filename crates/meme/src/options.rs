//! Values of options: which numbers one takes, and what is said of a value that it does not.

use std::error::Error;
use std::num::ParseIntError;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use train::config::{Kind, fields};
use train::number_format::parse_integer;

/// A whole number from `low` to `high`, typed as people do.
pub fn whole<T: TryFrom<u64>>(low: i64, high: i64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = parse_integer(text).filter(|&number| number >= low as u64 && number <= high as u64);
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("it must be {}", Kind::Whole(low, high)))
    }
}

/// A number of episodes.
pub fn episodes<T: TryFrom<u64>>() -> impl Fn(&str) -> Result<T, String> + Clone {
    whole(1, u32::MAX.into())
}

/// What a field of the config may be, for an option that stands for it.
pub fn field(path: &str) -> impl Fn(&str) -> Result<u64, String> + Clone {
    match fields().find(|field| field.path == path).map(|field| field.kind) {
        Some(Kind::Whole(low, high)) => whole(low, high),
        _ => whole(0, i64::MAX),
    }
}

/// The same command, but what follows an option is its value also where it looks like `-1`: else that is said to be an
/// option that there is not.
pub fn with_negative_values(command: Command) -> Command {
    let takes = |arg: Arg| match arg.get_long().is_some() && arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(takes).mut_subcommands(with_negative_values)
}

/// The one sentence about a value that an option does not take; nothing for errors of another kind.
pub fn refused_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let expected = match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::ValueValidation, _) => match error.source()? {
            number if number.is::<ParseIntError>() => "it must be a whole number from 0 on".to_owned(),
            reason => reason.to_string(),
        },
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(words))) => {
            format!("it must be one of {}", words.join(", "))
        }
        _ => return None,
    };
    // `--seed <SEED>`; a value that is missing has another sentence.
    let option = text(ContextKind::InvalidArg)?.split(' ').next()?;
    let value = text(ContextKind::InvalidValue).filter(|value| !value.is_empty())?;
    Some(format!("{option} is `{value}`; {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_taken_within_their_range() {
        let taken = |text| whole::<u32>(2, 1_000_000)(text);
        for text in ["1000000", "1_000_000", "1e6", "1M"] {
            assert_eq!(taken(text), Ok(1_000_000), "{text}");
        }
        assert_eq!(taken("2"), Ok(2));
        for text in ["1", "1000001", "-2", "2.5", "", "many", "99999999999999999999"] {
            assert_eq!(taken(text), Err("it must be a whole number from 2 to 1_000_000".to_owned()), "{text}");
        }
        assert!(whole::<u8>(0, 1000)("256").is_err());
    }

    #[test]
    fn an_option_takes_what_its_field_does() {
        for path in ["run.seed", "run.frames"] {
            let kind = fields().find(|field| field.path == path).unwrap().kind;
            assert_eq!(field(path)("x"), Err(format!("it must be {kind}")));
        }
        assert_eq!(field("run.frames")("2.5M"), Ok(2_500_000));
    }
}
