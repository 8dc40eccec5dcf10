//! The CUDA driver and NVRTC, loaded at run time: neither building nor starting without a GPU needs CUDA.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::library::library;
use crate::shim;

const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;
const MULTIPROCESSORS: c_int = 16;
const SHARED_BYTES_PER_BLOCK: c_int = 97;
const MAX_DYNAMIC_SHARED_BYTES: c_int = 8;

library! {
    /// Functions of the driver and of NVRTC, through the library with which libtorch finds its versions of both.
    pub(crate) struct Driver("libcaffe2_nvrtc.so");
    error_string = c"cuGetErrorString": fn(c_int, *mut *const c_char) -> c_int;
    device_attribute = c"cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int) -> c_int;
    module_load = c"cuModuleLoadData": fn(*mut *mut c_void, *const c_void) -> c_int;
    module_function = c"cuModuleGetFunction": fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;
    function_attribute = c"cuFuncSetAttribute": fn(*mut c_void, c_int, c_int) -> c_int;
    launch_kernel = c"cuLaunchKernel": fn(*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int;
    host_allocate = c"cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint) -> c_int;
    host_free = c"cuMemFreeHost": fn(*mut c_void) -> c_int;
    copy_to_device = c"cuMemcpyHtoDAsync_v2": fn(u64, *const c_void, usize, *mut c_void) -> c_int;
    copy_to_host = c"cuMemcpyDtoHAsync_v2": fn(*mut c_void, u64, usize, *mut c_void) -> c_int;
    nvrtc_version = c"nvrtcVersion": fn(*mut c_int, *mut c_int) -> c_int;
    nvrtc_create = c"nvrtcCreateProgram": fn(*mut *mut c_void, *const c_char, *const c_char, c_int,
        *const *const c_char, *const *const c_char) -> c_int;
    nvrtc_compile = c"nvrtcCompileProgram": fn(*mut c_void, c_int, *const *const c_char) -> c_int;
    nvrtc_log_size = c"nvrtcGetProgramLogSize": fn(*mut c_void, *mut usize) -> c_int;
    nvrtc_log = c"nvrtcGetProgramLog": fn(*mut c_void, *mut c_char) -> c_int;
    nvrtc_cubin_size = c"nvrtcGetCUBINSize": fn(*mut c_void, *mut usize) -> c_int;
    nvrtc_cubin = c"nvrtcGetCUBIN": fn(*mut c_void, *mut c_char) -> c_int;
    nvrtc_destroy = c"nvrtcDestroyProgram": fn(*mut *mut c_void) -> c_int;
}

/// Returns the driver, loaded once.
pub(crate) fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    shim::functions()?;
    DRIVER.get_or_init(Driver::open).as_ref().map_err(Clone::clone)
}

/// Makes the GPU's context current on this thread, as libtorch's first operation does.
pub(crate) fn adopt_context() -> Result<()> {
    let _ = tch::Tensor::f_zeros([1], (tch::Kind::Float, tch::Device::Cuda(0)))?;
    Ok(())
}

impl Driver {
    fn check(&self, code: c_int, call: impl FnOnce() -> String) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut text = ptr::null();
        // SAFETY: the driver writes one pointer to a constant string, or leaves it null.
        unsafe { (self.error_string)(code, &mut text) };
        let reason = if text.is_null() {
            format!("error {code}")
        } else {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(Error::from_driver(call(), reason))
    }

    fn attribute(&self, attribute: c_int) -> Result<c_int> {
        let mut value = 0;
        // SAFETY: the driver writes one number; device 0 is the one libtorch uses.
        let code = unsafe { (self.device_attribute)(&mut value, attribute, 0) };
        self.check(code, || "reading the GPU's properties".to_owned())?;
        Ok(value)
    }

    /// Returns the compute capability, such as (9, 0).
    pub fn compute_capability(&self) -> Result<(i32, i32)> {
        Ok((self.attribute(COMPUTE_CAPABILITY_MAJOR)?, self.attribute(COMPUTE_CAPABILITY_MINOR)?))
    }

    /// Returns the number of streaming multiprocessors.
    pub fn multiprocessors(&self) -> Result<i32> {
        self.attribute(MULTIPROCESSORS)
    }

    /// Returns the bytes of shared memory available to a thread block.
    pub fn shared_bytes(&self) -> Result<i32> {
        self.attribute(SHARED_BYTES_PER_BLOCK)
    }

    /// Returns NVRTC's version, such as (13, 0).
    pub fn compiler_version(&self) -> Result<(i32, i32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: NVRTC writes two numbers.
        match unsafe { (self.nvrtc_version)(&mut major, &mut minor) } {
            0 => Ok((major, minor)),
            code => Err(Error::Compile(format!("cannot read NVRTC's version (error {code})"))),
        }
    }

