//! Standard error, written to by a thread of its own: a reader that has stopped reading holds nobody up.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

/// How much may wait to be written: a minute of progress on a terminal.
const MOST_WAITING: usize = 300;
/// How long the end of a command waits for a reader.
const LAST_WAIT: Duration = Duration::from_secs(5);

static VOICE: OnceLock<Option<SyncSender<Order>>> = OnceLock::new();

enum Order {
    Write(String),
    /// Tell when all before it is written.
    Tell(mpsc::Sender<()>),
}

/// Has `text` written, and says whether it will be. It goes unsaid where standard error is closed or where too much waits
/// to be read already: the work must not end or stop for it.
pub fn write(text: String) -> bool {
    match voice() {
        Some(voice) => voice.try_send(Order::Write(text)).is_ok(),
        None => io::stderr().write_all(text.as_bytes()).is_ok(),
    }
}

/// Waits until all is written, for some seconds at most.
pub fn settle() {
    let Some(Some(voice)) = VOICE.get() else { return };
    let deadline = Instant::now() + LAST_WAIT;
    let (told, written) = mpsc::channel();
    let mut order = Order::Tell(told);
    while let Err(TrySendError::Full(back)) = voice.try_send(order) {
        if Instant::now() >= deadline {
            return;
        }
        order = back;
        thread::sleep(Duration::from_millis(10));
    }
    // Whether it was written or the time is over: there is nothing more to be done.
    let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

fn voice() -> Option<&'static SyncSender<Order>> {
    let start = || {
        let (orders, taken) = mpsc::sync_channel(MOST_WAITING);
        let speak = move || {
            for order in taken {
                match order {
                    Order::Write(text) => {
                        // Closed, it goes unsaid.
                        let _ = io::stderr().write_all(text.as_bytes());
                    }
                    // Whoever asked may have stopped waiting.
                    Order::Tell(told) => drop(told.send(())),
                }
            }
        };
        thread::Builder::new().name("voice".to_owned()).spawn(speak).ok().map(|_| orders)
    };
    VOICE.get_or_init(start).as_ref()
}
