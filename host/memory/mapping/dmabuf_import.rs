//! dmabuf_import backend: uPCIe's kernel module returns the bus addresses of a dma-buf.
//!
//! Requests and structures: dmabuf_import.h of uPCIe. The module removes a file's attachments when the file is closed.

use super::libnvm::consecutive;
use super::reason::BackendError;
use super::site::{Mapped, Site};
use super::syscalls::{Direction, File, request};
use crate::memory::Region;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

pub(super) const FILE: &str = "/dev/dmabuf_import";
const KIND: u8 = b'u';
/// Upper bound for the number of pieces: more than any allocation has. It limits the memory that a module
/// makes this process allocate.
const MOST_PIECES: u32 = 1 << 24;

/// struct dmabuf_import_attach.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attach {
    pub(super) fd: i32,
    pub(super) count: u32,
}

/// struct dmabuf_import_dma_map. `GET_MAP` writes as many pieces as fit behind an [`Attach`], which has the
/// layout of the request's header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

const _: () = {
    assert!(size_of::<Attach>() == 8);
    assert!(size_of::<Piece>() == 16);
};

pub(super) const ATTACH: u32 = request(Direction::ReadWrite, KIND, 0x47, size_of::<Attach>());
pub(super) const DETACH: u32 = request(Direction::Write, KIND, 0x48, size_of::<i32>());
pub(super) const GET_MAP: u32 = request(Direction::ReadWrite, KIND, 0x49, size_of::<Attach>());

/// A dma-buf that the module is attached to. Its memory stays in place.
pub(super) struct Attached {
    file: File,
    dmabuf: OwnedFd,
    /// Bus addresses and lengths of the buffer's parts, in order.
    pub(super) pieces: Vec<Piece>,
}

impl Attached {
    pub(super) fn new(site: &Site<'_>) -> Result<Self, BackendError> {
        let file = site.open(FILE)?;
        let dmabuf = site.export()?;
        let mut attach = Attach { fd: dmabuf.as_raw_fd(), count: 0 };
        // SAFETY: the request takes this structure.
        unsafe { file.control(ATTACH, &mut attach) }
            .map_err(|source| BackendError::Refused { call: "DMABUF_IMPORT_ATTACH", source })?;
        // From here on, dropping `this` detaches the buffer.
        let mut this = Self { file, dmabuf, pieces: Vec::new() };
        this.pieces = this.read_map(attach.count.min(MOST_PIECES))?;
        Ok(this)
    }

    pub(super) fn dmabuf(&self) -> i32 {
        self.dmabuf.as_raw_fd()
    }

    fn read_map(&self, count: u32) -> Result<Vec<Piece>, BackendError> {
        // The header, then the pieces. An array of words aligns both.
        const WORDS_OF_PIECE: usize = size_of::<Piece>() / size_of::<u64>();
        let mut words = vec![0u64; 1 + count as usize * WORDS_OF_PIECE];
        words[0] = bytemuck::must_cast([self.dmabuf().cast_unsigned(), count]);
        let argument = words.as_mut_ptr().cast();
        // SAFETY: the request reads the header and writes at most `count` pieces behind it.
        unsafe { self.file.sys.ioctl(self.file.fd, GET_MAP, argument) }
            .map_err(|source| BackendError::Refused { call: "DMABUF_IMPORT_GET_MAP", source })?;
        // A module with fewer pieces than it announced leaves the rest zero.
        let pieces = words[1..].chunks_exact(WORDS_OF_PIECE).map(|w| Piece { address: w[0], bytes: w[1] });
        Ok(pieces.filter(|p| p.bytes != 0).collect())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut fd = self.dmabuf();
        // SAFETY: the request reads one descriptor number.
        if let Err(error) = unsafe { self.file.control(DETACH, &mut fd) } {
            tracing::debug!(%error, "the dma-buf stays attached until the module's file is closed");
        }
    }
}

/// Fields in drop order.
struct Guard {
    _attached: Attached,
    _region: Region,
}

pub(super) fn map(site: &Site<'_>) -> Result<Option<Mapped>, BackendError> {
    drop(site.open(FILE)?);
    site.bus_addresses("dmabuf_import")?;
    let attached = Attached::new(site)?;
    let iova = consecutive(attached.pieces.iter().map(|p| (p.address, p.bytes)), site.bytes())?;
    if site.device.is_none() {
        return Ok(None);
    }
    let guard = Guard { _attached: attached, _region: site.region.clone() };
    Ok(Some(Mapped { iova, guard: Arc::new(guard) }))
}
