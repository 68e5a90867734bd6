//! Registered memory: keys, address ranges and access rights.

use crate::cuda;
use crate::memory::{Space, copy};
use crate::rdma::{MemoryRange, RdmaError, Registration, Rights};
use crate::wire::mlx5::Atomic;
use parking_lot::{Mutex, RwLock};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of a key below its index.
const VARIANT_BITS: u32 = 8;
/// Number of indices: an index has 24 bits.
const MOST_KEYS: usize = 1 << 24;
/// First index in use. The indices below it are reserved: 0, and that of the reserved key 0x100.
const FIRST_INDEX: usize = 2;

/// Reason why an access to memory is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    #[error("key {key:#x} belongs to no registered memory")]
    Key { key: u32 },
    #[error("{bytes} bytes at {address:#x} are not within the {of} bytes at {base:#x} of key {key:#x}")]
    Range { key: u32, address: u64, bytes: u64, base: u64, of: usize },
    #[error("key {key:#x} does not allow {what}")]
    Right { key: u32, what: &'static str },
    #[error("{operand}-byte atomic at {address:#x}, which is not aligned to that size")]
    Misaligned { address: u64, operand: u32 },
    #[error("GPU memory of key {key:#x} could not be copied")]
    Gpu { key: u32 },
}

/// A registered memory region.
#[derive(Debug)]
pub(super) struct Entry {
    key: u32,
    address: u64,
    bytes: usize,
    host: Option<NonNull<u8>>,
    gpu: Option<Arc<cuda::Context>>,
    rights: Rights,
    /// True while the region is registered. Each access holds the lock for reading.
    valid: RwLock<bool>,
}

// SAFETY: an address and a length. All accesses use atomic or volatile words, or copies of the GPU, while `valid` is
// held.
unsafe impl Send for Entry {}
// SAFETY: all accesses use atomic or volatile words, or copies of the GPU, while `valid` is held.
unsafe impl Sync for Entry {}

/// Executes an atomic operation on a word that kernels may access at the same time, and returns the word's old value.
/// Readers that see the new value also see this thread's earlier stores.
///
/// # Safety
/// `at` must be valid for [`Atomic::operand_bytes`] bytes and aligned to them.
unsafe fn change(at: *mut u8, action: &Atomic) -> u64 {
    let next = |old: u64| Some(action.apply(old));
    if action.operand_bytes() as usize == size_of::<u32>() {
        // SAFETY: this function's caller makes the same promise.
        let word = unsafe { AtomicU32::from_ptr(at.cast()) };
        let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |v| next(v.into()).map(|n| n as u32));
        return old.unwrap_or_else(|v| v).into();
    }
    // SAFETY: this function's caller makes the same promise.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    match *action {
        Atomic::FetchAdd { add } => word.fetch_add(add, Ordering::AcqRel),
        _ => word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or_else(|v| v),
    }
}

impl Entry {
    fn check(&self, address: u64, bytes: u64) -> Result<(), Denied> {
        let inside = address
            .checked_sub(self.address)
            .and_then(|at| at.checked_add(bytes))
            .is_some_and(|end| end <= self.bytes as u64);
        let Self { key, address: base, bytes: of, .. } = *self;
        if inside { Ok(()) } else { Err(Denied::Range { key, address, bytes, base, of }) }
    }

    /// Calls `f` with the host address of the range (`None` for GPU memory), if it is within the region and the region
    /// is registered.
    fn with<R>(
        &self,
        address: u64,
        bytes: usize,
        f: impl FnOnce(Option<*mut u8>) -> Result<R, Denied>,
    ) -> Result<R, Denied> {
        self.check(address, bytes as u64)?;
        let valid = self.valid.read();
        if !*valid {
            return Err(Denied::Key { key: self.key });
        }
        let at = (address - self.address) as usize;
        // SAFETY: `at` lies within the range, which is registered while `valid` is held.
        f(self.host.map(|p| unsafe { p.as_ptr().add(at) }))
    }

