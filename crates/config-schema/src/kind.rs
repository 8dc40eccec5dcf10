//! The values that a field takes.

use std::fmt;
use std::ops::{Bound, RangeBounds, RangeInclusive};

use toml::Value;

use crate::text::{grouped, short_number, shown};

/// The values that a field takes.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// An integer from the first to the second.
    Integer(i64, i64),
    /// An integer from the first to the second, or 0 for none.
    IntegerOrNone(i64, i64),
    /// A number within bounds.
    Number(Bound<f64>, Bound<f64>),
    /// One of these words, each with its meaning.
    Choice(&'static [(&'static str, &'static str)]),
    /// A list of integers.
    Integers {
        /// Fewest entries.
        shortest: usize,
        /// Most entries.
        longest: usize,
        /// Smallest entry.
        low: i64,
        /// Largest entry.
        high: i64,
    },
    /// A list of 1 to this many tables with these columns.
    Rows(usize, &'static [Column]),
}

/// An integer in every table of a list.
#[derive(Debug)]
pub struct Column {
    /// Its key.
    pub name: &'static str,
    /// Its smallest and largest value.
    pub range: RangeInclusive<i64>,
    /// Whether it may be left out, which means 0.
    pub optional: bool,
}

/// An enum that [`choice!`](crate::choice!) declares.
pub trait Choice {
    /// Its words, each with its meaning.
    const WORDS: &'static [(&'static str, &'static str)];
}

/// A struct that [`row!`](crate::row!) declares.
pub trait Row {
    /// Its columns.
    const COLUMNS: &'static [Column];
}

impl Kind {
    /// Returns the value in the field's own form, or what was found instead.
    ///
    /// For a number, `1` becomes `1.0`.
    pub fn accept(&self, value: &Value) -> Result<Value, String> {
        let in_range = |inside: bool| if inside { Ok(value.clone()) } else { Err(shown(value)) };
        match (self, value) {
            (Self::Switch, Value::Boolean(_)) => Ok(value.clone()),
            (Self::Integer(low, high), Value::Integer(number)) => in_range((low..=high).contains(&number)),
            (Self::IntegerOrNone(low, high), Value::Integer(number)) => {
                in_range(*number == 0 || (low..=high).contains(&number))
            }
            (Self::Number(low, high), Value::Float(number)) => in_range((*low, *high).contains(number)),
            (Self::Number(..), Value::Integer(number)) => self.accept(&Value::Float(*number as f64)),
            (Self::Choice(words), Value::String(word)) => in_range(words.iter().any(|(known, _)| known == word)),
            (Self::Integers { shortest, longest, low, high }, Value::Array(entries)) => {
                accept_entries(entries, |entry| Self::Integer(*low, *high).accept(entry))?;
                in_range((*shortest..=*longest).contains(&entries.len()))
            }
            (Self::Rows(longest, columns), Value::Array(entries)) => {
                let rows = accept_entries(entries, |entry| accept_row(columns, entry))?;
                in_range((1..=*longest).contains(&rows.len())).map(|_| Value::Array(rows))
            }
            _ => Err(with_type(value)),
        }
    }
}

fn accept_entries(entries: &[Value], accept: impl Fn(&Value) -> Result<Value, String>) -> Result<Vec<Value>, String> {
    let accepted = entries.iter().map(|entry| accept(entry).map_err(|found| format!("a list that contains {found}")));
    accepted.collect()
}

fn accept_row(columns: &[Column], value: &Value) -> Result<Value, String> {
    let Value::Table(given) = value else { return Err(with_type(value)) };
    if given.keys().any(|key| columns.iter().all(|column| column.name != key)) {
        return Err(shown(value));
    }
    let cell = |column: &Column| match given.get(column.name) {
        Some(cell) => {
            let kind = Kind::Integer(*column.range.start(), *column.range.end());
            let cell = kind.accept(cell).map_err(|found| format!("{} = {found}", column.name))?;
            Ok((column.name.to_owned(), cell))
        }
        None if column.optional => Ok((column.name.to_owned(), Value::Integer(0))),
        None => Err(shown(value)),
    };
    Ok(Value::Table(columns.iter().map(cell).collect::<Result<_, _>>()?))
}

/// The value with the name of its type.
fn with_type(value: &Value) -> String {
    let name = match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    };
    format!("{} ({name})", shown(value))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |low, high| format!("from {} to {}", grouped(low), grouped(high));
        match *self {
            Self::Switch => f.write_str("true or false"),
            Self::Integer(low, high) => write!(f, "an integer {}", range(low, high)),
            Self::IntegerOrNone(low, high) => write!(f, "an integer {}, or 0 for none", range(low, high)),
            Self::Number(low, high) => {
                let (low, from) = match low {
                    Bound::Excluded(low) => (low, "above"),
                    Bound::Included(low) => (low, "from"),
                    Bound::Unbounded => (f64::NEG_INFINITY, "from"),
                };
                let (high, to) = match high {
                    Bound::Excluded(high) => (high, "to below"),
                    Bound::Included(high) if from == "above" => (high, "and at most"),
                    Bound::Included(high) => (high, "to"),
                    Bound::Unbounded => (f64::INFINITY, "to"),
                };
                write!(f, "a number {from} {} {to} {}", short_number(low), short_number(high))
            }
            Self::Choice(words) => {
                write!(f, "one of {}", words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", "))
            }
            Self::Integers { shortest, longest, low, high } => {
                write!(f, "a list of {shortest} to {longest} integers {}", range(low, high))
            }
            Self::Rows(longest, columns) => {
                let columns: Vec<_> = columns.iter().map(Column::to_string).collect();
                write!(f, "a list of 1 to {longest} tables {{ {} }}", columns.join(", "))
            }
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, range, optional } = self;
        let default = if *optional { " (default 0)" } else { "" };
        write!(f, "{name} = {} to {}{default}", grouped(*range.start()), grouped(*range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: Kind, value: impl Into<Value>) -> String {
        kind.accept(&value.into()).unwrap_err()
    }

    #[test]
    fn numbers_accept_integers_but_integers_refuse_floats() {
        assert_eq!(crate::number(0.0, 2.0).kind.accept(&Value::Integer(1)), Ok(Value::Float(1.0)));
        assert_eq!(found(Kind::Integer(1, 9), 8.0), "8.0 (a float)");
    }

    #[test]
    fn bounds_are_exact_to_the_last_bit() {
        assert!(Kind::Integer(2, 160).accept(&Value::Integer(2)).is_ok());
        assert!(Kind::Integer(2, 160).accept(&Value::Integer(160)).is_ok());
        assert_eq!(found(Kind::Integer(2, 160), 161), "161");
        assert!(crate::above(0.0, 1.0).kind.accept(&Value::Float(f64::MIN_POSITIVE)).is_ok());
        assert_eq!(found(crate::above(0.0, 1.0).kind, 0.0), "0.0");
        assert!(crate::below(0.0, 1.0).kind.accept(&Value::Float(1.0_f64.next_down())).is_ok());
        assert_eq!(found(crate::below(0.0, 1.0).kind, 1), "1.0");
    }

    #[test]
    fn values_that_are_not_finite_are_in_no_range() {
        for (number, text) in [(f64::NAN, "nan"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")] {
            assert_eq!(found(crate::number(-1e300, 1e300).kind, number), text);
        }
    }

    #[test]
    fn lists_are_checked_entry_by_entry() {
        let kind = Kind::Integers { shortest: 1, longest: 3, low: 1, high: 9 };
        let list = |entries: &[i64]| Value::Array(entries.iter().map(|&entry| Value::Integer(entry)).collect());
        assert!(kind.accept(&list(&[1, 9])).is_ok());
        for bad in [list(&[]), list(&[1, 2, 3, 4]), list(&[1, 10]), list(&[0])] {
            assert!(!found(kind, bad.clone()).contains(" (a"), "{bad}");
        }
        let mixed = Value::Array(vec![Value::Integer(1), Value::Boolean(true)]);
        assert_eq!(found(kind, mixed), "a list that contains true (a boolean)");
        let kind = Kind::Integers { shortest: 0, longest: 3, low: 1, high: 9 };
        assert!(kind.accept(&list(&[])).is_ok() && kind.accept(&list(&[1, 9])).is_ok());
        for bad in [list(&[1, 2, 3, 4]), list(&[10])] {
            assert!(!found(kind, bad.clone()).contains(" (a"), "{bad}");
        }
        assert_eq!(found(kind, 3), "3 (an integer)");
        assert_eq!(kind.to_string(), "a list of 0 to 3 integers from 1 to 9");
    }

    crate::row! {
        /// A row.
        pub struct Window {
            /// Stride.
            stride: usize, 1..=8;
            /// Padding.
            padding: usize = 0, 0..=8;
        }
    }

    #[test]
    fn rows_are_completed_and_checked() {
        let kind = Kind::Rows(2, Window::COLUMNS);
        let accept = |text: &str| {
            let table: toml::Table = format!("x = {text}").parse().unwrap();
            kind.accept(&table["x"]).map(|value| shown(&value))
        };
        assert_eq!(accept("[{ stride = 2 }]"), Ok("[{ padding = 0, stride = 2 }]".into()));
        assert_eq!(accept("[{ stride = 9 }]"), Err("a list that contains stride = 9".into()));
        assert_eq!(accept("[{ stride = true }]"), Err("a list that contains stride = true (a boolean)".into()));
        for bad in ["[]", "[{ padding = 1 }]", "[{ stride = 1, stirde = 2 }]", "[{stride=1}, {stride=1}, {stride=1}]"] {
            assert!(accept(bad).is_err_and(|found| !found.contains(" (a")), "{bad}");
        }
        for bad in ["3", "[3]", "{ stride = 1 }"] {
            assert!(accept(bad).is_err_and(|found| found.contains(" (a")), "{bad}");
        }
        assert_eq!(kind.to_string(), "a list of 1 to 2 tables { stride = 1 to 8, padding = 0 to 8 (default 0) }");
        assert_eq!(toml::from_str::<Window>("stride = 3").unwrap(), Window { stride: 3, padding: 0 });
    }

    #[test]
    fn zero_stands_for_none() {
        let kind = Kind::IntegerOrNone(8, 100);
        assert!(kind.accept(&Value::Integer(0)).is_ok() && kind.accept(&Value::Integer(8)).is_ok());
        assert_eq!(found(kind, 7), "7");
        assert_eq!(kind.to_string(), "an integer from 8 to 100, or 0 for none");
    }

    #[test]
    fn ranges_read_as_words() {
        assert_eq!(Kind::Integer(1, 200_000).to_string(), "an integer from 1 to 200_000");
        assert_eq!(crate::number(0.0, 1.0).kind.to_string(), "a number from 0.0 to 1.0");
        assert_eq!(crate::above(0.0, 1.0).kind.to_string(), "a number above 0.0 and at most 1.0");
        assert_eq!(crate::below(0.0, 1.0).kind.to_string(), "a number from 0.0 to below 1.0");
        assert_eq!(Kind::Choice(&[("auto", ""), ("cpu", "")]).to_string(), "one of auto, cpu");
    }
}
