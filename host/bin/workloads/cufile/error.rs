//! Errors of cuFile, in words.

use super::abi::{self, Code, Outcome};
use std::ffi::{c_int, c_long};
use std::io;
use std::path::PathBuf;

/// Reason why cuFile could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CufileError {
    /// The library is not installed, or its version lacks a function.
    #[error(
        "libcufile.so.0: {reason}; install it (Debian, Ubuntu: libcufile-13-0 of NVIDIA's CUDA repository; pip: nvidia-cufile), or name the file with WARPBELL_CUFILE=PATH"
    )]
    Library {
        /// Reason, with the names that were tried.
        reason: String,
    },
    /// A call returned an error.
    #[error("{function}: {code}{}{}", cuda.map_or(String::new(), |c| format!(" (CUresult {c})")), next.as_deref().map_or(String::new(), |n| format!("; {n}")))]
    Call {
        /// The call.
        function: &'static str,
        /// Its error.
        code: Code,
        /// The CUDA driver's error, if the call failed with one.
        cuda: Option<c_int>,
        /// Next step, if there is one.
        next: Option<String>,
    },
    /// A transfer failed with an error of the system.
    #[error("{function} of {bytes} bytes at byte {offset}: {source}")]
    System {
        /// The call.
        function: &'static str,
        /// Offset in the file.
        offset: u64,
        /// Bytes of the transfer.
        bytes: usize,
        /// The error.
        source: io::Error,
    },
    /// A transfer failed with an error of cuFile.
    #[error("{function} of {bytes} bytes at byte {offset}: {code}")]
    Transfer {
        /// The call.
        function: &'static str,
        /// Offset in the file.
        offset: u64,
        /// Bytes of the transfer.
        bytes: usize,
        /// The error.
        code: Code,
    },
    /// A transfer moved fewer bytes than it should.
    #[error("{function} at byte {offset} moved {moved} of {bytes} bytes; is the file shorter than that?")]
    Short {
        /// The call.
        function: &'static str,
        /// Offset in the file.
        offset: u64,
        /// Bytes of the transfer.
        bytes: usize,
        /// Bytes that were moved.
        moved: usize,
    },
    /// An entry of a batch did not complete.
    #[error("cuFileBatchIOSubmit: the entry of {bytes} bytes at byte {offset} {}", status_words(*status))]
    Batch {
        /// Offset in the file.
        offset: u64,
        /// Bytes of the transfer.
        bytes: usize,
        /// CUfileStatus_t.
        status: c_int,
    },
    /// An event of a batch names no entry in flight.
    #[error("cuFileBatchIOGetStatus returned an event for entry {entry}, which is not in flight")]
    Event {
        /// Number in the event.
        entry: usize,
    },
    /// A call or an operation did not end in time.
    #[error("{what} did not end within {seconds} s; {next}")]
    Late {
        /// The call.
        what: &'static str,
        /// The time limit.
        seconds: u64,
        /// Next step.
        next: &'static str,
    },
    /// The file cannot be opened.
    #[error("{}: opening it for cuFile: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The temporary configuration cannot be written, or a thread cannot be started.
    #[error("{what}: {source}")]
    Setup {
        /// The step that failed.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
    /// A thread that measured panicked.
    #[error("a thread of the measurement panicked")]
    Panicked,
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] warpbell::engine::EngineError),
    /// Memory of the engine failed.
    #[error(transparent)]
    Memory(#[from] warpbell::memory::MemoryError),
}

/// Returns the words for a status of a batch entry.
fn status_words(status: c_int) -> String {
    let known = [
        (1, "was not submitted (CUFILE_WAITING)"),
        (2, "is still in flight (CUFILE_PENDING)"),
        (4, "is invalid (CUFILE_INVALID)"),
        (8, "was canceled (CUFILE_CANCELED)"),
        (0x20, "timed out (CUFILE_TIMEOUT)"),
        (0x40, "failed (CUFILE_FAILED)"),
    ];
    known.iter().find(|(s, _)| *s == status).map_or(format!("has status {status:#x}"), |(_, words)| (*words).to_owned())
}

/// Returns an error unless a call succeeded.
pub fn check(function: &'static str, outcome: Outcome) -> Result<(), CufileError> {
    match outcome.failed() {
        None => Ok(()),
        Some((code, cuda)) => Err(CufileError::Call { function, code, cuda, next: None }),
    }
}

/// Returns an error unless a transfer of `bytes` bytes moved all of them. `errno` is that of the thread after the call.
pub fn check_transfer(
    function: &'static str,
    offset: u64,
    bytes: usize,
    result: isize,
    errno: impl FnOnce() -> io::Error,
) -> Result<(), CufileError> {
    /// In this case `errno` has the error.
    const SYSTEM: c_long = -1;
    match abi::transferred(result) {
        Ok(moved) if moved == bytes => Ok(()),
        Ok(moved) => Err(CufileError::Short { function, offset, bytes, moved }),
        Err(SYSTEM) => Err(CufileError::System { function, offset, bytes, source: errno() }),
        // The system's codes are below those of cuFile.
        Err(code) if -code < 4096 => {
            let source = io::Error::from_raw_os_error((-code) as c_int);
            Err(CufileError::System { function, offset, bytes, source })
        }
        Err(code) => Err(CufileError::Transfer { function, offset, bytes, code: Code((-code) as c_int) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_transfers_become_errors_with_numbers() {
        let text = |result| {
            let errno = || io::Error::from_raw_os_error(libc::EIO);
            check_transfer("cuFileRead", 8192, 4096, result, errno).map_err(|e| e.to_string())
        };
        assert_eq!(text(4096), Ok(()));
        let short = "cuFileRead at byte 8192 moved 512 of 4096 bytes; is the file shorter than that?";
        assert_eq!(text(512).unwrap_err(), short);
        assert!(text(-1).unwrap_err().contains("Input/output error"));
        assert!(text(-22).unwrap_err().contains("Invalid argument"));
        assert!(text(-5044).unwrap_err().contains("5044 (CU_FILE_IO_ERROR): the transfer failed"));
        assert_eq!(status_words(0x40), "failed (CUFILE_FAILED)");
        assert_eq!(status_words(0x80), "has status 0x80");
    }
}
