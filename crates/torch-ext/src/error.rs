//! Errors of libtorch and the GPU.
//!
//! libtorch, cuDNN, cuBLAS and the CUDA driver report errors as text. Those that a user can act on, such as exhausted
//! memory and a missing or failed GPU, are recognised by their wording.

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of libtorch or the GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The machine has no NVIDIA GPU, or its driver is not installed.
    #[error("this machine has no NVIDIA GPU, or no driver for it")]
    NoDriver,
    /// There is no usable GPU or driver.
    #[error("no usable GPU ({0}); run `meme doctor`")]
    NoGpu(String),
    /// A library or one of its functions is missing.
    #[error("cannot load {library}: {reason}")]
    Library {
        /// The library.
        library: &'static str,
        /// The loader's message.
        reason: String,
    },
    /// The CUDA driver refused a call.
    #[error("CUDA: {call}: {reason}")]
    Driver {
        /// The call.
        call: String,
        /// The driver's message.
        reason: String,
    },
    /// The kernels did not compile for this GPU.
    #[error("cannot compile the GPU kernels: {0}")]
    Compile(String),
    /// The GPU is out of memory.
    #[error("the GPU is out of memory: {0}; `nvidia-smi` shows which processes use it")]
    OutOfMemory(String),
    /// The host is out of memory, or does not allow this process to lock more of it.
    #[error("the host is out of memory: {0}")]
    HostMemory(String),
    /// Another process has exclusive use of the GPU, or it is being reset.
    #[error(
        "the GPU is busy ({0}); `nvidia-smi` shows which processes use it, and the environment variable \
         CUDA_VISIBLE_DEVICES=1 selects a second GPU"
    )]
    Busy(String),
    /// The GPU failed and is lost to this process.
    #[error(
        "the GPU stopped working ({0}); check it with `nvidia-smi` and `dmesg | grep Xid`, then repeat the command: \
         training resumes from the last checkpoint"
    )]
    Lost(String),
    /// libtorch refused an operation.
    #[error("libtorch: {0}")]
    Torch(String),
    /// A tensor does not fit a fused operation.
    #[error("{what} is {found}, expected {expected}")]
    Shape {
        /// The tensor.
        what: &'static str,
        /// Its kind and shape.
        found: String,
        /// The expected kind and shape.
        expected: String,
    },
}

/// Messages of exhausted GPU memory, including cuDNN's if no workspace fits, and both libraries' if no handle fits.
const OUT_OF_MEMORY: [&str; 8] = [
    "out of memory",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "unable to find an engine to execute this computation",
    "Unable to find a valid cuDNN algorithm",
];

/// libtorch's messages of exhausted host memory.
const HOST_MEMORY: [&str; 2] = ["can't allocate memory", "Cannot allocate memory"];

/// The driver's message while another process has the GPU.
const BUSY: [&str; 1] = ["busy or unavailable"];

/// Messages of libtorch and the driver without a usable GPU.
const NO_GPU: [&str; 6] = [
    "Found no NVIDIA driver",
    "driver on your system is too old",
    "No CUDA GPUs are available",
    "no CUDA-capable device is detected",
    "CUDA driver version is insufficient for CUDA runtime version",
    "CUDA driver initialization failed",
];

/// Messages of a failed GPU; after any of them, everything else fails too until the process ends.
const LOST: [&str; 23] = [
    "unspecified launch failure",
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "misaligned address",
    "operation not supported on global/shared address space",
    "invalid program counter",
    "hardware stack error",
    "device-side assert triggered",
    "the launch timed out and was terminated",
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error",
    "GPU has fallen off the bus",
    "GPU is lost",
    "unknown error",
    "driver shutting down",
    "context is destroyed",
    "device kernel image is invalid",
    "Invalid access of peer GPU memory",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_MAPPING_ERROR",
    "CUDNN_STATUS_INTERNAL_ERROR",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_INTERNAL_ERROR",
];

fn contains_any(text: &str, messages: &[&str]) -> bool {
    messages.iter().any(|message| text.contains(message))
}

