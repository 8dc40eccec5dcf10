//! Nodes of libtorch's autograd graph with a backward pass in Rust.

use std::ffi::{CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use tch::Tensor;

use crate::error::Result;
use crate::shim::{self, torch_sys_types::RawTensor};

type BackwardFn = Box<dyn FnOnce(&Tensor) -> Result<Vec<Option<Tensor>>> + Send>;

/// Connects `output`, which was computed from `inputs` outside autograd, to the graph.
///
/// `backward` receives the gradient of the output and returns one per input. It runs once, on a thread of libtorch, on
/// the stream of this call, and without recording gradients. If no input requires a gradient, returns `output` itself.
pub fn attach(
    output: &Tensor,
    inputs: &[&Tensor],
    backward: impl FnOnce(&Tensor) -> Result<Vec<Option<Tensor>>> + Send + 'static,
) -> Result<Tensor> {
    if !inputs.iter().any(|input| input.requires_grad()) {
        return Ok(output.shallow_clone());
    }
    let backward: BackwardFn = Box::new(backward);
    let state: *mut Option<BackwardFn> = Box::into_raw(Box::new(Some(backward)));
    let inputs: Vec<_> = inputs.iter().map(|input| shim::raw(input)).collect();
    let mut attached = ptr::null_mut();
    // SAFETY: the node takes over `state`, passes it to `run`, and once to `drop_state`; the tensors are live.
    let text = unsafe {
        shim::tx_attach(
            shim::raw(output),
            inputs.as_ptr(),
            inputs.len(),
            state.cast(),
            run,
            drop_state,
            free_text,
            &mut attached,
        )
    };
    shim::check(text)?;
    // SAFETY: made by the shim for us.
    Ok(unsafe { shim::take(attached) })
}

extern "C" fn run(
    state: *mut c_void,
    gradient: *mut RawTensor,
    gradients: *mut *mut RawTensor,
    inputs: usize,
) -> *mut c_char {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the state that `attach` made; libtorch runs a node on one thread at a time.
        let backward = unsafe { &mut *state.cast::<Option<BackwardFn>>() }.take();
        let Some(backward) = backward else {
            return Err("the backward pass of a fused operation ran twice".to_owned());
        };
        // SAFETY: a live tensor of libtorch; the clone has its own reference.
        let gradient = unsafe { Tensor::clone_from_ptr(gradient.cast()) };
        tch::no_grad(|| backward(&gradient)).map_err(|error| error.to_libtorch())
    }));
    let outcome = outcome.unwrap_or_else(|_| Err("a backward pass panicked".to_owned()));
    let error = match outcome {
        Ok(found) if found.len() == inputs => {
            for (i, gradient) in found.into_iter().enumerate() {
                if let Some(mut gradient) = gradient {
                    // SAFETY: `gradients` has room for `inputs` pointers; the node frees what is put there.
                    unsafe { *gradients.add(i) = gradient.as_mut_ptr().cast() };
                    std::mem::forget(gradient);
                }
            }
            return ptr::null_mut();
        }
        Ok(found) => format!("a backward pass returned {} gradients for {inputs} inputs", found.len()),
        Err(error) => error,
    };
    CString::new(error.replace('\0', " ")).unwrap_or_default().into_raw()
}

extern "C" fn drop_state(state: *mut c_void) {
    // SAFETY: made by `attach`, given back once.
    drop(unsafe { Box::from_raw(state.cast::<Option<BackwardFn>>()) });
}

extern "C" fn free_text(text: *mut c_char) {
    // SAFETY: made by `run`, given back once.
    drop(unsafe { CString::from_raw(text) });
}
