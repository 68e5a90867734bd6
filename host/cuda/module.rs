//! Kernel images, loaded completely at once.

use super::context::Context;
use super::driver::{CUfunction, CUmodule, call};
use super::error::{CudaError, code};
use super::garbage::Garbage;
use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_uint};
use std::sync::Arc;

/// A loaded fat binary, cubin or PTX. All its functions are loaded with it: loading at the first launch could
/// wait for a running kernel.
pub struct Module {
    context: Arc<Context>,
    raw: CUmodule,
    functions: HashMap<String, Function>,
}

// SAFETY: module and function handles may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: module and function handles may be used from several threads at the same time.
unsafe impl Sync for Module {}

/// A kernel of a [`Module`], valid while the module lives.
#[derive(Clone, Debug)]
pub struct Function {
    pub(super) raw: CUfunction,
    /// Sizes of the parameters in bytes.
    pub parameters: Arc<[u32]>,
    /// Largest number of threads in a block of this kernel.
    pub max_threads: u32,
    /// Registers per thread.
    #[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "for tests and tools"))]
    pub registers: u32,
    /// Local memory per thread in bytes.
    pub local_bytes: u32,
}

// SAFETY: a handle that may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: module and function handles may be used from several threads at the same time.
unsafe impl Sync for Function {}

impl Module {
    /// Loads a fat binary, a cubin or PTX.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver fails to load it, for instance because it has no code for this GPU.
    pub fn load(context: &Arc<Context>, image: &[u8]) -> Result<Self, CudaError> {
        let _current = context.current()?;
        // PTX is text that ends in a zero byte. Binary images carry their length, so the zeros after them do no harm.
        let mut bytes = Vec::with_capacity(image.len() + 8);
        bytes.extend_from_slice(image);
        bytes.extend_from_slice(&[0; 8]);
        let mut raw: CUmodule = std::ptr::null_mut();
        let driver = context.driver();
        // SAFETY: the image is complete, ends in a zero and stays until the call returns; the driver copies it.
        unsafe { call!(driver, cuModuleLoadData(&mut raw, bytes.as_ptr().cast()), "loading the kernels") }?;
        let mut this = Self { context: context.clone(), raw, functions: HashMap::new() };
        this.load_functions()?;
        Ok(this)
    }

    fn load_functions(&mut self) -> Result<(), CudaError> {
        const WHAT: &str = "loading the kernels";
        let driver = self.context.driver();
        let mut n: c_uint = 0;
        // SAFETY: writes one number; the module is loaded.
        unsafe { call!(driver, cuModuleGetFunctionCount(&mut n, self.raw), WHAT) }?;
        let mut all: Vec<CUfunction> = vec![std::ptr::null_mut(); n as usize];
        // SAFETY: room for `n` handles.
        unsafe { call!(driver, cuModuleEnumerateFunctions(all.as_mut_ptr(), n, self.raw), WHAT) }?;
        for raw in all.into_iter().filter(|f| !f.is_null()) {
            let mut text = std::ptr::null();
            // SAFETY: a function of the module; writes one pointer to a string that lives as long as the module.
            unsafe {
                call!(driver, cuFuncLoad(raw), WHAT)?;
                call!(driver, cuFuncGetName(&mut text, raw), WHAT)?;
            }
            if text.is_null() {
                continue;
            }
            // SAFETY: the string lives as long as the module.
            let name = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
            self.functions.insert(name, Function::read(&self.context, raw)?);
        }
        Ok(())
    }

    /// Returns the kernel with this name, if the module has it.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// Returns the names of the loaded kernels, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// Returns the largest local memory per thread, in bytes, of the kernels whose names begin
    /// with `prefix`; 0 without any.
    pub fn most_local_bytes(&self, prefix: &str) -> usize {
        let kernels = self.functions.iter().filter(|(name, _)| name.starts_with(prefix));
        kernels.map(|(_, f)| f.local_bytes as usize).max().unwrap_or(0)
    }
}

impl Function {
    fn read(context: &Context, raw: CUfunction) -> Result<Self, CudaError> {
        let driver = context.driver();
        let attribute = |a: Attribute| -> Result<u32, CudaError> {
            let mut v: c_int = 0;
            // SAFETY: writes one number; the function is loaded.
            unsafe { call!(driver, cuFuncGetAttribute(&mut v, a as c_int, raw), "reading a kernel's properties") }?;
            Ok(v.max(0) as u32)
        };
        let mut parameters = Vec::new();
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: writes two sizes; an index past the last parameter returns an error.
        while unsafe { (driver.cuFuncGetParamInfo)(raw, parameters.len(), &mut offset, &mut bytes) } == code::SUCCESS {
            parameters.push(bytes as u32);
        }
        Ok(Self {
            raw,
            parameters: parameters.into(),
            max_threads: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        })
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({} kernels)", self.functions.len())
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // Unloading waits for the context's kernels, and a kernel of this module may still run if it does not end.
        self.context.release(Garbage::Module(self.raw));
    }
}
