//! What is known of a field besides its type: what it may be, what the paper says, what it means.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use toml::Value;

use super::text::{shown, shown_number, shown_whole};

/// A table of the config file, such as `[replay]` or `[agent.network]`.
#[derive(Debug)]
pub struct Section {
    /// Its name, with dots where it lies in another one.
    pub path: &'static str,
    /// What its fields are about, in a sentence.
    pub about: &'static str,
    /// Its fields, in the order of the documentation.
    pub fields: &'static [Field],
}

/// One value of the config.
#[derive(Debug)]
pub struct Field {
    /// The whole name: `replay.trace`.
    pub path: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it counts, or nothing.
    pub unit: &'static str,
    /// What the paper says about it.
    pub paper: Paper,
    /// What it does.
    pub meaning: &'static str,
}

impl Field {
    /// The part of the path after the section: `trace`.
    pub fn key(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }
}

/// What the paper says about a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// The default is the paper's value, written as the config file writes it.
    Says(&'static str),
    /// The paper has another value than the default; the meaning says why.
    Differs(&'static str),
    /// It belongs to the algorithm, but the paper is silent or unclear.
    Silent,
    /// It belongs to this program, not to the algorithm.
    Ours,
}

/// What a field may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number from the first to the second.
    Whole(i64, i64),
    /// A number within bounds.
    Number(Bound<f64>, Bound<f64>),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number from the first to the second, or 0 where the struct has `None`.
    WholeOrNone(i64, i64),
    /// A list of up to so many whole numbers, at least one, each from the second to the third.
    Wholes(usize, i64, i64),
    /// The same, or none at all.
    WholesOrNone(usize, i64, i64),
    /// A list of up to so many tables, at least one, each with these columns.
    Tables(usize, &'static [Column]),
}

/// A whole number in every table of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Column {
    /// Its key.
    pub key: &'static str,
    /// Least value.
    pub low: i64,
    /// Largest value.
    pub high: i64,
    /// What it is where it is left out; it must be there if there is nothing here.
    pub default: Option<i64>,
}

impl Kind {
    /// A number from `low` to `high`, both allowed.
    pub const fn number(low: f64, high: f64) -> Self {
        Self::Number(Bound::Included(low), Bound::Included(high))
    }

    /// A number above `low`, at most `high`.
    pub const fn above(low: f64, high: f64) -> Self {
        Self::Number(Bound::Excluded(low), Bound::Included(high))
    }

    /// A number from `low` to below `high`.
    pub const fn below(low: f64, high: f64) -> Self {
        Self::Number(Bound::Included(low), Bound::Excluded(high))
    }

    /// A probability or share: 0 to 1.
    pub const SHARE: Self = Self::number(0.0, 1.0);

    /// The value in the form the field has (`1` becomes `1.0` where a number is wanted), or why it can't be one.
    pub fn accept(&self, value: &Value) -> Result<Value, Refusal> {
        match (self, value) {
            (Self::Switch, Value::Boolean(_)) => Ok(value.clone()),
            (Self::Whole(low, high), Value::Integer(whole)) => in_range(value, (low..=high).contains(&whole)),
            (Self::WholeOrNone(low, high), Value::Integer(whole)) => {
                in_range(value, *whole == 0 || (low..=high).contains(&whole))
            }
            (Self::Number(low, high), Value::Float(number)) => in_range(value, (*low, *high).contains(number)),
            (Self::Number(..), Value::Integer(whole)) => self.accept(&Value::Float(*whole as f64)),
            (Self::Choice(words), Value::String(word)) => in_range(value, words.contains(&word.as_str())),
            (Self::Wholes(longest, low, high), Value::Array(entries)) => {
                for entry in entries {
                    Self::Whole(*low, *high).accept(entry).map_err(Refusal::in_a_list)?;
                }
                in_range(value, (1..=*longest).contains(&entries.len()))
            }
            (Self::WholesOrNone(..), Value::Array(entries)) if entries.is_empty() => Ok(value.clone()),
            (Self::WholesOrNone(longest, low, high), _) => Self::Wholes(*longest, *low, *high).accept(value),
            (Self::Tables(longest, columns), Value::Array(entries)) => {
                let tables = entries.iter().map(|entry| accept_table(columns, entry).map_err(Refusal::in_a_list));
                let tables = tables.collect::<Result<Vec<_>, _>>()?;
                in_range(value, (1..=*longest).contains(&tables.len()))?;
                Ok(Value::Array(tables))
            }
            _ => Err(Refusal::WrongType { found: described(value) }),
        }
    }
}

