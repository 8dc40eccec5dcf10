//! Tables that are written as HTML, CSV, JSON and text.

use serde_json::{Map, Value, json};

use crate::chart::svg::escaped;
use crate::output;

/// What a table's cell holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    /// A number, and the decimals that people see.
    Number(f64, usize),
    /// A number with its interval, and the decimals that people see.
    Interval(f64, (f64, f64), usize),
    Missing,
}

impl Cell {
    /// A number, or nothing where there is none.
    pub fn number(value: Option<f64>, decimals: usize) -> Self {
        value.filter(|value| value.is_finite()).map_or(Self::Missing, |value| Self::Number(value, decimals))
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value, decimals) => shown(*value, *decimals),
            Self::Interval(value, (low, high), decimals) => {
                format!("{} ({}, {})", shown(*value, *decimals), shown(*low, *decimals), shown(*high, *decimals))
            }
            Self::Missing => "–".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(value, _) => json!(value),
            Self::Interval(value, (low, high), _) => json!({"value": value, "low": low, "high": high}),
            Self::Missing => Value::Null,
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Text(text) if text.contains([',', '"', '\n']) => format!("\"{}\"", text.replace('"', "\"\"")),
            Self::Text(text) => text.clone(),
            Self::Number(value, _) | Self::Interval(value, ..) => value.to_string(),
            Self::Missing => String::new(),
        }
    }
}

/// A number with its digits in groups of three.
fn shown(value: f64, decimals: usize) -> String {
    let text = train::number_format::fixed(value, decimals);
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').map_or((digits, ""), |(whole, _)| (whole, &digits[whole.len()..]));
    whole.parse().map_or(text.clone(), |whole| format!("{sign}{}{fraction}", output::grouped(whole)))
}

/// A table with its headings.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name of its files.
    pub id: &'static str,
    pub title: String,
    /// What its numbers are, below the title.
    pub notes: Vec<String>,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// One object per row.
    pub fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| -> Map<String, Value> {
            self.columns.iter().cloned().zip(row.iter().map(Cell::json)).collect()
        };
        self.rows.iter().map(object).collect()
    }

    /// Comma-separated values with all their digits. An interval has columns of its own.
    pub fn csv(&self) -> String {
        let is_wide = |column: usize| self.rows.iter().any(|row| matches!(row[column], Cell::Interval(..)));
        let wide: Vec<bool> = (0..self.columns.len()).map(is_wide).collect();
        let heading = self.columns.iter().zip(&wide).flat_map(|(name, wide)| {
            let ends = if *wide { vec![format!("{name} low"), format!("{name} high")] } else { Vec::new() };
            [name.clone()].into_iter().chain(ends)
        });
        let mut text = heading.map(|name| Cell::Text(name).csv()).collect::<Vec<_>>().join(",") + "\n";
        for row in &self.rows {
            let cells = row.iter().zip(&wide).flat_map(|(cell, wide)| {
                let ends = match cell {
                    Cell::Interval(_, (low, high), _) => vec![low.to_string(), high.to_string()],
                    _ if *wide => vec![String::new(); 2],
                    _ => Vec::new(),
                };
                [cell.csv()].into_iter().chain(ends)
            });
            text += &(cells.collect::<Vec<_>>().join(",") + "\n");
        }
        text
    }

    /// A table element.
    pub fn html(&self) -> String {
        let headings: String = self.columns.iter().map(|name| format!("<th>{}</th>", escaped(name))).collect();
        let mut text = format!("<table id=\"{}-table\"><thead><tr>{headings}</tr></thead><tbody>\n", self.id);
        for row in &self.rows {
            let cell = |cell: &Cell| match cell {
                Cell::Text(text) => format!("<td class=\"word\">{}</td>", escaped(text)),
                other => format!("<td>{}</td>", other.shown()),
            };
            text += &format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>());
        }
        text + "</tbody></table>\n"
    }

    /// Aligned columns for a terminal.
    pub fn text(&self) -> String {
        let words = |column: &usize| self.rows.iter().any(|row| matches!(row[*column], Cell::Text(_)));
        let left: Vec<usize> = (0..self.columns.len()).filter(words).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(Cell::shown).collect());
        output::table(&[self.columns.clone()].into_iter().chain(rows).collect::<Vec<Vec<String>>>(), &left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_written_in_four_ways() {
        let table = Table {
            id: "scores",
            title: "Scores".to_owned(),
            notes: Vec::new(),
            columns: ["game", "score, mean", "share"].map(str::to_owned).to_vec(),
            rows: vec![
                vec![Cell::Text("a<b".to_owned()), Cell::Interval(-12345.678, (-2e4, 0.25), 1), Cell::number(None, 0)],
                vec![Cell::Text("c,d".to_owned()), Cell::Number(7.0, 1), Cell::Number(0.5, 2)],
            ],
        };
        assert_eq!(
            table.csv(),
            "game,\"score, mean\",\"score, mean low\",\"score, mean high\",share\n\
             a<b,-12345.678,-20000,0.25,\n\"c,d\",7,,,0.5\n"
        );
        let first =
            json!({"game": "a<b", "score, mean": {"value": -12345.678, "low": -2e4, "high": 0.25}, "share": null});
        assert_eq!(table.json()[0], first);
        let html = table.html();
        assert!(html.contains("<td class=\"word\">a&lt;b</td><td>-12 345.7 (-20 000.0, 0.2)</td><td>–</td>"), "{html}");
        assert_eq!(
            table.text(),
            "game                 score, mean  share\n\
             a<b   -12 345.7 (-20 000.0, 0.2)      –\n\
             c,d                          7.0   0.50\n"
        );
    }
}
