//! Structures, constants and functions of libcufile, from the descriptions in `cufile.h` of GDS 1.15 to 1.20.

use libloading::os::unix::Library;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::fmt;
use std::mem::offset_of;

/// CUFILEOP_BASE_ERR.
const BASE: c_int = 5000;
/// CU_FILE_CUDA_DRIVER_ERROR: the CUDA driver's error is in [`Outcome::cuda`].
const CUDA_DRIVER: c_int = BASE + 11;
/// CU_FILE_HANDLE_TYPE_OPAQUE_FD.
pub const HANDLE_FD: c_int = 1;
/// CUFILE_BATCH.
pub const BATCH: c_int = 1;
/// CUFILE_READ.
pub const READ: c_int = 0;
/// CUFILE_WRITE.
pub const WRITE: c_int = 1;
/// CUFILE_COMPLETE.
pub const COMPLETE: c_int = 0x10;
/// CU_FILE_STREAM_FIXED_BUF_OFFSET, _FILE_OFFSET, _FILE_SIZE and CU_FILE_STREAM_PAGE_ALIGNED_INPUTS.
pub const STREAM_FIXED: c_uint = 1 | 2 | 4;
pub const STREAM_ALIGNED: c_uint = 8;
/// Bit of CU_FILE_ALLOW_COMPAT_MODE in [`Properties::control`].
const ALLOW_COMPAT: u32 = 1 << 1;
/// Bits of CU_FILE_BATCH_IO_SUPPORTED, CU_FILE_STREAMS_SUPPORTED and CU_FILE_P2P_SUPPORTED in [`Properties::features`].
const FEATURES: [(u32, &str); 3] = [(1, "batch"), (2, "streams"), (4, "p2pdma")];

pub type Handle = *mut c_void;
pub type BatchHandle = *mut c_void;
pub type Stream = *mut c_void;

/// CUfileError_t.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub code: c_int,
    pub cuda: c_int,
}

/// CUfileDescr_t.
#[repr(C)]
pub struct Descriptor {
    pub kind: c_int,
    padding: c_int,
    /// One member of a union, the other is a pointer.
    pub fd: c_int,
    rest: c_int,
    pub operations: *const c_void,
}

/// CUfileDrvProps_t, with room for what later versions append.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Properties {
    pub major: c_uint,
    pub minor: c_uint,
    pub poll_threshold: usize,
    pub max_direct_io_kib: usize,
    pub status: c_uint,
    pub control: c_uint,
    pub features: c_uint,
    pub max_device_cache_kib: c_uint,
    pub per_buffer_cache_kib: c_uint,
    pub max_pinned_kib: c_uint,
    pub max_batch: c_uint,
    pub max_batch_timeout_ms: c_uint,
    later: [u64; 8],
}

/// CUfileIOParams_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchEntry {
    pub mode: c_int,
    pub buffer: *mut c_void,
    pub file_offset: i64,
    pub buffer_offset: i64,
    pub bytes: usize,
    pub file: Handle,
    pub opcode: c_int,
    pub cookie: *mut c_void,
}

/// CUfileIOEvents_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchEvent {
    pub cookie: *mut c_void,
    pub status: c_int,
    pub result: usize,
}

/// Size that version 1.20 of the header gives CUfileDrvProps_t.
#[allow(dead_code, reason = "for the assertions and the tests")]
pub const PROPERTIES_BYTES: usize = 56;

const _: () = {
    assert!(size_of::<Outcome>() == 8);
    assert!(size_of::<Descriptor>() == 24 && offset_of!(Descriptor, fd) == 8);
    assert!(offset_of!(Descriptor, operations) == 16);
    assert!(offset_of!(Properties, poll_threshold) == 8 && offset_of!(Properties, status) == 24);
    assert!(offset_of!(Properties, control) == 28 && offset_of!(Properties, features) == 32);
    assert!(offset_of!(Properties, max_batch) == 48 && offset_of!(Properties, later) == PROPERTIES_BYTES);
    assert!(size_of::<BatchEntry>() == 64 && offset_of!(BatchEntry, buffer) == 8);
    assert!(offset_of!(BatchEntry, bytes) == 32 && offset_of!(BatchEntry, file) == 40);
    assert!(offset_of!(BatchEntry, opcode) == 48 && offset_of!(BatchEntry, cookie) == 56);
    assert!(size_of::<BatchEvent>() == 24 && offset_of!(BatchEvent, result) == 16);
};

