//! Identify Controller data of the target, and its discovery log.

use super::Shared;
use super::config::TargetTransport;
use super::host::RemoteHost;
use super::ports::{GROUP, TargetPort};
use crate::wire::nvme::fabrics::{ANY_CONTROLLER, DISCOVERY_NQN, DiscoveryHeader, DiscoveryRecord, TransportType};
use crate::wire::nvme::{IDENTIFY_BYTES, ana};
use std::net::IpAddr;

/// Version 1.4.
pub(super) const VERSION: u32 = 1 << 16 | 4 << 8;
/// Number of Asynchronous Event Requests that can be outstanding (AERL + 1).
pub(super) const EVENT_REQUESTS: usize = 4;
/// Granularity of the Keep Alive Timeout in units of 100 ms (KAS).
const KEEP_ALIVE_UNIT: u16 = 1;
/// SGLs are supported, also with an offset into the capsule, and transport data blocks.
const SGLS: u32 = 1 | 1 << 20 | 1 << 21;
/// ONCS: compare, write uncorrectable, dataset management, write zeroes.
const OPTIONAL_COMMANDS: u8 = 0b1111;

/// Returns CAP: contiguous queues, the NVM command set, pages of 4 KiB, ready within five seconds.
pub(super) fn capabilities(shared: &Shared) -> u64 {
    u64::from(shared.config.queue_entries - 1) | 1 << 16 | 10 << 24 | 1 << 37
}

/// Returns the Identify Controller data for a host. What describes the medium is that of the device.
pub(super) fn controller(shared: &Shared, host: &RemoteHost) -> Vec<u8> {
    let from = shared.device.identify().bytes();
    let mut p = vec![0; IDENTIFY_BYTES];
    let mut copy = |at: std::ops::Range<usize>| {
        if let Some(bytes) = from.get(at.clone()) {
            p[at].copy_from_slice(bytes);
        }
    };
    // SN, MN, FR; WCTEMP, CCTEMP; NN; VWC.
    for at in [4..72, 266..270, 516..520, 525..526, 520..521] {
        copy(at);
    }
    p[520] &= OPTIONAL_COMMANDS;
    p[77] = (shared.config.max_transfer_bytes / 4096).trailing_zeros() as u8;
    p[78..80].copy_from_slice(&host.controller.to_le_bytes());
    p[80..84].copy_from_slice(&VERSION.to_le_bytes());
    if shared.config.reports_access() {
        // CMIC: several ports and controllers, access states. OAES: changes of these.
        p[76] = 1 << 3 | 1 << 1 | 1;
        p[92..96].copy_from_slice(&ana::CHANGE_NOTICES.to_le_bytes());
        // ANATT in seconds; ANACAP: all states, and groups that do not change. ANAGRPMAX, NANAGRPID: one group.
        (p[342], p[343]) = (10, 1 << 6 | 0x1f);
        p[344..348].copy_from_slice(&GROUP.to_le_bytes());
        p[348..352].copy_from_slice(&GROUP.to_le_bytes());
        // MNAN is that of NN.
        p.copy_within(516..520, 540);
    }
    // CNTRLTYPE: I/O or discovery controller.
    p[111] = if host.discovery { 2 } else { 1 };
    (p[258], p[259]) = (3, EVENT_REQUESTS as u8 - 1);
    // FRMW: one slot, read-only. LPA: Get Log Page supports offsets.
    (p[260], p[261]) = (1 << 1 | 1, 1 << 2);
    p[262] = 63;
    p[320..322].copy_from_slice(&KEEP_ALIVE_UNIT.to_le_bytes());
    (p[512], p[513]) = (0x66, 0x44);
    // MAXCMD: Linux compares it with the number of entries.
    p[514..516].copy_from_slice(&(shared.config.queue_entries as u16).to_le_bytes());
    p[536..540].copy_from_slice(&SGLS.to_le_bytes());
    let name = if host.discovery { DISCOVERY_NQN } else { &shared.config.subsystem };
    p[768..768 + name.len()].copy_from_slice(name.as_bytes());
    p[1792..1796].copy_from_slice(&((64 + shared.config.in_capsule_bytes) / 16).to_le_bytes());
    p[1796..1800].copy_from_slice(&1u32.to_le_bytes());
    // ICDOFF 0, FCATT: dynamic controllers, MSDBD 1.
    p[1803] = 1;
    p
}

/// Adds what the target decides to Identify Namespace data of the device.
pub(super) fn adjust_namespace(shared: &Shared, page: &mut [u8]) {
    if shared.config.reports_access() {
        // NMIC: several controllers may use it. ANAGRPID.
        page[30] |= 1;
        page[92..96].copy_from_slice(&GROUP.to_le_bytes());
    }
}

/// Returns the discovery log: the subsystem at each open port. `reached` is the address that the host used.
pub(super) fn discovery(shared: &Shared, reached: IpAddr) -> Vec<u8> {
    let open = || shared.ports.iter().enumerate().filter(|(_, p)| p.is_open());
    let record = |(index, port): (usize, &TargetPort)| {
        let address = if port.address.ip().is_unspecified() { reached } else { port.address.ip() };
        DiscoveryRecord {
            transport: match shared.config.transport {
                TargetTransport::Tcp => TransportType::TCP,
                #[cfg(feature = "shmem")]
                TargetTransport::Soft => TransportType::RDMA,
            },
            family: if address.is_ipv4() { 1 } else { 2 },
            subtype: 2,
            // A secure channel is not required.
            requirements: 2,
            port: index as u16 + 1,
            controller: ANY_CONTROLLER,
            admin_entries: 32,
            service: port.address.port().to_string(),
            subsystem: shared.config.subsystem.clone(),
            address: address.to_string(),
            security: 0,
        }
    };
    let header = DiscoveryHeader { generation: 1, records: open().count() as u64, format: 0 };
    let mut log = header.bytes().to_vec();
    open().map(record).for_each(|r| log.extend(r.bytes()));
    log
}