    fn gpu<R>(&self, f: impl FnOnce(&cuda::Context) -> Result<R, cuda::CudaError>) -> Result<R, Denied> {
        let context = self.gpu.as_ref().ok_or(Denied::Gpu { key: self.key })?;
        f(context).map_err(|e| {
            tracing::warn!(key = self.key, "{e}");
            Denied::Gpu { key: self.key }
        })
    }

    /// Copies bytes from the region.
    pub(super) fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Denied> {
        self.with(address, out.len(), |host| match host {
            // SAFETY: in range and registered; `out` is exclusive.
            Some(p) => unsafe {
                copy::load(out.as_mut_ptr(), p, out.len());
                Ok(())
            },
            None => self.gpu(|g| g.copy_to_host(address, out)),
        })
    }

    /// Copies bytes into the region.
    pub(super) fn write(&self, address: u64, data: &[u8]) -> Result<(), Denied> {
        self.with(address, data.len(), |host| match host {
            // SAFETY: in range and registered; `data` is borrowed.
            Some(p) => unsafe {
                copy::store(p, data.as_ptr(), data.len());
                Ok(())
            },
            None => self.gpu(|g| g.copy_to_device(address, data)),
        })
    }

    /// Copies `bytes` bytes directly to another region. Returns `None` if the copy needs a buffer, as it does for GPU
    /// memory.
    pub(super) fn copy_to(&self, from: u64, there: &Entry, to: u64, bytes: usize) -> Option<Result<(), Denied>> {
        let target = there.host?;
        let source = self.host?;
        if let Err(e) = self.check(from, bytes as u64).and_then(|()| there.check(to, bytes as u64)) {
            return Some(Err(e));
        }
        // Waits for neither lock: with a writer that ends a registration in between, two copies could wait for each
        // other.
        let valid = self.valid.try_read()?;
        let there_valid = if std::ptr::eq(self, there) { None } else { Some(there.valid.try_read()?) };
        if !*valid || there_valid.as_ref().is_some_and(|v| !**v) {
            return None;
        }
        // SAFETY: both ranges were checked, and both are registered while the guards are held.
        unsafe {
            let target = target.as_ptr().add((to - there.address) as usize);
            copy::store(target, source.as_ptr().add((from - self.address) as usize), bytes);
        }
        Some(Ok(()))
    }

    /// Executes an atomic operation on a word. A word in GPU memory is read, changed and written back under the lock of
    /// the table.
    fn change(&self, address: u64, action: &Atomic, table: &Mutex<()>) -> Result<u64, Denied> {
        let operand = action.operand_bytes() as usize;
        self.with(address, operand, |host| match host {
            // SAFETY: in range and registered; the caller has checked the alignment.
            Some(p) => Ok(unsafe { change(p, action) }),
            None => {
                let _alone = table.lock();
                let mut word = [0; size_of::<u64>()];
                self.gpu(|g| g.copy_to_host(address, &mut word[..operand]))?;
                // The 4 bytes of a short word are the low half of 8: this machine is little-endian, and so is a GPU.
                let old = u64::from_le_bytes(word);
                let new = action.apply(old).to_le_bytes();
                self.gpu(|g| g.copy_to_device(address, &new[..operand]))?;
                Ok(old)
            }
        })
    }
}

#[derive(Debug, Default)]
struct Slots {
    /// For each index: the low bits of its next key, and the region that has the current one.
    entries: Vec<(u8, Option<Arc<Entry>>)>,
    free: Vec<usize>,
}

/// Table of an adapter's registered memory.
#[derive(Debug)]
pub(super) struct Memory {
    slots: RwLock<Slots>,
    atomics: Mutex<()>,
    space: Space,
}

impl Memory {
    /// Creates an empty table. GPU memory is accessed through the context of `space`.
    pub(super) fn new(space: Space) -> Self {
        Self { slots: RwLock::default(), atomics: Mutex::default(), space }
    }

