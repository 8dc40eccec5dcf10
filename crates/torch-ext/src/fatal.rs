//! The end of a process whose GPU failed where libtorch cannot return an error.
//!
//! libtorch frees a tensor's memory in a destructor. If another stream has used the tensor, that calls CUDA, and if the
//! GPU has failed by then, the destructor throws and C++ terminates the process. This can happen on any thread, before
//! or after the thread that waits for the GPU has noticed the failure.

use std::ffi::{CStr, c_char};
use std::io::Write;

use crate::error::Error;
use crate::shim;

/// Makes a process that C++ terminates print its reason in one sentence and exit with 1.
///
/// Loads the CUDA part of libtorch, if there is a GPU to use. There is no stack trace and no core dump. Files that were
/// being written are left as by `kill -9`.
pub fn install_terminate_handler() {
    // SAFETY: may be called at any time, from any thread. Without CUDA there is nothing to do.
    let _ = shim::check(unsafe { shim::tx_on_terminate(end) });
}

extern "C" fn end(text: *const c_char) {
    // SAFETY: the shim passes a terminated text.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // `eprintln` would panic if standard error is closed.
    let _ = writeln!(std::io::stderr(), "error: {}", Error::from_libtorch(&text));
}