fn in_range(value: &Value, inside: bool) -> Result<Value, Refusal> {
    if inside { Ok(value.clone()) } else { Err(Refusal::OutOfRange { found: shown(value) }) }
}

/// One table of a list, with the columns that were left out.
fn accept_table(columns: &[Column], value: &Value) -> Result<Value, Refusal> {
    let Value::Table(given) = value else { return Err(Refusal::WrongType { found: described(value) }) };
    if given.keys().any(|key| columns.iter().all(|column| column.key != key)) {
        return Err(Refusal::OutOfRange { found: shown(value) });
    }
    let mut table = toml::Table::new();
    for column in columns {
        let cell = match (given.get(column.key), column.default) {
            (Some(cell), _) => Kind::Whole(column.low, column.high).accept(cell)?,
            (None, Some(default)) => Value::Integer(default),
            (None, None) => return Err(Refusal::OutOfRange { found: shown(value) }),
        };
        table.insert(column.key.to_owned(), cell);
    }
    Ok(Value::Table(table))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => f.write_str("true or false"),
            Self::Whole(low, high) => write!(f, "a whole number from {} to {}", shown_whole(*low), shown_whole(*high)),
            Self::Number(low, high) => match (low, high) {
                (Bound::Included(low), Bound::Included(high)) => {
                    write!(f, "a number from {} to {}", shown_number(*low), shown_number(*high))
                }
                (Bound::Excluded(low), Bound::Included(high)) => {
                    write!(f, "a number above {} and at most {}", shown_number(*low), shown_number(*high))
                }
                (Bound::Included(low), Bound::Excluded(high)) => {
                    write!(f, "a number from {} to below {}", shown_number(*low), shown_number(*high))
                }
                (Bound::Excluded(low), Bound::Excluded(high)) => {
                    write!(f, "a number above {} and below {}", shown_number(*low), shown_number(*high))
                }
                (_, Bound::Unbounded) | (Bound::Unbounded, _) => f.write_str("a number"),
            },
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::WholeOrNone(low, high) => write!(f, "{}, or 0 for none", Self::Whole(*low, *high)),
            Self::Wholes(longest, low, high) => {
                write!(f, "a list of 1 to {longest} whole numbers from {} to {}", shown_whole(*low), shown_whole(*high))
            }
            Self::WholesOrNone(longest, low, high) => {
                write!(f, "{}, or [] for none", Self::Wholes(*longest, *low, *high))
            }
            Self::Tables(longest, columns) => {
                let columns: Vec<_> = columns.iter().map(Column::to_string).collect();
                write!(f, "a list of 1 to {longest} tables {{ {} }}", columns.join(", "))
            }
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} to {}", self.key, shown_whole(self.low), shown_whole(self.high))?;
        match self.default {
            Some(default) => write!(f, " (else {default})"),
            None => Ok(()),
        }
    }
}

/// Why a value can't be that of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// It is something else altogether.
    WrongType {
        /// What came, with its type.
        found: String,
    },
    /// The type is right, the value is not.
    OutOfRange {
        /// What came.
        found: String,
    },
}

impl Refusal {
    /// The refusal of a list for one of its entries.
    fn in_a_list(self) -> Self {
        let told = |found| format!("a list with {found} in it");
        match self {
            Self::WrongType { found } => Self::WrongType { found: told(found) },
            Self::OutOfRange { found } => Self::OutOfRange { found: told(found) },
        }
    }
}