    /// Registers a memory range and returns its registration.
    ///
    /// # Safety
    /// As [`Adapter::register`](crate::rdma::Adapter::register).
    pub(super) unsafe fn register(
        self: &Arc<Self>,
        range: MemoryRange,
        rights: Rights,
    ) -> Result<Box<dyn Registration>, RdmaError> {
        let MemoryRange { address, bytes, host, .. } = range;
        let failed = |reason: &str| RdmaError::Registration { address, bytes, reason: reason.to_owned() };
        if bytes == 0 || address.checked_add(bytes as u64).is_none() {
            return Err(failed("a range must not be empty, nor end beyond the last address"));
        }
        let writes = rights.contains(Rights::REMOTE_WRITE) || rights.contains(Rights::REMOTE_ATOMIC);
        if writes && !rights.contains(Rights::LOCAL_WRITE) {
            return Err(failed("memory that peers may write must be locally writable: add Rights::LOCAL_WRITE"));
        }
        let gpu = match host {
            Some(_) => None,
            None => Some(self.space.gpu_context().cloned().ok_or_else(|| {
                failed("it is in GPU memory, but the adapter was started without the GPU's space: set SoftNicConfig::space")
            })?),
        };
        let mut slots = self.slots.write();
        let index = match slots.free.pop() {
            Some(i) => i,
            None => {
                let next = slots.entries.len().max(FIRST_INDEX);
                if next >= MOST_KEYS {
                    return Err(failed("all keys are in use"));
                }
                slots.entries.resize_with(next + 1, Default::default);
                next
            }
        };
        let slot = &mut slots.entries[index];
        let key = (index as u32) << VARIANT_BITS | u32::from(slot.0);
        // The next registration of this index gets another key.
        slot.0 = slot.0.wrapping_add(1);
        let entry = Arc::new(Entry { key, address, bytes, host, gpu, rights, valid: RwLock::new(true) });
        slot.1 = Some(entry.clone());
        drop(slots);
        Ok(Box::new(Registered { table: self.clone(), entry }))
    }

    /// Returns the region of a key if the range lies in it and it has the rights `need`.
    pub(super) fn find(&self, key: u32, address: u64, bytes: u64, need: Rights) -> Result<Arc<Entry>, Denied> {
        let slots = self.slots.read();
        let slot = slots.entries.get((key >> VARIANT_BITS) as usize).and_then(|s| s.1.as_ref());
        let entry = slot.filter(|e| e.key == key).ok_or(Denied::Key { key })?.clone();
        drop(slots);
        entry.check(address, bytes)?;
        if !entry.rights.contains(need) {
            let what = match need {
                Rights::REMOTE_WRITE => "writes by the peer",
                Rights::REMOTE_READ => "reads by the peer",
                Rights::REMOTE_ATOMIC => "atomics by the peer",
                _ => "local writes",
            };
            return Err(Denied::Right { key, what });
        }
        Ok(entry)
    }

    /// Executes an atomic operation of a peer.
    pub(super) fn change(&self, key: u32, address: u64, action: &Atomic) -> Result<u64, Denied> {
        let operand = action.operand_bytes();
        if !address.is_multiple_of(operand.into()) {
            return Err(Denied::Misaligned { address, operand });
        }
        self.find(key, address, operand.into(), Rights::REMOTE_ATOMIC)?.change(address, action, &self.atomics)
    }

    fn forget(&self, entry: &Entry) {
        // Waits for all accesses in progress.
        *entry.valid.write() = false;
        let mut slots = self.slots.write();
        let index = (entry.key >> VARIANT_BITS) as usize;
        if let Some(slot) = slots.entries.get_mut(index) {
            slot.1 = None;
            slots.free.push(index);
        }
    }
}

#[derive(Debug)]
struct Registered {
    table: Arc<Memory>,
    entry: Arc<Entry>,
}

