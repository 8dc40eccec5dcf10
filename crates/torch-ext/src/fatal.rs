//! The end of a process whose GPU failed where libtorch can't say so.
//!
//! libtorch gives a tensor's memory back in a destructor. If another stream has used the tensor, that takes a call to
//! CUDA, and if the GPU has failed by then, the destructor throws, which C++ answers by ending the process. It may happen
//! on any thread, before or after the one that waits for the GPU has heard of the failure.

use std::ffi::{CStr, c_char};
use std::io::Write;

use crate::error::Error;
use crate::shim;

/// From now on a process that C++ ends says why in one sentence and exits with 1: without a stack trace
/// and a core dump. Files that were being written are left as by a kill.
pub fn end_in_a_sentence() {
    if cfg!(feature = "cuda") {
        // SAFETY: the function may be called at any time, from any thread.
        let _ = shim::check(unsafe { shim::tx_on_terminate(end) });
    }
}

extern "C" fn end(text: *const c_char) {
    // SAFETY: the shim passes a terminated text.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // Not `eprintln`, which panics where nobody reads.
    let _ = writeln!(std::io::stderr(), "error: {}", Error::from_libtorch(&text));
}
