//! The replay as its users see it.

mod limiter;
mod play;
mod sampling;
mod sequences;
mod snapshot;
