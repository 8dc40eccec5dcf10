//! Configuration sections whose fields are declared once.
//!
//! [`section!`] turns one declaration per field into the struct, its `Default`, its serde format and its [`Section`]:
//! the type, range, unit, paper value and description from which range checks, messages and the reference page follow.
//! [`choice!`] declares the words that a field chooses from, [`row!`] the tables of a list.

mod declare;
mod kind;
pub mod text;

use std::ops::Bound;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Value;

pub use kind::{Choice, Column, Kind, Row};

/// The declaration of a table of the configuration: its fields and the tables inside it.
#[derive(Debug)]
pub struct Section {
    /// What the section is about.
    pub about: &'static str,
    /// Its fields, in the order in which they are written.
    pub fields: &'static [Field],
    /// The tables inside it by name, in the order in which they are written.
    pub tables: &'static [(&'static str, &'static Section)],
}

/// The declaration of one value of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its key in the section.
    pub name: &'static str,
    /// The values it takes.
    pub kind: Kind,
    /// What it counts; empty for a plain number.
    pub unit: &'static str,
    /// The paper's value.
    pub paper: Paper,
    /// Whether a run may change it when it resumes.
    pub changeable: bool,
    /// What it does.
    pub about: &'static str,
}

/// What the paper says about a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// The default is the paper's value.
    Default,
    /// The paper has this value; the description says why the default differs.
    Other(&'static str),
    /// The field belongs to the algorithm, but the paper gives no value.
    Silent,
    /// The field belongs to this program, not to the algorithm.
    Ours,
}

impl Field {
    const fn new(kind: Kind) -> Self {
        Self { name: "", kind, unit: "", paper: Paper::Ours, changeable: false, about: "" }
    }

    /// Sets what the field counts.
    pub const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Marks the default as the paper's value.
    pub const fn paper(self) -> Self {
        Self { paper: Paper::Default, ..self }
    }

    /// Records a paper value that differs from the default.
    pub const fn paper_has(self, value: &'static str) -> Self {
        Self { paper: Paper::Other(value), ..self }
    }

    /// Lets a run change the field when it resumes.
    pub const fn changeable(self) -> Self {
        Self { changeable: true, ..self }
    }

    /// Marks the field as part of the algorithm without a value in the paper.
    pub const fn silent(self) -> Self {
        Self { paper: Paper::Silent, ..self }
    }
}

/// A field that is `true` or `false`.
pub const fn switch() -> Field {
    Field::new(Kind::Switch)
}

/// An integer from `low` to `high`.
pub const fn integer(low: i64, high: i64) -> Field {
    Field::new(Kind::Integer(low, high))
}

/// An integer from `low` to `high`, or `None`, which is written as 0.
///
/// Its serde format is [`zero_is_none`].
pub const fn integer_or_none(low: i64, high: i64) -> Field {
    Field::new(Kind::IntegerOrNone(low, high))
}

/// A number from `low` to `high`.
pub const fn number(low: f64, high: f64) -> Field {
    Field::new(Kind::Number(Bound::Included(low), Bound::Included(high)))
}

/// A number above `low` and at most `high`.
pub const fn above(low: f64, high: f64) -> Field {
    Field::new(Kind::Number(Bound::Excluded(low), Bound::Included(high)))
}

/// A number that is at least `low` and below `high`.
pub const fn below(low: f64, high: f64) -> Field {
    Field::new(Kind::Number(Bound::Included(low), Bound::Excluded(high)))
}

/// One of the words of `T`.
pub const fn choice<T: Choice>() -> Field {
    Field::new(Kind::Choice(T::WORDS))
}

/// A list of `shortest` to `longest` integers, each from `low` to `high`.
pub const fn integers(shortest: usize, longest: usize, low: i64, high: i64) -> Field {
    Field::new(Kind::Integers { shortest, longest, low, high })
}

/// A list of 1 to `longest` tables with the columns of `T`.
pub const fn rows<T: Row>(longest: usize) -> Field {
    Field::new(Kind::Rows(longest, T::COLUMNS))
}

/// A struct that [`section!`] declares.
pub trait Schema: Serialize {
    /// Its declaration.
    const SECTION: &'static Section;

    /// Returns every field whose value is outside its range.
    fn out_of_range(&self) -> Vec<Problem> {
        let table = match toml::Table::try_from(self) {
            Ok(table) => table,
            // Only an integer above 2^63 has no TOML form.
            Err(error) => return vec![Problem::new("config", error, "made of integers below 2^63")],
        };
        let sections = Self::SECTION.flatten();
        let fields = sections.iter().flat_map(|section| &section.fields);
        let problem = |field: &FlatField| {
            let found = field.kind.accept(value_at(&table, &field.path)?).err()?;
            Some(Problem::new(&field.path, found, field.kind))
        };
        fields.filter_map(problem).collect()
    }
}

/// A field whose value does not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is {found}; it must be {expected}")]
pub struct Problem {
    /// Path of the field, such as `loss.cross_mixture`.
    pub path: String,
    /// Its value.
    pub found: String,
    /// The values that work.
    pub expected: String,
}

impl Problem {
    /// A problem with the field at `path`.
    pub fn new(path: &str, found: impl ToString, expected: impl ToString) -> Self {
        Self { path: path.to_owned(), found: found.to_string(), expected: expected.to_string() }
    }
}

