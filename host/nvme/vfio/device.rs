//! An open VFIO device: configuration space, regions, interrupts, reset, and notices of the kernel.

use super::deferred_close;
use super::error::VfioError;
use super::event::EventFd;
use super::uapi::{call, call_growing, call_number, vfio as uapi};
use crate::nvme::{Notice, PciId};
use crate::pci::Bdf;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Offsets in configuration space (PCI Local Bus 3.0, 6.1).
const VENDOR: u32 = 0x00;
const COMMAND: u32 = 0x04;
const CLASS: u32 = 0x08;
const CAPABILITIES: u32 = 0x34;
/// Memory space and bus master (PCI Local Bus 3.0, 6.2.2).
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_MASTER: u16 = 1 << 2;
/// Value that a read of an absent function returns.
const ABSENT: u32 = u32::MAX;
const CLASS_NVME: u32 = 0x01_08_02;
/// The power management capability and its control register (PCI Power Management 1.2, 3.2).
const CAP_POWER: u8 = 0x01;
const POWER_CONTROL: u32 = 4;
const POWER_STATE: u16 = 3;
/// Time that a function needs from D3hot to D0 (PCI Power Management 1.2, 5.6).
const POWER_UP: Duration = Duration::from_millis(10);
/// Largest number of capabilities that fit in the first 256 bytes.
const MOST_CAPABILITIES: usize = 48;
/// Number of retries of a reset. The kernel refuses it while another thread briefly holds the device's lock.
const RESET_TRIES: u32 = 50;
const RESET_PAUSE: Duration = Duration::from_millis(20);

/// Devices that this process has open. A second driver of the same registers would break both.
static OPEN: Mutex<BTreeSet<Bdf>> = Mutex::new(BTreeSet::new());

/// Holder to name in errors if this process itself has the device open.
pub(super) const THIS_PROCESS: &str = "this process already";

/// Claim of this process on a device, held while the device is open.
#[derive(Debug)]
pub(super) struct Claim(Bdf);

impl Claim {
    /// Claims the device. To be called before any of its files is opened.
    pub(super) fn new(bdf: Bdf) -> Result<Self, VfioError> {
        if OPEN.lock().insert(bdf) {
            return Ok(Self(bdf));
        }
        let (device, path) = (bdf.to_string(), PathBuf::from(bdf.to_string()));
        Err(VfioError::Busy { device, path, holder: THIS_PROCESS.to_owned() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        OPEN.lock().remove(&self.0);
    }
}

/// Region of the device's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Mappable parts: offset within the region, and size.
    pub(super) mappable: Vec<(u64, u64)>,
}

/// A PCI device opened through VFIO. Dropping it disables bus mastering and closes it. The close
/// makes the kernel reset it.
pub struct VfioDevice {
    bdf: Bdf,
    name: String,
    /// Taken by the drop.
    fd: Option<File>,
    config: Region,
    can_reset: bool,
    bus_error: Option<EventFd>,
    release: Option<EventFd>,
    /// Bits of notices that were read from the eventfds.
    heard: AtomicU8,
    /// True if MSI-X vectors are connected. If none is, the kernel refuses to disconnect them.
    interrupts: Mutex<bool>,
    /// Keeps open what the descriptor depends on: the group, or the address space. Dropped after the descriptor.
    _keep: Arc<dyn Any + Send + Sync>,
    _claim: Claim,
}

const HEARD_RELEASE: u8 = 1;
const HEARD_BUS_ERROR: u8 = 2;

impl VfioDevice {
    /// Reads the properties of an open device, and enables its memory space and bus mastering.
    pub(super) fn new(
        bdf: Bdf,
        fd: OwnedFd,
        keep: Arc<dyn Any + Send + Sync>,
        claim: Claim,
    ) -> Result<Self, VfioError> {
        let name = bdf.to_string();
        let mut info = uapi::DeviceGetInfo::new();
        call(fd.as_fd(), &mut info).map_err(|e| VfioError::call(&name, "VFIO_DEVICE_GET_INFO", e))?;
        if info.flags & uapi::VFIO_DEVICE_FLAGS_PCI == 0 {
            return Err(VfioError::Registers {
                device: name,
                reason: "VFIO reports that it is not a PCI device".to_owned(),
            });
        }
        let config = region(fd.as_fd(), &name, uapi::VFIO_PCI_CONFIG_REGION_INDEX)?;
        let mut device = Self {
            bdf,
            name,
            fd: Some(File::from(fd)),
            config,
            can_reset: info.flags & uapi::VFIO_DEVICE_FLAGS_RESET != 0,
            bus_error: None,
            release: None,
            heard: AtomicU8::new(0),
            interrupts: Mutex::new(false),
            _keep: keep,
            _claim: claim,
        };
        let class = device.config_read32(CLASS)? >> 8;
        if class != CLASS_NVME {
            return Err(VfioError::NotNvme { device: device.name.clone(), class });
        }
        device.wake()?;
        device.listen()?;
        device.bus_error = device.notify_on(uapi::VFIO_PCI_ERR_IRQ_INDEX);
        device.release = device.notify_on(uapi::VFIO_PCI_REQ_IRQ_INDEX);
        Ok(device)
    }

