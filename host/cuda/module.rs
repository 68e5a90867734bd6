//! Kernel images, loaded completely at once.

use super::context::{Context, Garbage};
use super::driver::{CUfunction, CUmodule, call};
use super::error::{CudaError, code};
use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_uint};
use std::sync::Arc;

/// A loaded image of one or more parts. All its functions are loaded with it: loading at the first launch could
/// wait for a running kernel.
pub struct Module {
    context: Arc<Context>,
    parts: Vec<CUmodule>,
    functions: HashMap<String, Function>,
}

// SAFETY: module and function handles may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
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
    pub registers: u32,
    /// Local memory per thread in bytes.
    pub local_bytes: u32,
}

// SAFETY: a handle that may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads an image. Each part is a fat binary, a cubin or PTX. All kernels of the image have different names.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver fails to load a part, for instance because it has no code for this GPU.
    pub fn load(context: &Arc<Context>, parts: &[&[u8]]) -> Result<Self, CudaError> {
        let _current = context.current()?;
        let mut this = Self { context: context.clone(), parts: Vec::new(), functions: HashMap::new() };
        for part in parts {
            this.load_part(part)?;
        }
        Ok(this)
    }

    fn load_part(&mut self, part: &[u8]) -> Result<(), CudaError> {
        // PTX is text that ends in a zero byte. Binary images carry their length, so the zeros after them do no harm.
        let mut bytes = Vec::with_capacity(part.len() + 8);
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(&[0; 8]);
        let mut raw: CUmodule = std::ptr::null_mut();
        let driver = self.context.driver();
        // SAFETY: the image is complete, ends in a zero and stays until the call returns; the driver copies it.
        unsafe { call!(driver, cuModuleLoadData(&mut raw, bytes.as_ptr().cast()), "loading the kernels") }?;
        self.parts.push(raw);
        self.load_functions(raw)
    }

    /// Loads every function of one part.
    fn load_functions(&mut self, part: CUmodule) -> Result<(), CudaError> {
        const WHAT: &str = "loading the kernels";
        let driver = self.context.driver();
        let mut n: c_uint = 0;
        // SAFETY: writes one number; the module is loaded.
        unsafe { call!(driver, cuModuleGetFunctionCount(&mut n, part), WHAT) }?;
        let mut all: Vec<CUfunction> = vec![std::ptr::null_mut(); n as usize];
        // SAFETY: room for `n` handles.
        unsafe { call!(driver, cuModuleEnumerateFunctions(all.as_mut_ptr(), n, part), WHAT) }?;
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
            // SAFETY: see above.
            let name = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
            self.functions.insert(name, Function::read(&self.context, raw)?);
        }
        Ok(())
    }

    /// Returns the kernel with this name, if the module has it.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// Returns the names of the loaded kernels, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.functions.keys().cloned().collect();
        names.sort();
        names
    }

    /// Returns the largest local memory per thread, in bytes, of the kernels whose names begin
    /// with `prefix`; 0 without any.
    pub fn most_local_bytes(&self, prefix: &str) -> usize {
        let kernels = self.functions.iter().filter(|(name, _)| name.starts_with(prefix));
        kernels.map(|(_, f)| f.local_bytes as usize).max().unwrap_or(0)
    }

    /// Returns the number of blocks of `threads` threads of a kernel that one multiprocessor holds at once.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver call fails.
    pub fn occupancy(&self, function: &Function, threads: u32) -> Result<u32, CudaError> {
        let _current = self.context.current()?;
        let mut blocks: c_int = 0;
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: writes one number; the function belongs to this module.
        unsafe {
            call!(
                self.context.driver(),
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.raw, threads, 0),
                "querying how many blocks fit"
            )
        }?;
        Ok(blocks.max(0) as u32)
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
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
        write!(f, "Module({} kernels)", self.names().len())
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // Unloading waits for the context's kernels, and a kernel of this module may still run if it does not end.
        self.context.release(Garbage::Modules(std::mem::take(&mut self.parts)));
    }
}