impl Error {
    /// Converts libtorch's message, of which only the first line is kept: the rest is a C++ stack trace.
    pub fn from_libtorch(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default().trim();
        Self::known(line).unwrap_or_else(|| Self::Torch(line.to_owned()))
    }

    /// Converts the driver's message about a call.
    pub(crate) fn from_driver(call: String, reason: String) -> Self {
        match Self::known(&reason) {
            Some(Self::OutOfMemory(reason)) => Self::OutOfMemory(format!("{call}: {reason}")),
            Some(error) => error,
            None => Self::Driver { call, reason },
        }
    }

    /// Returns libtorch's wording, for an error that passes through libtorch on its way to the caller.
    pub(crate) fn to_libtorch(&self) -> String {
        match self {
            Self::OutOfMemory(reason) => format!("CUDA out of memory: {reason}"),
            Self::HostMemory(reason) => format!("can't allocate memory: {reason}"),
            Self::Busy(reason) | Self::Lost(reason) => format!("CUDA error: {reason}"),
            Self::Torch(reason) => reason.clone(),
            other => other.to_string(),
        }
    }

    /// Recognises the errors that a user can act on.
    fn known(line: &str) -> Option<Self> {
        let reason = line.strip_prefix("CUDA error: ").unwrap_or(line);
        if contains_any(line, &HOST_MEMORY) {
            return Some(Self::HostMemory(host_memory(line)));
        }
        if contains_any(line, &OUT_OF_MEMORY) {
            return Some(Self::OutOfMemory(out_of_memory(reason)));
        }
        if contains_any(line, &BUSY) {
            return Some(Self::Busy(reason.to_owned()));
        }
        if contains_any(line, &NO_GPU) {
            return Some(Self::NoGpu(no_gpu(reason)));
        }
        contains_any(line, &LOST).then(|| Self::Lost(reason.to_owned()))
    }
}

/// Extracts how much memory was requested and how much was free from libtorch's long message.
fn out_of_memory(line: &str) -> String {
    if let Some(reason) = line.strip_prefix("CUDA out of memory: ") {
        return reason.to_owned();
    }
    let between = |begin: &str, end: &str| Some(line.split_once(begin)?.1.split_once(end)?.0);
    match (
        between("Tried to allocate ", ". "),
        between("total capacity of ", " of which "),
        between(" of which ", " is free"),
    ) {
        (Some(wanted), Some(all), Some(free)) => format!("{wanted} requested, {free} of {all} free"),
        (Some(wanted), ..) => format!("{wanted} requested"),
        _ => line.to_owned(),
    }
}

fn host_memory(line: &str) -> String {
    let reason = line.split_once("can't allocate memory: ").map_or(line, |(_, reason)| reason);
    reason.split(". Error code").next().unwrap_or(reason).replace("you tried to allocate", "tried to allocate")
}

/// Shortens libtorch's message, which includes web addresses.
fn no_gpu(line: &str) -> String {
    if let Some((_, rest)) = line.split_once("is too old (found version ") {
        let version: u32 = rest.split(')').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return format!("the NVIDIA driver supports CUDA {major}.{minor}, but 13.0 is required (driver 580)");
    }
    if line.contains("Found no NVIDIA driver") {
        return "no NVIDIA driver is installed".to_owned();
    }
    line.split(". ").next().unwrap_or(line).to_owned()
}

