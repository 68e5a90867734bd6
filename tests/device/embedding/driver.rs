//! The CUDA side of a program: its own use of the driver, without the library.

use cudarc::driver::sys::{self, CUresult};
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use warpbell::engine::abi;

/// A stream and a kernel in the primary context of GPU 0. They stay until the process ends.
pub struct Program {
    context: sys::CUcontext,
    stream: sys::CUstream,
    read: sys::CUfunction,
}

// SAFETY: handles that may be used from any thread.
unsafe impl Send for Program {}
// SAFETY: handles that may be used from several threads at the same time.
unsafe impl Sync for Program {}

/// A capture of the program's stream.
pub struct Capture<'a>(&'a Program);

/// A graph of the program.
pub struct Graph<'a>(&'a Program, sys::CUgraphExec);

fn ok(answer: CUresult) {
    assert_eq!(answer, CUresult::CUDA_SUCCESS);
}

impl Program {
    /// Opens the primary context, as the CUDA runtime does, and loads the program's kernel from an image.
    pub fn start(fatbin: &[u8]) -> Arc<Self> {
        let (mut context, mut stream, mut module, mut read) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let non_blocking = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: each call writes one handle; the image is complete.
        unsafe {
            ok(sys::cuInit(0));
            ok(sys::cuDevicePrimaryCtxRetain(&mut context, 0));
            ok(sys::cuCtxSetCurrent(context));
            ok(sys::cuStreamCreate(&mut stream, non_blocking));
            ok(sys::cuModuleLoadData(&mut module, fatbin.as_ptr().cast()));
            ok(sys::cuModuleGetFunction(&mut read, module, c"embedding_read".as_ptr()));
        }
        Arc::new(Self { context, stream, read })
    }

    pub fn stream(&self) -> *mut c_void {
        self.stream.cast()
    }

    fn use_context(&self) {
        // SAFETY: the context is retained.
        ok(unsafe { sys::cuCtxSetCurrent(self.context) });
    }

    /// Allocates GPU memory.
    pub fn allocate(&self, bytes: usize) -> u64 {
        self.use_context();
        let mut address = 0;
        // SAFETY: writes one address.
        ok(unsafe { sys::cuMemAlloc_v2(&mut address, bytes) });
        address
    }

    /// Allocates GPU memory from the default pool.
    pub fn allocate_from_pool(&self, bytes: usize) -> u64 {
        self.use_context();
        let mut address = 0;
        // SAFETY: writes one address; own stream.
        unsafe {
            ok(sys::cuMemAllocAsync(&mut address, bytes, self.stream));
            ok(sys::cuStreamSynchronize(self.stream));
        }
        address
    }

    /// Launches `embedding_read` on the stream.
    pub fn read(&self, mut view: abi::VolumeView, mut first: u64, mut n: u64, mut to: u64) {
        self.use_context();
        let parameters: &mut [*mut c_void] =
            &mut [(&raw mut view).cast(), (&raw mut first).cast(), (&raw mut n).cast(), (&raw mut to).cast()];
        let (values, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the kernel's own parameters; the tests keep the memory that they name.
        ok(unsafe { sys::cuLaunchKernel(self.read, 4, 1, 1, 128, 1, 1, 0, self.stream, values, none) });
    }

    /// Begins a capture that forbids unsafe calls of every thread.
    pub fn capture(&self) -> Capture<'_> {
        self.use_context();
        let global = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: own stream.
        ok(unsafe { sys::cuStreamBeginCapture_v2(self.stream, global) });
        Capture(self)
    }
}

impl<'a> Capture<'a> {
    pub fn end(self) -> Graph<'a> {
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: ends the capture of `Program::capture`; each call writes one handle.
        unsafe {
            ok(sys::cuStreamEndCapture(self.0.stream, &mut graph));
            ok(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        }
        Graph(self.0, exec)
    }
}

impl Graph<'_> {
    pub fn launch(&self) {
        // SAFETY: own graph and stream.
        ok(unsafe { sys::cuGraphLaunch(self.1, self.0.stream) });
    }
}
