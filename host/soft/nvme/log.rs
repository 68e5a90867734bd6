//! Log pages and asynchronous events (NVMe Base 2.1, 5.1.12 and 5.1.2).

use super::core::Core;
use crate::wire::nvme::{SqEntry, Status, io, log_page};
use std::collections::VecDeque;

/// Number of entries of the error log (Identify Controller, ELPE + 1).
pub(super) const ERROR_ENTRIES: usize = 64;
const ERROR_BYTES: usize = 64;
const HEALTH_BYTES: usize = 512;
const FIRMWARE_BYTES: usize = 512;
/// Reported temperature: 27 degrees Celsius.
pub(super) const TEMPERATURE_KELVIN: u16 = 300;
/// Size in bytes of a data unit of the health log: a thousand blocks of 512 bytes.
const DATA_UNIT: u64 = 512_000;

/// Event to report (figure "Asynchronous Event Information - Error Status").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The doorbell of a queue that does not exist was written.
    InvalidDoorbell,
    /// A value outside its queue was written to a doorbell.
    InvalidDoorbellValue,
    /// The temperature crossed a threshold that the driver had set.
    Temperature,
}

/// Kind of an event (Asynchronous Event Type). A kind is reported once, and again only after its log page was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Error,
    Health,
}

impl Event {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::InvalidDoorbell | Self::InvalidDoorbellValue => Kind::Error,
            Self::Temperature => Kind::Health,
        }
    }

    /// Returns dword 0 of the completion: type in 2:0, information in 15:8, log page in 23:16.
    pub(super) fn result(self) -> u32 {
        let (kind, information, page) = match self {
            Self::InvalidDoorbell => (0, 0, log_page::ERROR),
            Self::InvalidDoorbellValue => (0, 1, log_page::ERROR),
            Self::Temperature => (1, 1, log_page::HEALTH),
        };
        kind | information << 8 | u32::from(page) << 16
    }
}

/// The newest errors, newest first.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    count: u64,
    entries: VecDeque<[u8; ERROR_BYTES]>,
    pub(super) media_errors: u64,
}

impl ErrorLog {
    fn add(&mut self, sqid: u16, cid: u16, status: Status, lba: u64, nsid: u32) {
        self.count += 1;
        let mut e = [0u8; ERROR_BYTES];
        e[..8].copy_from_slice(&self.count.to_le_bytes());
        e[8..10].copy_from_slice(&sqid.to_le_bytes());
        e[10..12].copy_from_slice(&cid.to_le_bytes());
        e[12..14].copy_from_slice(&(status.0 << 1).to_le_bytes());
        // Parameter error location: not reported.
        e[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
        e[16..24].copy_from_slice(&lba.to_le_bytes());
        e[24..28].copy_from_slice(&nsid.to_le_bytes());
        self.entries.push_front(e);
        self.entries.truncate(ERROR_ENTRIES);
    }

    /// Adds a failed I/O command.
    #[cold]
    pub(super) fn command(&mut self, sqid: u16, e: &SqEntry, status: Status) {
        const MEDIA: u8 = 2;
        self.media_errors += u64::from(status.sct() == MEDIA);
        let with_lba =
            matches!(e.opcode(), io::READ | io::WRITE | io::COMPARE | io::WRITE_ZEROES | io::WRITE_UNCORRECTABLE);
        self.add(sqid, e.cid(), status, if with_lba { e.slba() } else { 0 }, e.nsid);
    }

    /// Adds a failed admin command.
    pub(super) fn admin(&mut self, e: &SqEntry, status: Status) {
        self.add(0, e.cid(), status, 0, e.nsid);
    }

    /// Adds an error that belongs to no command.
    pub(super) fn event(&mut self) {
        self.add(u16::MAX, u16::MAX, Status(0), 0, 0);
    }
}

/// Returns the bytes of a log page, or `None` if there is no such page.
pub(super) fn page(core: &Core, id: u8, hours: u64, warning: u8) -> Option<Vec<u8>> {
    match id {
        log_page::ERROR => {
            let log = core.errors.lock();
            let mut p = vec![0; ERROR_ENTRIES * ERROR_BYTES];
            for (to, e) in p.chunks_exact_mut(ERROR_BYTES).zip(&log.entries) {
                to.copy_from_slice(e);
            }
            Some(p)
        }
        log_page::HEALTH => Some(health(core, hours, warning)),
        log_page::FIRMWARE_SLOT => {
            let mut p = vec![0; FIRMWARE_BYTES];
            p[0] = 1;
            p[8..16].copy_from_slice(&super::identify::firmware());
            Some(p)
        }
        _ => None,
    }
}

fn health(core: &Core, hours: u64, warning: u8) -> Vec<u8> {
    let mut sum = super::statistics::QueueStatistics::default();
    for (i, c) in core.counters.iter().enumerate() {
        let q = c.read(i as u16);
        sum.reads += q.reads;
        sum.writes += q.writes;
        sum.read_bytes += q.read_bytes;
        sum.written_bytes += q.written_bytes;
    }
    let log = core.errors.lock();
    let mut p = vec![0; HEALTH_BYTES];
    p[0] = warning;
    p[1..3].copy_from_slice(&TEMPERATURE_KELVIN.to_le_bytes());
    // Available spare and its threshold, in percent.
    (p[3], p[4]) = (100, 10);
    for (at, value) in [
        (32, sum.read_bytes.div_ceil(DATA_UNIT)),
        (48, sum.written_bytes.div_ceil(DATA_UNIT)),
        (64, sum.reads),
        (80, sum.writes),
        (128, hours),
        (160, log.media_errors),
        (176, log.count),
    ] {
        p[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    p
}
