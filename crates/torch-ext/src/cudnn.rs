//! cuDNN's graph API, loaded from the library that libtorch uses: cuDNN offers kernels that fuse described operations.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::library::library;
use crate::shim;
use crate::stream::Stream;

library! {
    /// Functions of cuDNN 9.
    pub(crate) struct Cudnn("libcudnn.so.9");
    error_string = c"cudnnGetErrorString": fn(c_int) -> *const c_char;
    create = c"cudnnCreate": fn(*mut *mut c_void) -> c_int;
    set_stream = c"cudnnSetStream": fn(*mut c_void, *mut c_void) -> c_int;
    create_descriptor = c"cudnnBackendCreateDescriptor": fn(c_int, *mut *mut c_void) -> c_int;
    destroy_descriptor = c"cudnnBackendDestroyDescriptor": fn(*mut c_void) -> c_int;
    finalize = c"cudnnBackendFinalize": fn(*mut c_void) -> c_int;
    set_attribute = c"cudnnBackendSetAttribute": fn(*mut c_void, c_int, c_int, i64, *const c_void) -> c_int;
    get_attribute = c"cudnnBackendGetAttribute": fn(*mut c_void, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int;
    execute = c"cudnnBackendExecute": fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;
}

/// Types of attributes.
mod kind {
    pub const HANDLE: i32 = 0;
    pub const BOOLEAN: i32 = 2;
    pub const INTEGER: i32 = 3;
    pub const DOUBLE: i32 = 5;
    pub const ADDRESS: i32 = 6;
    pub const DESCRIPTOR: i32 = 15;
}

fn cudnn() -> Result<&'static Cudnn> {
    static CUDNN: OnceLock<Result<Cudnn>> = OnceLock::new();
    shim::functions()?;
    CUDNN.get_or_init(Cudnn::open).as_ref().map_err(Clone::clone)
}

impl Cudnn {
    fn check(&self, code: c_int, call: &'static str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: cuDNN has a constant text for every number.
        let text = unsafe { CStr::from_ptr((self.error_string)(code)) };
        Err(Error::from_driver(format!("cuDNN: {call}"), text.to_string_lossy().into_owned()))
    }
}

/// cuDNN's state of this process, used by one thread at a time.
struct Handle(*mut c_void);

// SAFETY: any thread may use it, one at a time, which the mutex around it ensures.
unsafe impl Send for Handle {}

/// Calls `work` with the handle on the current stream.
fn with_handle<T>(work: impl FnOnce(&Cudnn, *mut c_void) -> Result<T>) -> Result<T> {
    static HANDLE: Mutex<Option<Handle>> = Mutex::new(None);
    let cudnn = cudnn()?;
    let mut handle = HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if handle.is_none() {
        let mut created = ptr::null_mut();
        // SAFETY: cuDNN writes one pointer.
        cudnn.check(unsafe { (cudnn.create)(&mut created) }, "starting")?;
        *handle = Some(Handle(created));
    }
    let raw = handle.as_ref().map_or(ptr::null_mut(), |handle| handle.0);
    // SAFETY: a live handle and stream.
    cudnn.check(unsafe { (cudnn.set_stream)(raw, Stream::current()?.raw()?) }, "choosing a stream")?;
    work(cudnn, raw)
}

/// A description for cuDNN, or one of its offers.
#[derive(Debug)]
pub(crate) struct Descriptor(*mut c_void);

// SAFETY: any thread may use a descriptor; it only changes before it is shared.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Ok(cudnn) = cudnn() {
            // SAFETY: made by cuDNN, destroyed once, and before what it refers to.
            unsafe { (cudnn.destroy_descriptor)(self.0) };
        }
    }
}

impl Descriptor {
    /// Creates a descriptor of this type, without attributes.
    pub fn new(of: c_int) -> Result<Self> {
        let cudnn = cudnn()?;
        let mut created = ptr::null_mut();
        // SAFETY: cuDNN writes one pointer.
        cudnn.check(unsafe { (cudnn.create_descriptor)(of, &mut created) }, "making a descriptor")?;
        Ok(Self(created))
    }

