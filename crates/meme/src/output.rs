//! What commands print: lines or JSON on standard output, progress and remarks on standard error.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::voice;

/// What could not be done where a report has no room, for instance in a file on a full disk.
pub const UNWRITTEN: &str = "standard output can't be written";

/// Nobody reads standard output any more.
#[derive(Debug)]
pub struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output any more")
    }
}

impl Error for Unread {}

/// Writes a report to standard output; a reader that went away is the error [`Unread`], not a panic.
pub fn print(text: &str) -> Result<()> {
    // On a terminal, what was said before stands above.
    voice::settle();
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Unread.into()),
        written => written.context(UNWRITTEN),
    }
}

/// Writes one JSON document to standard output.
pub fn print_json(report: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(report)?))
}

/// Says a sentence on standard error. Where that is closed or not read it goes unsaid: the work must not end for it.
pub fn say(sentence: impl fmt::Display) {
    voice::write(format!("{sentence}\n"));
}

/// Says on standard error how far long work has come: rewritten in place on a terminal, else a new line every ten
/// seconds.
pub struct Progress {
    terminal: bool,
    next: Instant,
    /// Lines that are on the terminal now.
    shown: usize,
}

impl Progress {
    /// Nothing is shown before the first interval has passed.
    pub fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        Self { terminal, next: Instant::now() + Self::interval(terminal), shown: 0 }
    }

    fn interval(terminal: bool) -> Duration {
        if terminal { Duration::from_millis(200) } else { Duration::from_secs(10) }
    }

    /// Shows the line that `text` makes, if it is time for one.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        self.show_lines(|| vec![text()]);
    }

    /// The same with several lines, which are one where they are not rewritten.
    pub fn show_lines(&mut self, lines: impl FnOnce() -> Vec<String>) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Self::interval(self.terminal);
        let lines = lines();
        if self.terminal {
            if voice::write(block(&lines, self.shown)) {
                self.shown = lines.len();
            }
        } else {
            voice::write(format!("{}\n", lines.join("; ")));
        }
    }

    /// Says a sentence above what is shown next.
    pub fn say(&mut self, sentence: impl fmt::Display) {
        self.clear();
        say(sentence);
    }

    /// Clears what is shown, so that what is printed next starts at the left.
    pub fn clear(&mut self) {
        if self.terminal {
            voice::write(format!("{}\x1b[J", upwards(self.shown)));
            self.shown = 0;
        }
    }
}

/// To the beginning of the first of so many lines.
fn upwards(lines: usize) -> String {
    match lines {
        0 | 1 => "\r".to_owned(),
        lines => format!("\r\x1b[{}A", lines - 1),
    }
}

/// Lines over those that were shown before. One that is wider than the terminal is cut off there: wrapped around, it
/// would be more lines than are counted.
fn block(lines: &[String], shown: usize) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("\x1b[K{line}")).collect();
    format!("{}\x1b[?7l{}\x1b[J\x1b[?7h", upwards(shown), lines.join("\n"))
}

/// `1234567` as `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
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

    #[test]
    fn lines_are_written_over_those_before() {
        let lines = ["one", "two"].map(str::to_owned);
        assert_eq!(block(&lines, 0), "\r\x1b[?7l\x1b[Kone\n\x1b[Ktwo\x1b[J\x1b[?7h");
        assert_eq!(block(&lines[..1], 3), "\r\x1b[2A\x1b[?7l\x1b[Kone\x1b[J\x1b[?7h");
    }
}
