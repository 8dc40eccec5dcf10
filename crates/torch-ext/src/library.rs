//! Libraries that are loaded at run time, so that neither building nor starting without a GPU needs them.

use std::error::Error as _;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::error::{Error, Result};

/// Loads a library for the life of the process.
pub(crate) fn open(library: &'static str) -> Result<&'static Library> {
    // SAFETY: the libraries of CUDA and libtorch do nothing harmful when loaded, and are never unloaded.
    let opened = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL) };
    opened.map(|opened| &*Box::leak(Box::new(opened))).map_err(|error| unusable(library, &error))
}

/// Makes the error of a library or function that cannot be used.
pub(crate) fn unusable(library: &'static str, error: &libloading::Error) -> Error {
    // The error's own text names only the call; its source is the loader's message.
    let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    Error::Library { library, reason }
}

/// Declares a struct of functions of a library, each with its name there and its signature.
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
                    // SAFETY: the function of this name has this signature in the library's headers.
                    $($field: *unsafe { opened.get($symbol.to_bytes_with_nul()) }
                        .map_err(|error| crate::library::unusable($file, &error))?,)*
                })
            }
        }
    };
}
pub(crate) use library;