    /// Sets an attribute.
    ///
    /// # Safety
    /// `T` is the type that cuDNN reads for attributes of this kind.
    unsafe fn set<T>(self, attribute: c_int, kind: c_int, values: &[T]) -> Result<Self> {
        let cudnn = cudnn()?;
        // SAFETY: a live descriptor and this many values, of the type that the caller guarantees.
        let code =
            unsafe { (cudnn.set_attribute)(self.0, attribute, kind, values.len() as i64, values.as_ptr().cast()) };
        cudnn.check(code, "describing an operation")?;
        Ok(self)
    }

    /// Sets an attribute of an enumeration type.
    pub fn choice(self, attribute: c_int, kind: c_int, value: c_int) -> Result<Self> {
        // SAFETY: enumerations are of C's int.
        unsafe { self.set(attribute, kind, &[value]) }
    }

    /// Sets integers.
    pub fn integers(self, attribute: c_int, values: &[i64]) -> Result<Self> {
        // SAFETY: cuDNN reads 64 bits.
        unsafe { self.set(attribute, kind::INTEGER, values) }
    }

    /// Sets a factor.
    pub fn factor(self, attribute: c_int, value: f64) -> Result<Self> {
        // SAFETY: cuDNN reads a double.
        unsafe { self.set(attribute, kind::DOUBLE, &[value]) }
    }

    /// Sets a flag.
    pub fn flag(self, attribute: c_int, value: bool) -> Result<Self> {
        // SAFETY: cuDNN reads a C++ bool, of one byte.
        unsafe { self.set(attribute, kind::BOOLEAN, &[value]) }
    }

    /// Sets addresses on the GPU.
    fn addresses(self, attribute: c_int, values: &[u64]) -> Result<Self> {
        // SAFETY: cuDNN reads pointers.
        unsafe { self.set(attribute, kind::ADDRESS, values) }
    }

    /// Sets other descriptors.
    pub fn descriptors(self, attribute: c_int, values: &[&Descriptor]) -> Result<Self> {
        let raw: Vec<*mut c_void> = values.iter().map(|value| value.0).collect();
        // SAFETY: live descriptors.
        unsafe { self.set(attribute, kind::DESCRIPTOR, &raw) }
    }

    /// Sets the handle.
    pub fn handle(self, attribute: c_int) -> Result<Self> {
        // SAFETY: a live handle.
        with_handle(|_, handle| unsafe { self.set(attribute, kind::HANDLE, &[handle]) })
    }

    /// Completes the description, which cuDNN then checks.
    pub fn finalized(self) -> Result<Self> {
        let cudnn = cudnn()?;
        // SAFETY: a live descriptor.
        cudnn.check(unsafe { (cudnn.finalize)(self.0) }, "finishing a descriptor")?;
        Ok(self)
    }

    /// Returns an integer attribute.
    pub fn integer(&self, attribute: c_int) -> Result<i64> {
        let cudnn = cudnn()?;
        let (mut count, mut value) = (0, 0i64);
        // SAFETY: a live descriptor; cuDNN writes one number each.
        let code = unsafe {
            (cudnn.get_attribute)(self.0, attribute, kind::INTEGER, 1, &mut count, ptr::from_mut(&mut value).cast())
        };
        cudnn.check(code, "asking for a number")?;
        Ok(value)
    }

    /// Returns up to `most` descriptors of a type that cuDNN offers, best first.
    pub fn offers(&self, attribute: c_int, of: c_int, most: usize) -> Result<Vec<Descriptor>> {
        let cudnn = cudnn()?;
        let mut offers = (0..most).map(|_| Descriptor::new(of)).collect::<Result<Vec<_>>>()?;
        let mut raw: Vec<*mut c_void> = offers.iter().map(|offer| offer.0).collect();
        let mut count = 0;
        // SAFETY: live descriptors, which cuDNN fills in; it writes how many.
        let code = unsafe {
            let values = raw.as_mut_ptr().cast();
            (cudnn.get_attribute)(self.0, attribute, kind::DESCRIPTOR, most as i64, &mut count, values)
        };
        cudnn.check(code, "asking for kernels")?;
        offers.truncate(usize::try_from(count).unwrap_or(0));
        Ok(offers)
    }
}

