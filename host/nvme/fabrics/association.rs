//! The admin queue of an association, and the limits of its controller.

use super::FabricsError;
use super::commands::{Command, Place};
use super::link::{Dialer, QueueShape, User};
use super::queue::{Queue, admin};
#[cfg(feature = "internals")]
use crate::wire::nvme::fabrics::{self, DISCOVERY_LOG, DiscoveryHeader};
use crate::wire::nvme::fabrics::{ANY_CONTROLLER, property_get, property_set};
use crate::wire::nvme::identify::IdentifyController;
use crate::wire::nvme::{Cap, IDENTIFY_BYTES, SqEntry, admin as opcode, cc, cns, csts, feature, register};
use std::time::{Duration, Instant};

/// Entries of the admin queue, as Linux uses.
const ADMIN_ENTRIES: u32 = 32;
/// Interval between two reads of CSTS.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Unit of CAP.TO.
const TIMEOUT_UNIT: Duration = Duration::from_millis(500);
/// Smallest IOCCSZ, in units of 16 bytes: the command alone.
const LEAST_CAPSULE: u32 = 4;

/// Limits that Identify Controller reports for message-based transports (NVMe Base 2.1, 5.1.13.2.1, bytes 1792 and on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest in-capsule data of an I/O command in bytes.
    pub in_capsule_bytes: u32,
    /// Largest number of commands without response on one I/O queue; 0 if not reported.
    pub max_commands: u16,
    /// Largest transfer in bytes; `None` if not limited.
    pub max_transfer_bytes: Option<u64>,
    /// Granularity of the Keep Alive Timeout in milliseconds; 0 if Keep Alive is not supported.
    pub keep_alive_granularity_ms: u32,
    /// Largest number of entries of an I/O queue.
    pub queue_entries: u32,
}

/// An association: a connected admin queue.
pub(crate) struct Association {
    pub(crate) admin: Queue,
    /// Identifier of the controller.
    pub(crate) controller: u16,
    pub(crate) cap: Cap,
    pub(crate) version: u32,
    within: Duration,
}

impl Association {
    /// Connects the admin queue, and reads CAP and VS. The controller is not enabled.
    pub(crate) fn open(dialer: &Dialer) -> Result<Self, FabricsError> {
        let config = &dialer.config;
        let shape = QueueShape { id: 0, controller: ANY_CONTROLLER, entries: ADMIN_ENTRIES };
        let (admin, controller) = Queue::connect(dialer, shape, User::Host(0))?;
        let mut a = Self { admin, controller, cap: Cap(0), version: 0, within: config.connect_timeout };
        a.cap = Cap(a.get(register::CAP, "CAP")?);
        a.version = a.get(register::VS, "VS")? as u32;
        let peer = config.peer();
        if a.cap.min_page_shift() > 16 || a.cap.max_queue_entries() < 2 {
            let reason = format!("its capabilities (CAP {:#018x}) are not those of a controller", a.cap.0);
            return Err(FabricsError::Unsupported { peer, reason });
        }
        Ok(a)
    }

    fn get(&mut self, offset: u32, name: &str) -> Result<u64, FabricsError> {
        let done = self.admin.run_well(
            Command::plain(property_get(offset)),
            self.within,
            &format!("Property Get of {name}"),
        )?;
        Ok(done.result)
    }

    fn set(&mut self, offset: u32, value: u64, name: &str) -> Result<(), FabricsError> {
        let command = Command::plain(property_set(offset, value));
        self.admin.run_well(command, self.within, &format!("Property Set of {name}")).map(drop)
    }

    /// Enables the controller and waits until it is ready (NVMe Base 2.1, 3.5.2).
    pub(crate) fn enable(&mut self) -> Result<(), FabricsError> {
        let value = cc::EN | cc::IOSQES_64 | cc::IOCQES_16;
        self.set(register::CC, value.into(), "CC")?;
        let limit = (TIMEOUT_UNIT * u32::from(self.cap.timeout_units()).max(1)).max(self.within);
        self.wait_for("did not become ready", limit, |s| s & csts::RDY != 0)
    }

    /// Notifies the controller of a shutdown, and waits until it is complete (NVMe Base 2.1, 3.6.2).
    pub(crate) fn shut_down(&mut self) -> Result<(), FabricsError> {
        let value = cc::EN | cc::IOSQES_64 | cc::IOCQES_16 | cc::SHN_NORMAL;
        self.set(register::CC, value.into(), "CC")?;
        self.wait_for("did not complete its shutdown", self.within, |s| s & csts::SHST_MASK == csts::SHST_COMPLETE)
    }