/// The value with the name of its type.
fn described(value: &Value) -> String {
    let name = match value {
        Value::String(_) => "text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number with a fraction",
        Value::Boolean(_) => "a switch",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    };
    format!("{} ({name})", shown(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: Kind, value: impl Into<Value>) -> Refusal {
        kind.accept(&value.into()).unwrap_err()
    }

    #[test]
    fn whole_numbers_are_taken_for_numbers_but_not_the_other_way_round() {
        assert_eq!(Kind::number(0.0, 2.0).accept(&Value::Integer(1)), Ok(Value::Float(1.0)));
        let refusal = refused(Kind::Whole(1, 9), 8.0);
        assert_eq!(refusal, Refusal::WrongType { found: "8.0 (a number with a fraction)".into() });
    }

    #[test]
    fn bounds_are_kept_to_the_last_bit() {
        assert!(Kind::Whole(2, 160).accept(&Value::Integer(2)).is_ok());
        assert!(Kind::Whole(2, 160).accept(&Value::Integer(160)).is_ok());
        assert_eq!(refused(Kind::Whole(2, 160), 161), Refusal::OutOfRange { found: "161".into() });
        assert!(Kind::above(0.0, 1.0).accept(&Value::Float(f64::MIN_POSITIVE)).is_ok());
        assert_eq!(refused(Kind::above(0.0, 1.0), 0.0), Refusal::OutOfRange { found: "0.0".into() });
        assert!(Kind::below(0.0, 1.0).accept(&Value::Float(1.0_f64.next_down())).is_ok());
        assert_eq!(refused(Kind::below(0.0, 1.0), 1), Refusal::OutOfRange { found: "1.0".into() });
    }

    #[test]
    fn what_is_no_number_is_in_no_range() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(matches!(refused(Kind::number(-1e300, 1e300), number), Refusal::OutOfRange { .. }));
        }
    }

    #[test]
    fn lists_are_checked_entry_by_entry() {
        let kind = Kind::Wholes(3, 1, 9);
        let list = |entries: &[i64]| Value::Array(entries.iter().map(|&entry| Value::Integer(entry)).collect());
        assert!(kind.accept(&list(&[1, 9])).is_ok());
        for bad in [list(&[]), list(&[1, 2, 3, 4]), list(&[1, 10]), list(&[0])] {
            assert!(matches!(kind.accept(&bad), Err(Refusal::OutOfRange { .. })), "{bad}");
        }
        let mixed = Value::Array(vec![Value::Integer(1), Value::Boolean(true)]);
        assert_eq!(kind.accept(&mixed), Err(Refusal::WrongType { found: "a list with true (a switch) in it".into() }));
        let kind = Kind::WholesOrNone(3, 1, 9);
        assert!(kind.accept(&list(&[])).is_ok() && kind.accept(&list(&[1, 9])).is_ok());
        for bad in [list(&[1, 2, 3, 4]), list(&[10])] {
            assert!(matches!(kind.accept(&bad), Err(Refusal::OutOfRange { .. })), "{bad}");
        }
        assert!(matches!(refused(kind, 3), Refusal::WrongType { .. }));
        assert_eq!(kind.to_string(), "a list of 1 to 3 whole numbers from 1 to 9, or [] for none");
    }

    #[test]
    fn tables_of_a_list_are_completed_and_checked() {
        const COLUMNS: [Column; 2] = [
            Column { key: "stride", low: 1, high: 8, default: None },
            Column { key: "padding", low: 0, high: 8, default: Some(0) },
        ];
        let kind = Kind::Tables(2, &COLUMNS);
        let accept = |text: &str| {
            let table: toml::Table = format!("x = {text}").parse().unwrap();
            kind.accept(&table["x"]).map(|value| shown(&value))
        };
        assert_eq!(accept("[{ stride = 2 }]"), Ok("[{ padding = 0, stride = 2 }]".into()));
        assert_eq!(accept("[{ stride = 9 }]"), Err(Refusal::OutOfRange { found: "a list with 9 in it".into() }));
        assert_eq!(
            accept("[{ stride = true }]"),
            Err(Refusal::WrongType { found: "a list with true (a switch) in it".into() })
        );
        for bad in ["[]", "[{ padding = 1 }]", "[{ stride = 1, stirde = 2 }]", "[{stride=1}, {stride=1}, {stride=1}]"] {
            assert!(matches!(accept(bad), Err(Refusal::OutOfRange { .. })), "{bad}");
        }
        for bad in ["3", "[3]", "{ stride = 1 }"] {
            assert!(matches!(accept(bad), Err(Refusal::WrongType { .. })), "{bad}");
        }
        assert_eq!(kind.to_string(), "a list of 1 to 2 tables { stride = 1 to 8, padding = 0 to 8 (else 0) }");
    }

    #[test]
    fn zero_stands_for_none() {
        let kind = Kind::WholeOrNone(8, 100);
        assert!(kind.accept(&Value::Integer(0)).is_ok() && kind.accept(&Value::Integer(8)).is_ok());
        assert_eq!(refused(kind, 7), Refusal::OutOfRange { found: "7".into() });
        assert_eq!(kind.to_string(), "a whole number from 8 to 100, or 0 for none");
    }

    #[test]
    fn ranges_are_told_in_words() {
        assert_eq!(Kind::Whole(1, 200_000).to_string(), "a whole number from 1 to 200_000");
        assert_eq!(Kind::SHARE.to_string(), "a number from 0.0 to 1.0");
        assert_eq!(Kind::above(0.0, 1.0).to_string(), "a number above 0.0 and at most 1.0");
        assert_eq!(Kind::below(0.0, 1.0).to_string(), "a number from 0.0 to below 1.0");
        assert_eq!(Kind::Choice(&["auto", "cpu"]).to_string(), "one of auto, cpu");
    }
}
