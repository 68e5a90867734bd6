//! The functions of the fake driver.

use super::{Allocation, CURRENT, MODE, Mark, OPENING, RELAXED, State, Stream, allocate, gpu, layout, of, state};
use crate::cuda::driver::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream, Driver};
use crate::cuda::error::code;
use cudarc::driver::sys::CUpointer_attribute as Attribute;
use std::alloc::dealloc;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

/// Returns the table of functions. Those that are not set here fail as not supported.
pub(super) fn driver() -> Driver {
    Driver {
        cuDriverGetVersion: version,
        cuGetErrorName: name_of,
        cuGetErrorString: name_of,
        cuDeviceGetCount: count,
        cuDeviceGet: device,
        cuDeviceGetName: device_name,
        cuDeviceGetAttribute: attribute,
        cuDeviceTotalMem_v2: total,
        cuDeviceGetUuid_v2: uuid,
        cuDevicePrimaryCtxRetain: retain,
        cuDevicePrimaryCtxRelease_v2: release,
        cuCtxPushCurrent_v2: push,
        cuCtxPopCurrent_v2: pop,
        cuCtxGetLimit: limit,
        cuCtxSetLimit: set_limit,
        cuCtxRecordEvent: record_all,
        cuThreadExchangeStreamCaptureMode: exchange,
        cuPointerGetAttributes: pointer,
        cuMemGetAddressRange_v2: address_range,
        cuMemGetInfo_v2: info,
        cuMemAlloc_v2: mem_alloc,
        cuMemFree_v2: mem_free,
        cuMemHostAlloc: host_alloc,
        cuMemFreeHost: host_free,
        cuMemHostGetDevicePointer_v2: host_pointer,
        cuMemcpyHtoDAsync_v2: copy_in,
        cuMemcpyDtoHAsync_v2: copy_out,
        cuMemsetD8Async: fill,
        cuStreamCreate: stream_create,
        cuStreamDestroy_v2: stream_destroy,
        cuStreamGetCtx: stream_context,
        cuStreamWaitEvent: stream_wait,
        cuStreamIsCapturing: stream_capturing,
        cuEventCreate: event_create,
        cuEventDestroy_v2: event_destroy,
        cuEventRecord: event_record,
        cuEventQuery: event_query,
        cuEventElapsedTime: event_elapsed,
        cuModuleLoadData: module_load,
        cuModuleUnload: module_unload,
        cuModuleGetFunctionCount: function_count,
        cuModuleEnumerateFunctions: functions,
        cuFuncLoad: function_load,
        cuFuncGetName: function_name,
        cuFuncGetParamInfo: parameter,
        cuFuncGetAttribute: function_attribute,
        cuLaunchKernel: launch,
        ..Driver::refusing()
    }
}

/// Writes a result through the pointer that the caller passed.
macro_rules! give {
    ($to:expr, $value:expr) => {{
        let value = $value;
        // SAFETY: the driver's callers pass a place for the result.
        unsafe { *$to = value };
        code::SUCCESS
    }};
}

unsafe extern "C" fn version(to: *mut c_int) -> c_int {
    give!(to, 12080)
}

unsafe extern "C" fn name_of(_: c_int, to: *mut *const c_char) -> c_int {
    give!(to, c"fake".as_ptr())
}

unsafe extern "C" fn count(to: *mut c_int) -> c_int {
    give!(to, 1)
}

unsafe extern "C" fn device(to: *mut CUdevice, ordinal: c_int) -> c_int {
    give!(to, ordinal)
}

unsafe extern "C" fn device_name(to: *mut c_char, _: c_int, _: CUdevice) -> c_int {
    give!(to, 0)
}

unsafe extern "C" fn attribute(to: *mut c_int, _: c_int, _: CUdevice) -> c_int {
    give!(to, 1)
}

unsafe extern "C" fn total(to: *mut usize, _: CUdevice) -> c_int {
    give!(to, 1 << 30)
}

unsafe extern "C" fn uuid(to: *mut [u8; 16], _: CUdevice) -> c_int {
    give!(to, [7; 16])
}

