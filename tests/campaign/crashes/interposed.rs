//! Functions of the C library that write and flush files, in place of the library's own. The recorder sees each call, whichever
//! module of the product makes it, and the library's own function carries it out.

use super::recorder::{self, Followed};
use super::rings;
use libc::{c_int, c_long, iovec, off_t, size_t, ssize_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of the C library.
struct LibraryFunction {
    name: &'static CStr,
    at: AtomicUsize,
}

impl LibraryFunction {
    const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicUsize::new(0) }
    }

    fn address(&self) -> usize {
        let mut at = self.at.load(Ordering::Relaxed);
        if at == 0 {
            // SAFETY: the name ends with a zero.
            at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
            assert!(at != 0, "the C library lacks {:?}", self.name);
            self.at.store(at, Ordering::Relaxed);
        }
        at
    }
}

/// Calls the C library's own function of this name and type.
macro_rules! own {
    ($name:literal: fn($($kind:ty),*) -> $out:ty, $($argument:expr),*) => {{
        static FUNCTION: LibraryFunction = LibraryFunction::new($name);
        // SAFETY: the C library's function of this name has this type, and its caller vouches for the arguments.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($kind),*) -> $out>(FUNCTION.address())($($argument),*) }
    }};
}

/// Records what follows a call, which leaves `errno` as it is.
fn after<T: Copy + Into<i64>>(result: T, then: impl FnOnce(i64)) -> T {
    // SAFETY: `errno` is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    then(result.into());
    // SAFETY: `errno` is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// Records a write around the call that makes it.
fn write(
    file: Option<Followed>,
    data: impl FnOnce() -> Vec<u8>,
    at: off_t,
    durable: bool,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some(file) = file else { return call() };
    let id = file.write(at as u64, data(), durable);
    after(call() as i64, |n| file.written(id, n.max(0) as usize)) as ssize_t
}

/// Records a flush around the call that makes it.
fn flush(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some(file) = recorder::followed(fd) else { return call() };
    let id = file.flush();
    after(call(), |r| {
        if r == 0 {
            file.flushed(id)
        }
    })
}

/// Returns the bytes that vectors name.
///
/// # Safety
/// There are `count` vectors, which name readable memory.
pub(super) unsafe fn gathered(vectors: *const iovec, count: usize) -> Vec<u8> {
    let mut data = Vec::new();
    for i in 0..count {
        // SAFETY: the caller vouches for the vectors and their memory.
        data.extend_from_slice(unsafe {
            let v = &*vectors.add(i);
            std::slice::from_raw_parts(v.iov_base.cast::<u8>(), v.iov_len)
        });
    }
    data
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev2(fd: c_int, vectors: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller vouches for the vectors.
    let data = || unsafe { gathered(vectors, count as usize) };
    write(
        recorder::followed(fd),
        data,
        at,
        flags & libc::RWF_DSYNC != 0,
        || own!(c"pwritev2": fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t, fd, vectors, count, at, flags),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: c_int, data: *const libc::c_void, bytes: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller vouches for the memory.
    let copied = || unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) }.to_vec();
    write(
        recorder::followed(fd),
        copied,
        at,
        false,
        || own!(c"pwrite64": fn(c_int, *const libc::c_void, size_t, off_t) -> ssize_t, fd, data, bytes, at),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, at: off_t, bytes: off_t) -> c_int {
    let call = || own!(c"fallocate": fn(c_int, c_int, off_t, off_t) -> c_int, fd, mode, at, bytes);
    let zeros = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
    let Some(file) = recorder::followed(fd).filter(|_| zeros) else { return call() };
    let id = file.write(at as u64, vec![0; bytes as usize], false);
    after(call(), |r| file.written(id, if r == 0 { bytes as usize } else { 0 }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    flush(fd, || own!(c"fdatasync": fn(c_int) -> c_int, fd))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    flush(fd, || own!(c"fsync": fn(c_int) -> c_int, fd))
}

/// Makes a system call. The C library's function has as many arguments as the call needs, and gets them where this one does.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_io_uring_enter {
        rings::enter(a as c_int, b as u32);
    }
    let result = own!(
        c"syscall": fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long, number, a, b, c, d, e, f
    );
    if number == libc::SYS_io_uring_setup && result >= 0 {
        // SAFETY: the system has filled the parameters at this address.
        after(result, |fd| rings::created(fd as c_int, unsafe { &*(b as *const rings::Parameters) }));
    }
    result
}
