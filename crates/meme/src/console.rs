//! Messages and progress on standard error.
//!
//! A thread of its own writes them, so that a reader that has stopped reading holds nothing up.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::termios::Winsize;
use serde::Serialize;
use serde_json::json;
use train::run::clock;

use crate::run_log;

/// Maximum number of messages that may wait to be written: a minute of progress on a terminal.
const MAX_QUEUED: usize = 300;
/// How long [`flush`] waits for a reader.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Deletes the cursor's line and all below. Erasing their text instead would leave lines joined where the terminal has
/// wrapped one, and at the top of the screen tmux would first copy them to its history.
const ERASE: &str = "\r\x1b[999M";

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
        Style::Live | Style::Lines => drop(write(above_progress(&text))),
    }
}

/// Returns a message as a line of its own that replaces the progress display at the cursor.
fn above_progress(text: &str) -> String {
    if is_live() { format!("{ERASE}{text}\n") } else { format!("{text}\n") }
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
        _ => drop(write(above_progress(&line))),
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
///
/// The cursor waits on the first line. Terminals that wrap lines anew when they are resized, and may do so long before
/// the program can know, keep it there; so nothing has to be counted to find the line again.
pub struct ProgressLine {
    terminal: bool,
    next: Instant,
    is_shown: bool,
}

impl ProgressLine {
    /// Creates a line that stays empty for the first interval.
    pub fn new() -> Self {
        let terminal = is_live();
        Self { terminal, next: Instant::now() + Self::interval(terminal), is_shown: false }
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

    /// Shows what `lines` returns for a terminal of a width, if it is due.
    ///
    /// The lines are joined into one if standard error is not a terminal. Where progress is JSON, `document` takes
    /// their place.
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
                let size = terminal_size();
                let lines = lines(size.map(|size| size.ws_col));
                self.is_shown |= write(block(&lines, size.map_or(1, |size| size.ws_row.into())));
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
        if std::mem::take(&mut self.is_shown) {
            write(ERASE.to_owned());
        }
    }
}

/// Size of the terminal that standard error is.
fn terminal_size() -> Option<Winsize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.filter(|size| size.ws_col > 0 && size.ws_row > 0)
}

/// Writes lines in place of those from the cursor on and returns it to the first one. They are cut at the terminal's
/// width, and at its height: more would scroll.
fn block(lines: &[String], height: usize) -> String {
    let lines = &lines[..lines.len().min(height)];
    let back = match lines.len() {
        0 | 1 => String::new(),
        lines => format!("\x1b[{}A", lines - 1),
    };
    format!("{ERASE}\x1b[?7l{}\x1b[?7h\r{back}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_returns_to_the_first_line() {
        let lines = ["one", "two"].map(str::to_owned);
        assert_eq!(block(&lines, 2), "\r\x1b[999M\x1b[?7lone\ntwo\x1b[?7h\r\x1b[1A");
        assert_eq!(block(&lines, 1), "\r\x1b[999M\x1b[?7lone\x1b[?7h\r");
    }
}
