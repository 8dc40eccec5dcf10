//! Numbers as users type and read them.

/// Parses an integer below 2^64 as people write it.
///
/// `1000000`, `1_000_000`, `"1 000 000"`, `1e6`, `2.5e6`, `250k`, `25M` and `1G` are valid.
pub fn parse_integer(text: &str) -> Option<u64> {
    let text = text.replace(['_', ' '], "");
    let (number, zeros) = match text.split_once(['e', 'E']) {
        Some((number, zeros)) => (number, zeros.strip_prefix('+').unwrap_or(zeros).parse().ok()?),
        None => match text.as_bytes().last()? {
            b'k' => (&text[..text.len() - 1], 3),
            b'M' => (&text[..text.len() - 1], 6),
            b'G' => (&text[..text.len() - 1], 9),
            _ => (text.as_str(), 0),
        },
    };
    // By its digits: a float would round numbers above 2^53.
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    let zeros = u32::checked_sub(zeros, fraction.len().try_into().ok()?)?;
    let digits = format!("{whole}{fraction}");
    if whole.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(10u64.checked_pow(zeros)?)
}

/// Formats with `digits` decimals, and without a sign if all digits are 0.
pub fn fixed(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    match text.strip_prefix('-') {
        Some(plain) if plain.bytes().all(|digit| b"0.".contains(&digit)) => plain.to_owned(),
        _ => text,
    }
}

/// Rounds a sum of rewards to twelve digits.
///
/// This removes the error of binary addition: 0.99 stays 0.99.
pub fn rounded(number: f64) -> f64 {
    // Adding 0 turns -0 into 0.
    format!("{number:.11e}").parse().unwrap_or(number) + 0.0
}

/// Formats seconds in fitting units: `119 s`, `2 min`, `4 h 15 min`, `2 d 3 h`.
///
/// `watch.js` follows the same rule.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_integers_in_many_notations() {
        for text in
            ["1000000", "1_000_000", "1 000 000", "1e6", "1E6", "1e+6", "0.1e7", "1M", "1000k", "0.001G", "1.0e6"]
        {
            assert_eq!(parse_integer(text), Some(1_000_000), "{text}");
        }
        assert_eq!(parse_integer("2.5M"), Some(2_500_000));
        assert_eq!(parse_integer("0"), Some(0));
        assert_eq!(parse_integer("18446744073709551615"), Some(u64::MAX));
        for text in [
            "",
            "_",
            "-1",
            "+1",
            "1.5",
            "1e-3",
            "0.0001k",
            "M",
            "e6",
            "1e",
            "1m",
            "1MM",
            "1eM",
            ".5M",
            "nan",
            "١",
            "18446744073709551616",
            "1e20",
            "1e99999999999",
            "20000000000G",
        ] {
            assert_eq!(parse_integer(text), None, "{text}");
        }
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!([fixed(-0.004, 2), fixed(-0.0, 0), fixed(-0.006, 2)], ["0.00", "0", "-0.01"]);
        assert_eq!([fixed(-20.96, 1), fixed(1.0, 3), fixed(f64::NEG_INFINITY, 1)], ["-21.0", "1.000", "-inf"]);
    }

    #[test]
    fn rounds_off_binary_errors() {
        let sum = 0.1 + 0.2;
        assert_ne!(sum, 0.3);
        assert_eq!((rounded(sum), rounded(0.9900000000000001)), (0.3, 0.99));
        for number in [0.0, 1.0, -21.0, 108_000.25, 1e300, 123_456_789_012.0] {
            assert_eq!(rounded(number), number);
        }
        assert!(rounded(-0.0).is_sign_positive() && rounded(f64::NAN).is_nan());
    }

    #[test]
    fn durations_use_fitting_units() {
        let durations = [0.4, 119.4, 119.6, 7199.0, 7200.0, 15_300.0, 172_799.0, 172_800.0, 86_400.0 * 400.0 + 7200.0]
            .map(duration);
        let expected =
            ["0 s", "119 s", "2 min", "119 min", "2 h 0 min", "4 h 15 min", "47 h 59 min", "2 d 0 h", "400 d 2 h"];
        assert_eq!(durations, expected);
    }
}
