//! How much, how many and how long: nothing that a peer does takes more than this.

use std::time::Duration;

/// Largest message: the observations of hundreds of Atari environments.
pub const MESSAGE: usize = 16 << 20;
/// Largest part of a saved state.
pub const STATE_PART: usize = 1 << 20;
/// Largest saved state of one environment besides its episodic memory.
pub const ENVIRONMENT_STATE: usize = 64 << 20;
/// Most connections at a time.
pub const CONNECTIONS: usize = 512;
/// Most streams of a connection: one per worker.
pub const STREAMS: u32 = 256;
/// Largest list of HTTP headers.
pub const HEADERS: u32 = 16 << 10;
/// Longest name of an actor or a machine.
pub const NAME: usize = 200;

/// Time for the handshakes of a new connection, and for its first message.
pub const HANDSHAKE: Duration = Duration::from_secs(15);
/// Time between two signs of life of a connection on which nothing else happens.
pub const KEEPALIVE: Duration = Duration::from_secs(5);
/// Time that the other end has to answer one.
pub const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);
/// How often the learner's end tells an actor that it has to wait.
pub const WAITING: Duration = Duration::from_secs(5);
/// How long an actor waits for a message of the learner, which comes at least every `WAITING`.
pub const ANSWER: Duration = Duration::from_secs(30);
/// How long a checkpoint waits for an actor's state. Training stands still meanwhile.
pub const SAVE: Duration = Duration::from_secs(3);
/// How long the end of a session waits until the other end has taken its last message.
pub const FAREWELL: Duration = Duration::from_secs(2);
/// How often a waiting thread looks whether the run stops.
pub const POLL: Duration = Duration::from_millis(50);
/// How many times in a row an actor's environments may fail to start before it gives up.
pub const STARTS: usize = 3;
/// Pause before an actor connects again, at first and at most.
pub const RETRY: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