impl Registration for Registered {
    fn address(&self) -> u64 {
        self.entry.address
    }
    fn local_key(&self) -> u32 {
        self.entry.key
    }
    fn remote_key(&self) -> u32 {
        self.entry.key
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.table.forget(&self.entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Place;

    fn range(words: &mut [u64]) -> MemoryRange {
        let host = NonNull::new(words.as_mut_ptr().cast::<u8>());
        MemoryRange { address: 0x1000, bytes: size_of_val(words), host, place: Place::Host }
    }

    #[test]
    fn keys_ranges_and_rights_are_checked() {
        let mut words = [0u64; 8];
        let table = Arc::new(Memory::new(Space::cpu()));
        // SAFETY: the words outlive the registration.
        let r = unsafe { table.register(range(&mut words), Rights::LOCAL_WRITE | Rights::REMOTE_WRITE) }.unwrap();
        let key = r.remote_key();
        assert_ne!(key, 0x100);
        let e = table.find(key, 0x1008, 8, Rights::REMOTE_WRITE).unwrap();
        e.write(0x1008, &7u64.to_ne_bytes()).unwrap();
        let mut back = [0; 8];
        e.read(0x1008, &mut back).unwrap();
        assert_eq!(u64::from_ne_bytes(back), 7);
        for (address, bytes) in [(0xfff, 1), (0x1000, 65), (0x1040, 1), (u64::MAX, 2), (0x1001, u64::MAX)] {
            let e = table.find(key, address, bytes, Rights::REMOTE_WRITE).unwrap_err();
            assert!(matches!(e, Denied::Range { .. }), "{e}");
        }
        assert!(matches!(table.find(key, 0x1000, 8, Rights::REMOTE_READ), Err(Denied::Right { .. })));
        assert!(matches!(table.change(key, 0x1000, &Atomic::FetchAdd { add: 1 }), Err(Denied::Right { .. })));
        assert!(matches!(table.change(key, 0x1004, &Atomic::FetchAdd { add: 1 }), Err(Denied::Misaligned { .. })));
        assert_eq!(table.find(key ^ 1, 0x1000, 1, Rights::default()).unwrap_err(), Denied::Key { key: key ^ 1 });
        drop(r);
        assert_eq!(table.find(key, 0x1000, 1, Rights::default()).unwrap_err(), Denied::Key { key });
        assert_eq!(e.write(0x1000, &[1]), Err(Denied::Key { key }), "one found before is worth nothing either");
        // SAFETY: the words outlive the registration.
        let again = unsafe { table.register(range(&mut words), Rights::ALL) }.unwrap();
        assert_eq!(again.remote_key() >> 8, key >> 8);
        assert_ne!(again.remote_key(), key, "an index that is used again has another key");
    }

    #[test]
    fn what_cannot_be_registered_is_refused() {
        let mut words = [0u64; 1];
        let table = Arc::new(Memory::new(Space::cpu()));
        // SAFETY: nothing is registered.
        let refused = |r: MemoryRange, rights| unsafe { table.register(r, rights) }.unwrap_err().to_string();
        let good = range(&mut words);
        assert!(refused(MemoryRange { bytes: 0, ..good }, Rights::ALL).contains("empty"));
        assert!(refused(MemoryRange { address: u64::MAX, ..good }, Rights::ALL).contains("last address"));
        assert!(refused(good, Rights::REMOTE_WRITE).contains("LOCAL_WRITE"));
        assert!(refused(MemoryRange { host: None, ..good }, Rights::ALL).contains("SoftNicConfig::space"));
    }

    #[test]
    fn words_are_changed_by_their_operation() {
        let mut words = [5u64, 0x1_0000_0007];
        let p = words.as_mut_ptr().cast::<u8>();
        // SAFETY: both words are in the array and aligned.
        unsafe {
            assert_eq!(change(p, &Atomic::FetchAdd { add: 2 }), 5);
            assert_eq!(change(p, &Atomic::CompareSwap { swap: 9, compare: 7 }), 7);
            assert_eq!(change(p.add(8), &Atomic::MaskedAdd32 { add: u32::MAX, boundary: 0 }), 7);
        }
        assert_eq!(words, [9, 0x1_0000_0006], "a 32-bit add leaves the other half alone");
    }
}