macro_rules! functions {
    ($($(#[$note:meta])* $field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the library. The library stays loaded.
        #[derive(Clone, Copy)]
        pub struct Functions { $($(#[$note])* pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Functions {
            /// Looks all functions up.
            ///
            /// # Errors
            /// [`libloading::Error`] with the name of a function that the library lacks.
            ///
            /// # Safety
            /// The library must be libcufile, or have functions of the same names and types.
            pub unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller vouches for the types.
                unsafe { Ok(Self { $($field: *library.get(concat!($name, "\0").as_bytes())?,)* }) }
            }
        }
    };
}

functions! {
    driver_open = "cuFileDriverOpen": fn() -> Outcome;
    /// The header replaces `cuFileDriverClose` by this name.
    driver_close = "cuFileDriverClose_v2": fn() -> Outcome;
    properties = "cuFileDriverGetProperties": fn(*mut Properties) -> Outcome;
    version = "cuFileGetVersion": fn(*mut c_int) -> Outcome;
    handle_register = "cuFileHandleRegister": fn(*mut Handle, *mut Descriptor) -> Outcome;
    handle_deregister = "cuFileHandleDeregister": fn(Handle);
    buffer_register = "cuFileBufRegister": fn(*const c_void, usize, c_int) -> Outcome;
    buffer_deregister = "cuFileBufDeregister": fn(*const c_void) -> Outcome;
    read = "cuFileRead": fn(Handle, *mut c_void, usize, i64, i64) -> isize;
    write = "cuFileWrite": fn(Handle, *const c_void, usize, i64, i64) -> isize;
    batch_setup = "cuFileBatchIOSetUp": fn(*mut BatchHandle, c_uint) -> Outcome;
    batch_submit = "cuFileBatchIOSubmit": fn(BatchHandle, c_uint, *mut BatchEntry, c_uint) -> Outcome;
    batch_status = "cuFileBatchIOGetStatus":
        fn(BatchHandle, c_uint, *mut c_uint, *mut BatchEvent, *mut libc::timespec) -> Outcome;
    batch_cancel = "cuFileBatchIOCancel": fn(BatchHandle) -> Outcome;
    batch_destroy = "cuFileBatchIODestroy": fn(BatchHandle);
    read_async = "cuFileReadAsync":
        fn(Handle, *mut c_void, *mut usize, *mut i64, *mut i64, *mut isize, Stream) -> Outcome;
    write_async = "cuFileWriteAsync":
        fn(Handle, *mut c_void, *mut usize, *mut i64, *mut i64, *mut isize, Stream) -> Outcome;
    stream_register = "cuFileStreamRegister": fn(Stream, c_uint) -> Outcome;
    stream_deregister = "cuFileStreamDeregister": fn(Stream) -> Outcome;
}

impl Descriptor {
    /// Describes an open file.
    pub fn of(fd: c_int) -> Self {
        Self { kind: HANDLE_FD, padding: 0, fd, rest: 0, operations: std::ptr::null() }
    }
}

impl Properties {
    /// Returns true if files without GPUDirect Storage may be used.
    pub fn allows_compat(&self) -> bool {
        self.control & ALLOW_COMPAT != 0
    }

    /// Returns the names of the features, as in `batch streams`.
    pub fn feature_names(&self) -> String {
        let names = FEATURES.iter().filter(|(bit, _)| self.features >> bit & 1 == 1);
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(" ") }
    }
}

/// Names and meanings of CUfileOpError, in the words of this project.
#[rustfmt::skip]
const CODES: [(c_int, &str, &str); 48] = [
    (1, "DRIVER_NOT_INITIALIZED", "nvidia-fs is not loaded, and compatible mode is not allowed"),
    (2, "DRIVER_INVALID_PROPS", "a property is invalid"),
    (3, "DRIVER_UNSUPPORTED_LIMIT", "a property is out of range"),
    (4, "DRIVER_VERSION_MISMATCH", "nvidia-fs has another version than the library supports"),
    (5, "DRIVER_VERSION_READ_ERROR", "the version of nvidia-fs cannot be read"),
    (6, "DRIVER_CLOSING", "the library is being closed"),
    (7, "PLATFORM_NOT_SUPPORTED", "this machine has no GPUDirect Storage"),
    (8, "IO_NOT_SUPPORTED", "this file has no GPUDirect Storage"),
    (9, "DEVICE_NOT_SUPPORTED", "this GPU has no GPUDirect Storage"),
    (10, "NVFS_DRIVER_ERROR", "nvidia-fs refused a request"),
    (11, "CUDA_DRIVER_ERROR", "the CUDA driver returned an error"),
    (12, "CUDA_POINTER_INVALID", "the address is not one of the GPU"),
    (13, "CUDA_MEMORY_TYPE_INVALID", "the memory is of another kind"),
    (14, "CUDA_POINTER_RANGE_ERROR", "the range exceeds the allocation"),
    (15, "CUDA_CONTEXT_MISMATCH", "another CUDA context is current"),
    (16, "INVALID_MAPPING_SIZE", "the access exceeds the largest pinned size"),
    (17, "INVALID_MAPPING_RANGE", "the access exceeds the mapped size"),
    (18, "INVALID_FILE_TYPE", "files of this kind are not supported"),
    (19, "INVALID_FILE_OPEN_FLAG", "files that were opened so are not supported"),
    (20, "DIO_NOT_SET", "the file was not opened with O_DIRECT"),
    (22, "INVALID_VALUE", "an argument is invalid"),
    (23, "MEMORY_ALREADY_REGISTERED", "the memory is registered already"),
    (24, "MEMORY_NOT_REGISTERED", "the memory is not registered"),
    (25, "PERMISSION_DENIED", "access to the driver or the file is denied"),
    (26, "DRIVER_ALREADY_OPEN", "the library is open already"),
    (27, "HANDLE_NOT_REGISTERED", "the file is not registered"),
    (28, "HANDLE_ALREADY_REGISTERED", "the file is registered already"),
    (29, "DEVICE_NOT_FOUND", "the GPU was not found"),
    (30, "INTERNAL_ERROR", "an internal error of the library"),
    (31, "GETNEWFD_FAILED", "no new file descriptor could be opened"),
    (33, "NVFS_SETUP_ERROR", "nvidia-fs could not be set up"),
    (34, "IO_DISABLED", "the configuration excludes the file"),
    (35, "BATCH_SUBMIT_FAILED", "the batch could not be submitted"),
    (36, "GPU_MEMORY_PINNING_FAILED", "GPU memory could not be pinned"),
    (37, "BATCH_FULL", "the batch is full"),
    (38, "ASYNC_NOT_SUPPORTED", "operations on streams are not supported"),
    (39, "INTERNAL_BATCH_SETUP_ERROR", "the batch could not be set up"),
    (40, "INTERNAL_BATCH_SUBMIT_ERROR", "submitting the batch failed inside the library"),
    (41, "INTERNAL_BATCH_GETSTATUS_ERROR", "the state of the batch could not be read"),
    (42, "INTERNAL_BATCH_CANCEL_ERROR", "the batch could not be canceled"),
    (43, "NOMEM_ERROR", "memory is exhausted"),
    (44, "IO_ERROR", "the transfer failed"),
    (45, "INTERNAL_BUF_REGISTER_ERROR", "the memory could not be registered"),
    (46, "HASH_OPR_ERROR", "an operation on the library's tables failed"),
    (47, "INVALID_CONTEXT_ERROR", "the CUDA context is invalid"),
    (48, "NVFS_INTERNAL_DRIVER_ERROR", "an internal error of nvidia-fs"),
    (49, "BATCH_NOCOMPAT_ERROR", "compatible mode is off for batches"),
    (50, "IO_MAX_ERROR", "the last code of the library"),
];

/// Prints a code as in `5027 (CU_FILE_HANDLE_NOT_REGISTERED): the file is not registered`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODES.iter().find(|(n, ..)| BASE + n == self.0) {
            Some((_, name, words)) => write!(f, "{} (CU_FILE_{name}): {words}", self.0),
            None => write!(f, "{}, a code that this version does not know", self.0),
        }
    }
}

