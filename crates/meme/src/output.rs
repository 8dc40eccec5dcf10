//! Reports on standard output, as text or JSON.

use std::io::{self, ErrorKind, Write};
use std::iter;

use anyhow::{Context, Result};
use serde::Serialize;
use thiserror::Error;

use crate::console;

/// What failed if standard output cannot be written, for instance to a file on a full disk.
pub const WRITE_FAILED: &str = "cannot write to standard output";

/// The error of a reader that has closed standard output.
#[derive(Debug, Error)]
#[error("standard output is closed")]
pub struct ClosedOutput;

/// Prints text to standard output; fails with [`ClosedOutput`] if the reader is gone.
pub fn print(text: &str) -> Result<()> {
    // Keeps the order of messages and reports on a terminal.
    console::flush();
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ClosedOutput.into()),
        written => written.context(WRITE_FAILED),
    }
}

/// Prints one JSON document to standard output.
pub fn print_json(report: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(report)?))
}

/// Prints a report as JSON, or as the text that `render` makes of it.
pub fn print_report<R: Serialize>(json: bool, report: &R, render: impl FnOnce(&R) -> String) -> Result<()> {
    if json { print_json(report) } else { print(&render(report)) }
}

/// Aligns rows of cells in columns two spaces apart.
///
/// Numbers are aligned to the right, the `left` columns to the left.
pub fn table(rows: &[impl AsRef<[String]>], left: &[usize]) -> String {
    let width = |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, |row| row.as_ref().len())).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match left.contains(&column) {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(|row| line(row.as_ref())).collect()
}

/// Heading of a column, and its cell for a record.
pub type Column<R> = (&'static str, fn(&R) -> String);

/// Aligns one row per record under the columns' headings.
pub fn table_of<R>(records: &[R], columns: &[Column<R>], left: &[usize]) -> String {
    let heading = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
    let row = |record| columns.iter().map(|(_, cell)| cell(record)).collect();
    let rows: Vec<Vec<String>> = iter::once(heading).chain(records.iter().map(row)).collect();
    table(&rows, left)
}

/// Formats `1234567` as `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(" ")
}

/// Returns ` and 3 more` if there are three, and nothing if there are none.
pub fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" and {count} more") }
}

/// Returns a number of things: `1 row`, `1 234 rows`.
pub fn count_of(count: usize, thing: &str) -> String {
    format!("{} {thing}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1 000");
        assert_eq!(grouped(108_000), "108 000");
        assert_eq!(grouped(12_345_678), "12 345 678");
    }
}
