//! Registered memory: host memory, and GPU memory as a dma-buf or by nvidia-peermem.

use super::{ProtectionDomain, failed};
use crate::cuda;
use crate::memory::Space;
use crate::rdma::sys::{self, ibv_access_flags as access, ibv_mr};
use crate::rdma::{MemoryRange, RdmaError, Registration, Rights};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// Way in which memory was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum RegistrationPath {
    /// Host memory.
    Host,
    /// GPU memory, as a dma-buf.
    DmaBuf,
    /// GPU memory through nvidia-peermem, with the reason why not as a dma-buf.
    Peermem(String),
}

impl fmt::Display for RegistrationPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::DmaBuf => f.write_str("dma-buf"),
            Self::Peermem(why) => write!(f, "peermem (no dma-buf: {why})"),
        }
    }
}

/// Registered memory.
pub(in crate::rdma) struct MemoryRegion {
    raw: NonNull<ibv_mr>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: verbs calls may come from any thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: verbs calls may come from any thread, and the keys do not change.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers host memory.
    ///
    /// # Safety
    /// The range must stay valid while the registration exists.
    ///
    /// # Errors
    /// The system's error if the kernel rejects the range.
    pub unsafe fn host(
        domain: &Arc<ProtectionDomain>,
        base: NonNull<u8>,
        bytes: usize,
        rights: Rights,
    ) -> io::Result<Self> {
        // SAFETY: the caller keeps the range valid; the kernel pins it.
        unsafe { Self::by_address(domain, base.as_ptr() as u64, base.as_ptr() as u64, bytes, rights) }
    }

    /// Registers memory at address `base`. Work requests name it by the address `name`.
    ///
    /// # Safety
    /// See [`Self::host`].
    unsafe fn by_address(
        domain: &Arc<ProtectionDomain>,
        base: u64,
        name: u64,
        bytes: usize,
        rights: Rights,
    ) -> io::Result<Self> {
        let flags = flags(rights);
        let relaxed = rights.contains(Rights::RELAXED_ORDERING);
        let pointer = base as *mut libc::c_void;
        let mut raw = std::ptr::null_mut();
        if relaxed || name != base {
            // SAFETY: the caller keeps the range valid.
            raw = unsafe { domain.verbs().ibv_reg_mr_iova2(domain.raw(), pointer, bytes, name, flags) };
        }
        if raw.is_null() && name == base {
            let strict = flags & !access::IBV_ACCESS_RELAXED_ORDERING.0;
            // SAFETY: the caller keeps the range valid.
            raw = unsafe { domain.verbs().ibv_reg_mr(domain.raw(), pointer, bytes, strict as libc::c_int) };
        }
        Self::adopt(domain, raw)
    }

