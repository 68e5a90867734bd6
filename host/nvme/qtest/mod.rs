//! QEMU's NVMe model without a guest: registers over a socket, QEMU's RAM as shared memory.
//!
//! It is an independent implementation of a controller, for tests and experiments. It has no interrupts and no IOMMU,
//! and its speed has no meaning.

mod config;
mod process;
mod ram;
mod socket;

internal!(config::{QtestConfig, QtestNamespace});

use super::{Attachment, DoorbellPages, PciId, Port, PortError};
use parking_lot::Mutex;
use process::Qemu;
use ram::Ram;
use socket::QtestSocket;
use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

/// Device number of the controller on the root bus.
const PCI_SLOT: u32 = 4;
/// Address of the registers: in q35's window for devices below 4 GiB, above any RAM that is allowed.
const BAR: u64 = 0xe000_0000;
/// Configuration mechanism #1 (PCI Local Bus 3.0, 3.2.2.3.2).
const CONFIG_ADDRESS: u32 = 0xcf8;
const CONFIG_DATA: u32 = 0xcfc;
const CONFIG_ENABLE: u32 = 1 << 31;
/// Offsets in configuration space (PCI Local Bus 3.0, 6.1).
const PCI_ID: u32 = 0x00;
const PCI_COMMAND: u32 = 0x04;
const PCI_CLASS: u32 = 0x08;
const PCI_BAR0: u32 = 0x10;
const PCI_BAR1: u32 = 0x14;
/// Memory space and bus master enabled.
const COMMAND_MEMORY_MASTER: u32 = 6;
/// Mass storage, non-volatile memory, NVM Express (PCI Code and ID Assignment 1.11).
const CLASS_NVME: u32 = 0x01_0802;

/// Error of starting QEMU's model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QtestError {
    /// QEMU was not found on this machine.
    #[error("no QEMU ({looked} not found): install qemu-system-x86, or set WARPBELL_QEMU to its qemu-system-x86_64")]
    NoQemu {
        /// Program that was searched for.
        looked: String,
    },
    /// The configuration is invalid.
    #[error("qtest: {reason}")]
    Config {
        /// Cause, as text.
        reason: String,
    },
    /// An image or configuration file is not accessible.
    #[error("qtest: {}: {source}", .file.display())]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// There is no memory for QEMU's RAM.
    #[error("qtest: no shared memory of {bytes} bytes for QEMU's RAM: {source}; ask for less with ram=")]
    Ram {
        /// Requested length in bytes.
        bytes: u64,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// QEMU was not started.
    #[error("qtest: {} cannot be run: {source}", .program.display())]
    Start {
        /// Path of the program.
        program: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// QEMU ended or sent an invalid reply while the device was set up.
    #[error("qtest: {reason}: {stderr}")]
    Qemu {
        /// Cause, as text.
        reason: String,
        /// QEMU's output on standard error.
        stderr: String,
    },
}

/// Starts QEMU and returns its controller, without a driver. QEMU ends when the last share of the port is dropped.
///
/// # Errors
/// - [`QtestError::Config`] or [`QtestError::File`] if the configuration is invalid or a file is not accessible.
/// - [`QtestError::NoQemu`], [`QtestError::Ram`] or [`QtestError::Start`] if QEMU is not found, has
///   no RAM, or does not start.
/// - [`QtestError::Qemu`] if QEMU ends, or shows no NVMe controller, during the set-up.
pub fn start(config: QtestConfig) -> Result<Attachment, QtestError> {
    config.check()?;
    process::find(config.qemu.as_deref())?;
    let files: Vec<String> = config.namespaces.iter().map(|n| n.file.display().to_string()).collect();
    let name = format!("qtest:{}", files.join("+"));
    let (ram, file) = Ram::new(name.clone(), config.ram_bytes)?;
    let failed =
        |source: std::io::Error| QtestError::Qemu { reason: "no socket".to_owned(), stderr: source.to_string() };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let socket = QtestSocket::new(ours).map_err(failed)?;
    let qemu = Qemu::start(&config, &file, theirs)?;
    let mut port = QtestPort { qemu, socket: Mutex::new(socket), name, id: PciId { vendor: 0, device: 0 } };
    port.id = port.set_up().map_err(|reason| QtestError::Qemu { reason, stderr: port.qemu.last_words() })?;
    Ok(Attachment { port: Arc::new(port), dma: Arc::new(ram) })
}

struct QtestPort {
    socket: Mutex<QtestSocket>,
    qemu: Qemu,
    name: String,
    id: PciId,
}

impl QtestPort {
    fn command(&self, line: &str) -> Result<u64, String> {
        self.socket.lock().command(line)
    }

    fn select(&self, offset: u32) -> Result<(), String> {
        let address = CONFIG_ENABLE | PCI_SLOT << 11 | offset;
        self.command(&format!("outl {CONFIG_ADDRESS:#x} {address:#x}")).map(|_| ())
    }

    fn config_read(&self, offset: u32) -> Result<u32, String> {
        self.select(offset)?;
        Ok(self.command(&format!("inl {CONFIG_DATA:#x}"))? as u32)
    }

    fn config_write(&self, offset: u32, value: u32) -> Result<(), String> {
        self.select(offset)?;
        self.command(&format!("outl {CONFIG_DATA:#x} {value:#x}")).map(|_| ())
    }

    /// Does what firmware would do: assigns an address to the registers and enables bus mastering. Returns the
    /// identifiers of the function.
    fn set_up(&self) -> Result<PciId, String> {
        let id = self.config_read(PCI_ID)?;
        let class = self.config_read(PCI_CLASS)? >> 8;
        if class != CLASS_NVME {
            return Err(format!("no NVMe controller in slot {PCI_SLOT}: it holds {id:#010x}, class {class:#08x}"));
        }
        self.config_write(PCI_BAR0, BAR as u32)?;
        self.config_write(PCI_BAR1, (BAR >> 32) as u32)?;
        self.config_write(PCI_COMMAND, COMMAND_MEMORY_MASTER)?;
        Ok(PciId { vendor: id as u16, device: (id >> 16) as u16 })
    }

    fn lost(&self, offset: u32, reason: String) -> PortError {
        let reason = format!("{reason}: {}", self.qemu.last_words());
        PortError::Lost { device: self.name.clone(), offset, reason }
    }
}

impl Port for QtestPort {
    fn read32(&self, offset: u32) -> Result<u32, PortError> {
        let line = format!("readl {:#x}", BAR + u64::from(offset));
        self.command(&line).map(|v| v as u32).map_err(|reason| self.lost(offset, reason))
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
        let line = format!("writel {:#x} {value:#x}", BAR + u64::from(offset));
        self.command(&line).map(|_| ()).map_err(|reason| self.lost(offset, reason))
    }

    fn doorbells(&self) -> Option<DoorbellPages> {
        None
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn kind(&self) -> &'static str {
        "qtest"
    }

    fn pci_id(&self) -> Option<PciId> {
        Some(self.id)
    }
}

impl fmt::Debug for QtestPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QtestPort({}, process {})", self.name, self.qemu.pid())
    }
}
