//! How much, how many and how long: nothing that a peer does takes more than this.

use std::time::Duration;

/// Maximum size of a message: the observations of hundreds of Atari environments.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Maximum size of a part of a saved state.
pub const MAX_STATE_PART_BYTES: usize = 1 << 20;
/// Maximum size of the saved state of one environment besides its episodic memory.
pub const MAX_ENVIRONMENT_STATE_BYTES: usize = 64 << 20;
/// Maximum number of connections at a time.
pub const MAX_CONNECTIONS: usize = 512;
/// Maximum number of concurrent streams per connection; an actor uses one.
pub const MAX_CONCURRENT_STREAMS: u32 = 4;
/// Maximum size of the list of HTTP headers.
pub const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Maximum length of the name of an actor or a machine.
pub const MAX_NAME_LENGTH: usize = 200;

/// Time for the handshakes of a new connection, and for its first message.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time between two signs of life of a connection on which nothing else happens.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Time that the other end has to answer one.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the learner's end reminds an actor to keep waiting.
pub const WAITING_INTERVAL: Duration = Duration::from_secs(5);
/// How long an actor waits for a message of the learner, which comes at least every `WAITING_INTERVAL`.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a checkpoint waits for an actor's state. Training stands still meanwhile.
pub const SAVE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a closing session waits for its peer.
///
/// The peer takes the last message and then closes the connection.
pub const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a waiting thread checks whether the run is stopping.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Consecutive failures of an actor's environments to start after which it gives up.
pub const MAX_START_ATTEMPTS: usize = 3;
/// First pause before an actor connects again; each further one is twice as long.
pub const MIN_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause before an actor connects again.
pub const MAX_RETRY_PAUSE: Duration = Duration::from_secs(5);