    fn adopt(domain: &Arc<ProtectionDomain>, raw: *mut ibv_mr) -> io::Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, domain: domain.clone() })
    }

    /// Returns the key for this side's requests.
    pub fn local_key(&self) -> u32 {
        // SAFETY: alive until dropped.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    /// Returns the key for the peer's requests.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: alive until dropped.
        unsafe { (*self.raw.as_ptr()).rkey }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: created by this type.
        unsafe { self.domain.verbs().ibv_dereg_mr(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion({:#x})", self.local_key())
    }
}

fn flags(rights: Rights) -> u32 {
    let pairs = [
        (Rights::LOCAL_WRITE, access::IBV_ACCESS_LOCAL_WRITE),
        (Rights::REMOTE_WRITE, access::IBV_ACCESS_REMOTE_WRITE),
        (Rights::REMOTE_READ, access::IBV_ACCESS_REMOTE_READ),
        (Rights::REMOTE_ATOMIC, access::IBV_ACCESS_REMOTE_ATOMIC),
        (Rights::RELAXED_ORDERING, access::IBV_ACCESS_RELAXED_ORDERING),
    ];
    pairs.into_iter().filter(|(r, _)| rights.contains(*r)).fold(0, |all, (_, f)| all | f.0)
}

/// Registered memory by local key, through which a CPU thread accesses the memory that work requests name.
#[derive(Debug, Default)]
pub(in crate::rdma) struct MemoryKeys(RwLock<HashMap<u32, MemoryRange>>);

impl MemoryKeys {
    /// Returns the range with key `key`, and the offset of `address` in it. Returns `None` unless the range contains
    /// all `bytes` bytes at `address`.
    pub fn find(&self, key: u32, address: u64, bytes: usize) -> Option<(MemoryRange, usize)> {
        let range = *self.0.read().get(&key)?;
        let offset = usize::try_from(address.checked_sub(range.address)?).ok()?;
        (offset.checked_add(bytes)? <= range.bytes).then_some((range, offset))
    }

    fn insert(&self, key: u32, range: MemoryRange) {
        self.0.write().insert(key, range);
    }

    fn remove(&self, key: u32) {
        self.0.write().remove(&key);
    }
}

/// Registers a space's memory with a device.
#[derive(Debug)]
pub(in crate::rdma) struct Registrar {
    domain: Arc<ProtectionDomain>,
    space: Space,
    keys: Arc<MemoryKeys>,
    /// Way of the last registration of GPU memory.
    gpu_path: Mutex<Option<RegistrationPath>>,
}

impl Registrar {
    pub fn new(domain: Arc<ProtectionDomain>, space: Space) -> Self {
        Self { domain, space, keys: Arc::default(), gpu_path: Mutex::new(None) }
    }

    /// Returns the registered memory by local key.
    pub fn keys(&self) -> &Arc<MemoryKeys> {
        &self.keys
    }

    fn gpu_path(&self) -> MutexGuard<'_, Option<RegistrationPath>> {
        self.gpu_path.lock()
    }

    /// Returns the way in which memory was registered so far: `host`, `dma-buf`, or `peermem` with the reason.
    pub fn registration_path(&self) -> RegistrationPath {
        self.gpu_path().clone().unwrap_or(RegistrationPath::Host)
    }

    /// Registers memory.
    ///
    /// # Errors
    /// [`RdmaError::Registration`] with all attempts if none succeeds, or if the range is empty.
    ///
    /// # Safety
    /// See [`Adapter::register`](crate::rdma::Adapter::register).
    pub unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        let refuse = |reason: String| RdmaError::Registration { address: memory.address, bytes: memory.bytes, reason };
        if memory.bytes == 0 {
            return Err(refuse("there is nothing to register".to_owned()));
        }
        let region = match (memory.host, self.space.gpu_context()) {
            (Some(host), _) => {
                let base = host.as_ptr() as u64;
                // SAFETY: the caller promises that the memory outlives the registration.
                let made =
                    unsafe { MemoryRegion::by_address(&self.domain, base, memory.address, memory.bytes, rights) };
                made.map_err(|e| refuse(host_hint(&e, memory.bytes)))?
            }
            (None, None) => return Err(refuse("it is GPU memory, but the engine runs on CPU threads".to_owned())),
            (None, Some(gpu)) => {
                let (region, registration_path) = self.gpu(gpu, memory, rights).map_err(refuse)?;
                *self.gpu_path() = Some(registration_path);
                region
            }
        };
        let key = region.local_key();
        self.keys.insert(key, memory);
        Ok(Box::new(VerbsRegistration { region, address: memory.address, keys: self.keys.clone() }))
    }

    fn gpu(
        &self,
        gpu: &Arc<cuda::Context>,
        memory: MemoryRange,
        rights: Rights,
    ) -> Result<(MemoryRegion, RegistrationPath), String> {
        // Before any attempt: neither way registers memory of such a kind, and their errors do not name it.
        if let Ok(Ok(cuda::DeviceAccess::Refused { cause, next })) = gpu.examine(memory.address, memory.bytes) {
            return Err(format!("GPU memory: {cause}; {next}"));
        }
        let no_dma_buf = match self.dma_buf(gpu, memory, rights) {
            Ok(region) => return Ok((region, RegistrationPath::DmaBuf)),
            Err(why) => why,
        };
        // SAFETY: `register`'s caller promises that the memory outlives the registration; nvidia-peermem gives the
        // kernel its pages.
        match unsafe { MemoryRegion::by_address(&self.domain, memory.address, memory.address, memory.bytes, rights) } {
            Ok(region) => Ok((region, RegistrationPath::Peermem(no_dma_buf))),
            Err(e) => Err(format!(
                "GPU memory: no dma-buf ({no_dma_buf}), and nvidia-peermem cannot register it either ({e}); modprobe nvidia_peermem, \
                 or install the open kernel modules of the GPU driver (nvidia-open) on Linux 5.12 or later; or use host memory"
            )),
        }
    }

    fn dma_buf(&self, gpu: &Arc<cuda::Context>, memory: MemoryRange, rights: Rights) -> Result<MemoryRegion, String> {
        let library = sys::dma_buf().map_err(|e| e.to_string())?;
        let (start, bytes) =
            whole_pages(memory.address, memory.bytes).ok_or("the range ends beyond the last address")?;
        let fd = gpu.export_dma_buf(start, bytes).map_err(|e| e.to_string())?;
        let flags = flags(rights) as libc::c_int;
        // SAFETY: a dma-buf that has `memory.bytes` bytes from this offset on; the kernel keeps it after the call, so the
        // descriptor may be closed.
        let raw = unsafe {
            let domain = self.domain.raw();
            let offset = memory.address - start;
            library.ibv_reg_dmabuf_mr(domain, offset, memory.bytes, memory.address, fd.as_raw_fd(), flags)
        };
        MemoryRegion::adopt(&self.domain, raw).map_err(|e| format!("ibv_reg_dmabuf_mr: {e}"))
    }
}

/// Returns address and bytes of the host's pages that have a range of GPU memory: a dma-buf has whole pages.
fn whole_pages(address: u64, bytes: usize) -> Option<(u64, usize)> {
    const PAGE: u64 = 4096;
    let start = address - address % PAGE;
    let end = address.checked_add(bytes as u64)?.checked_next_multiple_of(PAGE)?;
    Some((start, (end - start) as usize))
}

fn host_hint(e: &io::Error, bytes: usize) -> String {
    match e.raw_os_error() {
        Some(libc::ENOMEM) => format!(
            "{e}: more than the limit of locked memory; `ulimit -l unlimited`, or `* - memlock unlimited` in /etc/security/limits.d (a container: \
             --ulimit memlock=-1), for {bytes} bytes"
        ),
        Some(libc::EFAULT) => {
            format!("{e}: the driver cannot pin this memory (a mapping of a device's registers, or read-only)")
        }
        _ => e.to_string(),
    }
}

#[derive(Debug)]
struct VerbsRegistration {
    region: MemoryRegion,
    address: u64,
    keys: Arc<MemoryKeys>,
}

impl Registration for VerbsRegistration {
    fn address(&self) -> u64 {
        self.address
    }
    fn local_key(&self) -> u32 {
        self.region.local_key()
    }
    fn remote_key(&self) -> u32 {
        self.region.remote_key()
    }
}

impl Drop for VerbsRegistration {
    fn drop(&mut self) {
        self.keys.remove(self.region.local_key());
    }
}

/// A pinned buffer that only the device and this process use.
#[derive(Debug)]
pub(in crate::rdma) struct Buffer {
    // Dropped first: the device must not access freed memory.
    region: MemoryRegion,
    memory: crate::memory::Region,
    base: NonNull<u8>,
}

// SAFETY: an address and its owner; all accesses are copies.
unsafe impl Send for Buffer {}
// SAFETY: all accesses are copies of the registered bytes, as devices make them, too.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates and registers a buffer of zeroes.
    ///
    /// # Errors
    /// * [`RdmaError::Memory`] if the memory cannot be allocated.
    /// * [`RdmaError::Registration`] if the device cannot register it.
    pub fn new(domain: &Arc<ProtectionDomain>, bytes: usize, rights: Rights) -> Result<Self, RdmaError> {
        let memory = Space::cpu().allocate(crate::memory::Place::Host, bytes)?;
        let base = memory.host().ok_or_else(|| failed("host memory without an address"))?;
        // SAFETY: the memory is in the same structure and is dropped after the registration.
        let region = unsafe { MemoryRegion::host(domain, base, memory.len(), rights) };
        let region = region.map_err(|e| RdmaError::Registration {
            address: base.as_ptr() as u64,
            bytes: memory.len(),
            reason: host_hint(&e, memory.len()),
        })?;
        Ok(Self { region, memory, base })
    }

    /// Returns the address by which requests name the buffer.
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns the key for this side's requests.
    pub fn key(&self) -> u32 {
        self.region.local_key()
    }

    /// Copies `bytes` to `offset`. Writes nothing if they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        // Callers stay within the buffer.
        let _ = self.memory.write(offset, bytes);
    }

    /// Reads the word at `offset`, a multiple of 8 bytes. Returns 0 beyond the end.
    pub fn word(&self, offset: usize) -> u64 {
        if offset + size_of::<u64>() > self.len() || !offset.is_multiple_of(size_of::<u64>()) {
            return 0;
        }
        // SAFETY: within the buffer and aligned; volatile, since the device writes it.
        unsafe { self.base.as_ptr().add(offset).cast::<u64>().read_volatile() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_a_range() {
        assert_eq!(whole_pages(0x10000, 0x2000), Some((0x10000, 0x2000)));
        assert_eq!(whole_pages(0x10200, 1), Some((0x10000, 0x1000)));
        assert_eq!(whole_pages(0x10fff, 2), Some((0x10000, 0x2000)));
        assert_eq!(whole_pages(u64::MAX - 1, 1), None);
        assert_eq!(whole_pages(u64::MAX - 1, 4), None);
    }
}