unsafe extern "C" fn retain(to: *mut CUcontext, _: CUdevice) -> c_int {
    let gpu = OPENING.take().expect("`Gpu::open` opens the context");
    give!(to, std::ptr::from_ref(gpu).cast_mut().cast())
}

unsafe extern "C" fn release(_: CUdevice) -> c_int {
    code::SUCCESS
}

unsafe extern "C" fn push(raw: CUcontext) -> c_int {
    CURRENT.with_borrow_mut(|all| all.push(raw));
    code::SUCCESS
}

unsafe extern "C" fn pop(to: *mut CUcontext) -> c_int {
    give!(to, CURRENT.with_borrow_mut(|all| all.pop()).expect("as many pops as pushes"))
}

unsafe extern "C" fn limit(to: *mut usize, _: c_int) -> c_int {
    give!(to, state().stack)
}

unsafe extern "C" fn set_limit(_: c_int, bytes: usize) -> c_int {
    state().stack = bytes;
    code::SUCCESS
}

unsafe extern "C" fn exchange(mode: *mut c_int) -> c_int {
    // SAFETY: the caller passes its mode.
    MODE.with_borrow_mut(|mine| std::mem::swap(mine, unsafe { &mut *mode }));
    code::SUCCESS
}

/// Counts a call that a capture of another thread refuses, unless this thread's mode is relaxed.
fn is_refused_in_a_capture(state: &mut State) {
    if MODE.with_borrow(|mode| *mode != RELAXED) {
        state.refused_by_capture += 1;
    }
}

/// Returns the allocation that contains an address, and its start.
fn allocation_at(state: &State, at: CUdeviceptr) -> Option<(&CUdeviceptr, &Allocation)> {
    state.memory.range(..=at).next_back().filter(|(base, a)| at - **base < a.bytes as u64)
}

unsafe extern "C" fn pointer(n: c_uint, names: *const c_int, values: *const *mut c_void, at: CUdeviceptr) -> c_int {
    let state = state();
    let found = allocation_at(&state, at);
    for i in 0..n as usize {
        // SAFETY: the caller passes `n` names and places.
        let (name, to) = unsafe { (*names.add(i), *values.add(i)) };
        let value = found.map_or(0, |(base, a)| match name {
            n if n == Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as c_int => {
                if a.is_host {
                    1
                } else {
                    2
                }
            }
            n if n == Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as c_int => a.device as u64,
            n if n == Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as c_int => *base,
            // Of mapped memory the driver gives the reserved addresses.
            n if n == Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE as c_int && a.is_mapped => 1 << 37,
            n if n == Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE as c_int => a.bytes as u64,
            n if n == Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE as c_int => a.pool as u64,
            n if n == Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE as c_int => {
                u64::from(a.pool == 0 && !a.is_mapped)
            }
            n if n == Attribute::CU_POINTER_ATTRIBUTE_CONTEXT as c_int && a.pool == 0 && !a.is_mapped => {
                std::ptr::from_ref(gpu()) as u64
            }
            _ => 0,
        });
        let wide = [
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
            Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
        ];
        // SAFETY: the place has the attribute's size.
        unsafe {
            match wide.iter().any(|a| *a as c_int == name) {
                true => to.cast::<u64>().write(value),
                false => to.cast::<u32>().write(value as u32),
            }
        }
    }
    code::SUCCESS
}

unsafe extern "C" fn address_range(start: *mut CUdeviceptr, bytes: *mut usize, at: CUdeviceptr) -> c_int {
    let state = state();
    match allocation_at(&state, at) {
        Some((base, a)) => {
            give!(start, *base);
            give!(bytes, a.bytes)
        }
        None => code::INVALID_VALUE,
    }
}

unsafe extern "C" fn info(free: *mut usize, total: *mut usize) -> c_int {
    give!(free, 1 << 30);
    give!(total, 1 << 30)
}

unsafe extern "C" fn mem_alloc(to: *mut CUdeviceptr, bytes: usize) -> c_int {
    let mut state = state();
    is_refused_in_a_capture(&mut state);
    let address = allocate(bytes);
    state.memory.insert(address, Allocation::plain(bytes));
    give!(to, address)
}