    fn file(&self) -> io::Result<&File> {
        self.fd.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Returns the address of the PCI function.
    pub fn bdf(&self) -> Bdf {
        self.bdf
    }

    fn config_read(&self, offset: u32, bytes: &mut [u8]) -> Result<(), VfioError> {
        let refused = |source| VfioError::Config { device: self.name.clone(), offset, source };
        let file = self.file().map_err(refused)?;
        file.read_exact_at(bytes, self.config.offset + u64::from(offset)).map_err(refused)
    }

    /// Reads 8 bits of configuration space at byte `offset`.
    ///
    /// # Errors
    /// [`VfioError::Config`] if the kernel refuses the access, for instance because the device has left.
    pub fn config_read8(&self, offset: u32) -> Result<u8, VfioError> {
        let mut bytes = [0; 1];
        self.config_read(offset, &mut bytes).map(|()| bytes[0])
    }

    /// Reads 16 bits of configuration space at byte `offset`.
    ///
    /// # Errors
    /// As [`Self::config_read8`].
    pub fn config_read16(&self, offset: u32) -> Result<u16, VfioError> {
        let mut bytes = [0; 2];
        self.config_read(offset, &mut bytes).map(|()| u16::from_le_bytes(bytes))
    }

    /// Reads 32 bits of configuration space at byte `offset`.
    ///
    /// # Errors
    /// As [`Self::config_read8`].
    pub fn config_read32(&self, offset: u32) -> Result<u32, VfioError> {
        let mut bytes = [0; 4];
        self.config_read(offset, &mut bytes).map(|()| u32::from_le_bytes(bytes))
    }

    /// Writes 16 bits of configuration space at byte `offset`. The kernel passes on only safe changes.
    ///
    /// # Errors
    /// As [`Self::config_read8`].
    pub fn config_write16(&self, offset: u32, value: u16) -> Result<(), VfioError> {
        let refused = |source| VfioError::Config { device: self.name.clone(), offset, source };
        let file = self.file().map_err(refused)?;
        file.write_all_at(&value.to_le_bytes(), self.config.offset + u64::from(offset)).map_err(refused)
    }

    /// Returns the vendor and device identifiers.
    ///
    /// # Errors
    /// As [`Self::config_read8`].
    pub fn id(&self) -> Result<PciId, VfioError> {
        let both = self.config_read32(VENDOR)?;
        Ok(PciId { vendor: both as u16, device: (both >> 16) as u16 })
    }

    /// Returns the offset of capability `id` (PCI Local Bus 3.0, 6.7), or `None` if the function does not have it.
    ///
    /// # Errors
    /// As [`Self::config_read8`].
    pub fn capability(&self, id: u8) -> Result<Option<u32>, VfioError> {
        let mut at = u32::from(self.config_read8(CAPABILITIES)? & !3);
        for _ in 0..MOST_CAPABILITIES {
            if at == 0 {
                return Ok(None);
            }
            let head = self.config_read16(at)?;
            if head as u8 == id {
                return Ok(Some(at));
            }
            at = u32::from((head >> 8) as u8 & !3);
        }
        Ok(None)
    }

    /// Brings the function to power state D0: its registers are not accessible in a low-power state.
    fn wake(&self) -> Result<(), VfioError> {
        let Some(at) = self.capability(CAP_POWER)? else { return Ok(()) };
        let control = self.config_read16(at + POWER_CONTROL)?;
        if control & POWER_STATE != 0 {
            self.config_write16(at + POWER_CONTROL, control & !POWER_STATE)?;
            std::thread::sleep(POWER_UP);
        }
        Ok(())
    }

    /// Enables access to the registers (memory space) and bus mastering.
    fn listen(&self) -> Result<(), VfioError> {
        let command = self.config_read16(COMMAND)?;
        self.config_write16(COMMAND, command | COMMAND_MEMORY | COMMAND_MASTER)
    }

    /// Returns true if the function has left the bus. Its class then reads as all ones (PCI Local Bus 3.0, 6.1), or
    /// cannot be read once the kernel knows. The vendor ID would not show it, because VFIO emulates that register.
    pub fn is_gone(&self) -> bool {
        self.config_read32(CLASS).map_or(true, |v| v == ABSENT)
    }

    /// Returns the most severe notice of the kernel about the device.
    pub fn notice(&self) -> Option<Notice> {
        let hear = |event: &Option<EventFd>, bit| {
            if event.as_ref().is_some_and(|e| e.take().is_ok_and(|n| n > 0)) {
                self.heard.fetch_or(bit, Ordering::Relaxed);
            }
        };
        hear(&self.release, HEARD_RELEASE);
        hear(&self.bus_error, HEARD_BUS_ERROR);
        if self.is_gone() {
            return Some(Notice::Gone);
        }
        match self.heard.load(Ordering::Relaxed) {
            h if h & HEARD_BUS_ERROR != 0 => Some(Notice::BusError),
            h if h & HEARD_RELEASE != 0 => Some(Notice::ReleaseRequested),
            _ => None,
        }
    }

    pub(super) fn region(&self, index: u32) -> Result<Region, VfioError> {
        let file = self.file().map_err(|e| VfioError::call(&self.name, "VFIO_DEVICE_GET_REGION_INFO", e))?;
        region(file.as_fd(), &self.name, index)
    }

    /// Reads from the device's file, for parts of a region that are not mapped.
    pub(super) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file()?.read_exact_at(bytes, offset)
    }

    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all_at(bytes, offset)
    }