/// A section with its path in the whole configuration.
#[derive(Debug)]
pub struct FlatSection {
    /// Its path, such as `agent.network`.
    pub path: String,
    /// What the section is about.
    pub about: &'static str,
    /// Its fields.
    pub fields: Vec<FlatField>,
}

/// A field with its path in the whole configuration.
#[derive(Debug)]
pub struct FlatField {
    /// Its path, such as `agent.network.core`.
    pub path: String,
    /// Its declaration.
    pub field: &'static Field,
}

impl std::ops::Deref for FlatField {
    type Target = Field;

    fn deref(&self) -> &Field {
        self.field
    }
}

impl Section {
    /// Returns this section and those inside it that have fields, each before those inside it.
    pub fn flatten(&'static self) -> Vec<FlatSection> {
        let mut sections = Vec::new();
        self.flatten_into("", &mut sections);
        sections
    }

    fn flatten_into(&'static self, path: &str, sections: &mut Vec<FlatSection>) {
        let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        if !self.fields.is_empty() {
            let fields = self.fields.iter().map(|field| FlatField { path: join(field.name), field }).collect();
            sections.push(FlatSection { path: path.to_owned(), about: self.about, fields });
        }
        for (name, table) in self.tables {
            table.flatten_into(&join(name), sections);
        }
    }
}

/// Returns the value at a path of keys joined by dots.
pub fn value_at<'a>(table: &'a toml::Table, path: &str) -> Option<&'a Value> {
    let mut keys = path.split('.');
    let first = table.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get(key))
}

/// Reads the table at `path` of a config file; missing fields get their defaults.
///
/// For tests that need one table of a preset.
#[doc(hidden)]
pub fn read_table<T: serde::de::DeserializeOwned>(text: &str, path: &str) -> Result<T, toml::de::Error> {
    let table: toml::Table = text.parse()?;
    value_at(&table, path).cloned().unwrap_or_else(|| Value::Table(toml::Table::new())).try_into()
}

/// The serde format of an optional integer: 0 is `None`.
pub mod zero_is_none {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes `None` as 0.
    pub fn serialize<S: Serializer>(value: &Option<usize>, serializer: S) -> Result<S::Ok, S::Error> {
        value.unwrap_or(0).serialize(serializer)
    }

    /// Reads 0 as `None`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
        Ok(Some(usize::deserialize(deserializer)?).filter(|&value| value != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    choice! {
        /// A colour.
        pub enum Colour {
            /// Like blood.
            Red = "red",
            /// Like the sky.
            LightBlue = "light_blue",
        }
    }

    section! {
        /// A section.
        pub struct Outer {
            /// The colour
            /// of it.
            colour: Colour = Colour::Red, choice::<Colour>().paper();
            /// How many.
            #[serde(with = "crate::zero_is_none")]
            count: Option<usize> = None, integer_or_none(2, 9).unit("things").silent();
            table inner: Inner;
        }
    }

    section! {
        /// A section inside.
        #[derive(Copy)]
        pub struct Inner {
            /// A share.
            share: f64 = 0.5, number(0.0, 1.0).paper_has("0.4").changeable();
        }
    }

    #[test]
    fn declaration_becomes_struct_default_and_serde_format() {
        assert_eq!(Outer::default(), Outer { colour: Colour::Red, count: None, inner: Inner { share: 0.5 } });
        let text = "colour = \"red\"\ncount = 0\n\n[inner]\nshare = 0.5\n";
        assert_eq!(toml::to_string(&Outer::default()).unwrap(), text);
        let read: Outer = toml::from_str("colour = \"light_blue\"\ncount = 3").unwrap();
        assert_eq!(read, Outer { colour: Colour::LightBlue, count: Some(3), inner: Inner::default() });
        assert!(toml::from_str::<Outer>("color = 3").is_err());
    }

    #[test]
    fn sections_flatten_in_order_with_their_paths() {
        let sections = Outer::SECTION.flatten();
        let paths: Vec<_> = sections.iter().flat_map(|section| &section.fields).map(|field| &field.path).collect();
        assert_eq!(paths, ["colour", "count", "inner.share"]);
        assert_eq!((sections[1].path.as_str(), sections[1].about), ("inner", " A section inside."));
        let [colour, count] = &sections[0].fields[..] else { panic!("{sections:?}") };
        assert_eq!((colour.about, colour.paper), (" The colour of it.", Paper::Default));
        assert_eq!((count.unit, count.paper), ("things", Paper::Silent));
        assert_eq!(sections[1].fields[0].paper, Paper::Other("0.4"));
        assert_eq!((count.changeable, sections[1].fields[0].changeable), (false, true));
    }

    #[test]
    fn every_value_outside_its_range_is_reported() {
        assert_eq!(Outer::default().out_of_range(), []);
        let bad = Outer { count: Some(1), inner: Inner { share: f64::NAN }, ..Outer::default() };
        let found: Vec<_> = bad.out_of_range().iter().map(Problem::to_string).collect();
        assert_eq!(
            found,
            [
                "count is 1; it must be an integer from 2 to 9, or 0 for none",
                "inner.share is nan; it must be a number from 0.0 to 1.0"
            ]
        );
        let huge = Outer { count: Some(usize::MAX), ..Outer::default() };
        assert_eq!(huge.out_of_range().len(), 1);
    }
}
