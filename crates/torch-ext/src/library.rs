//! Libraries that are found at run time, so that nothing of them is needed to build or to start without a GPU.

use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

use crate::error::{Error, Result};

/// Opens a library for the life of the process.
pub(crate) fn open(library: &'static str) -> Result<NonNull<c_void>> {
    let name = CString::new(library).unwrap_or_default();
    // SAFETY: a terminated string; the library is never closed.
    let opened = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    NonNull::new(opened).ok_or_else(|| Error::Library { library, reason: loader_error() })
}

/// A function of an open library.
pub(crate) fn symbol(library: &'static str, opened: NonNull<c_void>, name: &CStr) -> Result<NonNull<c_void>> {
    // SAFETY: a live library and a terminated string.
    let symbol = unsafe { libc::dlsym(opened.as_ptr(), name.as_ptr()) };
    NonNull::new(symbol).ok_or_else(|| Error::Library { library, reason: loader_error() })
}

fn loader_error() -> String {
    // SAFETY: dlerror returns null or a terminated string of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A struct with functions of a library, each with its name there and its signature.
macro_rules! library {
    (
        $(#[$attribute:meta])*
        pub(crate) struct $library:ident($file:literal);
        $($field:ident = $symbol:literal: fn($($type:ty),*) -> $result:ty;)*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        #[allow(clippy::type_complexity)]
        pub(crate) struct $library {
            $($field: unsafe extern "C" fn($($type),*) -> $result,)*
        }

        impl $library {
            fn open() -> Result<Self> {
                let opened = crate::library::open($file)?;
                Ok(Self {
                    $($field: {
                        let symbol = crate::library::symbol($file, opened, $symbol)?;
                        // SAFETY: the function of this name has this signature in the library's headers.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(
                                symbol.as_ptr(),
                            )
                        }
                    },)*
                })
            }
        }
    };
}
pub(crate) use library;
