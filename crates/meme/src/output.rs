//! What commands print: lines or JSON on standard output, progress on standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

/// Writes a report to standard output; a reader that went away is an error, not a panic.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes one JSON document to standard output.
pub fn print_json(report: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(report)?))
}

/// Whether the error is that nobody reads the output any more.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|e| e.kind() == ErrorKind::BrokenPipe)
}

/// A line on standard error that says how far long work has come: rewritten in place on a terminal, else a new line
/// every ten seconds.
pub struct Progress {
    terminal: bool,
    next: Instant,
}

impl Progress {
    /// Nothing is shown before the first interval has passed.
    pub fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        Self { terminal, next: Instant::now() + Self::interval(terminal) }
    }

    fn interval(terminal: bool) -> Duration {
        if terminal { Duration::from_millis(200) } else { Duration::from_secs(10) }
    }

    /// Shows the line that `text` makes, if it is time for one.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Self::interval(self.terminal);
        // Progress that can't be shown must not stop the work.
        let _ = if self.terminal {
            write!(io::stderr(), "\r\x1b[K{}", text())
        } else {
            writeln!(io::stderr(), "{}", text())
        };
    }

    /// Clears the line, so that what is printed next starts at the left.
    pub fn clear(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
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
    fn a_closed_pipe_is_told_from_other_errors() {
        let closed = anyhow::Error::from(io::Error::from(ErrorKind::BrokenPipe)).context("while printing");
        assert!(is_closed_pipe(&closed));
        assert!(!is_closed_pipe(&io::Error::from(ErrorKind::NotFound).into()));
    }
}
