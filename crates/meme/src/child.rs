//! Child processes that do not outlive their owner.

use std::process::Child;

/// A child process that is killed when dropped.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both calls fail harmlessly if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