    /// Disables the controller: it drops its I/O queues.
    pub(crate) fn disable(&mut self, within: Duration) -> Result<(), FabricsError> {
        let before = std::mem::replace(&mut self.within, within);
        let done = self.set(register::CC, (cc::IOSQES_64 | cc::IOCQES_16).into(), "CC");
        self.within = before;
        done
    }

    fn wait_for(
        &mut self,
        what: &'static str,
        limit: Duration,
        reached: impl Fn(u32) -> bool,
    ) -> Result<(), FabricsError> {
        let started = Instant::now();
        loop {
            let late = started.elapsed() > limit;
            let csts = self.get(register::CSTS, "CSTS")? as u32;
            let peer = || self.peer();
            if csts & csts::CFS != 0 {
                return Err(FabricsError::NotReady { peer: peer(), what: "reports a fatal status", csts });
            }
            if reached(csts) {
                return Ok(());
            }
            if late {
                return Err(FabricsError::NotReady { peer: peer(), what, csts });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn peer(&self) -> String {
        self.admin.peer()
    }

    /// Reads the Identify Controller data.
    pub(crate) fn identify(&mut self) -> Result<IdentifyController, FabricsError> {
        let entry = admin(opcode::IDENTIFY, cns::CONTROLLER.into(), 0);
        Ok(IdentifyController::new(&self.read(entry, IDENTIFY_BYTES as u32, "Identify Controller")?))
    }

    /// Runs a command that reads data.
    pub(crate) fn read(&mut self, entry: SqEntry, bytes: u32, what: &str) -> Result<Vec<u8>, FabricsError> {
        self.run(Command::read(entry, bytes), what)
    }

    /// Runs a command with a buffer of its own. Returns the buffer.
    pub(crate) fn run(&mut self, command: Command, what: &str) -> Result<Vec<u8>, FabricsError> {
        match self.admin.run_well(command, self.within, what)?.command.place {
            Place::Owned(data) => Ok(data),
            Place::Prps => Ok(Vec::new()),
        }
    }

    /// Returns the limits that the controller reports for its I/O queues.
    pub(crate) fn limits(&self, identify: &IdentifyController) -> Result<Limits, FabricsError> {
        let b = identify.bytes();
        let word = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let capsule = u32::from(word(1792)) | u32::from(word(1794)) << 16;
        let offset = word(1800);
        if capsule < LEAST_CAPSULE {
            let reason = format!("its command capsules have {} bytes (IOCCSZ); a command has 64", capsule * 16);
            return Err(FabricsError::Unsupported { peer: self.peer(), reason });
        }
        // Data behind a gap (ICDOFF) does not fit the PDU of this host, so none goes along.
        let in_capsule_bytes = if offset == 0 { capsule.saturating_mul(16).saturating_sub(64).min(1 << 20) } else { 0 };
        let max_transfer_bytes = match b[77] {
            0 => None,
            shift => 1u64.checked_shl(u32::from(shift) + self.cap.min_page_shift()),
        };
        Ok(Limits {
            in_capsule_bytes,
            max_commands: word(514),
            max_transfer_bytes,
            keep_alive_granularity_ms: u32::from(word(320)) * 100,
            queue_entries: self.cap.max_queue_entries(),
        })
    }

    /// Requests `wanted` I/O queue pairs. Returns the granted number.
    pub(crate) fn request_queues(&mut self, wanted: u32) -> Result<u32, FabricsError> {
        let number = wanted.clamp(1, 0xffff) - 1;
        let entry = admin(opcode::SET_FEATURES, feature::NUMBER_OF_QUEUES.into(), number | number << 16);
        let done = self.admin.run_well(Command::plain(entry), self.within, "Set Features (Number of Queues)")?;
        let result = done.result as u32;
        Ok(((result & 0xffff).min(result >> 16) + 1).min(wanted))
    }

    /// Reads a part of the discovery log.
    #[cfg(feature = "internals")]
    pub(crate) fn discovery_log(&mut self, offset: u64, bytes: u32) -> Result<Vec<u8>, FabricsError> {
        let dwords = bytes / 4 - 1;
        let mut entry = admin(opcode::GET_LOG_PAGE, u32::from(DISCOVERY_LOG) | dwords << 16, dwords >> 16);
        (entry.cdw12, entry.cdw13) = (offset as u32, (offset >> 32) as u32);
        self.read(entry, bytes, "Get Log Page (discovery)")
    }

    /// Reads the header of the discovery log.
    #[cfg(feature = "internals")]
    pub(crate) fn discovery_header(&mut self) -> Result<DiscoveryHeader, FabricsError> {
        Ok(DiscoveryHeader::read(&self.discovery_log(0, fabrics::DISCOVERY_RECORD_BYTES as u32)?))
    }
}
