//! Kernels: CUDA C++ compiled by NVRTC for this GPU and cached on disk.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{env, fs, process};

use xxhash_rust::xxh3::xxh3_128;

use crate::driver::{adopt_context, driver};
use crate::error::Result;
use crate::stream::Stream;

/// The beginning of every source.
const PRELUDE: &str = include_str!("kernels/vector.cuh");

/// Minimum compute capability that has asynchronous copies and bf16 tensor cores, which the kernels use.
pub(crate) const MIN_CAPABILITY: (i32, i32) = (8, 0);

/// A compiled and loaded source.
#[derive(Debug)]
pub(crate) struct Module {
    module: *mut c_void,
    functions: Mutex<HashMap<&'static str, Kernel>>,
}

/// A kernel of a module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    function: *mut c_void,
    name: &'static str,
    dynamic_shared: usize,
}

// SAFETY: handles of the driver's primary context, which any thread may use and which live as long as the process.
unsafe impl Send for Module {}
// SAFETY: as above; the map is behind a mutex.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Module {
    /// Returns the module of a source, compiled at most once per process and usually once per machine.
    pub fn get(source: &str) -> Result<Arc<Self>> {
        static LOADED: OnceLock<Mutex<HashMap<u128, Arc<Module>>>> = OnceLock::new();
        let mut loaded = LOADED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let key = xxh3_128(source.as_bytes());
        if let Some(module) = loaded.get(&key) {
            return Ok(module.clone());
        }
        let driver = driver()?;
        adopt_context()?;
        let module = driver.load(&compiled(source)?)?;
        let module = Arc::new(Self { module, functions: Mutex::default() });
        loaded.insert(key, module.clone());
        Ok(module)
    }

    /// Returns a kernel that may use at least this many bytes of dynamic shared memory.
    pub fn kernel(&self, name: &'static str, dynamic_shared: usize) -> Result<Kernel> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&kernel) = functions.get(name)
            && kernel.dynamic_shared >= dynamic_shared
        {
            return Ok(kernel);
        }
        let kernel = Kernel { function: driver()?.function(self.module, name, dynamic_shared)?, name, dynamic_shared };
        functions.insert(name, kernel);
        Ok(kernel)
    }
}

/// A pointer to an argument of a kernel.
pub(crate) struct Argument(*mut c_void);

/// Makes an argument of a value that outlives the launch.
pub(crate) fn argument<T>(value: &T) -> Argument {
    Argument(std::ptr::from_ref(value).cast_mut().cast())
}

impl Kernel {
    /// Launches the kernel on the current stream.
    ///
    /// # Safety
    /// The arguments have the kernel's parameter types, and every address among them is of live GPU memory that is
    /// large enough for a launch of this size.
    pub unsafe fn launch(&self, grid: usize, block: usize, shared: usize, arguments: &[Argument]) -> Result<()> {
        let mut arguments: Vec<_> = arguments.iter().map(|argument| argument.0).collect();
        let stream = Stream::current()?.raw()?;
        let size = (grid as u32, block as u32, shared as u32);
        // SAFETY: guaranteed by the caller.
        unsafe { driver()?.launch(self.function, size, stream, &mut arguments, self.name) }
    }
}

/// Returns the compiled source, from the cache if possible.
fn compiled(source: &str) -> Result<Vec<u8>> {
    let driver = driver()?;
    let (major, minor) = driver.compute_capability()?;
    let (compiler_major, compiler_minor) = driver.compiler_version()?;
    let architecture = format!("sm_{major}{minor}");
    let whole = format!("{PRELUDE}\n{source}");
    let key = xxh3_128(format!("{architecture} {compiler_major}.{compiler_minor}\n{whole}").as_bytes());
    let file = cache_directory().map(|directory| directory.join(format!("kernels-{key:032x}.cubin")));
    if let Some(Ok(bytes)) = file.as_ref().map(fs::read)
        && let Some(cubin) = unsealed(&bytes)
    {
        return Ok(cubin.to_vec());
    }
    let cubin = driver.compile(&whole, &architecture)?;
    // Without a cache the next start compiles again, which takes seconds but is not an error.
    if let Some(file) = file
        && let Some(directory) = file.parent()
        && fs::create_dir_all(directory).is_ok()
    {
        let beside = directory.join(format!(".{}-{key:032x}", process::id()));
        if fs::write(&beside, sealed(&cubin)).is_ok() {
            let _ = fs::rename(&beside, &file);
        }
    }
    Ok(cubin)
}

/// Returns `$XDG_CACHE_HOME/meme` or `~/.cache/meme`.
fn cache_directory() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    Some(absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?.join("meme"))
}

/// Prepends a hash to the bytes, so that a torn file of the cache is compiled again.
fn sealed(cubin: &[u8]) -> Vec<u8> {
    [&xxh3_128(cubin).to_le_bytes()[..], cubin].concat()
}

fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
    let (hash, cubin) = bytes.split_first_chunk::<16>()?;
    (xxh3_128(cubin).to_le_bytes() == *hash).then_some(cubin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_damaged_files_of_the_cache() {
        let file = sealed(b"kernel");
        assert_eq!(unsealed(&file), Some(&b"kernel"[..]));
        for damaged in [&file[..10], &file[..file.len() - 1], b""] {
            assert_eq!(unsealed(damaged), None);
        }
        let mut flipped = file.clone();
        flipped[18] ^= 1;
        assert_eq!(unsealed(&flipped), None);
    }
}
