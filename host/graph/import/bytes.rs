//! Contents of an input with random access: a file, standard input, or memory. Compressed contents are decompressed.

use super::decompress::{self, Compression};
use super::error::ImportError;
use super::line_fault::LineFault;
use super::{Reader, memory};
use crate::graph::external::Spill;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Name of standard input as an input, and the name that errors have for it.
pub(crate) const STDIN: &str = "-";
pub(crate) const STDIN_NAME: &str = "standard input";
/// Bytes that are read at a time where the length is not known.
const SHARE: usize = 1 << 20;

/// Bytes with random access.
pub(crate) struct Bytes<'a> {
    path: PathBuf,
    from: From<'a>,
    len: u64,
}

enum From<'a> {
    File(File),
    Memory(Cow<'a, [u8]>),
    Spilled(Spill),
}

impl<'a> Bytes<'a> {
    /// Opens a regular file, or reads standard input for the path `-`. Contents that begin as gzip or Zstandard are
    /// decompressed into memory, or into a temporary file if the reader's budget is small.
    pub(crate) fn open(path: &Path, reader: &Reader<'_>) -> Result<Self, ImportError> {
        if path.as_os_str() == STDIN {
            let name = Path::new(STDIN_NAME);
            let mut from = io::stdin().lock();
            let mut first = Vec::with_capacity(decompress::MAGIC_BYTES);
            let io = |source| ImportError::Io { path: name.to_owned(), source };
            (&mut from).take(decompress::MAGIC_BYTES as u64).read_to_end(&mut first).map_err(io)?;
            let compression = Compression::of(&first);
            let from = io::Cursor::new(first).chain(from);
            // The length of the input is not known, so no progress is shown.
            return match compression {
                None => Self::gathered(name, from, reader),
                Some(compression) => compression.decompress(name, from, 0, reader),
            };
        }
        Self::check(path)?;
        let io = |source| ImportError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let mut first = [0; decompress::MAGIC_BYTES];
        let known = file.read_at(&mut first, 0).map_err(io)?;
        match Compression::of(&first[..known]) {
            None => Ok(Self { path: path.to_owned(), from: From::File(file), len }),
            Some(compression) => compression.decompress(path, file, len, reader),
        }
    }

    /// Returns an error if there is no regular file at `path`. Opening a pipe would wait for a writer.
    pub(crate) fn check(path: &Path) -> Result<(), ImportError> {
        let kind = std::fs::metadata(path).map_err(|source| ImportError::Io { path: path.to_owned(), source })?;
        if !kind.is_file() {
            let what = if kind.is_dir() { "a folder" } else { "not a regular file" };
            return Err(ImportError::NotAFile { path: path.to_owned(), what });
        }
        Ok(())
    }

    /// Takes contents from memory, and decompresses them where that is necessary.
    pub(crate) fn decompressed(path: &Path, given: Cow<'a, [u8]>, reader: &Reader<'_>) -> Result<Self, ImportError> {
        match Compression::of(&given) {
            None => Ok(Self::memory(path, given)),
            Some(compression) => compression.decompress(path, &*given, given.len() as u64, reader),
        }
    }

    /// Reads everything: into memory as long as there is memory, and behind a quarter of the reader's budget into a
    /// temporary file.
    pub(crate) fn gathered(path: &Path, mut from: impl io::Read, reader: &Reader<'_>) -> Result<Self, ImportError> {
        let io = |source| ImportError::Io { path: path.to_owned(), source };
        let Some(budget) = &reader.budget else {
            return Ok(Self::memory(path, whole(path, &mut from, reader.options.memory)?));
        };
        let mut bytes = Vec::new();
        (&mut from).take(budget.memory / 4).read_to_end(&mut bytes).map_err(io)?;
        if (bytes.len() as u64) < budget.memory / 4 {
            return Ok(Self::memory(path, bytes));
        }
        let file = Spill::create(&budget.folder)?;
        file.append(&bytes)?;
        bytes.truncate(SHARE);
        bytes.shrink_to_fit();
        loop {
            bytes.clear();
            (&mut from).take(SHARE as u64).read_to_end(&mut bytes).map_err(io)?;
            if bytes.is_empty() {
                return Ok(Self { path: path.to_owned(), len: file.len(), from: From::Spilled(file) });
            }
            file.append(&bytes)?;
        }
    }

    pub(crate) fn memory(path: &Path, bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        let bytes = bytes.into();
        Self { path: path.to_owned(), len: bytes.len() as u64, from: From::Memory(bytes) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file, unless the contents are in memory.
    #[cfg(feature = "parquet")]
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.from {
            From::File(file) => Some(file),
            From::Spilled(spill) => Some(spill.file()),
            From::Memory(_) => None,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buffer` from byte `offset` on. The range must lie within the length.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ImportError> {
        match &self.from {
            From::Memory(bytes) => {
                buffer.copy_from_slice(&bytes[offset as usize..offset as usize + buffer.len()]);
                Ok(())
            }
            From::Spilled(file) => Ok(file.read(offset, buffer)?),
            From::File(file) => file.read_exact_at(buffer, offset).map_err(|source| {
                if source.kind() == io::ErrorKind::UnexpectedEof {
                    let at = file.metadata().map_or(offset, |m| m.len());
                    ImportError::Shrunk { path: self.path.clone(), at }
                } else {
                    ImportError::Io { path: self.path.clone(), source }
                }
            }),
        }
    }

    /// Returns the error for a line of this file.
    pub(crate) fn fault(&self, line: u64, fault: LineFault) -> ImportError {
        ImportError::Line { path: self.path.clone(), line, fault }
    }
}

/// Reads everything into memory, as long as there is memory.
fn whole(path: &Path, from: &mut dyn io::Read, limit: Option<u64>) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    loop {
        if bytes.len() == bytes.capacity() {
            // Twice the length, as a vector grows, while both copies are there.
            let more = bytes.len().max(SHARE);
            memory::check_bytes(path, bytes.len() as u64, more as u64, limit)?;
            let io = |e: std::collections::TryReserveError| io::Error::new(io::ErrorKind::OutOfMemory, e);
            bytes.try_reserve_exact(more).map_err(|e| ImportError::Io { path: path.to_owned(), source: io(e) })?;
        }
        let room = bytes.capacity() - bytes.len();
        let read = from.take(room as u64).read_to_end(&mut bytes);
        match read.map_err(|source| ImportError::Io { path: path.to_owned(), source })? {
            0 => return Ok(bytes),
            _ => continue,
        }
    }
}
