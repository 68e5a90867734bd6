//! QEMU's NVMe model without a guest: registers over a socket, QEMU's RAM as shared memory. A controller that nobody here
//! wrote, for tests and for trying things out; no interrupts, no IOMMU, and its speed says nothing.

mod config;
mod process;
mod ram;
mod socket;

pub use config::{QtestConfig, QtestNamespace};

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
/// Where the registers are put: in q35's window for devices below 4 GiB, above any RAM that is allowed.
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

/// Why QEMU's model could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QtestError {
    /// No QEMU on this machine.
    #[error("no QEMU ({looked} not found): install qemu-system-x86, or set WARPBELL_QEMU to its qemu-system-x86_64")]
    NoQemu {
        /// What was looked for.
        looked: String,
    },
    /// A configuration that QEMU cannot be started with.
    #[error("qtest: {reason}")]
    Config {
        /// What is wrong with it.
        reason: String,
    },
    /// An image or configuration file.
    #[error("qtest: {}: {source}", .file.display())]
    File {
        /// Which file.
        file: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// No memory for QEMU's RAM.
    #[error("qtest: no shared memory of {bytes} bytes for QEMU's RAM: {source}; ask for less with ram=")]
    Ram {
        /// Bytes asked for.
        bytes: u64,
        /// The system's answer.
        source: std::io::Error,
    },
    /// QEMU could not be started.
    #[error("qtest: {} cannot be run: {source}", .program.display())]
    Start {
        /// Which program.
        program: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// QEMU ended or answered nonsense while the device was set up.
    #[error("qtest: {reason}: {stderr}")]
    Qemu {
        /// What happened.
        reason: String,
        /// What QEMU said on its standard error.
        stderr: String,
    },
}

/// Starts QEMU and gives its controller, which nobody drives yet. QEMU ends when the last share of the port is dropped.
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

    /// What firmware would do: give the registers an address, and let the device master the bus. Answers which function it is.
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
