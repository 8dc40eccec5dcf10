//! Child processes that do not outlive their owner.

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use train::run::stop::Stop;

/// How often a waiting thread checks whether a child has exited.
pub const POLL: Duration = Duration::from_millis(100);

/// A child process that is killed when dropped.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both calls fail harmlessly if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a child to exit; errors call it `name`.
///
/// Forwards a requested stop once, as SIGTERM.
pub fn wait_forwarding_stop(mut child: Child, name: &str, stop: &Stop) -> Result<ExitStatus> {
    let mut forwarded = false;
    loop {
        if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for {name}"))? {
            return Ok(status);
        }
        if forwarded {
            thread::sleep(POLL);
        } else if stop.wait(POLL) {
            forwarded = true;
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    }
}
