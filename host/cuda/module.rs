//! Images of kernels, loaded whole.

use super::context::Context;
use super::driver::{CUdeviceptr, CUfunction, CUmodule, call};
use super::error::{CudaError, code};
use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_uint};
use std::sync::{Arc, Mutex};

/// A loaded image. Its functions are loaded with it, not at their first launch, where loading could wait for a running kernel.
pub struct Module {
    context: Arc<Context>,
    raw: CUmodule,
    functions: Mutex<HashMap<String, Function>>,
    /// Whether `functions` holds all there are.
    complete: bool,
}

// SAFETY: module and function handles may be used from any thread; the map is locked.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel of a [`Module`], valid while that lives.
#[derive(Clone, Debug)]
pub struct Function {
    pub(super) raw: CUfunction,
    /// Sizes of its parameters in bytes, if the driver tells them (CUDA 12.4 and later).
    pub parameters: Option<Arc<[u32]>>,
    /// Most threads that a block of it can have.
    pub max_threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread in bytes.
    pub local_bytes: u32,
}

// SAFETY: a handle that may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads a fat binary, cubin or PTX.
    pub fn load(context: &Arc<Context>, image: &[u8]) -> Result<Self, CudaError> {
        let driver = context.driver();
        let current = context.current()?;
        // PTX is text up to a zero byte; binary images carry their length. The zero does no harm to those.
        let mut bytes = Vec::with_capacity(image.len() + 8);
        bytes.extend_from_slice(image);
        bytes.extend_from_slice(&[0; 8]);
        let mut raw: CUmodule = std::ptr::null_mut();
        // SAFETY: the image is complete, ends in a zero and stays until the call is over; the driver copies it.
        unsafe { call!(driver, cuModuleLoadData(&mut raw, bytes.as_ptr().cast()), "loading the kernels") }?;
        let mut this = Self { context: context.clone(), raw, functions: Mutex::default(), complete: false };
        this.complete = this.load_functions()?;
        let functions = this.functions.get_mut().unwrap_or_else(|e| e.into_inner());
        let local = functions.values().map(|f| f.local_bytes).max().unwrap_or(0);
        current.reserve_local_memory(local as usize)?;
        drop(current);
        Ok(this)
    }

    /// Loads every function now. Answers whether the driver could list them; older ones cannot.
    fn load_functions(&mut self) -> Result<bool, CudaError> {
        const WHAT: &str = "loading the kernels";
        let driver = self.context.driver();
        let (Some(count), Some(list), Some(name), Some(load)) = (
            driver.cuModuleGetFunctionCount,
            driver.cuModuleEnumerateFunctions,
            driver.cuFuncGetName,
            driver.cuFuncLoad,
        ) else {
            tracing::debug!("this driver cannot list functions: each is loaded when it is first asked for");
            return Ok(false);
        };
        let mut n: c_uint = 0;
        // SAFETY: writes one number; the module is loaded.
        driver.check(unsafe { count(&mut n, self.raw) }, "cuModuleGetFunctionCount", WHAT)?;
        let mut all: Vec<CUfunction> = vec![std::ptr::null_mut(); n as usize];
        // SAFETY: room for `n` handles.
        driver.check(unsafe { list(all.as_mut_ptr(), n, self.raw) }, "cuModuleEnumerateFunctions", WHAT)?;
        let functions = self.functions.get_mut().unwrap_or_else(|e| e.into_inner());
        for raw in all {
            // SAFETY: a function of the module.
            driver.check(unsafe { load(raw) }, "cuFuncLoad", WHAT)?;
            let mut text = std::ptr::null();
            // SAFETY: writes one pointer to a string that lives as long as the module.
            driver.check(unsafe { name(&mut text, raw) }, "cuFuncGetName", WHAT)?;
            if text.is_null() {
                continue;
            }
            // SAFETY: see above.
            let name = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
            functions.insert(name, Function::read(&self.context, raw)?);
        }
        Ok(true)
    }

    /// The kernel with this name, if there is one.
    pub fn function(&self, name: &str) -> Result<Option<Function>, CudaError> {
        let mut functions = self.functions.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(f) = functions.get(name) {
            return Ok(Some(f.clone()));
        }
        let Some(c_name) = CString::new(name).ok().filter(|_| !self.complete) else {
            return Ok(None);
        };
        let _current = self.context.current()?;
        let driver = self.context.driver();
        let mut raw: CUfunction = std::ptr::null_mut();
        // SAFETY: writes one handle; the name is a C string.
        let answer = unsafe { (driver.cuModuleGetFunction)(&mut raw, self.raw, c_name.as_ptr()) };
        if answer == code::NOT_FOUND {
            return Ok(None);
        }
        driver.check(answer, "cuModuleGetFunction", "looking for a kernel")?;
        let f = Function::read(&self.context, raw)?;
        functions.insert(name.to_owned(), f.clone());
        Ok(Some(f))
    }

    /// Names of the kernels that are loaded, sorted.
    pub fn names(&self) -> Vec<String> {
        let functions = self.functions.lock().unwrap_or_else(|e| e.into_inner());
        let mut names: Vec<_> = functions.keys().cloned().collect();
        names.sort();
        names
    }

    /// Address and length in bytes of a global variable, if there is one of this name.
    pub fn global(&self, name: &str) -> Result<Option<(u64, usize)>, CudaError> {
        let Ok(c_name) = CString::new(name) else { return Ok(None) };
        let _current = self.context.current()?;
        let driver = self.context.driver();
        let (mut address, mut bytes): (CUdeviceptr, usize) = (0, 0);
        // SAFETY: writes one address and one size; the name is a C string.
        let answer = unsafe { (driver.cuModuleGetGlobal_v2)(&mut address, &mut bytes, self.raw, c_name.as_ptr()) };
        if answer == code::NOT_FOUND {
            return Ok(None);
        }
        driver.check(answer, "cuModuleGetGlobal_v2", "looking for a variable of the kernels")?;
        Ok(Some((address, bytes)))
    }

    /// Blocks of `threads` threads of a kernel that one multiprocessor holds at once.
    pub fn occupancy(&self, function: &Function, threads: u32) -> Result<u32, CudaError> {
        let _current = self.context.current()?;
        let mut blocks: c_int = 0;
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: writes one number; the function belongs to this module.
        unsafe {
            call!(
                self.context.driver(),
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.raw, threads, 0),
                "asking how many blocks fit"
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
        let parameters = driver.cuFuncGetParamInfo.map(|info| {
            let mut sizes = Vec::new();
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: writes two sizes; an index past the last parameter is answered with an error.
            while unsafe { info(raw, sizes.len(), &mut offset, &mut bytes) } == code::SUCCESS {
                sizes.push(bytes as u32);
            }
            sizes.into()
        });
        Ok(Self {
            raw,
            parameters,
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
        // Unloading waits for the context's kernels, and one of this module may still run if it would not end.
        if self.context.has_runs() {
            return;
        }
        if let Ok(_current) = self.context.current() {
            // SAFETY: loaded by `load`; functions are used only while the module lives.
            unsafe { (self.context.driver().cuModuleUnload)(self.raw) };
        }
    }
}