    /// Compiles CUDA C++ for one architecture, such as `sm_90`.
    pub fn compile(&self, source: &str, architecture: &str) -> Result<Vec<u8>> {
        let text =
            |text: String| CString::new(text).map_err(|_| Error::Compile("a zero byte in the source".to_owned()));
        let (source, name) = (text(source.to_owned())?, text("meme.cu".to_owned())?);
        let options = [text(format!("-arch={architecture}"))?, text("-std=c++17".to_owned())?];
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = ptr::null_mut();
        // SAFETY: terminated strings; no headers are given.
        let code =
            unsafe { (self.nvrtc_create)(&mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) };
        if code != 0 {
            return Err(Error::Compile(format!("NVRTC error {code}")));
        }
        // SAFETY: a live program and terminated strings.
        let code = unsafe { (self.nvrtc_compile)(program, options.len() as c_int, options.as_ptr()) };
        let result = if code == 0 {
            self.fetch(program, self.nvrtc_cubin_size, self.nvrtc_cubin)
        } else {
            let log = self.fetch(program, self.nvrtc_log_size, self.nvrtc_log)?;
            let log = String::from_utf8_lossy(&log);
            let first = log.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
            Err(Error::Compile(first.trim_end_matches('\0').to_owned()))
        };
        // SAFETY: a live program, destroyed once.
        unsafe { (self.nvrtc_destroy)(&mut program) };
        result
    }

    fn fetch(
        &self,
        program: *mut c_void,
        size: unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int,
        read: unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: a live program; NVRTC writes one number.
        let mut code = unsafe { size(program, &mut bytes) };
        let mut buffer = vec![0u8; bytes];
        if code == 0 {
            // SAFETY: the buffer has the size NVRTC asked for.
            code = unsafe { read(program, buffer.as_mut_ptr().cast()) };
        }
        if code == 0 { Ok(buffer) } else { Err(Error::Compile(format!("NVRTC error {code}"))) }
    }

    /// Loads a compiled module for the life of the process.
    pub fn load(&self, cubin: &[u8]) -> Result<*mut c_void> {
        let mut module = ptr::null_mut();
        // SAFETY: a complete cubin, which the driver copies.
        let code = unsafe { (self.module_load)(&mut module, cubin.as_ptr().cast()) };
        self.check(code, || "loading the kernels".to_owned())?;
        Ok(module)
    }

    /// Returns a kernel of a module, which may use this many bytes of dynamic shared memory.
    pub fn function(&self, module: *mut c_void, name: &str, dynamic_shared: usize) -> Result<*mut c_void> {
        let text = CString::new(name).unwrap_or_default();
        let mut function = ptr::null_mut();
        // SAFETY: a live module and a terminated string.
        let code = unsafe { (self.module_function)(&mut function, module, text.as_ptr()) };
        self.check(code, || format!("finding the kernel {name}"))?;
        if dynamic_shared > 0 {
            // SAFETY: a live function.
            let code =
                unsafe { (self.function_attribute)(function, MAX_DYNAMIC_SHARED_BYTES, dynamic_shared as c_int) };
            self.check(code, || format!("giving the kernel {name} its shared memory"))?;
        }
        Ok(function)
    }

    /// Launches a kernel with one-dimensional blocks.
    ///
    /// # Safety
    /// `arguments` point to values of the kernel's parameter types, and every address among them is of live GPU memory
    /// that is large enough.
    pub unsafe fn launch(
        &self,
        function: *mut c_void,
        (grid, block, shared): (u32, u32, u32),
        stream: *mut c_void,
        arguments: &mut [*mut c_void],
        name: &str,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let code = unsafe {
            (self.launch_kernel)(
                function,
                grid,
                1,
                1,
                block,
                1,
                1,
                shared,
                stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.check(code, || format!("launching the kernel {name}"))
    }

    /// Allocates host memory that the GPU can access.
    pub fn allocate_host(&self, bytes: usize) -> Result<*mut c_void> {
        let mut start = ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        let code = unsafe { (self.host_allocate)(&mut start, bytes, 1) };
        let call = || format!("pinning {bytes} bytes for the GPU to read");
        self.check(code, call).map_err(|error| match error {
            // The driver reports the host's memory like the GPU's.
            Error::OutOfMemory(reason) => Error::HostMemory(reason),
            other => other,
        })?;
        Ok(start)
    }

    /// Frees memory of [`allocate_host`](Self::allocate_host).
    pub fn free_host(&self, start: *mut c_void) {
        // SAFETY: called once per allocation, by its owner. It may fail harmlessly at the end of the process.
        unsafe { (self.host_free)(start) };
    }

    /// Copies from the host on a stream.
    ///
    /// # Safety
    /// Both sides have `bytes` bytes and stay alive and unchanged until the copy is done.
    pub unsafe fn upload(&self, to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let code = unsafe { (self.copy_to_device)(to, from, bytes, stream) };
        self.check(code, || format!("copying {bytes} bytes to the GPU"))
    }

    /// Copies to the host on a stream.
    ///
    /// # Safety
    /// Both sides have `bytes` bytes and stay alive and untouched until the copy is done.
    pub unsafe fn download(&self, to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let code = unsafe { (self.copy_to_host)(to, from, bytes, stream) };
        self.check(code, || format!("copying {bytes} bytes from the GPU"))
    }
}
