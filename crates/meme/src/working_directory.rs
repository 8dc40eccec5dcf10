//! A current directory that was removed.
//!
//! Intel's MKL, a part of libtorch, asks for the current directory when it is loaded, before `main`, and ends the process
//! with "Cannot load libtorch_cpu.so" if there is none.

use std::sync::atomic::{AtomicBool, Ordering};

static REMOVED: AtomicBool = AtomicBool::new(false);

/// Runs before the initialisers of shared libraries.
#[used]
#[allow(unsafe_code, reason = "the section holds functions of this type, and this one touches nothing uninitialised")]
#[unsafe(link_section = ".preinit_array")]
static LEAVE: extern "C" fn() = leave;

extern "C" fn leave() {
    if rustix::process::getcwd(Vec::new()).is_err() {
        // If this fails too, MKL says what it says.
        let _ = rustix::process::chdir("/");
        REMOVED.store(true, Ordering::Relaxed);
    }
}

/// Whether this process was started in a directory that no longer exists.
pub fn is_removed() -> bool {
    REMOVED.load(Ordering::Relaxed)
}