    pub(super) fn raw_fd(&self) -> io::Result<i32> {
        Ok(self.file()?.as_raw_fd())
    }

    /// Resets the function (function level reset if the device has it), and enables memory
    /// space and bus mastering again.
    ///
    /// # Errors
    /// - [`VfioError::Call`] if the device has no reset, has left the bus, or the kernel refuses the reset.
    /// - [`VfioError::Config`] if configuration space is not accessible afterwards.
    pub fn reset(&self) -> Result<(), VfioError> {
        let failed = |source| VfioError::call(&self.name, "VFIO_DEVICE_RESET", source);
        if !self.can_reset {
            return Err(failed(io::Error::new(io::ErrorKind::Unsupported, "the device has no reset of its own")));
        }
        if self.is_gone() {
            // The kernel would wait more than a minute for it.
            return Err(failed(io::Error::new(io::ErrorKind::NotConnected, "it has left the bus")));
        }
        let fd = self.file().map_err(failed)?;
        let mut tries = 0;
        loop {
            match call_number(fd.as_fd(), uapi::VFIO_DEVICE_RESET, 0) {
                Ok(_) => break,
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && tries < RESET_TRIES => {
                    tries += 1;
                    std::thread::sleep(RESET_PAUSE);
                }
                Err(e) => return Err(failed(e)),
            }
        }
        self.wake()?;
        self.listen()
    }

