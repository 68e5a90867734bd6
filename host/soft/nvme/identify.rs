//! Identify data structures (NVMe Base 2.1, 5.1.13; NVM Command Set 1.1, 4.1.5).

use super::core::Core;
use super::log::ERROR_ENTRIES;
use super::namespace::Namespace;
use crate::wire::nvme::IDENTIFY_BYTES;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Version 1.4: the newest one of which all mandatory parts are implemented.
pub(super) const VERSION: u32 = 1 << 16 | 4 << 8;
/// Number of Asynchronous Event Requests that can be outstanding (AERL + 1).
pub(super) const EVENT_REQUESTS: usize = 4;

pub(super) type Page = [u8; IDENTIFY_BYTES];

/// Writes ASCII text, padded with spaces.
fn text(to: &mut [u8], text: &str) {
    to.fill(b' ');
    let n = text.len().min(to.len());
    to[..n].copy_from_slice(&text.as_bytes()[..n]);
}

/// Returns the firmware revision: this crate's version.
pub(super) fn firmware() -> [u8; 8] {
    let mut f = [0; 8];
    text(&mut f, env!("CARGO_PKG_VERSION"));
    f
}

/// Returns an identity that stays the same for the same store. A file is identified by its path. Unlike a device
/// number, the path survives a restart of the machine. Unlike an inode number, it survives replacement of the file by a
/// copy.
fn identity(core: &Core, namespace: usize) -> u64 {
    let mut h = DefaultHasher::new();
    core.namespaces.iter().for_each(|n| n.store.identify(&mut h));
    namespace.hash(&mut h);
    h.finish()
}

/// Returns the controller data structure (CNS 01h).
pub(super) fn controller(core: &Core) -> Page {
    let mut p = [0; IDENTIFY_BYTES];
    // VID and SSVID stay 0: there is no PCI function.
    text(&mut p[4..24], &format!("WB{:016X}", identity(core, 0)));
    let model = core.timing.as_ref().map(|timing| format!("warpbell {}", timing.model()));
    text(&mut p[24..64], model.as_deref().unwrap_or("warpbell software controller"));
    p[64..72].copy_from_slice(&firmware());
    // MDTS: log2, in units of the smallest memory page.
    p[77] = (core.config.max_transfer_bytes / 4096).trailing_zeros() as u8;
    p[80..84].copy_from_slice(&VERSION.to_le_bytes());
    // CNTRLTYPE: I/O controller.
    p[111] = 1;
    // ACL: number of Abort commands outstanding at a time, zero-based.
    p[258] = 3;
    p[259] = EVENT_REQUESTS as u8 - 1;
    // FRMW: one slot, read-only.
    p[260] = 1 << 1 | 1;
    // LPA: Get Log Page supports offsets and 32-bit lengths.
    p[261] = 1 << 2;
    p[262] = ERROR_ENTRIES as u8 - 1;
    // WCTEMP and CCTEMP in kelvin.
    p[266..268].copy_from_slice(&343u16.to_le_bytes());
    p[268..270].copy_from_slice(&353u16.to_le_bytes());
    // SQES and CQES: 64 and 16 bytes, both as minimum and as maximum.
    (p[512], p[513]) = (0x66, 0x44);
    // MAXCMD: the capacity of the largest queue.
    p[514..516].copy_from_slice(&((core.config.max_queue_entries - 1).min(0xffff) as u16).to_le_bytes());
    p[516..520].copy_from_slice(&(core.namespaces.len() as u32).to_le_bytes());
    // ONCS: compare, write uncorrectable, dataset management, write zeroes.
    p[520..522].copy_from_slice(&0b1111u16.to_le_bytes());
    // VWC: present if a file holds the blocks; Flush may name all namespaces.
    p[525] = 0b110 | u8::from(has_write_cache(core));
    let nqn = format!("nqn.2026-01.org.warpbell:soft:{:016x}", identity(core, 0));
    p[768..768 + nqn.len()].copy_from_slice(nqn.as_bytes());
    // PSD0: maximum power in hundredths of a watt. There is one state, with an arbitrary value.
    p[2048..2050].copy_from_slice(&100u16.to_le_bytes());
    p
}

/// Returns true if written data may be lost in a power failure.
pub(super) fn has_write_cache(core: &Core) -> bool {
    core.namespaces.iter().any(|n| n.store.has_write_cache())
}

/// Returns the namespace data structure (CNS 00h).
pub(super) fn namespace(ns: &Namespace) -> Page {
    let mut p = [0; IDENTIFY_BYTES];
    for at in [0, 8, 16] {
        // NSZE, NCAP, NUSE.
        p[at..at + 8].copy_from_slice(&ns.blocks().to_le_bytes());
    }
    // DLFEAT: deallocated blocks read as zeros; Write Zeroes does not deallocate.
    p[33] = 1;
    // NSATTR: write protected.
    p[99] = u8::from(ns.read_only);
    // One LBA format (NLBAF 0, FLBAS 0), without metadata, best performance.
    p[130] = ns.block_shift as u8;
    p
}

/// Returns the active namespace list (CNS 02h): identifiers above `after`, ascending.
pub(super) fn active(core: &Core, after: u32) -> Page {
    let mut p = [0; IDENTIFY_BYTES];
    let ids = (1..=core.namespaces.len() as u32).filter(|id| *id > after);
    for (to, id) in p.chunks_exact_mut(4).zip(ids) {
        to.copy_from_slice(&id.to_le_bytes());
    }
    p
}

/// Returns the namespace identification descriptors (CNS 03h): a UUID.
pub(super) fn descriptors(core: &Core, index: usize) -> Page {
    const UUID: u8 = 3;
    let mut p = [0; IDENTIFY_BYTES];
    (p[0], p[1]) = (UUID, 16);
    p[4..12].copy_from_slice(&identity(core, 0).to_be_bytes());
    p[12..20].copy_from_slice(&identity(core, index + 1).to_be_bytes());
    // Version 8 (vendor specific), variant of RFC 9562.
    p[10] = p[10] & 0x0f | 0x80;
    p[12] = p[12] & 0x3f | 0x80;
    p
}
