//! Messages and progress on standard error.
//!
//! A thread of its own writes them, so that a reader that has stopped reading holds nothing up.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use train::run::clock;

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

/// How messages and progress appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text, and on a terminal progress that is rewritten in place.
    Live,
    /// Text, and progress as lines.
    Lines,
    /// One JSON document per line.
    Json,
    /// Warnings and errors only.
    Quiet,
    /// Warnings and errors only, one JSON document per line.
    QuietJson,
}

static STYLE: RwLock<Style> = RwLock::new(Style::Live);

/// Sets how everything appears from now on.
pub fn set_style(style: Style) {
    *STYLE.write().unwrap_or_else(PoisonError::into_inner) = style;
}

fn style() -> Style {
    *STYLE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Whether progress is rewritten in place.
pub fn is_live() -> bool {
    style() == Style::Live && io::stderr().is_terminal()
}

/// Prints a message. It is dropped if standard error is closed or too much is queued: work must not stop for it.
pub fn message(text: impl Display) {
    let text = text.to_string();
    run_log::add(&text);
    match style() {
        Style::Quiet | Style::QuietJson => {}
        Style::Json => write_json("info", &text),
        Style::Live | Style::Lines => drop(write(format!("{text}\n"))),
    }
}

/// Prints a warning.
pub fn warn(text: impl Display) {
    alert("warning", text);
}

/// Prints the error that ends a command.
pub fn error(text: impl Display) {
    alert("error", text);
}

fn alert(level: &str, text: impl Display) {
    let line = format!("{level}: {text}");
    run_log::add(&line);
    match style() {
        Style::Json | Style::QuietJson => write_json(level, &text),
        _ => drop(write(line + "\n")),
    }
}

fn write_json(level: &str, text: &impl Display) {
    write_document(&json!({ "time_unix": clock::unix_seconds(), "level": level, "message": text.to_string() }));
}

fn write_document(document: &serde_json::Value) {
    write(format!("{document}\n"));
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
    /// Widths of the lines now on the terminal.
    shown: Vec<usize>,
}

impl ProgressLine {
    /// Creates a line that stays empty for the first interval.
    pub fn new() -> Self {
        let terminal = is_live();
        Self { terminal, next: Instant::now() + Self::interval(terminal), shown: Vec::new() }
    }

    fn interval(terminal: bool) -> Duration {
        if terminal { Duration::from_millis(200) } else { Duration::from_secs(10) }
    }

    /// Shows the line that `text` returns, if one is due.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        self.show_status(&json!({}), |_| vec![text()]);
    }

    /// Shows several lines, joined into one if standard error is not a terminal.
    pub fn show_lines(&mut self, lines: impl FnOnce() -> Vec<String>) {
        self.show_status(&json!({}), |_| lines());
    }

    /// Shows what `lines` returns for a terminal of a width, if it is due: joined into one line if standard error is not
    /// a terminal, and `document` instead where progress is JSON.
    pub fn show_status(&mut self, document: &impl Serialize, lines: impl FnOnce(Option<u16>) -> Vec<String>) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Self::interval(self.terminal);
        match style() {
            Style::Quiet | Style::QuietJson => {}
            Style::Json => {
                let mut document = json!(document);
                document["time_unix"] = json!(clock::unix_seconds());
                document["level"] = json!("progress");
                write_document(&document);
            }
            Style::Live if self.terminal => {
                let width = terminal_width();
                let lines = lines(width);
                let columns = width.map_or(usize::MAX, usize::from);
                if write(block(&lines, rows(&self.shown, columns))) {
                    self.shown = lines.iter().map(|line| visible(line).min(columns)).collect();
                }
            }
            // Progress is not logged: the metrics have it.
            Style::Live | Style::Lines => drop(write(lines(None).join("; ") + "\n")),
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
            let columns = terminal_width().map_or(usize::MAX, usize::from);
            write(format!("{}\x1b[J", to_first_of(rows(&self.shown, columns))));
            self.shown.clear();
        }
    }
}

/// Width of the terminal that standard error is.
fn terminal_width() -> Option<u16> {
    rustix::termios::tcgetwinsize(io::stderr()).ok().map(|size| size.ws_col).filter(|&columns| columns > 0)
}

/// Rows that lines of these widths take on a terminal of `columns` columns, which wraps them when it is made narrower.
fn rows(widths: &[usize], columns: usize) -> usize {
    widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum()
}

/// Number of characters that a line shows: all but escape sequences.
fn visible(line: &str) -> usize {
    let mut escaped = false;
    let shows = |c: &char| {
        let was_escaped = escaped || *c == '\x1b';
        escaped = was_escaped && !c.is_ascii_alphabetic();
        !was_escaped
    };
    line.chars().filter(shows).count()
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
    fn narrower_terminal_wraps_lines() {
        assert_eq!(rows(&[], 80), 0);
        assert_eq!(rows(&[80, 0, 40], 80), 3);
        assert_eq!(rows(&[80, 0, 40], 39), 3 + 1 + 2);
        assert_eq!(visible("\x1b[0;32mabc\x1b[0m d"), 5);
    }

    #[test]
    fn lines_overwrite_those_shown_before() {
        let lines = ["one", "two"].map(str::to_owned);
        assert_eq!(block(&lines, 0), "\r\x1b[?7l\x1b[Kone\n\x1b[Ktwo\x1b[J\x1b[?7h");
        assert_eq!(block(&lines[..1], 3), "\r\x1b[2A\x1b[?7l\x1b[Kone\x1b[J\x1b[?7h");
    }
}