    /// Returns the number of interrupts of a kind.
    fn irq_count(&self, index: u32) -> Result<u32, VfioError> {
        let failed = |source| VfioError::call(&self.name, "VFIO_DEVICE_GET_IRQ_INFO", source);
        let mut info = uapi::DeviceGetIrqInfo { index, ..uapi::DeviceGetIrqInfo::new() };
        call(self.file().map_err(failed)?.as_fd(), &mut info).map_err(failed)?;
        Ok(info.count)
    }

    /// Connects interrupts of a kind, from `start` on, to eventfds. Without eventfds, disconnects all of the kind.
    fn set_irqs(&self, index: u32, start: u32, events: &[i32]) -> Result<(), VfioError> {
        let failed = |source| VfioError::call(&self.name, "VFIO_DEVICE_SET_IRQS", source);
        let data = if events.is_empty() { uapi::VFIO_IRQ_SET_DATA_NONE } else { uapi::VFIO_IRQ_SET_DATA_EVENTFD };
        let head = uapi::IrqSet {
            argsz: (size_of::<uapi::IrqSet>() + size_of_val(events)) as u32,
            flags: data | uapi::VFIO_IRQ_SET_ACTION_TRIGGER,
            index,
            start,
            count: events.len() as u32,
        };
        let mut set: Vec<u32> = bytemuck::cast_slice(bytemuck::bytes_of(&head)).to_vec();
        set.extend(events.iter().map(|e| *e as u32));
        let fd = self.file().map_err(failed)?;
        // SAFETY: the kernel reads `argsz` bytes, which is the length of the words.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), uapi::VFIO_DEVICE_SET_IRQS as _, set.as_ptr()) };
        if done < 0 { Err(failed(io::Error::last_os_error())) } else { Ok(()) }
    }

    /// Creates an eventfd for one of the kernel's notices. Returns `None` if the kernel or the
    /// device does not support it.
    fn notify_on(&self, index: u32) -> Option<EventFd> {
        if self.irq_count(index).ok()? == 0 {
            return None;
        }
        let event = EventFd::new().ok()?;
        match self.set_irqs(index, 0, &[event.as_raw_fd()]) {
            Ok(()) => Some(event),
            Err(e) => {
                tracing::debug!(device = self.name, index, error = %e, "the kernel will not send this notice");
                None
            }
        }
    }

    /// Returns the number of MSI-X vectors of the device.
    ///
    /// # Errors
    /// [`VfioError::Call`] if the kernel refuses the request.
    #[cfg(feature = "internals")]
    pub fn vectors(&self) -> Result<u32, VfioError> {
        self.irq_count(uapi::VFIO_PCI_MSIX_IRQ_INDEX)
    }

    /// Connects the MSI-X vectors `0..count` to eventfds. First disconnects those of an earlier call, because the
    /// kernel enables the vectors of a device together.
    ///
    /// # Errors
    /// - [`VfioError::Vectors`] if `count` is 0 or more than the device has.
    /// - [`VfioError::Call`] if an eventfd cannot be created, or the kernel refuses the request.
    #[cfg(feature = "internals")]
    pub fn enable_interrupts(&self, count: u32) -> Result<Vec<EventFd>, VfioError> {
        let vectors = self.vectors()?;
        if count == 0 || count > vectors {
            let (device, last) = (self.name.clone(), count.saturating_sub(1));
            return Err(VfioError::Vectors { device, first: 0, last, vectors });
        }
        let mut connected = self.interrupts.lock();
        self.disconnect(&mut connected)?;
        let failed = |source| VfioError::call(&self.name, "eventfd", source);
        let events: Vec<EventFd> = (0..count).map(|_| EventFd::new()).collect::<Result<_, _>>().map_err(failed)?;
        let descriptors: Vec<i32> = events.iter().map(|e| e.as_raw_fd()).collect();
        self.set_irqs(uapi::VFIO_PCI_MSIX_IRQ_INDEX, 0, &descriptors)?;
        *connected = true;
        Ok(events)
    }

    /// Returns true if MSI-X vectors are connected. VFIO enables MSI-X with the first of them.
    pub(super) fn uses_msix(&self) -> bool {
        *self.interrupts.lock()
    }

