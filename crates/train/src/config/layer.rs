//! One layer of a config: TOML text or a setting, split into values with their lines.

use config_schema::text::{one_line, shortened};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use super::problem::ConfigFault;

/// A value as it was written, not yet checked against any field.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Keys joined by dots.
    pub path: String,
    /// The value.
    pub value: Value,
    /// Line, counted from 1.
    pub line: usize,
}

/// Returns the values of a TOML text, or every syntax error with its line.
pub fn read_text(text: &str) -> Result<Vec<Entry>, Vec<(usize, ConfigFault)>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mut faults: Vec<_> = errors.iter().map(|error| syntax_fault(text, error)).collect();
        faults.sort_by_key(|(line, _)| *line);
        return Err(faults);
    }
    let mut found = EntryCollector::new(text);
    found.table("", table.into_inner());
    // Tables are sorted by key; people read from top to bottom.
    found.entries.sort_by_key(|entry| entry.line);
    if found.faults.is_empty() { Ok(found.entries) } else { Err(found.faults) }
}

/// Returns the value of a setting, or the values of its inline table.
pub fn read_setting(setting: &str) -> Result<Vec<Entry>, ConfigFault> {
    let (path, text) = setting.split_once('=').ok_or(ConfigFault::NotASetting)?;
    let (path, text) = (path.trim(), text.trim());
    if path.is_empty() || text.is_empty() {
        return Err(ConfigFault::NotASetting);
    }
    let value = match DeValue::parse(text) {
        Ok(value) => value,
        // A bare word is a string, so that `run.device=cpu` needs no quotes, which a shell would remove.
        Err(_) if text.chars().all(|c| c.is_alphanumeric() || "_-+:./".contains(c)) => {
            Spanned::new(0..0, DeValue::String(text.into()))
        }
        Err(error) => return Err(syntax_fault(text, &error).1),
    };
    let mut found = EntryCollector::new(text);
    found.value(one_line(path), value);
    found.faults.pop().map_or(Ok(found.entries), |(_, fault)| Err(fault))
}

/// The values found so far, and those that cannot be represented.
struct EntryCollector {
    starts: Vec<usize>,
    entries: Vec<Entry>,
    faults: Vec<(usize, ConfigFault)>,
}

impl EntryCollector {
    fn new(text: &str) -> Self {
        Self { starts: line_starts(text), entries: Vec::new(), faults: Vec::new() }
    }

    fn table(&mut self, section: &str, table: DeTable<'_>) {
        for (key, value) in table {
            let key = shown_key(key.get_ref());
            self.value(if section.is_empty() { key } else { format!("{section}.{key}") }, value);
        }
    }

    fn value(&mut self, path: String, value: Spanned<DeValue<'_>>) {
        let line = line_at(&self.starts, value.span().start);
        match value.into_inner() {
            // An empty table stays a value, so that an unknown one is reported.
            DeValue::Table(table) if !table.is_empty() => self.table(&path, table),
            value => match Value::deserialize(ValueDeserializer::from(Spanned::new(0..0, value)).into_deserializer()) {
                Ok(value) => self.entries.push(Entry { path, value, line }),
                // TOML allows integers beyond 64 bits; values cannot hold them.
                Err(error) => self.faults.push((line, ConfigFault::Syntax(format!("{path}: {}", message(&error))))),
            },
        }
    }
}

/// Returns the key as part of a path, quoted unless it is a plain word.
fn shown_key(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if plain { key.to_owned() } else { format!("{key:?}") }
}

fn syntax_fault(text: &str, error: &toml::de::Error) -> (usize, ConfigFault) {
    let line = line_at(&line_starts(text), error.span().map_or(0, |span| span.start));
    (line, ConfigFault::Syntax(message(error)))
}

fn message(error: &toml::de::Error) -> String {
    shortened(&one_line(error.message()))
}

/// Returns where each line begins, after the first.
fn line_starts(text: &str) -> Vec<usize> {
    text.match_indices('\n').map(|(end, _)| end + 1).collect()
}

/// Returns the line of a byte, counted from 1.
fn line_at(starts: &[usize], byte: usize) -> usize {
    starts.partition_point(|&start| start <= byte) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, value: impl Into<Value>, line: usize) -> Entry {
        Entry { path: path.into(), value: value.into(), line }
    }

    #[test]
    fn text_splits_into_paths_with_lines() {
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
    fn every_syntax_error_is_reported_with_its_line() {
        let faults = read_text("a = \nb = 1\nc = [1 2]\nb = 2\n[d\n").unwrap_err();
        assert_eq!(faults.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 4, 5], "{faults:?}");
        assert!(faults.iter().all(|(_, fault)| matches!(fault, ConfigFault::Syntax(_))));
    }

    #[test]
    fn key_that_is_not_a_plain_word_is_quoted() {
        assert_eq!(read_text("\"replay.trace\" = 1").unwrap(), [entry("\"replay.trace\"", 1, 1)]);
        assert_eq!(read_text("\"a\\nb\".c = 1").unwrap(), [entry("\"a\\nb\".c", 1, 1)]);
    }

    #[test]
    fn integer_beyond_64_bits_is_refused() {
        let faults = read_text("a = 99999999999999999999").unwrap_err();
        assert_eq!(faults.len(), 1);
    }

    #[test]
    fn settings_are_toml_values_or_bare_words() {
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
    fn malformed_settings_are_refused() {
        for setting in ["", "=", "trace", "=20", "trace=", "replay.trace= "] {
            assert_eq!(read_setting(setting), Err(ConfigFault::NotASetting), "{setting:?}");
        }
        for setting in ["x=[1,", "x=1 2", "x=1\ny=2", "x=\"a", "x={", "x=1 # y"] {
            let refused = read_setting(setting);
            assert!(matches!(refused, Err(ConfigFault::Syntax(_))), "{setting:?} {refused:?}");
        }
    }
}