fn free(address: u64) -> c_int {
    let gpu = gpu();
    let mut state = gpu.state.lock();
    state.frees_waiting += 1;
    gpu.changed.notify_all();
    gpu.changed.wait_while(&mut state, |s| s.holds_frees);
    state.frees_waiting -= 1;
    match state.memory.remove(&address) {
        Some(a) => {
            // SAFETY: allocated with this layout, and removed from the list.
            unsafe { dealloc((address - a.head as u64) as *mut u8, layout(a.head + a.bytes)) };
            code::SUCCESS
        }
        None => code::INVALID_VALUE,
    }
}

unsafe extern "C" fn mem_free(address: CUdeviceptr) -> c_int {
    free(address)
}

unsafe extern "C" fn host_alloc(to: *mut *mut c_void, bytes: usize, _: c_uint) -> c_int {
    let mut state = state();
    is_refused_in_a_capture(&mut state);
    // The driver packs small allocations, in units of 512 bytes.
    let head = if bytes < 64 << 10 { 512 } else { 0 };
    let address = allocate(head + bytes) + head as u64;
    state.memory.insert(address, Allocation { is_host: true, head, ..Allocation::plain(bytes) });
    give!(to, address as *mut c_void)
}

unsafe extern "C" fn host_free(p: *mut c_void) -> c_int {
    free(p as u64)
}

unsafe extern "C" fn host_pointer(to: *mut CUdeviceptr, p: *mut c_void, _: c_uint) -> c_int {
    give!(to, p as u64)
}

