//! The functions of `shim.cpp`, a library inside the program that is loaded where there is a GPU. Elsewhere they all
//! fail, so that one program serves machines with and without CUDA.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::FromRawFd;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use tch::Tensor;
use torch_sys_types::RawTensor;

use crate::error::{Error, Result};
use crate::library::{self, unusable};

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
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)* $(free $free:ident;)*) => {
        /// The functions of the loaded shim.
        pub struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> *const c_char,)*
            $($free: unsafe extern "C" fn(*mut c_void),)*
        }

        impl Functions {
            fn of(shim: &Library) -> Result<Self> {
                Ok(Self {
                    // SAFETY: shim.cpp defines these functions with these signatures.
                    $($name: *unsafe { shim.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|error| unusable(NAME, &error))?,)*
                    // SAFETY: as above.
                    $($free: *unsafe { shim.get(concat!(stringify!($free), "\0").as_bytes()) }
                        .map_err(|error| unusable(NAME, &error))?,)*
                })
            }
        }

        $(
            #[allow(clippy::too_many_arguments, clippy::missing_safety_doc)]
            pub unsafe fn $name($($argument: $type),*) -> *const c_char {
                match functions() {
                    // SAFETY: guaranteed by the caller.
                    Ok(functions) => unsafe { (functions.$name)($($argument),*) },
                    Err(_) => c"the shim is not loaded".as_ptr(),
                }
            }
        )*
        $(
            /// Frees an object, which cannot exist without the shim.
            pub unsafe fn $free(object: *mut c_void) {
                if let Ok(functions) = functions() {
                    // SAFETY: guaranteed by the caller.
                    unsafe { (functions.$free)(object) }
                }
            }
        )*
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
    free tx_stream_free;
    free tx_event_free;
    free tx_graph_free;
}

/// What loader messages call the shim.
const NAME: &str = "the CUDA part of meme";
/// The shared library that the build script makes of `shim.cpp`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim.so"));

/// Returns the shim, loaded once, or why it cannot be.
///
/// libtorch looks for its CUDA part once, at its first question about a GPU, so this comes before any such question.
pub fn functions() -> Result<&'static Functions> {
    static FUNCTIONS: OnceLock<Result<Functions>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Functions> {
    // Without a driver, a second of loading libtorch's CUDA part would be for nothing.
    library::open("libcuda.so.1").map_err(|_| Error::NoDriver)?;
    // Found by way of this program's own search path, which the shim does not share.
    library::open("libtorch_cuda.so")?;
    let failed = |error: io::Error| Error::Library { library: NAME, reason: error.to_string() };
    // SAFETY: a terminated name and no flags.
    let descriptor = unsafe { libc::memfd_create(c"meme_shim".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    // SAFETY: a new descriptor without another owner.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(LIBRARY).map_err(failed)?;
    // SAFETY: loading the shim runs no code but C++'s own; it is never unloaded.
    let shim = unsafe { Library::open(Some(format!("/proc/self/fd/{descriptor}")), RTLD_NOW | RTLD_LOCAL) };
    let shim = shim.map_err(|error| unusable(NAME, &error))?;
    Functions::of(Box::leak(Box::new(shim)))
}

/// Converts the return value of a function of the shim.
pub fn check(text: *const c_char) -> Result<()> {
    if text.is_null() {
        return Ok(());
    }
    functions()?;
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
