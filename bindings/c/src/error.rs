//! Codes that functions return, and the last error of a thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use warpbell::engine::abi::ErrorEntry as wb_error;
use warpbell::engine::{Engine, EngineError, OperationError, Operations, RunError};
use warpbell::failure::ErrorKind;
use warpbell::graph::stored::StoredError;
use warpbell::graph::{CsrError, GraphError, ImportError, UnknownVertex};
use warpbell::memory::MemoryError;
use warpbell::shmem::ShmemError;
use warpbell::shmem::bootstrap::BootstrapError;
use warpbell::storage::{KvError, RowFileError, StorageError, TableError};

/// Success, or the kind of an error. `wb_last_error` has the text.
pub type wb_code = i32;

/// Success.
pub const WB_OK: i32 = 0;
/// An argument is null, outside its range, or not valid UTF-8.
pub const WB_ERR_ARGUMENT: i32 = -1;
/// A handle is null, of another type, or released.
pub const WB_ERR_HANDLE: i32 = -2;
/// The object is not in a state for this call; for example the run is finished.
pub const WB_ERR_STATE: i32 = -3;
/// Operations inside a kernel failed. `wb_last_error_operations` has them with device, LBA and status.
pub const WB_ERR_OPERATION: i32 = -4;
/// A kernel, or a wait for other processes, did not end within its limit.
pub const WB_ERR_TIMEOUT: i32 = -5;
/// The engine was told to stop (`wb_engine_cancel`).
pub const WB_ERR_STOPPED: i32 = -6;
/// Kernels are still in flight that have to end first.
pub const WB_ERR_BUSY: i32 = -7;
/// There is no kernel, array, graph, file or device of the name.
pub const WB_ERR_NOT_FOUND: i32 = -8;
/// The name is in use already, or the target holds data that must not be overwritten.
pub const WB_ERR_EXISTS: i32 = -9;
/// The volume, the heap or the file system has too little space.
pub const WB_ERR_SPACE: i32 = -10;
/// Memory of the host or of the GPU could not be allocated or accessed.
pub const WB_ERR_MEMORY: i32 = -11;
/// This machine, engine, stream or memory does not support the request.
pub const WB_ERR_UNSUPPORTED: i32 = -12;
/// Stored data does not match its checksum or its description.
pub const WB_ERR_DAMAGED: i32 = -13;
/// A kernel broke (GPU fault), or did not end even when it was told to stop.
pub const WB_ERR_KERNEL: i32 = -14;
/// A call of the CUDA driver failed.
pub const WB_ERR_CUDA: i32 = -15;
/// A file, a device or the operating system failed.
pub const WB_ERR_IO: i32 = -16;
/// An input file cannot be parsed, or its content is invalid.
pub const WB_ERR_INPUT: i32 = -17;
/// Another process of the world is gone, or the processes did not make the same call.
pub const WB_ERR_WORLD: i32 = -18;
/// A defect of the library. Please report the text.
pub const WB_ERR_INTERNAL: i32 = -100;

/// Returns the code of a kind of error of the library.
const fn code_of(kind: ErrorKind) -> wb_code {
    match kind {
        ErrorKind::Argument | ErrorKind::RowIndex => WB_ERR_ARGUMENT,
        ErrorKind::State => WB_ERR_STATE,
        ErrorKind::NotFound => WB_ERR_NOT_FOUND,
        ErrorKind::Exists => WB_ERR_EXISTS,
        ErrorKind::Space | ErrorKind::HeapSpace => WB_ERR_SPACE,
        ErrorKind::Memory => WB_ERR_MEMORY,
        ErrorKind::Unsupported => WB_ERR_UNSUPPORTED,
        ErrorKind::Damaged => WB_ERR_DAMAGED,
        ErrorKind::Input => WB_ERR_INPUT,
        ErrorKind::Operation => WB_ERR_OPERATION,
        ErrorKind::Io => WB_ERR_IO,
        ErrorKind::TimedOut => WB_ERR_TIMEOUT,
        ErrorKind::Stopped => WB_ERR_STOPPED,
        ErrorKind::Busy => WB_ERR_BUSY,
        ErrorKind::Kernel => WB_ERR_KERNEL,
        ErrorKind::Cuda => WB_ERR_CUDA,
        ErrorKind::World | ErrorKind::LostPe => WB_ERR_WORLD,
    }
}

/// An error on its way to the caller.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    code: wb_code,
    text: String,
    remedies: Vec<String>,
    operations: Vec<wb_error>,
}