/// Types of descriptors.
pub(crate) mod descriptor {
    pub const POINTWISE: i32 = 0;
    pub const CONVOLUTION: i32 = 1;
    pub const ENGINE_CONFIGURATION: i32 = 3;
    pub const HEURISTICS: i32 = 4;
    pub const PLAN: i32 = 5;
    pub const INPUT_GRADIENT: i32 = 12;
    pub const POINTWISE_OPERATION: i32 = 13;
    pub const GRAPH: i32 = 15;
    pub const VARIANT_PACK: i32 = 16;
    pub const TENSOR: i32 = 17;
    pub const REDUCTION: i32 = 21;
    pub const REDUCTION_OPERATION: i32 = 22;
}

/// Operations to be fused.
#[derive(Debug)]
pub(crate) struct FusedOperations {
    heuristics: Descriptor,
    _graph: Descriptor,
    _operations: Vec<Descriptor>,
    _parts: Vec<Descriptor>,
}

/// A kernel for all operations of a graph.
#[derive(Debug)]
pub(crate) struct FusedKernel {
    plan: Descriptor,
    /// Bytes of workspace.
    pub workspace: i64,
    _configuration: Descriptor,
    _graph: Arc<FusedOperations>,
}

impl FusedOperations {
    /// Builds a graph of these operations and the parts that describe them.
    ///
    /// All of them live as long as any plan, since cuDNN does not document what it still reads of them.
    pub fn new(operations: Vec<Descriptor>, parts: Vec<Descriptor>) -> Result<Self> {
        const HANDLE: i32 = 800;
        const OPERATIONS: i32 = 801;
        const MODE: i32 = 200;
        const GRAPH: i32 = 201;
        const KIND_OF_MODE: i32 = 8;
        const MODE_A: i32 = 3;
        let graph = Descriptor::new(descriptor::GRAPH)?
            .descriptors(OPERATIONS, &operations.iter().collect::<Vec<_>>())?
            .handle(HANDLE)?
            .finalized()?;
        let heuristics = Descriptor::new(descriptor::HEURISTICS)?
            .descriptors(GRAPH, &[&graph])?
            .choice(MODE, KIND_OF_MODE, MODE_A)?
            .finalized()?;
        Ok(Self { heuristics, _graph: graph, _operations: operations, _parts: parts })
    }

    /// Returns cuDNN's kernels of these ranks, best first by its own estimate.
    ///
    /// The iterator compiles them one by one.
    pub fn plans(self: Arc<Self>, ranks: Range<usize>) -> Result<impl Iterator<Item = Result<FusedKernel>>> {
        const RESULTS: i32 = 202;
        let offers = self.heuristics.offers(RESULTS, descriptor::ENGINE_CONFIGURATION, ranks.end)?;
        Ok(offers.into_iter().skip(ranks.start).map(move |offer| FusedKernel::new(self.clone(), offer)))
    }
}

impl FusedKernel {
    fn new(graph: Arc<FusedOperations>, configuration: Descriptor) -> Result<Self> {
        const HANDLE: i32 = 400;
        const CONFIGURATION: i32 = 401;
        const WORKSPACE: i32 = 402;
        let plan = Descriptor::new(descriptor::PLAN)?
            .handle(HANDLE)?
            .descriptors(CONFIGURATION, &[&configuration])?
            .finalized()?;
        let workspace = plan.integer(WORKSPACE)?;
        Ok(Self { plan, workspace, _configuration: configuration, _graph: graph })
    }

    /// Runs the kernel on the current stream with the address of each tensor, by its number.
    ///
    /// # Safety
    /// The addresses are of live GPU memory of the tensors' sizes, and `workspace` of [`workspace`](Self::workspace)
    /// bytes.
    pub unsafe fn run(&self, tensors: &[(i64, u64)], workspace: u64) -> Result<()> {
        const NUMBERS: i32 = 1000;
        const ADDRESSES: i32 = 1001;
        const WORKSPACE: i32 = 1003;
        let (numbers, addresses): (Vec<i64>, Vec<u64>) = tensors.iter().copied().unzip();
        let pack = Descriptor::new(descriptor::VARIANT_PACK)?
            .integers(NUMBERS, &numbers)?
            .addresses(ADDRESSES, &addresses)?
            .addresses(WORKSPACE, &[workspace])?
            .finalized()?;
        with_handle(|cudnn, handle| {
            // SAFETY: live handle, plan and addresses.
            cudnn.check(unsafe { (cudnn.execute)(handle, self.plan.0, pack.0) }, "running a graph")
        })
    }
}
