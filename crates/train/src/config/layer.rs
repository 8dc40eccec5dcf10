//! One layer of a config: TOML text or a `--set`, taken apart into fields with the place each was written.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use super::problem::Fault;
use super::text::{one_line, shortened};

/// A value as it was written, not yet compared with any field.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Keys joined by dots.
    pub path: String,
    /// What was written.
    pub value: Value,
    /// Line, counted from 1.
    pub line: usize,
}

/// What a text holds: its values, or everything that keeps it from being TOML with the lines.
pub fn read_text(text: &str) -> Result<Vec<Entry>, Vec<(usize, Fault)>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mut faults: Vec<_> = errors.iter().map(|error| syntax_fault(text, error)).collect();
        faults.sort_by_key(|(line, _)| *line);
        return Err(faults);
    }
    let mut entries = Vec::new();
    let mut faults = Vec::new();
    take_apart(text, "", table.into_inner(), &mut entries, &mut faults);
    // A table is sorted by key; people read from top to bottom.
    entries.sort_by_key(|entry| entry.line);
    if faults.is_empty() { Ok(entries) } else { Err(faults) }
}

/// What the argument of a `--set` holds: one value, or those of an inline table.
pub fn read_setting(setting: &str) -> Result<Vec<Entry>, Fault> {
    let (path, text) = setting.split_once('=').ok_or(Fault::NoSetting)?;
    let (path, text) = (path.trim(), text.trim());
    if path.is_empty() || text.is_empty() {
        return Err(Fault::NoSetting);
    }
    let value = match DeValue::parse(text) {
        Ok(value) => value,
        // A bare word is text, so that `run.device=cpu` needs no quotes that a shell would take away.
        Err(_) if text.chars().all(|c| c.is_alphanumeric() || "_-+:./".contains(c)) => {
            Spanned::new(0..0, DeValue::String(text.into()))
        }
        Err(error) => return Err(syntax_fault(text, &error).1),
    };
    let mut entries = Vec::new();
    let mut faults = Vec::new();
    take_apart_value(text, one_line(path), value, &mut entries, &mut faults);
    faults.pop().map_or(Ok(entries), |(_, fault)| Err(fault))
}

fn take_apart(
    text: &str,
    section: &str,
    table: DeTable<'_>,
    entries: &mut Vec<Entry>,
    faults: &mut Vec<(usize, Fault)>,
) {
    for (key, value) in table {
        let key = shown_key(key.get_ref());
        let path = if section.is_empty() { key } else { format!("{section}.{key}") };
        take_apart_value(text, path, value, entries, faults);
    }
}

fn take_apart_value(
    text: &str,
    path: String,
    value: Spanned<DeValue<'_>>,
    entries: &mut Vec<Entry>,
    faults: &mut Vec<(usize, Fault)>,
) {
    let line = line_at(text, value.span().start);
    match value.into_inner() {
        // An empty table stays as it is, so that an unknown one is noticed.
        DeValue::Table(table) if !table.is_empty() => take_apart(text, &path, table, entries, faults),
        value => match Value::deserialize(ValueDeserializer::from(Spanned::new(0..0, value)).into_deserializer()) {
            Ok(value) => entries.push(Entry { path, value, line }),
            // Whole numbers beyond 64 bits are TOML, but no value.
            Err(error) => {
                faults.push((line, Fault::Syntax { what: format!("{path}: {}", first_line(error.message())) }));
            }
        },
    }
}

/// The key as it can stand in a path: quoted where it is no plain word, so that it can't be taken for one.
fn shown_key(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if plain { key.to_owned() } else { format!("{key:?}") }
}

fn syntax_fault(text: &str, error: &toml::de::Error) -> (usize, Fault) {
    let line = line_at(text, error.span().map_or(0, |span| span.start));
    (line, Fault::Syntax { what: first_line(error.message()) })
}

fn first_line(text: &str) -> String {
    shortened(&one_line(text))
}

fn line_at(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|&b| b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, value: impl Into<Value>, line: usize) -> Entry {
        Entry { path: path.into(), value: value.into(), line }
    }

    #[test]
    fn a_text_is_taken_apart_into_paths_with_lines() {
        let text = "# comment\n[replay]\ntrace = 20\nperiod = 10 # why\n\n[agent.loss]\ncross_mixture = 1\n[metrics]\n";
        assert_eq!(
            read_text(text).unwrap(),
            [
                entry("replay.trace", 20, 3),
                entry("replay.period", 10, 4),
                entry("agent.loss.cross_mixture", 1, 7),
                entry("metrics", toml::Table::new(), 8),
            ]
        );
    }

    #[test]
    fn every_syntax_error_is_found_with_its_line() {
        let faults = read_text("a = \nb = 1\nc = [1 2]\nb = 2\n[d\n").unwrap_err();
        assert_eq!(faults.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 4, 5], "{faults:?}");
        assert!(faults.iter().all(|(_, fault)| matches!(fault, Fault::Syntax { .. })));
    }

    #[test]
    fn a_key_that_is_no_word_is_quoted() {
        assert_eq!(read_text("\"replay.trace\" = 1").unwrap(), [entry("\"replay.trace\"", 1, 1)]);
        assert_eq!(read_text("\"a\\nb\".c = 1").unwrap(), [entry("\"a\\nb\".c", 1, 1)]);
    }

    #[test]
    fn a_number_that_is_too_large_is_no_value() {
        let faults = read_text("a = 99999999999999999999").unwrap_err();
        assert_eq!(faults.len(), 1);
    }

    #[test]
    fn settings_are_toml_values_or_words() {
        assert_eq!(read_setting("replay.trace=20").unwrap(), [entry("replay.trace", 20, 1)]);
        assert_eq!(read_setting(" replay.trace = 20 ").unwrap(), [entry("replay.trace", 20, 1)]);
        assert_eq!(read_setting("run.device=cpu").unwrap(), [entry("run.device", "cpu", 1)]);
        assert_eq!(read_setting("run.device=\"cpu\"").unwrap(), [entry("run.device", "cpu", 1)]);
        assert_eq!(read_setting("run.lockstep=true").unwrap(), [entry("run.lockstep", true, 1)]);
        assert_eq!(read_setting("x.y=1e-4").unwrap(), [entry("x.y", 1e-4, 1)]);
        assert_eq!(read_setting("x.y=10k").unwrap(), [entry("x.y", "10k", 1)]);
        assert_eq!(
            read_setting("replay={trace=20, period=10}").unwrap(),
            [entry("replay.period", 10, 1), entry("replay.trace", 20, 1)]
        );
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        for setting in ["", "=", "trace", "=20", "trace=", "replay.trace= "] {
            assert_eq!(read_setting(setting), Err(Fault::NoSetting), "{setting:?}");
        }
        for setting in ["x=[1,", "x=1 2", "x=1\ny=2", "x=\"a", "x={", "x=1 # y"] {
            let refused = read_setting(setting);
            assert!(matches!(refused, Err(Fault::Syntax { .. })), "{setting:?} {refused:?}");
        }
    }
}