impl Error {
    pub(crate) fn new(code: wb_code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), remedies: Vec::new(), operations: Vec::new() }
    }

    /// An argument that is out of its range.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(WB_ERR_ARGUMENT, text)
    }

    /// Takes code, text, remedies and operations of an error of the library.
    fn of(error: &impl Operations) -> Self {
        Self {
            remedies: error.remedies().iter().map(ToString::to_string).collect(),
            operations: error.operations().iter().map(OperationError::to_abi).collect(),
            ..Self::new(code_of(error.kind()), error.to_string())
        }
    }

    /// Names the part of the call that the error is about.
    pub(crate) fn within(self, part: &str) -> Self {
        Self { text: format!("{part}: {}", self.text), ..self }
    }

    /// Tells kernels that were stopped for a lost rank from those that the program has stopped.
    pub(crate) fn on_engine(self, engine: &Engine) -> Self {
        let code = if engine.stopped_for().is_some() { WB_ERR_WORLD } else { self.code };
        if self.code == WB_ERR_STOPPED { Self { code, ..self } } else { self }
    }
}

/// Converts errors of the library.
macro_rules! convert {
    ($($error:ty),+) => {
        $(impl From<$error> for Error {
            fn from(e: $error) -> Self {
                Self::of(&e)
            }
        })+
    };
}

convert!(EngineError, MemoryError, RunError, StorageError, TableError, KvError, RowFileError);
convert!(GraphError, StoredError, ImportError, CsrError, UnknownVertex, BootstrapError, ShmemError);

/// The last error, as the functions below return it.
#[derive(Default)]
struct Last {
    code: wb_code,
    text: CString,
    remedies: Vec<CString>,
    operations: Vec<wb_error>,
}

thread_local!(static LAST: RefCell<Last> = RefCell::default());

fn c_string(text: String) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

fn set_last(error: Error) -> wb_code {
    let Error { code, mut text, remedies, operations } = error;
    if !remedies.is_empty() {
        text = format!("{text}; {}", remedies.join(", or "));
    }
    let last = Last { code, text: c_string(text), remedies: remedies.into_iter().map(c_string).collect(), operations };
    // A thread that is ending may have lost its storage; the code is returned all the same.
    let _ = LAST.try_with(|l| *l.borrow_mut() = last);
    code
}

/// Runs the body of a function. Returns `WB_OK`, or the code of an error, which becomes the thread's last one.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Error>) -> wb_code {
    // State that a panicking body leaves half done is behind the locks of the library, which is written for that.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => WB_OK,
        Ok(Err(error)) => set_last(error),
        Err(panic) => set_last(Error::new(WB_ERR_INTERNAL, format!("defect in warpbell: {}", text_of(panic.as_ref())))),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown panic".to_owned())
}

/// Returns the text of the last error of this thread: fact, cause and, where one is known, the next step.
///
/// Calls that succeed do not change it. It is an empty text if no call of this thread has failed.
///
/// @return A text that is valid until the next call of this thread fails. Never null. UTF-8.
/// @note Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn wb_last_error() -> *const c_char {
    LAST.try_with(|l| l.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the code of the last error of this thread, or `WB_OK` if no call of this thread has failed.
///
/// @note Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn wb_last_error_code() -> wb_code {
    LAST.try_with(|l| l.borrow().code).unwrap_or(WB_OK)
}

/// Returns a remedy of the last error of this thread. The text of the error has them too.
///
/// @param index Number of the remedy, from 0: the best first.
/// @return The remedy, valid until the next call of this thread fails; null if there are not so many.
/// @note Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn wb_last_error_remedy(index: usize) -> *const c_char {
    LAST.try_with(|l| l.borrow().remedies.get(index).map_or(ptr::null(), |r| r.as_ptr())).unwrap_or(ptr::null())
}

/// Copies the failed operations of the last error of this thread: those that caused the others come first.
///
/// @param operations Destination for up to `capacity` entries; may be null if `capacity` is 0.
/// @param capacity Entries that fit.
/// @return Number of failed operations that are known, which may be more than `capacity`; 0 if the error is of another kind.
/// @note Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_last_error_operations(operations: *mut wb_error, capacity: usize) -> usize {
    let copy = |l: &RefCell<Last>| {
        let last = l.borrow();
        let count = if operations.is_null() { 0 } else { last.operations.len().min(capacity) };
        // SAFETY: the caller gives space for `capacity` entries, and the thread's own list does not overlap it.
        unsafe { ptr::copy_nonoverlapping(last.operations.as_ptr(), operations, count) };
        last.operations.len()
    };
    LAST.try_with(copy).unwrap_or(0)
}

