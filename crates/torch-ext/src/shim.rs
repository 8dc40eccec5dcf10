//! The functions of `shim.cpp`. In a build without CUDA they all fail.

use std::ffi::{CStr, c_char, c_int, c_void};

use tch::Tensor;
use torch_sys_types::RawTensor;

use crate::error::{Error, Result};

/// Stands in for tch's tensor type, which is not exported; only addresses matter.
pub(crate) mod torch_sys_types {
    /// An `at::Tensor`.
    pub enum RawTensor {}
}

/// Backward pass of a node: writes one gradient per input, or returns an owned error text.
pub type Backward = extern "C" fn(*mut c_void, *mut RawTensor, *mut *mut RawTensor, usize) -> *mut c_char;
/// Frees a node's state.
pub type Drop = extern "C" fn(*mut c_void);
/// Frees a text that a backward pass returned.
pub type FreeText = extern "C" fn(*mut c_char);

/// Prints why the process ends.
pub type End = extern "C" fn(*const c_char);

macro_rules! shim {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        #[cfg(feature = "cuda")]
        unsafe extern "C" {
            $($(#[$attribute])* pub fn $name($($argument: $type),*) -> *const c_char;)*
        }
        #[cfg(not(feature = "cuda"))]
        mod absent {
            use super::*;
            $(
                #[allow(unused_variables, clippy::too_many_arguments, clippy::missing_safety_doc)]
                pub unsafe fn $name($($argument: $type),*) -> *const c_char {
                    c"this build has no CUDA".as_ptr()
                }
            )*
        }
        #[cfg(not(feature = "cuda"))]
        pub use absent::*;
    };
}

shim! {
    fn tx_attach(output: *mut RawTensor, inputs: *const *mut RawTensor, count: usize, state: *mut c_void,
        backward: Backward, drop: Drop, free_text: FreeText, attached: *mut *mut RawTensor);
    fn tx_convolution_backward(gradient: *mut RawTensor, input: *mut RawTensor, weight: *mut RawTensor, stride: i64,
        padding: i64, want_input: c_int, want_weight: c_int, input_gradient: *mut *mut RawTensor,
        weight_gradient: *mut *mut RawTensor);
    fn tx_lstm(input: *mut RawTensor, buffer: *mut RawTensor, h: *mut RawTensor, c: *mut RawTensor, width: i64,
        train: c_int, output: *mut *mut RawTensor, h_after: *mut *mut RawTensor, c_after: *mut *mut RawTensor,
        reserve: *mut *mut RawTensor);
    fn tx_lstm_backward(input: *mut RawTensor, buffer: *mut RawTensor, h: *mut RawTensor, c: *mut RawTensor,
        output: *mut RawTensor, reserve: *mut RawTensor, gradient: *mut RawTensor, width: i64,
        input_gradient: *mut *mut RawTensor, weight_gradients: *mut *mut RawTensor);
    fn tx_copy_all(to: *const *mut RawTensor, from: *const *mut RawTensor, count: usize);
    fn tx_upload(host: *mut RawTensor, copy: *mut *mut RawTensor);
    fn tx_download(tensor: *mut RawTensor, copy: *mut *mut RawTensor);
    fn tx_stream_new(high_priority: c_int, stream: *mut *mut c_void);
    fn tx_stream_current(stream: *mut *mut c_void);
    fn tx_stream_set(stream: *mut c_void);
    fn tx_stream_synchronize(stream: *mut c_void);
    fn tx_stream_raw(stream: *mut c_void, raw: *mut *mut c_void);
    fn tx_stream_uses(stream: *mut c_void, tensor: *mut RawTensor);
    fn tx_event_new(timing: c_int, event: *mut *mut c_void);
    fn tx_event_record(event: *mut c_void, stream: *mut c_void);
    fn tx_event_block(event: *mut c_void, stream: *mut c_void);
    fn tx_event_synchronize(event: *mut c_void);
    fn tx_event_done(event: *mut c_void, done: *mut c_int);
    fn tx_event_milliseconds(start: *mut c_void, end: *mut c_void, milliseconds: *mut f64);
    fn tx_graph_begin(graph: *mut *mut c_void);
    fn tx_graph_end(graph: *mut c_void);
    fn tx_graph_replay(graph: *mut c_void);
    fn tx_on_terminate(end: End);
    fn tx_silence(silent: c_int);
    fn tx_prefer_speed();
    fn tx_release_unused_memory();
    fn tx_memory(allocated: *mut u64, peak_allocated: *mut u64, reserved: *mut u64, peak_reserved: *mut u64);
}

macro_rules! release {
    ($($name:ident)*) => {
        #[cfg(feature = "cuda")]
        unsafe extern "C" {
            $(pub fn $name(object: *mut c_void);)*
        }
        $(
            /// Does nothing: a build without CUDA has no such object.
            #[cfg(not(feature = "cuda"))]
            pub unsafe fn $name(_: *mut c_void) {}
        )*
    };
}
release! { tx_stream_free tx_event_free tx_graph_free }

/// Converts the return value of a function of the shim.
pub fn check(text: *const c_char) -> Result<()> {
    if text.is_null() {
        return Ok(());
    }
    if cfg!(not(feature = "cuda")) {
        return Err(Error::NotBuilt);
    }
    // SAFETY: the shim returns null or a text that lives until this thread's next call.
    Err(Error::from_libtorch(&unsafe { CStr::from_ptr(text) }.to_string_lossy()))
}

/// Returns the `at::Tensor` of a tensor, which the shim only reads.
pub fn raw(tensor: &Tensor) -> *mut RawTensor {
    tensor.as_ptr().cast_mut().cast()
}

/// Takes ownership of a tensor that the shim made.
///
/// # Safety
/// `tensor` was made with `new at::Tensor` and has no other owner.
pub unsafe fn take(tensor: *mut RawTensor) -> Tensor {
    // SAFETY: as above; tch frees it in the same way.
    unsafe { Tensor::from_ptr(tensor.cast()) }
}
