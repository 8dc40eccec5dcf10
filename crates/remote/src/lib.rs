//! Actors on other machines, over gRPC: the learner's end ([`Listener`]) and the actors' ([`ActorPool`]).
//!
//! `proto/actors.proto` describes the protocol. Everything here is about connections, messages and their limits; what the
//! two halves of an actor do is in `train`.

mod actor;
mod client;
mod counted;
mod limits;
mod link;
mod server;
mod session;
pub mod tls;
mod token;
mod wire;

pub use actor::{ActorOptions, ActorPool};
pub use client::{ConnectOptions, TlsMismatch};
pub use server::{ListenOptions, Listener};
pub use token::{Token, random_hex};

/// Generated from `proto/actors.proto`.
#[allow(missing_docs, clippy::all, clippy::unwrap_used)]
pub mod proto {
    tonic::include_proto!("meme.actors");
}

/// Version of the program, which must be the same at both ends: they exchange configs and saved states.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why the two ends cannot talk to each other.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        cause: std::io::Error,
    },
    /// An address that other machines reach needs both.
    #[error("{0} can be reached by other machines, so it needs a token and TLS")]
    Unprotected(std::net::SocketAddr),
    /// The address of the learner cannot be used.
    #[error("expected HOST:PORT, got {0:?}")]
    Address(String),
    /// The machine cannot run the connections.
    #[error("cannot start the threads of the network: {0}")]
    Runtime(std::io::Error),
    /// A certificate or key cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The learner refuses this machine, or this machine cannot play.
    #[error("{0}")]
    Refused(String),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] train::run::FileError),
}
