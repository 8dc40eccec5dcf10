//! Values as text: the same in files, in messages and on the reference page.

use toml::Value;

/// Maximum number of characters of a value in a message.
const MAX_LENGTH: usize = 80;

/// Returns TOML that reads back to the same bits, for a value that a field has accepted.
pub fn written(value: &Value) -> String {
    match value {
        Value::Integer(number) => grouped(*number),
        Value::Float(number) => short_number(*number),
        Value::Array(entries) => list(entries, written),
        Value::Table(table) => cells(table, written),
        other => other.to_string(),
    }
}

/// Returns any value on one line of bounded length.
pub fn shown(value: &Value) -> String {
    shortened(&match value {
        // Debug escapes line breaks.
        Value::String(text) => format!("{text:?}"),
        Value::Integer(_) | Value::Float(_) => written(value),
        Value::Array(entries) => list(entries, shown),
        Value::Table(table) => cells(table, shown),
        other => one_line(&other.to_string()),
    })
}

/// Lists the first items and counts the rest: `a; b; and 3 more`.
pub fn list_first(items: impl IntoIterator<Item = impl ToString>, limit: usize, separator: &str) -> String {
    let mut items = items.into_iter();
    let mut listed: Vec<String> = items.by_ref().take(limit).map(|item| item.to_string()).collect();
    if let more @ 1.. = items.count() {
        listed.push(format!("and {more} more"));
    }
    listed.join(separator)
}

fn list(entries: &[Value], text: fn(&Value) -> String) -> String {
    format!("[{}]", entries.iter().map(text).collect::<Vec<_>>().join(", "))
}

fn cells(table: &toml::Table, text: fn(&Value) -> String) -> String {
    let cells = table.iter().map(|(key, cell)| format!("{} = {}", one_line(key), text(cell)));
    format!("{{ {} }}", cells.collect::<Vec<_>>().join(", "))
}

/// Returns the text without line breaks and other control characters.
pub fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the text, or its beginning if it is too long for a message.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns `200000` as `200_000`, which TOML reads.
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && digits.len() > 4 && (digits.len() - i).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// Returns the shortest text that TOML reads back to the same float.
pub fn short_number(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        // Rust writes NaN, TOML nan.
        number.to_string().to_lowercase()
    } else if size == 0.0 || (1e-4..1e6).contains(&size) {
        format!("{number:?}")
    } else {
        format!("{number:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_their_bits() {
        assert_eq!(short_number(1e-8), "1e-8");
        assert_eq!(short_number(1e-4), "0.0001");
        assert_eq!(short_number(5.0), "5.0");
        assert_eq!(short_number(0.9997), "0.9997");
        let mut bits: u64 = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..10_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = f64::from_bits(bits ^ (bits >> 29));
            let text = format!("x = {}", short_number(number));
            let table: toml::Table = text.parse().unwrap();
            let back = table["x"].as_float().unwrap();
            assert!(back.to_bits() == number.to_bits() || (back.is_nan() && number.is_nan()), "{text}");
        }
    }

    #[test]
    fn integers_are_grouped_from_five_digits_on() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(4096), "4096");
        assert_eq!(grouped(200_000), "200_000");
        assert_eq!(grouped(i64::MIN), "-9_223_372_036_854_775_808");
    }

    #[test]
    fn values_in_messages_are_one_short_line() {
        assert_eq!(shown(&Value::String("a\nb".into())), "\"a\\nb\"");
        let long = shown(&Value::String("é".repeat(1000)));
        assert!(long.chars().count() <= MAX_LENGTH + 3 && long.ends_with("..."));
        assert_eq!(one_line("a\r\nb\tc\n"), "a  b c");
    }
}
