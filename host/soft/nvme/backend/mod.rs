//! Stores for the blocks of namespaces: memory, files and block devices.

mod cut;
mod file;
mod uring;

use file::{Access, FileStore};
pub(super) use uring::{Direction, Finished, Request, Ring};

use super::SoftError;
use super::config::{Backing, NamespaceConfig};
use super::prp::Extent;
use crate::nvme::ring_service::MemoryStore;
use crate::wire::nvme::{Status, status};
use std::hash::{Hash, Hasher};
use std::io;

/// Largest number of vectors that `preadv2` accepts (IOV_MAX of Linux).
pub(super) const MAX_VECTORS: usize = 1024;

/// A store of bytes, shared by service threads.
#[derive(Debug)]
pub(super) enum Store {
    Memory(MemoryStore),
    File(FileStore),
}

impl Store {
    pub(super) fn open(config: &NamespaceConfig) -> Result<Self, SoftError> {
        match &config.backing {
            Backing::Memory { bytes: None } => Err(SoftError::NoSize),
            Backing::Memory { bytes: Some(bytes) } => {
                check_size("memory", *bytes, config.block_bytes)?;
                let memory = MemoryStore::new(*bytes).map_err(|source| SoftError::Memory { bytes: *bytes, source })?;
                Ok(Self::Memory(memory))
            }
            Backing::File { path, io, direct } => {
                let known_as = config.final_path.as_deref().unwrap_or(path);
                let access = Access { io: *io, direct: *direct, read_only: config.read_only };
                FileStore::open(path, access, config.block_bytes).map(|f| Self::File(f.known_as(known_as)))
            }
        }
    }

    /// Hashes the properties that identify this store and never change: a file's path, or the size of memory.
    pub(super) fn identify(&self, hasher: &mut impl Hasher) {
        match self {
            Self::Memory(m) => m.bytes().hash(hasher),
            Self::File(f) => f.place().hash(hasher),
        }
    }

    /// Returns the length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Memory(m) => m.bytes() as u64,
            Self::File(f) => f.bytes(),
        }
    }

    pub(super) fn read_only(&self) -> bool {
        matches!(self, Self::File(f) if f.read_only())
    }

    /// Returns true if written data may be lost in a power failure until a flush.
    pub(super) fn has_write_cache(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Returns the address of a block for a prefetch, without any check.
    #[inline]
    pub(super) fn peek(&self, offset: u64) -> Option<*const u8> {
        match self {
            Self::Memory(m) => Some(m.base().wrapping_add(offset as usize)),
            Self::File(f) => f.mapping().map(|m| m.wrapping_add(offset as usize)),
        }
    }

    /// Returns the address at which bytes can be read by plain loads, or `None` if there is none.
    #[inline]
    pub(super) fn readable(&self, offset: u64, bytes: usize) -> Result<Option<*const u8>, Status> {
        match self {
            Self::Memory(m) => Ok(m.at(offset, bytes).map(|p| p.cast_const())),
            Self::File(f) => f.mapped(offset, bytes),
        }
    }

    /// Fails if some of the bytes that were just read at the address of [`Store::readable`] no longer existed.
    #[inline]
    pub(super) fn check_read(&self, offset: u64, bytes: usize) -> Result<(), Status> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(f) => f.check_read(offset, bytes),
        }
    }

    /// Returns the address at which bytes can be written by plain stores, or `None` if there is none.
    #[inline]
    pub(super) fn writable(&self, offset: u64, bytes: usize) -> Option<*mut u8> {
        match self {
            Self::Memory(m) => m.at(offset, bytes),
            Self::File(_) => None,
        }
    }

    /// Zeroes a range of bytes.
    pub(super) fn zero(&self, offset: u64, bytes: u64) -> Result<(), Status> {
        match self {
            Self::Memory(m) => {
                m.zero(offset, bytes);
                Ok(())
            }
            Self::File(f) => f.zero(offset, bytes).map_err(|e| write_status(&e)),
        }
    }

    /// Waits until all written data is on the medium.
    pub(super) fn flush(&self) -> Result<(), Status> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(f) => f.flush().map_err(|e| write_status(&e)),
        }
    }

    /// Checks whether a file has become shorter.
    pub(super) fn check(&self) {
        if let Self::File(f) = self {
            f.check();
        }
    }

    /// Returns a short description, as in `mem 256 MiB` or `file edges.img 1 GiB (io_uring)`.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Memory(m) => format!("mem {}", size_text(m.bytes() as u64)),
            Self::File(f) => f.describe(),
        }
    }
}

/// Checks that a namespace has whole blocks, and at least one.
fn check_size(what: &str, bytes: u64, block: u32) -> Result<(), SoftError> {
    if bytes >= u64::from(block) && bytes.is_multiple_of(u64::from(block)) {
        return Ok(());
    }
    Err(SoftError::Size { what: what.into(), bytes, block })
}

/// Returns the status of a failed read.
pub(super) fn read_status(_error: &io::Error) -> Status {
    status::UNRECOVERED_READ_ERROR
}

/// Returns the status of a failed write.
pub(super) fn write_status(error: &io::Error) -> Status {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => status::CAPACITY_EXCEEDED,
        Some(libc::EROFS | libc::EBADF | libc::EPERM) => status::NAMESPACE_WRITE_PROTECTED.dnr(),
        _ => status::WRITE_FAULT,
    }
}

/// Formats bytes in the largest binary unit that divides them.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(s, _)| bytes >= 1 << s && bytes.is_multiple_of(1 << s)) {
        Some((s, unit)) => format!("{} {unit}", bytes >> s),
        None => format!("{bytes} B"),
    }
}

/// Converts the extents of a transfer to the vectors of a system call.
pub(super) fn vectors(extents: &[Extent], out: &mut Vec<libc::iovec>) {
    out.clear();
    out.extend(extents.iter().map(|e| libc::iovec { iov_base: e.host.cast(), iov_len: e.bytes }));
}

/// Removes the first `done` bytes.
pub(super) fn advance(vectors: &mut Vec<libc::iovec>, mut done: usize) {
    let whole = vectors
        .iter()
        .take_while(|v| {
            let taken = v.iov_len <= done;
            if taken {
                done -= v.iov_len;
            }
            taken
        })
        .count();
    vectors.drain(..whole);
    if let Some(v) = vectors.first_mut() {
        v.iov_base = v.iov_base.wrapping_byte_add(done);
        v.iov_len -= done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(size_text(512), "512 B");
        assert_eq!(size_text(256 << 20), "256 MiB");
        assert_eq!(size_text(3 << 29), "1536 MiB");
        assert_eq!(size_text(1 << 40), "1 TiB");
    }

    #[test]
    fn advancing_drops_whole_pieces_and_shortens_one() {
        let piece = |at: usize, n| libc::iovec { iov_base: at as *mut _, iov_len: n };
        for (done, left) in
            [(0, vec![(100, 10), (200, 20)]), (10, vec![(200, 20)]), (15, vec![(205, 15)]), (30, vec![])]
        {
            let mut v = vec![piece(100, 10), piece(200, 20)];
            advance(&mut v, done);
            assert_eq!(v.iter().map(|v| (v.iov_base as usize, v.iov_len)).collect::<Vec<_>>(), left);
        }
    }
}
