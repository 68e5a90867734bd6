//! Temporary files without names.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A temporary file that several threads append to and read from. It has no name, so that it ends with the program.
#[derive(Debug)]
pub(crate) struct Spill {
    file: File,
    folder: PathBuf,
    end: AtomicU64,
}

/// Error of a temporary file.
#[derive(Debug, thiserror::Error)]
#[error("temporary file in {}: {source}", folder.display())]
pub(crate) struct SpillError {
    pub folder: PathBuf,
    pub source: io::Error,
}

impl Spill {
    /// Creates a file in `folder`.
    pub(crate) fn create(folder: &Path) -> Result<Self, SpillError> {
        match tempfile::tempfile_in(folder) {
            Ok(file) => Ok(Self { file, folder: folder.to_owned(), end: AtomicU64::new(0) }),
            Err(source) => Err(SpillError { folder: folder.to_owned(), source }),
        }
    }

    /// Appends bytes, and returns the offset at which they are.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<u64, SpillError> {
        let mut place = self.reserve(bytes.len() as u64);
        let at = place.offset();
        place.write(bytes)?;
        Ok(at)
    }

    /// Reserves a place for so many bytes, which are written in several shares.
    pub(crate) fn reserve(&self, bytes: u64) -> Reserved<'_> {
        Reserved { spill: self, at: self.end.fetch_add(bytes, Ordering::Relaxed) }
    }

    /// Fills `buffer` from `offset` on. The range must have been appended.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SpillError> {
        self.file.read_exact_at(buffer, offset).map_err(|e| self.failed(e))
    }

    /// Returns the bytes appended.
    pub(crate) fn len(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Returns the file itself.
    #[cfg(feature = "parquet")]
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn failed(&self, source: io::Error) -> SpillError {
        SpillError { folder: self.folder.clone(), source }
    }
}

/// A place in a temporary file that is being written.
pub(crate) struct Reserved<'a> {
    spill: &'a Spill,
    at: u64,
}

impl Reserved<'_> {
    /// Returns the offset at which the next share is written.
    pub(crate) fn offset(&self) -> u64 {
        self.at
    }

    /// Writes the next share.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), SpillError> {
        self.spill.file.write_all_at(bytes, self.at).map_err(|e| self.spill.failed(e))?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