impl From<tch::TchError> for Error {
    fn from(error: tch::TchError) -> Self {
        match &error {
            tch::TchError::Torch(text) => Self::from_libtorch(text),
            other => Self::from_libtorch(&other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of libtorch 2.11.
    const NO_ROOM: &str = "CUDA out of memory. Tried to allocate 2.61 GiB. GPU 0 has a total capacity of 139.81 GiB of \
        which 1.19 GiB is free. Process 4242 has 120.00 GiB memory in use. Of the allocated memory 17.00 GiB is \
        allocated by PyTorch, and 0.50 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory \
        is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\nException raised \
        from malloc at /pytorch/c10/cuda/CUDACachingAllocator.cpp:1485 (most recent call first):\nframe #0: c10::Error";

    #[test]
    fn names_requested_and_free_memory() {
        let error = Error::from_libtorch(NO_ROOM);
        assert_eq!(error, Error::OutOfMemory("2.61 GiB requested, 1.19 GiB of 139.81 GiB free".to_owned()));
        assert!(error.to_string().contains("nvidia-smi") && !error.to_string().contains("--"), "{error}");
        let others = [
            "CUDA out of memory. Tried to allocate more than 1EB memory.",
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
            "FIND was unable to find an engine to execute this computation after trying 12 plans.",
        ];
        for text in others {
            assert!(matches!(Error::from_libtorch(text), Error::OutOfMemory(_)), "{text}");
        }
    }

    #[test]
    fn distinguishes_host_memory_from_gpu_memory() {
        let text = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to \
            allocate 549755813888 bytes. Error code 12 (Cannot allocate memory)\nframe #0";
        let error = Error::from_libtorch(text);
        assert_eq!(error, Error::HostMemory("tried to allocate 549755813888 bytes".to_owned()));
        assert!(error.to_string().starts_with("the host is out of memory"), "{error}");
    }

    #[test]
    fn failed_gpus_come_with_advice() {
        let texts = [
            "CUDA error: unspecified launch failure\nSearch for `cudaErrorLaunchFailure' in https://docs.nvidia.com",
            "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported",
            "CUDA error: an illegal memory access was encountered",
            "CUDA error: uncorrectable ECC error encountered",
            "CUDA error: the launch timed out and was terminated",
            "CUDA error: unknown error",
            "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k)`",
            "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        ];
        for text in texts {
            let error = Error::from_libtorch(text);
            assert!(matches!(error, Error::Lost(_)), "{text}");
            let sentence = error.to_string();
            assert!(["nvidia-smi", "Xid", "checkpoint"].iter().all(|word| sentence.contains(word)), "{sentence}");
            assert!(!sentence.contains('\n') && !sentence.contains("https"), "{sentence}");
        }
        let error = Error::from_driver("launching the kernel stem".to_owned(), "unspecified launch failure".to_owned());
        assert_eq!(error, Error::Lost("unspecified launch failure".to_owned()));
    }

    #[test]
    fn missing_gpus_come_with_a_reason() {
        let reason = |text: &str| match Error::from_libtorch(text) {
            Error::NoGpu(reason) => reason,
            other => panic!("{other:?}"),
        };
        let text = "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver by \
            downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx";
        assert_eq!(reason(text), "the NVIDIA driver supports CUDA 12.4, but 13.0 is required (driver 580)");
        let text = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a \
            driver from http://www.nvidia.com/Download/index.aspx";
        assert_eq!(reason(text), "no NVIDIA driver is installed");
        assert_eq!(reason("No CUDA GPUs are available\nframe #0"), "No CUDA GPUs are available");
        assert_eq!(reason("CUDA error: no CUDA-capable device is detected"), "no CUDA-capable device is detected");
        let text = "CUDA error: CUDA-capable device(s) is/are busy or unavailable";
        assert!(matches!(Error::from_libtorch(text), Error::Busy(_)));
    }

    #[test]
    fn keeps_other_messages_without_stack_trace() {
        assert_eq!(Error::from_libtorch("no\nframe #0"), Error::Torch("no".to_owned()));
        let error = Error::from_driver("finding the kernel stem".to_owned(), "named symbol not found".to_owned());
        assert!(matches!(error, Error::Driver { .. }), "{error}");
    }

    #[test]
    fn errors_survive_a_backward_pass_through_libtorch() {
        let errors = [NO_ROOM, "CUDA error: unspecified launch failure", "a shape"].map(Error::from_libtorch);
        for error in errors.into_iter().chain([Error::HostMemory("pinning 8 bytes".to_owned())]) {
            assert_eq!(Error::from_libtorch(&error.to_libtorch()), error);
        }
    }
}
