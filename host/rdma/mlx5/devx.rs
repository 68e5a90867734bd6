//! The seam to the NIC's driver: the few calls of `mlx5dv.h` with which queues are made. What they give frees itself.

use crate::memory::Region;
use crate::rdma::{RdmaError, Route};
use crate::wire::mlx5::devx::Reply;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// Kinds of doorbell registers, as `mlx5dv_devx_alloc_uar` numbers them. Several are on one page, which commands name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(in crate::rdma) enum UarKind {
    /// On a page that is mapped write-combining; takes whole entries too (`MLX5DV_UAR_ALLOC_TYPE_BF`).
    BlueFlame = 0,
    /// Not cached; all that is asked for in one context are the same one (`MLX5DV_UAR_ALLOC_TYPE_NC`).
    SharedUncached = 1,
    /// Not cached, and its owner's alone: one of four on its page (`MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED`).
    Uncached = 1 << 31,
}

/// Memory to keep queues in.
#[derive(Debug)]
pub(in crate::rdma) enum UmemSource<'a> {
    /// Memory that this process, or nvidia-peermem, finds by its address.
    Address(u64),
    /// GPU memory by its dma-buf.
    DmaBuf(BorrowedFd<'a>),
}

/// An object of the firmware. Dropped, it is destroyed.
pub(in crate::rdma) trait DevxObject: Send + Sync + fmt::Debug {
    /// Changes it.
    fn modify(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<()>;
    /// Asks about it.
    fn query(&self, input: &[u8], output: &mut [u8]) -> io::Result<()>;
}

/// Memory that the NIC keeps queues in. Dropped, it is given back.
pub(in crate::rdma) trait Umem: Send + Sync + fmt::Debug {
    fn id(&self) -> u32;
}

/// A doorbell register. Dropped, it is given back.
pub(in crate::rdma) trait Uar: Send + Sync + fmt::Debug {
    /// Its page, as commands name that.
    fn page(&self) -> u32;
    /// Where it is in this process.
    fn register(&self) -> NonNull<u8>;
}

/// A NIC that was opened for commands to its firmware.
pub(in crate::rdma) trait Devx: Send + Sync + fmt::Debug {
    /// A command that makes nothing.
    fn command(&self, input: &[u8], output: &mut [u8]) -> io::Result<()>;
    /// A command that makes an object.
    fn create(&self, input: &[u8], output: &mut [u8]) -> io::Result<Box<dyn DevxObject>>;
    fn alloc_uar(&self, kind: UarKind) -> io::Result<Arc<dyn Uar>>;
    fn register(&self, source: UmemSource<'_>, bytes: usize) -> io::Result<Box<dyn Umem>>;
    /// The event queue that completion queues name.
    fn event_queue(&self) -> io::Result<u32>;
    /// Number of the protection domain that memory is registered in.
    fn protection_domain(&self) -> u32;
    /// Hardware address of the next hop to a route's other end.
    fn remote_mac(&self, route: &Route) -> io::Result<[u8; 6]>;
}

/// What came of a command: the number of the object it made, or what the firmware and the system say.
pub(super) fn outcome(what: &str, opcode: u16, result: io::Result<()>, output: &[u8]) -> Result<u32, RdmaError> {
    let refused = Reply::check(opcode, output);
    match (result, refused) {
        (Ok(()), Ok(object)) => Ok(object),
        // The firmware's word is the precise one; the system's is EREMOTEIO whatever happened.
        (result, Err(refused)) => {
            let system = result.err().map_or(String::new(), |e| format!(" ({e})"));
            Err(RdmaError::System { what: what.to_owned(), source: io::Error::other(format!("{refused}{system}")) })
        }
        (Err(e), Ok(_)) => {
            Err(RdmaError::System { what: format!("{what} (command {opcode:#05x}, no syndrome)"), source: e })
        }
    }
}

/// Registers a region as queue memory: as a dma-buf, by its address (which nvidia-peermem serves for GPU memory), or, for host memory, by
/// its address alone. How, in words.
pub(super) fn register(devx: &dyn Devx, region: &Region, what: &str) -> Result<(Box<dyn Umem>, String), RdmaError> {
    let by_address = || devx.register(UmemSource::Address(region.address()), region.len());
    let refuse = |reason: String| RdmaError::Registration { address: region.address(), bytes: region.len(), reason };
    if let Some(host) = region.host() {
        let umem = devx.register(UmemSource::Address(host.as_ptr() as u64), region.len());
        let umem = umem.map_err(|e| refuse(format!("{what} in host memory: {e}; see `ulimit -l`")))?;
        return Ok((umem, "host".to_owned()));
    }
    let no_dma_buf = match region.export_dma_buf() {
        Err(e) => e.to_string(),
        Ok(fd) => match devx.register(UmemSource::DmaBuf(std::os::fd::AsFd::as_fd(&fd)), region.len()) {
            Ok(umem) => return Ok((umem, "dma-buf".to_owned())),
            Err(e) => format!("{e}; queues in a dma-buf need Linux 6.1"),
        },
    };
    match by_address() {
        Ok(umem) => Ok((umem, format!("peermem (no dma-buf: {no_dma_buf})"))),
        Err(e) => Err(refuse(format!(
            "{what} in GPU memory: no dma-buf ({no_dma_buf}), and nvidia-peermem does not serve it ({e}); modprobe nvidia_peermem"
        ))),
    }
}
