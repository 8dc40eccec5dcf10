//! Why something on the GPU could not be done, in sentences that say what to do about it.
//!
//! libtorch, cuDNN, cuBLAS and the CUDA driver tell what went wrong as texts. What a user can do something about, memory
//! that ran out and a GPU that is not there or not there any more, is told from the rest by what they say.

/// Result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something on the GPU could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The program was built without the `cuda` feature.
    #[error("this build has no CUDA; `make build` on a machine with a GPU makes one that has")]
    NotBuilt,
    /// There is no GPU, or no driver for it.
    #[error("there is no GPU to use ({0}); `meme doctor` says what is missing")]
    NoGpu(String),
    /// A library or one of its functions is not there.
    #[error("{library} can't be used: {reason}")]
    Library {
        /// The library.
        library: &'static str,
        /// What the loader said.
        reason: String,
    },
    /// The CUDA driver refused a call.
    #[error("CUDA: {call}: {reason}")]
    Driver {
        /// What was asked of it.
        call: String,
        /// What it said.
        reason: String,
    },
    /// The kernels did not compile for this GPU.
    #[error("the GPU kernels can't be compiled: {0}")]
    Compile(String),
    /// The GPU has not enough memory left.
    #[error(
        "the GPU has not enough memory: {0}; a smaller `--set learner.batch_size=..`, replay.trace or \
         actors.environments needs less, `--preset desktop` needs a sixth, and `nvidia-smi` shows who else uses it"
    )]
    OutOfMemory(String),
    /// The host has not enough memory left, or lets this process keep no more of it in place.
    #[error(
        "the host has not enough memory: {0}; a smaller `--set learner.batch_size=..`, replay.trace, learner.prefetch or \
         actors.environments needs less"
    )]
    HostMemory(String),
    /// Another process has the GPU for itself, or it is being reset.
    #[error(
        "the GPU can't be used at the moment ({0}); `nvidia-smi` shows who uses it, and CUDA_VISIBLE_DEVICES=1 in front \
         of the command takes the second one"
    )]
    Busy(String),
    /// The GPU was there and failed. Nothing more can be done with it in this process.
    #[error(
        "the GPU stopped working ({0}); `nvidia-smi` shows whether it is still there, `dmesg | grep Xid` what happened \
         to it, and a training run goes on from its last checkpoint with the same command"
    )]
    Lost(String),
    /// libtorch refused an operation.
    #[error("libtorch: {0}")]
    Torch(String),
    /// A tensor does not fit a fused piece.
    #[error("{what} is {found}, not {expected}")]
    Shape {
        /// The tensor.
        what: &'static str,
        /// Its kind and shape.
        found: String,
        /// What it should be.
        expected: String,
    },
}

/// What libraries say when memory on the GPU runs out. cuDNN also when no algorithm's workspace fits any more, and both
/// libraries when what is left is not enough for their handles.
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

/// What libtorch says when the host's memory runs out.
const HOST_MEMORY: [&str; 2] = ["can't allocate memory", "Cannot allocate memory"];

/// What the driver says while somebody else has the GPU.
const BUSY: [&str; 1] = ["busy or unavailable"];

/// What libtorch and the driver say where there is no usable GPU in the first place.
const NO_GPU: [&str; 6] = [
    "Found no NVIDIA driver",
    "driver on your system is too old",
    "No CUDA GPUs are available",
    "no CUDA-capable device is detected",
    "CUDA driver version is insufficient for CUDA runtime version",
    "CUDA driver initialization failed",
];

/// What the driver and the libraries say of a GPU that failed or went away: after each of these all that follows fails
/// too, until the process ends.
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

fn says(text: &str, what: &[&str]) -> bool {
    what.iter().any(|what| text.contains(what))
}

impl Error {
    /// Of a text that libtorch gave: the first line, since a C++ stack trace follows that tells a user nothing.
    pub fn from_libtorch(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default().trim();
        Self::known(line).unwrap_or_else(|| Self::Torch(line.to_owned()))
    }

    /// Of what the driver said to a call.
    pub(crate) fn from_driver(call: String, reason: String) -> Self {
        match Self::known(&reason) {
            Some(Self::OutOfMemory(reason)) => Self::OutOfMemory(format!("{call}: {reason}")),
            Some(error) => error,
            None => Self::Driver { call, reason },
        }
    }

    /// As libtorch would say it, for a failure that goes through libtorch on its way to us.
    pub(crate) fn to_libtorch(&self) -> String {
        match self {
            Self::OutOfMemory(reason) => format!("CUDA out of memory: {reason}"),
            Self::HostMemory(reason) => format!("can't allocate memory: {reason}"),
            Self::Busy(reason) | Self::Lost(reason) => format!("CUDA error: {reason}"),
            Self::Torch(reason) => reason.clone(),
            other => other.to_string(),
        }
    }