impl Code {
    /// Returns true for errors that occur where compatible mode is needed and not allowed: 5001, 5007, 5008, 5027, 5033.
    pub fn wants_compat(self) -> bool {
        [1, 7, 8, 27, 33].iter().any(|n| BASE + n == self.0)
    }
}

impl Outcome {
    /// Returns the code, unless the call succeeded.
    pub fn failed(self) -> Option<(Code, Option<c_int>)> {
        (self.code != 0).then(|| (Code(self.code), (self.code == CUDA_DRIVER).then_some(self.cuda)))
    }
}

/// Converts a result of `cuFileRead`, or of a part of a batch or a stream: bytes, or an error's code or `errno`.
pub fn transferred(result: isize) -> Result<usize, c_long> {
    usize::try_from(result).map_err(|_| result as c_long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::process::Command;

    #[test]
    fn codes_are_told_in_words() {
        let text = Code(5027).to_string();
        assert_eq!(text, "5027 (CU_FILE_HANDLE_NOT_REGISTERED): the file is not registered");
        assert!(Code(5027).wants_compat() && Code(5001).wants_compat() && !Code(5044).wants_compat());
        assert_eq!(Code(5021).to_string(), "5021, a code that this version does not know");
        assert!(CODES.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(Outcome { code: 0, cuda: 7 }.failed(), None);
        assert_eq!(Outcome { code: 5011, cuda: 700 }.failed(), Some((Code(5011), Some(700))));
        assert_eq!((transferred(4096), transferred(-5044)), (Ok(4096), Err(-5044)));
    }

    #[test]
    fn properties_are_told_in_words() {
        let none = Properties::default();
        assert_eq!((none.allows_compat(), none.feature_names().as_str()), (false, "none"));
        let some = Properties { control: 2, features: 0b10110, ..none };
        assert_eq!((some.allows_compat(), some.feature_names().as_str()), (true, "batch streams p2pdma"));
    }

    /// Folders that may have `cufile.h`: the one that `WARPBELL_CUFILE_INCLUDE` names, and those of toolkits.
    fn header() -> Option<PathBuf> {
        let named = std::env::var_os("WARPBELL_CUFILE_INCLUDE").into_iter().map(PathBuf::from);
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from);
        let toolkits = toolkits.chain(["/usr/local/cuda".into()]).map(|t| t.join("include"));
        named.chain(toolkits).find(|folder| folder.join("cufile.h").is_file())
    }

    /// Compares the layouts with NVIDIA's own header where there is one.
    #[test]
    fn layouts_are_those_of_the_header() {
        let Some(include) = header() else { return };
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // Of CUDA's header the other one takes two types.
        std::fs::write(
            at("cuda.h"),
            "#include <stdint.h>\n#include <sys/types.h>\n#include <time.h>\ntypedef int CUresult;\ntypedef void *CUstream;\n",
        )
        .unwrap();
        let sizes = [
            ("sizeof(CUfileError_t)", size_of::<Outcome>()),
            ("sizeof(CUfileDescr_t)", size_of::<Descriptor>()),
            ("offsetof(CUfileDescr_t, handle.fd)", offset_of!(Descriptor, fd)),
            ("offsetof(CUfileDescr_t, fs_ops)", offset_of!(Descriptor, operations)),
            ("offsetof(CUfileDrvProps_t, nvfs.max_direct_io_size)", offset_of!(Properties, max_direct_io_kib)),
            ("offsetof(CUfileDrvProps_t, nvfs.dcontrolflags)", offset_of!(Properties, control)),
            ("offsetof(CUfileDrvProps_t, fflags)", offset_of!(Properties, features)),
            ("offsetof(CUfileDrvProps_t, max_device_pinned_mem_size)", offset_of!(Properties, max_pinned_kib)),
            ("offsetof(CUfileDrvProps_t, max_batch_io_size)", offset_of!(Properties, max_batch)),
            ("sizeof(CUfileIOParams_t)", size_of::<BatchEntry>()),
            ("offsetof(CUfileIOParams_t, u.batch.devPtr_base)", offset_of!(BatchEntry, buffer)),
            ("offsetof(CUfileIOParams_t, u.batch.file_offset)", offset_of!(BatchEntry, file_offset)),
            ("offsetof(CUfileIOParams_t, u.batch.devPtr_offset)", offset_of!(BatchEntry, buffer_offset)),
            ("offsetof(CUfileIOParams_t, u.batch.size)", offset_of!(BatchEntry, bytes)),
            ("offsetof(CUfileIOParams_t, fh)", offset_of!(BatchEntry, file)),
            ("offsetof(CUfileIOParams_t, opcode)", offset_of!(BatchEntry, opcode)),
            ("offsetof(CUfileIOParams_t, cookie)", offset_of!(BatchEntry, cookie)),
            ("sizeof(CUfileIOEvents_t)", size_of::<BatchEvent>()),
            ("offsetof(CUfileIOEvents_t, status)", offset_of!(BatchEvent, status)),
            ("offsetof(CUfileIOEvents_t, ret)", offset_of!(BatchEvent, result)),
        ];
        let checks = sizes.map(|(what, bytes)| format!("_Static_assert({what} == {bytes}, \"{what}\");\n"));
        let room = format!("_Static_assert(sizeof(CUfileDrvProps_t) <= {}, \"room\");\n", size_of::<Properties>());
        let values = [
            (CODES[25].1, BASE + CODES[25].0),
            ("HANDLE_TYPE_OPAQUE_FD", HANDLE_FD),
            ("STREAM_FIXED_FILE_SIZE", 4),
            ("STREAM_PAGE_ALIGNED_INPUTS", STREAM_ALIGNED as c_int),
        ]
        .map(|(name, value)| format!("_Static_assert(CU_FILE_{name} == {value}, \"{name}\");\n"));
        let batch = format!("_Static_assert(CUFILE_COMPLETE == {COMPLETE} && CUFILE_WRITE == {WRITE}, \"batch\");\n");
        let text =
            format!("#include <stddef.h>\n#include <cufile.h>\n{}{room}{}{batch}", checks.concat(), values.concat());
        std::fs::write(at("layout.c"), text).unwrap();
        let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut compiler = Command::new(cc);
        compiler.arg("-fsyntax-only").arg("-I").arg(folder.path()).arg("-I").arg(include).arg(at("layout.c"));
        let done = compiler.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}
