//! Interface to the NIC's driver: the calls of `mlx5dv.h` that create queues. Dropping an object of the driver frees
//! it.

use crate::memory::Region;
use crate::rdma::adapter::check_reach;
use crate::rdma::{RdmaError, Route};
use crate::refused::{self, Interface, RefusedCommand};
use crate::wire::mlx5::devx::Reply;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Kinds of doorbell registers, as `mlx5dv_devx_alloc_uar` numbers them. One page holds several. Commands name the
/// page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(in crate::rdma) enum UarKind {
    /// On a page that is mapped write-combining. The register also accepts whole entries (`MLX5DV_UAR_ALLOC_TYPE_BF`).
    BlueFlame = 0,
    /// Not cached. All allocations in one context return the same register (`MLX5DV_UAR_ALLOC_TYPE_NC`).
    SharedUncached = 1,
    /// Not cached, with a single owner: one of four on its page (`MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED`).
    Uncached = 1 << 31,
}

/// Source of queue memory.
#[derive(Debug)]
pub(in crate::rdma) enum UmemSource<'a> {
    /// Memory at an address of this process, or GPU memory that nvidia-peermem translates.
    Address(u64),
    /// GPU memory as a dma-buf.
    DmaBuf(BorrowedFd<'a>),
}

/// An object of the firmware. Dropping it destroys it.
pub(in crate::rdma) trait DevxObject: Send + Sync + fmt::Debug {
    /// Modifies the object. `output` receives the firmware's reply, if there is one. Fails with the error of the
    /// driver.
    fn modify(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<()>;
    /// Queries the object. `output` receives the firmware's reply, if there is one. Fails with the error of the driver.
    fn query(&self, input: &[u8], output: &mut [u8]) -> io::Result<()>;
}

/// Memory that the NIC keeps queues in. Dropping it deregisters the memory.
pub(in crate::rdma) trait Umem: Send + Sync + fmt::Debug {
    /// Returns the number by which commands name the memory.
    fn id(&self) -> u32;
}

/// A doorbell register. Dropping it frees the register.
pub(in crate::rdma) trait Uar: Send + Sync + fmt::Debug {
    /// Returns the number of the register's page, as commands name it.
    fn page(&self) -> u32;
    /// Returns the register's address in this process.
    fn register(&self) -> NonNull<u8>;
    /// Returns the address at which the register's page begins in this process: a page of the NIC, of 4 KiB on most
    /// systems, which need not begin a page of the system.
    fn base(&self) -> NonNull<u8>;
    /// Returns the system's page with the register as a dma-buf.
    fn export(&self) -> io::Result<OwnedFd>;
}

/// A NIC that is opened for commands to its firmware. Methods fail with the error of the driver.
pub(in crate::rdma) trait Devx: Send + Sync + fmt::Debug {
    /// Executes a command that creates no object.
    fn command(&self, input: &[u8], output: &mut [u8]) -> io::Result<()>;
    /// Executes a command that creates an object.
    fn create(&self, input: &[u8], output: &mut [u8]) -> io::Result<Box<dyn DevxObject>>;
    /// Allocates a doorbell register.
    fn alloc_uar(&self, kind: UarKind) -> io::Result<Arc<dyn Uar>>;
    /// Registers `bytes` bytes of queue memory.
    fn register(&self, source: UmemSource<'_>, bytes: usize) -> io::Result<Box<dyn Umem>>;
    /// Returns the number of the event queue that completion queues name.
    fn event_queue(&self) -> io::Result<u32>;
    /// Returns the number of the protection domain of registered memory.
    fn protection_domain(&self) -> u32;
    /// Returns the hardware address of the next hop to a route's other end.
    fn remote_mac(&self, route: &Route) -> io::Result<[u8; 6]>;
}

/// Evaluates the result of a command: the number of the object it created, or the errors of firmware and system. Keeps
/// the bytes of a command that was refused. `device` names the NIC.
pub(super) fn outcome(
    device: &str,
    what: &str,
    input: &[u8],
    result: io::Result<()>,
    output: &[u8],
) -> Result<u32, RdmaError> {
    let opcode = input.first_chunk().map_or(0, |two| u16::from_be_bytes(*two));
    let keep = |status: u8, syndrome: u32, meaning: String| {
        refused::note(RefusedCommand {
            interface: Interface::Mlx5,
            device: device.to_owned(),
            command: what.to_owned(),
            input: refused::digits(input),
            output: refused::digits(output),
            status: status.into(),
            syndrome: Some(syndrome),
            meaning,
        });
    };
    match (result, Reply::check(opcode, output)) {
        (Ok(()), Ok(object)) => Ok(object),
        // The firmware's status is precise. The system's error is EREMOTEIO in every case.
        (result, Err(refused)) => {
            let system = result.err().map_or(String::new(), |e| format!(" ({e})"));
            let reason = format!("{refused}{system}");
            keep(refused.status.0, refused.syndrome, reason.clone());
            Err(RdmaError::System { what: what.to_owned(), source: io::Error::other(reason) })
        }
        (Err(e), Ok(_)) => {
            keep(0, 0, e.to_string());
            Err(RdmaError::System { what: format!("{what} (command {opcode:#05x}, no syndrome)"), source: e })
        }
    }
}

/// Registers a region as queue memory. GPU memory is registered as a dma-buf, or else by its address through
/// nvidia-peermem. Host memory is registered by its address. Returns the way of registration in words, too.
pub(super) fn register(devx: &dyn Devx, region: &Region, what: &str) -> Result<(Box<dyn Umem>, String), RdmaError> {
    let by_address = || devx.register(UmemSource::Address(region.address()), region.len());
    let refuse = |reason: String| RdmaError::Registration { address: region.address(), bytes: region.len(), reason };
    if let Some(host) = region.host() {
        let umem = devx.register(UmemSource::Address(host.as_ptr() as u64), region.len());
        let umem = umem.map_err(|e| refuse(format!("{what} in host memory: {e}; see `ulimit -l`")))?;
        return Ok((umem, "host".to_owned()));
    }
    check_reach(region)?;
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
            "{what} in GPU memory: no dma-buf ({no_dma_buf}), and nvidia-peermem cannot register it ({e}); modprobe nvidia_peermem"
        ))),
    }
}
