//! The CUDA driver library, loaded at run time into one table of functions.
//!
//! cudarc finds and opens the library and declares the handle types. Its own wrappers are not called: they
//! panic when the library or a symbol is missing. They also turn the result into a Rust enum, which has no
//! value for a newer driver's codes.

use super::error::{CudaError, FailedCall, code, next_step};
use super::external::{Import, Part};
use super::shared_memory::IpcHandle;
use super::virtual_memory::{Access, Properties};
use cudarc::driver::sys;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

pub(super) use sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};

macro_rules! table {
    ($($name:ident: fn($($arg:ty),*);)*) => {
        /// Functions of libcuda by their exported names (cuda.h documents each). Each returns a `CUresult`.
        #[allow(non_snake_case)]
        #[derive(Debug)]
        pub(super) struct Driver {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl Driver {
            /// # Safety
            /// The library must be known to load.
            unsafe fn look_up() -> Result<Self, CudaError> {
                // SAFETY: the caller promises that the library loads, so this does not panic.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is the function's declaration in cuda.h.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *found.map_err(|_| CudaError::OldDriver { symbol: stringify!($name) })?
                    },)*
                })
            }

            /// Returns a table whose functions all fail, for tests to fill in.
            #[cfg(test)]
            pub(super) fn refusing() -> Self {
                Self {
                    $($name: {
                        unsafe extern "C" fn refuse($(_: $arg),*) -> c_int {
                            code::NOT_SUPPORTED
                        }
                        refuse
                    },)*
                }
            }
        }
    };
}