    /// One of those that a user can do something about.
    fn known(line: &str) -> Option<Self> {
        let reason = line.strip_prefix("CUDA error: ").unwrap_or(line);
        if says(line, &HOST_MEMORY) {
            return Some(Self::HostMemory(host_memory(line)));
        }
        if says(line, &OUT_OF_MEMORY) {
            return Some(Self::OutOfMemory(out_of_memory(reason)));
        }
        if says(line, &BUSY) {
            return Some(Self::Busy(reason.to_owned()));
        }
        if says(line, &NO_GPU) {
            return Some(Self::NoGpu(no_gpu(reason)));
        }
        says(line, &LOST).then(|| Self::Lost(reason.to_owned()))
    }
}

/// How much was wanted and how much there was: libtorch says it in two of many sentences.
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
        (Some(wanted), Some(all), Some(free)) => format!("{wanted} more are needed, of {all} {free} are free"),
        (Some(wanted), ..) => format!("{wanted} more are needed"),
        _ => line.to_owned(),
    }
}

fn host_memory(line: &str) -> String {
    let reason = line.split_once("can't allocate memory: ").map_or(line, |(_, reason)| reason);
    reason.split(". Error code").next().unwrap_or(reason).replace("you tried to allocate", "tried to allocate")
}

/// Without the addresses that libtorch sends people to.
fn no_gpu(line: &str) -> String {
    if let Some((_, rest)) = line.split_once("is too old (found version ") {
        let version: u32 = rest.split(')').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return format!("the NVIDIA driver is too old: it knows CUDA {major}.{minor}, and 13.0 is needed (driver 580)");
    }
    if line.contains("Found no NVIDIA driver") {
        return "there is no NVIDIA driver on this machine".to_owned();
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

    /// As libtorch 2.11 puts it together.
    const NO_ROOM: &str = "CUDA out of memory. Tried to allocate 2.61 GiB. GPU 0 has a total capacity of 139.81 GiB of \
        which 1.19 GiB is free. Process 4242 has 120.00 GiB memory in use. Of the allocated memory 17.00 GiB is \
        allocated by PyTorch, and 0.50 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory \
        is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\nException raised \
        from malloc at /pytorch/c10/cuda/CUDACachingAllocator.cpp:1485 (most recent call first):\nframe #0: c10::Error";

    #[test]
    fn running_out_of_memory_says_how_much_was_wanted_and_what_to_set() {
        let error = Error::from_libtorch(NO_ROOM);
        assert_eq!(error, Error::OutOfMemory("2.61 GiB more are needed, of 139.81 GiB 1.19 GiB are free".to_owned()));
        for word in ["--set learner.batch_size", "replay.trace", "--preset desktop", "nvidia-smi"] {
            assert!(error.to_string().contains(word), "{error}");
        }
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
    fn the_hosts_memory_is_told_from_the_gpus() {
        let text = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to \
            allocate 549755813888 bytes. Error code 12 (Cannot allocate memory)\nframe #0";
        let error = Error::from_libtorch(text);
        assert_eq!(error, Error::HostMemory("tried to allocate 549755813888 bytes".to_owned()));
        assert!(error.to_string().starts_with("the host has not enough memory"), "{error}");
    }

    #[test]
    fn a_gpu_that_failed_says_where_to_look_and_that_nothing_is_lost() {
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
    fn a_gpu_that_is_not_there_says_why() {
        let reason = |text: &str| match Error::from_libtorch(text) {
            Error::NoGpu(reason) => reason,
            other => panic!("{other:?}"),
        };
        let text = "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver by \
            downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx";
        assert_eq!(reason(text), "the NVIDIA driver is too old: it knows CUDA 12.4, and 13.0 is needed (driver 580)");
        let text = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a \
            driver from http://www.nvidia.com/Download/index.aspx";
        assert_eq!(reason(text), "there is no NVIDIA driver on this machine");
        assert_eq!(reason("No CUDA GPUs are available\nframe #0"), "No CUDA GPUs are available");
        assert_eq!(reason("CUDA error: no CUDA-capable device is detected"), "no CUDA-capable device is detected");
        let text = "CUDA error: CUDA-capable device(s) is/are busy or unavailable";
        assert!(matches!(Error::from_libtorch(text), Error::Busy(_)));
    }

    #[test]
    fn the_rest_is_told_as_it_is_and_without_a_stack_trace() {
        assert_eq!(Error::from_libtorch("no\nframe #0"), Error::Torch("no".to_owned()));
        let error = Error::from_driver("finding the kernel stem".to_owned(), "named symbol not found".to_owned());
        assert!(matches!(error, Error::Driver { .. }), "{error}");
    }

    #[test]
    fn a_failure_in_a_backward_pass_comes_out_of_libtorch_as_it_went_in() {
        let errors = [NO_ROOM, "CUDA error: unspecified launch failure", "a shape"].map(Error::from_libtorch);
        for error in errors.into_iter().chain([Error::HostMemory("pinning 8 bytes".to_owned())]) {
            assert_eq!(Error::from_libtorch(&error.to_libtorch()), error);
        }
    }
}