unsafe extern "C" fn copy_in(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> c_int {
    state().stream(stream, "cuMemcpyHtoDAsync").issued += 1;
    // SAFETY: memory of this GPU is host memory.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to as *mut u8, bytes) };
    code::SUCCESS
}

unsafe extern "C" fn copy_out(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> c_int {
    state().stream(stream, "cuMemcpyDtoHAsync").issued += 1;
    // SAFETY: memory of this GPU is host memory.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.cast::<u8>(), bytes) };
    code::SUCCESS
}

unsafe extern "C" fn fill(to: CUdeviceptr, value: u8, bytes: usize, stream: CUstream) -> c_int {
    state().stream(stream, "cuMemsetD8Async").issued += 1;
    // SAFETY: memory of this GPU is host memory.
    unsafe { std::ptr::write_bytes(to as *mut u8, value, bytes) };
    code::SUCCESS
}

unsafe extern "C" fn stream_create(to: *mut CUstream, flags: c_uint) -> c_int {
    assert_eq!(flags, 1, "a blocking stream waits for the legacy default stream");
    give!(to, gpu().stream().cast())
}

unsafe extern "C" fn stream_destroy(_: CUstream) -> c_int {
    code::SUCCESS
}

unsafe extern "C" fn stream_context(stream: CUstream, to: *mut CUcontext) -> c_int {
    let known = (stream as usize) < state().streams.len();
    give!(to, if known { std::ptr::from_ref(gpu()).cast_mut().cast() } else { std::ptr::null_mut() })
}

unsafe extern "C" fn stream_wait(stream: CUstream, event: CUevent, _: c_uint) -> c_int {
    let mut state = state();
    let mark = state.events[event as usize - 1];
    let stream = state.stream(stream, "cuStreamWaitEvent");
    stream.waits.push((stream.issued, mark));
    code::SUCCESS
}

unsafe extern "C" fn stream_capturing(stream: CUstream, to: *mut c_int) -> c_int {
    give!(to, state().streams[stream as usize].is_capturing.into())
}

unsafe extern "C" fn event_create(to: *mut CUevent, _: c_uint) -> c_int {
    let mut state = state();
    state.events.push(Mark::default());
    give!(to, state.events.len() as CUevent)
}

unsafe extern "C" fn event_destroy(_: CUevent) -> c_int {
    code::SUCCESS
}

unsafe extern "C" fn event_record(event: CUevent, stream: CUstream) -> c_int {
    let mut state = state();
    let of = state.stream(stream, "cuEventRecord");
    of.issued += 1;
    let mark = Mark { stream: stream as usize, position: of.issued };
    state.events[event as usize - 1] = mark;
    code::SUCCESS
}

unsafe extern "C" fn record_all(raw: CUcontext, event: CUevent) -> c_int {
    let mut state = of(raw).state.lock();
    if state.streams.iter().any(|s| s.is_capturing) {
        state.invalidated += 1;
        return code::NOT_SUPPORTED;
    }
    // The mark of a stream that is busy, if there is one.
    let mark = |i: usize, s: &Stream| Mark { stream: i, position: s.issued };
    let busy = state.streams.iter().enumerate().map(|(i, s)| mark(i, s)).find(|m| !state.is_reached(*m));
    state.events[event as usize - 1] = busy.unwrap_or_default();
    code::SUCCESS
}

unsafe extern "C" fn event_query(event: CUevent) -> c_int {
    let mut state = state();
    is_refused_in_a_capture(&mut state);
    if state.is_reached(state.events[event as usize - 1]) { code::SUCCESS } else { code::NOT_READY }
}

unsafe extern "C" fn event_elapsed(to: *mut f32, _: CUevent, _: CUevent) -> c_int {
    give!(to, 1.5)
}

/// Loads an image of this fake: the names of its kernels, with spaces between them.
unsafe extern "C" fn module_load(to: *mut CUmodule, image: *const c_void) -> c_int {
    // SAFETY: images end in a zero byte.
    let names = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy();
    let mut state = state();
    let first = state.functions.len();
    state.functions.extend(names.split_whitespace().map(|n| CString::new(n).expect("a name")));
    let all = first..state.functions.len();
    state.modules.push(all);
    give!(to, state.modules.len() as CUmodule)
}

unsafe extern "C" fn module_unload(_: CUmodule) -> c_int {
    code::SUCCESS
}

unsafe extern "C" fn function_count(to: *mut c_uint, module: CUmodule) -> c_int {
    give!(to, state().modules[module as usize - 1].len() as c_uint)
}

unsafe extern "C" fn functions(to: *mut CUfunction, n: c_uint, module: CUmodule) -> c_int {
    let first = state().modules[module as usize - 1].start;
    for i in 0..n as usize {
        // SAFETY: the caller has a place for `n` handles.
        unsafe { *to.add(i) = (first + i + 1) as CUfunction };
    }
    code::SUCCESS
}

unsafe extern "C" fn function_load(_: CUfunction) -> c_int {
    code::SUCCESS
}

unsafe extern "C" fn function_name(to: *mut *const c_char, function: CUfunction) -> c_int {
    give!(to, state().functions[function as usize - 1].as_ptr())
}

unsafe extern "C" fn parameter(_: CUfunction, index: usize, _: *mut usize, bytes: *mut usize) -> c_int {
    if index > 0 { code::INVALID_VALUE } else { give!(bytes, 8) }
}

/// Every kernel has blocks of at most 1024 threads. Those whose names end in a number need so much local memory.
unsafe extern "C" fn function_attribute(to: *mut c_int, attribute: c_int, function: CUfunction) -> c_int {
    use cudarc::driver::sys::CUfunction_attribute as Of;
    let state = state();
    let name = state.functions[function as usize - 1].to_string_lossy();
    let local = name.rsplit('_').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    give!(to, if attribute == Of::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES as c_int { local } else { 1024 })
}

unsafe extern "C" fn launch(
    function: CUfunction,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    stream: CUstream,
    parameters: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    let mut state = state();
    state.stream(stream, "cuLaunchKernel").issued += 1;
    let name = state.functions[function as usize - 1].to_string_lossy().into_owned();
    // An image with a kernel `other_headers` has another fingerprint.
    let module = state.modules.iter().find(|all| all.contains(&(function as usize - 1))).cloned().unwrap_or_default();
    let is_other = state.functions[module].iter().any(|n| n.as_c_str() == c"other_headers");
    if name == "wb_abi_fingerprint" {
        let fingerprint = crate::engine::abi::fingerprint() ^ u64::from(is_other);
        // SAFETY: the kernel's parameter is the address of two words.
        unsafe { (*(*parameters).cast::<*mut [u64; 2]>()).write([fingerprint, 0]) };
    } else {
        state.launches.push(name);
    }
    code::SUCCESS
}