/// Returns the name of a code, such as `WB_ERR_TIMEOUT`.
///
/// @param code A value that a function of this library returned.
/// @return A constant text; `unknown` for other numbers.
/// @note Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn wb_code_name(code: wb_code) -> *const c_char {
    let name = match code {
        WB_OK => c"WB_OK",
        WB_ERR_ARGUMENT => c"WB_ERR_ARGUMENT",
        WB_ERR_HANDLE => c"WB_ERR_HANDLE",
        WB_ERR_STATE => c"WB_ERR_STATE",
        WB_ERR_OPERATION => c"WB_ERR_OPERATION",
        WB_ERR_TIMEOUT => c"WB_ERR_TIMEOUT",
        WB_ERR_STOPPED => c"WB_ERR_STOPPED",
        WB_ERR_BUSY => c"WB_ERR_BUSY",
        WB_ERR_NOT_FOUND => c"WB_ERR_NOT_FOUND",
        WB_ERR_EXISTS => c"WB_ERR_EXISTS",
        WB_ERR_SPACE => c"WB_ERR_SPACE",
        WB_ERR_MEMORY => c"WB_ERR_MEMORY",
        WB_ERR_UNSUPPORTED => c"WB_ERR_UNSUPPORTED",
        WB_ERR_DAMAGED => c"WB_ERR_DAMAGED",
        WB_ERR_KERNEL => c"WB_ERR_KERNEL",
        WB_ERR_CUDA => c"WB_ERR_CUDA",
        WB_ERR_IO => c"WB_ERR_IO",
        WB_ERR_INPUT => c"WB_ERR_INPUT",
        WB_ERR_WORLD => c"WB_ERR_WORLD",
        WB_ERR_INTERNAL => c"WB_ERR_INTERNAL",
        _ => c"unknown",
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::ffi::CStr;
    use warpbell::engine::Outcome;

    fn text() -> String {
        // SAFETY: the function returns a text of this thread.
        unsafe { CStr::from_ptr(wb_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_error_and_a_success_changes_nothing() {
        assert_eq!(guard(|| panic!("seven of {}", 8)), WB_ERR_INTERNAL);
        assert_eq!(text(), "defect in warpbell: seven of 8");
        assert_eq!(guard(|| Ok(())), WB_OK);
        assert_eq!((text().as_str(), wb_last_error_code()), ("defect in warpbell: seven of 8", WB_ERR_INTERNAL));
        // Another thread has had no error.
        std::thread::spawn(|| assert_eq!((text().as_str(), wb_last_error_code()), ("", WB_OK))).join().unwrap();
    }

    #[test]
    fn every_kind_has_a_code_and_every_code_of_the_library_a_kind() {
        let of_kinds: HashSet<wb_code> = ErrorKind::ALL.iter().map(|kind| code_of(*kind)).collect();
        for code in &of_kinds {
            // SAFETY: the function returns a constant text.
            let name = unsafe { CStr::from_ptr(wb_code_name(*code)) }.to_str().unwrap();
            assert!(name.starts_with("WB_ERR_"), "{code}");
        }
        // Those that only this interface reports.
        let own = [WB_ERR_HANDLE, WB_ERR_INTERNAL];
        let all = (WB_ERR_WORLD..=WB_ERR_ARGUMENT).chain([WB_ERR_INTERNAL]);
        assert!(all.filter(|code| !own.contains(code)).all(|code| of_kinds.contains(&code)));
        assert!(own.iter().all(|code| !of_kinds.contains(code)));
    }

    #[test]
    fn operations_of_a_run_inside_are_kept() {
        let one = OperationError {
            outcome: Outcome::TimedOut,
            device: 0,
            queue: 3,
            command: 0,
            opcode: 0,
            lba: 0,
            blocks: 0,
        };
        let run = || RunError::Operations { kernel: "k".to_owned(), errors: vec![one], count: 1 };
        let network = ShmemError::Network { failures: vec!["PE 1".to_owned()], source: run() };
        let all: [(Error, wb_code); 5] = [
            (ShmemError::Run(run()).into(), WB_ERR_TIMEOUT),
            (network.into(), WB_ERR_WORLD),
            (StorageError::Run(run()).into(), WB_ERR_TIMEOUT),
            (GraphError::Storage(run().into()).into(), WB_ERR_TIMEOUT),
            (RowFileError::Storage(run().into()).into(), WB_ERR_TIMEOUT),
        ];
        for (e, code) in all {
            assert_eq!(guard(|| Err(e)), code);
            // SAFETY: nothing is written without space.
            assert_eq!(unsafe { wb_last_error_operations(std::ptr::null_mut(), 0) }, 1);
        }
    }

    #[test]
    fn a_remedy_is_in_the_text_and_by_itself() {
        let code = guard(|| Err(EngineError::NoDeviceImage.into()));
        assert_eq!(code, WB_ERR_UNSUPPORTED);
        // SAFETY: the error has a remedy.
        let remedy = unsafe { CStr::from_ptr(wb_last_error_remedy(0)) }.to_str().unwrap();
        assert!(text().ends_with(&format!("; {remedy}")), "{}", text());
        assert!(wb_last_error_remedy(1).is_null());
    }
}
