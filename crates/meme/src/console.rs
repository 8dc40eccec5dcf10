//! Messages and progress on standard error.
//!
//! A thread of its own writes them, so that a reader that has stopped reading holds nothing up.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use crate::run_log;

/// Most messages that may wait to be written: a minute of progress on a terminal.
const MAX_QUEUED: usize = 300;
/// How long [`flush`] waits for a reader.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

static WRITER: OnceLock<Option<SyncSender<Order>>> = OnceLock::new();

enum Order {
    Write(String),
    /// Signal when everything before it is written.
    Flush(mpsc::Sender<()>),
}

/// Prints a message. It is dropped if standard error is closed or too much is queued: work must not stop for it.
pub fn message(text: impl Display) {
    let text = text.to_string();
    run_log::add(&text);
    write(text + "\n");
}

/// Prints a warning.
pub fn warn(text: impl Display) {
    message(format_args!("warning: {text}"));
}

/// Prints the error that ends a command.
pub fn error(text: impl Display) {
    message(format_args!("error: {text}"));
}

/// Waits until everything is written, for some seconds at most.
pub fn flush() {
    let Some(Some(writer)) = WRITER.get() else { return };
    let deadline = Instant::now() + FLUSH_TIMEOUT;
    let (done, written) = mpsc::channel();
    let mut order = Order::Flush(done);
    while let Err(TrySendError::Full(back)) = writer.try_send(order) {
        if Instant::now() >= deadline {
            return;
        }
        order = back;
        thread::sleep(Duration::from_millis(10));
    }
    // A timeout is fine: the output is not read.
    let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

/// Queues `text` and returns whether there was room.
fn write(text: String) -> bool {
    let start = || {
        let (orders, queue) = mpsc::sync_channel(MAX_QUEUED);
        let write_all = move || {
            for order in queue {
                // A closed standard error and a waiter that has given up are both fine.
                match order {
                    Order::Write(text) => drop(io::stderr().write_all(text.as_bytes())),
                    Order::Flush(done) => drop(done.send(())),
                }
            }
        };
        thread::Builder::new().name("console".to_owned()).spawn(write_all).ok().map(|_| orders)
    };
    match WRITER.get_or_init(start) {
        Some(writer) => writer.try_send(Order::Write(text)).is_ok(),
        None => io::stderr().write_all(text.as_bytes()).is_ok(),
    }
}

/// Progress of long work: rewritten in place on a terminal, else a new line every ten seconds.
pub struct ProgressLine {
    terminal: bool,
    next: Instant,
    /// Lines now on the terminal.
    shown: usize,
}

impl ProgressLine {
    /// Creates a line that stays empty for the first interval.
    pub fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        Self { terminal, next: Instant::now() + Self::interval(terminal), shown: 0 }
    }

    fn interval(terminal: bool) -> Duration {
        if terminal { Duration::from_millis(200) } else { Duration::from_secs(10) }
    }

    /// Shows the line that `text` returns, if one is due.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        self.show_lines(|| vec![text()]);
    }

    /// Shows several lines, joined into one if standard error is not a terminal.
    pub fn show_lines(&mut self, lines: impl FnOnce() -> Vec<String>) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Self::interval(self.terminal);
        let lines = lines();
        if !self.terminal {
            // Progress is not logged: the metrics have it.
            write(lines.join("; ") + "\n");
        } else if write(block(&lines, self.shown)) {
            self.shown = lines.len();
        }
    }

    /// Prints a message above the progress lines.
    pub fn message(&mut self, text: impl Display) {
        self.clear();
        message(text);
    }

    /// Prints a warning above the progress lines.
    pub fn warn(&mut self, text: impl Display) {
        self.clear();
        warn(text);
    }

    /// Clears the progress lines.
    pub fn clear(&mut self) {
        if self.terminal {
            write(format!("{}\x1b[J", to_first_of(self.shown)));
            self.shown = 0;
        }
    }
}

/// Moves the cursor to the beginning of the first of `lines` lines.
fn to_first_of(lines: usize) -> String {
    match lines {
        0 | 1 => "\r".to_owned(),
        lines => format!("\r\x1b[{}A", lines - 1),
    }
}

/// Writes lines over those shown before. Lines are cut at the terminal's width, as a wrapped one would count twice.
fn block(lines: &[String], shown: usize) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("\x1b[K{line}")).collect();
    format!("{}\x1b[?7l{}\x1b[J\x1b[?7h", to_first_of(shown), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_overwrite_those_shown_before() {
        let lines = ["one", "two"].map(str::to_owned);
        assert_eq!(block(&lines, 0), "\r\x1b[?7l\x1b[Kone\n\x1b[Ktwo\x1b[J\x1b[?7h");
        assert_eq!(block(&lines[..1], 3), "\r\x1b[2A\x1b[?7l\x1b[Kone\x1b[J\x1b[?7h");
    }
}
