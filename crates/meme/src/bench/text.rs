//! A measurement as text: the names and values of its JSON document, aligned.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::output::{self, grouped};

/// Maximum number of rows of a table; longer ones, such as memory over hours, are left to JSON.
const MAX_ROWS: usize = 30;

/// Prints the measurement as JSON, or as text under a title.
pub fn print(json: bool, title: &str, report: &impl Serialize) -> anyhow::Result<()> {
    if json {
        return output::print_json(report);
    }
    output::print(&format!("{title}\n\n{}", text(&serde_json::to_value(report)?)))
}

/// Lists the plain values first, then each part under its name. Parts of the same kind share a table.
fn text(report: &Value) -> String {
    let (plain, parts) = match report {
        Value::Object(fields) => fields.iter().partition::<Vec<_>, _>(|(_, value)| is_plain(value)),
        records => return table(records.as_array().into_iter().flatten().map(|record| ("", record))),
    };
    let lines: Vec<_> = plain.into_iter().map(|(name, value)| [words(name), cell(value)]).collect();
    let mut sections = vec![output::table(&lines, &[0, 1])];
    for alike in parts.chunk_by(|(_, one), (_, other)| one.is_object() && keys(one) == keys(other)) {
        match alike {
            [(name, Value::Array(records))] if records.len() > MAX_ROWS => {
                sections.push(format!("{}: {} rows, with --json\n", words(name), records.len()));
            }
            [(name, part)] => sections.push(format!("{}\n{}", words(name), text(part))),
            alike => sections.push(table(alike.iter().map(|(name, part)| (name.as_str(), *part)))),
        }
    }
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

/// One row per record, under the names of its fields.
fn table<'a>(records: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    let mut rows = Vec::new();
    let mut left = vec![0];
    for (name, record) in records {
        let fields = record.as_object().into_iter().flat_map(Map::iter);
        if rows.is_empty() {
            left.extend(fields.clone().enumerate().filter(|(_, (_, value))| value.is_string()).map(|(i, _)| i + 1));
            rows.push([String::new()].into_iter().chain(fields.clone().map(|(name, _)| words(name))).collect());
        }
        rows.push([words(name)].into_iter().chain(fields.map(|(_, value)| cell(value))).collect::<Vec<_>>());
    }
    output::table(&rows, &left)
}

fn keys(part: &Value) -> Option<Vec<&String>> {
    part.as_object().filter(|fields| fields.values().all(is_plain)).map(|fields| fields.keys().collect())
}

/// Whether a value fits into one cell.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Object(_) => false,
        Value::Array(values) => values.iter().all(|value| !value.is_object()),
        _ => true,
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// Integers in groups of three digits, other numbers with four significant ones.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => words(text),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Number(number) => match (number.as_u64(), number.as_f64().unwrap_or(f64::NAN)) {
            (Some(integer), _) => grouped(integer),
            (None, 0.0) => "0".to_owned(),
            (None, number) if number >= 1000.0 => grouped(number.round() as u64),
            (None, number) => {
                let digits = (3.0 - number.abs().log10().floor()).clamp(0.0, 9.0);
                format!("{number:.*}", digits as usize)
            }
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_values_come_first_and_alike_parts_share_a_table() {
        let report = json!({
            "game": "pong",
            "ratio": { "lower": 0.98, "median": 1.0 },
            "worker": { "lower": 123.456, "median": 12_345.6 },
            "frames_per_second": 1234.5,
            "peak_gpu_bytes": null,
            "parts": [{ "part": "cores_and_heads", "share": 0.25 }],
            "single": { "steps": 1_000_000, "set": ["a=1", "b=2"] },
        });
        assert_eq!(
            text(&report),
            "game               pong\n\
             frames per second  1 235\n\
             peak gpu bytes     -\n\
             \n\
             \u{20}        lower  median\n\
             ratio   0.9800   1.000\n\
             worker   123.5  12 346\n\
             \n\
             parts\n\
             \u{20} part              share\n\
             \u{20} cores and heads  0.2500\n\
             \n\
             single\n\
             steps  1 000 000\n\
             set    a=1, b=2\n"
        );
    }

    #[test]
    fn long_tables_are_left_to_json() {
        let readings = vec![json!({ "seconds": 1 }); MAX_ROWS + 1];
        assert_eq!(text(&json!({ "readings": readings })), "readings: 31 rows, with --json\n");
    }

    #[test]
    fn numbers_have_four_significant_digits() {
        let cells =
            [json!(0.0), json!(0.001234567), json!(-2.5), json!(99.999), json!(1e9), json!(true)].map(|v| cell(&v));
        assert_eq!(cells, ["0", "0.001235", "-2.500", "100.00", "1 000 000 000", "true"]);
    }
}