    /// Disconnects all MSI-X vectors.
    ///
    /// # Errors
    /// [`VfioError::Call`] if the kernel refuses the request.
    #[cfg(feature = "internals")]
    pub fn disable_interrupts(&self) -> Result<(), VfioError> {
        self.disconnect(&mut self.interrupts.lock())
    }

    #[cfg(feature = "internals")]
    fn disconnect(&self, connected: &mut bool) -> Result<(), VfioError> {
        if *connected {
            self.set_irqs(uapi::VFIO_PCI_MSIX_IRQ_INDEX, 0, &[])?;
            *connected = false;
        }
        Ok(())
    }
}

fn region(fd: BorrowedFd<'_>, device: &str, index: u32) -> Result<Region, VfioError> {
    let request = uapi::DeviceGetRegionInfo { index, ..uapi::DeviceGetRegionInfo::new() };
    let answer = call_growing(fd, request).map_err(|e| VfioError::call(device, "VFIO_DEVICE_GET_REGION_INFO", e))?;
    Ok(parse_region(&answer))
}

fn parse_region(answer: &[u8]) -> Region {
    let info: uapi::DeviceGetRegionInfo =
        bytemuck::pod_read_unaligned(&answer[..size_of::<uapi::DeviceGetRegionInfo>()]);
    let sparse = match info.flags & uapi::VFIO_REGION_INFO_FLAG_CAPS {
        0 => None,
        _ => super::capability::find(answer, info.cap_offset, uapi::VFIO_REGION_INFO_CAP_SPARSE_MMAP),
    };
    let mappable = match (info.flags & uapi::VFIO_REGION_INFO_FLAG_MMAP != 0, sparse) {
        (false, _) => Vec::new(),
        (true, None) => vec![(0, info.size)],
        (true, Some(body)) => super::capability::sparse_areas(body),
    };
    Region { offset: info.offset, size: info.size, mappable }
}

impl fmt::Debug for VfioDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VfioDevice({})", self.name)
    }
}

impl Drop for VfioDevice {
    fn drop(&mut self) {
        let gone = self.is_gone();
        if !gone && let Ok(command) = self.config_read16(COMMAND) {
            // The kernel's close also does this, after its reset. So a failure here does no harm.
            let _ = self.config_write16(COMMAND, command & !COMMAND_MASTER);
        }
        if let Some(fd) = self.fd.take()
            && gone
        {
            tracing::debug!(device = self.name, "gone; closed without waiting for the kernel's reset");
            deferred_close::close(fd.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(flags: u32, cap_offset: u32, rest: &[u64]) -> Vec<u8> {
        let info = uapi::DeviceGetRegionInfo {
            flags,
            cap_offset,
            size: 0x4000,
            offset: 1 << 40,
            ..uapi::DeviceGetRegionInfo::new()
        };
        let mut bytes = bytemuck::bytes_of(&info).to_vec();
        bytes.extend(bytemuck::cast_slice::<u64, u8>(rest));
        bytes
    }

    #[test]
    fn regions_map_whole_in_parts_or_not_at_all() {
        assert_eq!(parse_region(&answer(3, 0, &[])).mappable, []);
        assert_eq!(parse_region(&answer(7, 0, &[])).mappable, [(0, 0x4000)]);
        let header = u64::from(uapi::VFIO_REGION_INFO_CAP_SPARSE_MMAP) | 1 << 16;
        let r = parse_region(&answer(0xf, 32, &[header, 2, 0, 0x2000, 0x3000, 0x1000]));
        assert_eq!((r.offset, r.mappable), (1 << 40, vec![(0, 0x2000), (0x3000, 0x1000)]));
    }

    #[test]
    fn a_device_is_opened_once_in_a_process() {
        let bdf = "ffff:ff:1f.7".parse().unwrap();
        let first = Claim::new(bdf).unwrap();
        let text = Claim::new(bdf).unwrap_err().to_string();
        assert_eq!(text, "ffff:ff:1f.7 is in use: ffff:ff:1f.7 is taken by this process already");
        drop(first);
        assert!(Claim::new(bdf).is_ok());
    }
}