table! {
    cuInit: fn(c_uint);
    cuDriverGetVersion: fn(*mut c_int);
    cuGetErrorName: fn(c_int, *mut *const c_char);
    cuGetErrorString: fn(c_int, *mut *const c_char);
    cuDeviceGetCount: fn(*mut c_int);
    cuDeviceGet: fn(*mut CUdevice, c_int);
    cuDeviceGetName: fn(*mut c_char, c_int, CUdevice);
    cuDeviceGetAttribute: fn(*mut c_int, c_int, CUdevice);
    cuDeviceGetPCIBusId: fn(*mut c_char, c_int, CUdevice);
    cuDeviceTotalMem_v2: fn(*mut usize, CUdevice);
    cuDeviceGetUuid_v2: fn(*mut [u8; 16], CUdevice);
    cuDeviceCanAccessPeer: fn(*mut c_int, CUdevice, CUdevice);
    cuDeviceGetP2PAttribute: fn(*mut c_int, c_int, CUdevice, CUdevice);
    cuCtxEnablePeerAccess: fn(CUcontext, c_uint);
    cuDevicePrimaryCtxRetain: fn(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2: fn(CUdevice);
    cuCtxPushCurrent_v2: fn(CUcontext);
    cuCtxPopCurrent_v2: fn(*mut CUcontext);
    cuCtxGetLimit: fn(*mut usize, c_int);
    cuCtxSetLimit: fn(c_int, usize);
    cuPointerGetAttributes: fn(c_uint, *const c_int, *const *mut c_void, CUdeviceptr);
    cuMemGetAddressRange_v2: fn(*mut CUdeviceptr, *mut usize, CUdeviceptr);
    cuMemGetInfo_v2: fn(*mut usize, *mut usize);
    cuMemAlloc_v2: fn(*mut CUdeviceptr, usize);
    cuMemFree_v2: fn(CUdeviceptr);
    cuIpcGetMemHandle: fn(*mut IpcHandle, CUdeviceptr);
    cuIpcOpenMemHandle_v2: fn(*mut CUdeviceptr, IpcHandle, c_uint);
    cuIpcCloseMemHandle: fn(CUdeviceptr);
    // CUDA 11.7.
    cuMemGetHandleForAddressRange: fn(*mut c_void, CUdeviceptr, usize, c_int, u64);
    // Virtual memory management, CUDA 10.2.
    cuMemGetAllocationGranularity: fn(*mut usize, *const Properties, c_int);
    cuMemCreate: fn(*mut u64, usize, *const Properties, u64);
    cuMemRelease: fn(u64);
    // CUDA 11.0.
    cuMemRetainAllocationHandle: fn(*mut u64, *mut c_void);
    cuMemGetAllocationPropertiesFromHandle: fn(*mut Properties, u64);
    cuMemExportToShareableHandle: fn(*mut c_void, u64, c_int, u64);
    cuMemImportFromShareableHandle: fn(*mut u64, *mut c_void, c_int);
    cuMemAddressReserve: fn(*mut CUdeviceptr, usize, usize, CUdeviceptr, u64);
    cuMemAddressFree: fn(CUdeviceptr, usize);
    cuMemMap: fn(CUdeviceptr, usize, usize, u64, u64);
    cuMemUnmap: fn(CUdeviceptr, usize);
    cuMemSetAccess: fn(CUdeviceptr, usize, *const Access, usize);
    // CUDA 10.0.
    cuImportExternalMemory: fn(*mut *mut c_void, *const Import);
    cuExternalMemoryGetMappedBuffer: fn(*mut CUdeviceptr, *mut c_void, *const Part);
    cuDestroyExternalMemory: fn(*mut c_void);
    cuMemHostAlloc: fn(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost: fn(*mut c_void);
    cuMemHostRegister_v2: fn(*mut c_void, usize, c_uint);
    cuMemHostUnregister: fn(*mut c_void);
    cuMemHostGetDevicePointer_v2: fn(*mut CUdeviceptr, *mut c_void, c_uint);
    cuMemcpyHtoDAsync_v2: fn(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2: fn(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyAsync: fn(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemsetD8Async: fn(CUdeviceptr, u8, usize, CUstream);
    cuStreamCreate: fn(*mut CUstream, c_uint);
    cuStreamDestroy_v2: fn(CUstream);
    cuStreamGetCtx: fn(CUstream, *mut CUcontext);
    cuStreamWaitEvent: fn(CUstream, CUevent, c_uint);
    // CUDA 11.7.
    cuStreamWriteValue32_v2: fn(CUstream, CUdeviceptr, u32, c_uint);
    cuStreamWaitValue32_v2: fn(CUstream, CUdeviceptr, u32, c_uint);
    cuStreamWriteValue64_v2: fn(CUstream, CUdeviceptr, u64, c_uint);
    cuStreamWaitValue64_v2: fn(CUstream, CUdeviceptr, u64, c_uint);
    // Capture of streams into graphs, CUDA 10.
    cuStreamIsCapturing: fn(CUstream, *mut c_int);
    cuThreadExchangeStreamCaptureMode: fn(*mut c_int);
    cuEventCreate: fn(*mut CUevent, c_uint);
    cuEventDestroy_v2: fn(CUevent);
    cuEventRecord: fn(CUevent, CUstream);
    cuEventQuery: fn(CUevent);
    cuEventElapsedTime: fn(*mut f32, CUevent, CUevent);
    // CUDA 12.5: tells whether anything runs in a context, including streams of other libraries.
    cuCtxRecordEvent: fn(CUcontext, CUevent);
    cuModuleLoadData: fn(*mut CUmodule, *const c_void);
    cuModuleUnload: fn(CUmodule);
    cuFuncGetAttribute: fn(*mut c_int, c_int, CUfunction);
    cuLaunchKernel: fn(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
    cuOccupancyMaxActiveBlocksPerMultiprocessor: fn(*mut c_int, CUfunction, c_int, usize);
    // CUDA 12.4: these load every function before the first launch, and let arguments be checked.
    cuModuleGetFunctionCount: fn(*mut c_uint, CUmodule);
    cuModuleEnumerateFunctions: fn(*mut CUfunction, c_uint, CUmodule);
    cuFuncGetName: fn(*mut *const c_char, CUfunction);
    cuFuncGetParamInfo: fn(CUfunction, usize, *mut usize, *mut usize);
    cuFuncLoad: fn(CUfunction);
}

impl Driver {
    /// Returns the driver of this process, initialised. The first result is kept, also a failure: after a later
    /// installation of the driver, only a new process finds it.
    pub(super) fn get() -> Result<&'static Self, CudaError> {
        static DRIVER: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
        DRIVER.get_or_init(Self::open).as_ref().map_err(CudaError::clone)
    }

    fn open() -> Result<Self, CudaError> {
        // SAFETY: opening libcuda runs its initialisers, which every CUDA program does.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        // SAFETY: `is_culib_present` has just loaded the library.
        let driver = unsafe { Self::look_up() }?;
        // SAFETY: flags must be 0 (cuda.h).
        let answer = unsafe { (driver.cuInit)(0) };
        match answer {
            code::NO_DEVICE => Err(CudaError::NoDevice { ordinal: 0, count: 0 }),
            _ => driver.check(answer, "cuInit", "starting the CUDA driver").map(|()| driver),
        }
    }

    /// Turns a `CUresult` into a `Result`.
    pub(super) fn check(&self, answer: c_int, call: &'static str, what: &'static str) -> Result<(), CudaError> {
        if answer == code::SUCCESS { Ok(()) } else { Err(self.failed(answer, call, what, next_step(answer)).into()) }
    }

    pub(super) fn failed(
        &self,
        code: c_int,
        call: &'static str,
        what: &'static str,
        next: impl Into<String>,
    ) -> Box<FailedCall> {
        let name = self.words(self.cuGetErrorName, code).unwrap_or_else(|| "an unknown code".to_owned());
        let text = self.words(self.cuGetErrorString, code).unwrap_or_else(|| "no description".to_owned());
        Box::new(FailedCall { what, call, code, name, text, next: next.into() })
    }

    fn words(&self, ask: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int, code: c_int) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: writes a pointer to a constant string, or null for a code that the driver does not know.
        let ok = unsafe { ask(code, &mut text) } == code::SUCCESS && !text.is_null();
        // SAFETY: not null, so a string that lives as long as the library.
        ok.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

/// Calls a driver function and checks its result: `call!(driver, cuMemFree_v2(address), "freeing GPU memory")`.
macro_rules! call {
    ($driver:expr, $name:ident($($arg:expr),* $(,)?), $what:expr) => {
        $driver.check(($driver.$name)($($arg),*), stringify!($name), $what)
    };
}
pub(super) use call;
