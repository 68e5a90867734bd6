//! libnvm backend: BaM's kernel module returns the bus addresses of GPU memory.
//!
//! Requests and structures: src/linux/ioctl.h and module/pci.c of BaM.
//!
//! The module creates a device file for each controller that is bound to it. So it needs a second controller, besides
//! the one that this process drives. The module identifies a mapping by the *thread* that made it, and keeps it until
//! that thread unmaps it, even after the process has ended. So one thread makes, holds and unmaps each mapping.

use super::reason::BackendError;
use super::site::{Mapped, Site};
use super::syscalls::{Direction, File, Syscalls, request};
use crate::cuda::GPU_PAGE;
use crate::memory::Region;
use std::ffi::c_void;
use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

pub(super) const FIRST_FILE: &str = "/dev/libnvm0";
/// NVM_IOCTL_TYPE.
const KIND: u8 = 0x80;

/// struct nvm_ioctl_map, on a 64-bit machine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct MapMemory {
    pub(super) vaddr_start: u64,
    pub(super) n_pages: usize,
    pub(super) ioaddrs: *mut u64,
}

const _: () = assert!(size_of::<MapMemory>() == 24);

pub(super) const MAP_DEVICE_MEMORY: u32 = request(Direction::Write, KIND, 2, size_of::<MapMemory>());
pub(super) const UNMAP_MEMORY: u32 = request(Direction::Write, KIND, 3, size_of::<u64>());

/// The thread that holds a mapping, and the channel that tells it to unmap.
struct Holder {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _region: Region,
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Closing the channel wakes the thread.
        self.end = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread of a libnvm mapping panicked");
        }
    }
}

/// Maps GPU pages on the thread that will hold the mapping. Returns the bus address of each page.
fn map_pages(file: &File, address: u64, pages: usize) -> io::Result<Vec<u64>> {
    let mut addresses = vec![0u64; pages];
    let mut map = MapMemory { vaddr_start: address, n_pages: pages, ioaddrs: addresses.as_mut_ptr() };
    // SAFETY: the request reads this structure and writes one address for each page to `ioaddrs`.
    unsafe { file.control(MAP_DEVICE_MEMORY, &mut map) }?;
    Ok(addresses)
}

fn unmap_pages(file: &File, address: u64) {
    let mut address = address;
    let argument: *mut c_void = std::ptr::from_mut(&mut address).cast();
    // SAFETY: the request reads one address.
    if let Err(error) = unsafe { file.sys.ioctl(file.fd, UNMAP_MEMORY, argument) } {
        tracing::warn!(%error, "libnvm keeps GPU memory mapped until it is unloaded");
    }
}

/// Returns the address of the first byte if the pages are consecutive and cover `wanted` bytes.
pub(super) fn consecutive(pages: impl IntoIterator<Item = (u64, u64)>, wanted: u64) -> Result<u64, BackendError> {
    let (mut first, mut after, mut found) = (None, 0u64, 0u64);
    for (address, bytes) in pages {
        if first.is_some() && address != after {
            return Err(BackendError::Gap { before: after, after: address });
        }
        first.get_or_insert(address);
        after = address.wrapping_add(bytes);
        found = found.saturating_add(bytes);
    }
    match first {
        Some(address) if found >= wanted => Ok(address),
        _ => Err(BackendError::Length { found, wanted }),
    }
}

pub(super) fn map(site: &Site<'_>) -> Result<Option<Mapped>, BackendError> {
    // Each of the module's files returns the same addresses: without an IOMMU, bus addresses are equal for all devices.
    drop(site.open(FIRST_FILE)?);
    site.bus_addresses("libnvm")?;
    let (sys, address, pages): (Arc<dyn Syscalls>, _, _) =
        (site.sys.clone(), site.region.address(), site.region.len() / GPU_PAGE);
    let (answer, answered) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let held = site.region.clone();
    let thread = std::thread::Builder::new().name("wb-libnvm".to_owned()).spawn(move || {
        let (_held, mapped) = (held, File::open(&sys, Path::new(FIRST_FILE)));
        let mapped = mapped.and_then(|file| map_pages(&file, address, pages).map(|a| (file, a)));
        match mapped {
            Err(error) => _ = answer.send(Err(error)),
            Ok((file, addresses)) => {
                if answer.send(Ok(addresses)).is_ok() {
                    // Returns an error when the holder drops its end of the channel: the mapping is no longer needed.
                    _ = ended.recv();
                }
                unmap_pages(&file, address);
            }
        }
    });
    let refused = |source: io::Error| BackendError::Refused { call: "NVM_MAP_DEVICE_MEMORY", source };
    let thread = thread.map_err(refused)?;
    let holder = Holder { end: Some(end), thread: Some(thread), _region: site.region.clone() };
    let addresses = answered.recv().map_err(|_| refused(io::ErrorKind::BrokenPipe.into()))?.map_err(refused)?;
    let iova = consecutive(addresses.iter().map(|&a| (a, GPU_PAGE as u64)), site.bytes())?;
    if site.device.is_none() {
        return Ok(None);
    }
    Ok(Some(Mapped { iova, guard: Arc::new(holder) }))
}
