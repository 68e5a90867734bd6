//! Capabilities of the NIC, as far as queues depend on them. Each one is used, or refused by its name in the
//! specification with the value found.

use super::adapter::Facts;
use super::devx::{Devx, outcome};
use crate::rdma::{DeviceChoice, DoorbellChoice, LinkLayer, RdmaError, RecordChoice, Transport};
use crate::wire::mlx5::BLOCK_BYTES;
use crate::wire::mlx5::devx::{
    AtomicCapabilities, Capabilities, Capabilities2, CapabilityKind, QueryHcaCap, RoceCapabilities,
};
use std::ops::RangeInclusive;

/// Version of completion entries that carry the queue pair's number.
const CQE_VERSION: u8 = 1;
/// log2 of the supported sizes of a BlueFlame register in bytes. The smallest has two halves of one block.
const LOG_FLAME_BYTES: RangeInclusive<u8> = 7..=12;
/// Largest number of blocks of an entry that kernels post (mlx5/post.cuh).
const MAX_ENTRY_BLOCKS: usize = 2;
/// UDP destination port of RoCE v2.
const ROCE_PORT: u16 = 4791;

/// The NIC's capabilities that the adapter uses.
#[derive(Debug)]
pub(super) struct NicCapabilities {
    /// log2 of the largest send queue in blocks.
    pub log_max_blocks: u32,
    /// Largest receive entry in bytes.
    pub max_receive_bytes: usize,
    /// True if messages of up to 32 bytes can go into their completion entry.
    pub scatter_to_cqe: bool,
    /// True if queue pairs can work without a doorbell record, and may.
    pub no_record: bool,
    /// Distance in bytes of the halves of a BlueFlame register; `None` if whole entries are not requested.
    pub flame: Option<u32>,
    /// Valid UDP source ports.
    pub udp_source: Option<RangeInclusive<u16>>,
    /// Properties that users should know.
    pub notes: Vec<String>,
}

impl NicCapabilities {
    /// Queries the capabilities, and compares them with what kernels need and `choice` requests.
    ///
    /// # Errors
    /// * [`RdmaError::Unavailable`] if one is missing; the text has its name in the specification and the value found.
    /// * [`RdmaError::System`] if a query fails.
    pub fn read(devx: &dyn Devx, facts: &Facts, choice: &DeviceChoice) -> Result<Self, RdmaError> {
        let unavailable = |reason: String| RdmaError::Unavailable {
            transport: Transport::Mlx5,
            reason: format!("{}: {reason}", facts.name),
        };
        let lacks = |reason: String| unavailable(format!("{reason}; use transport verbs"));
        let general = Capabilities::get_from(&query(devx, &facts.name, CapabilityKind::General)?).unwrap_or_default();
        if general.cqe_version != CQE_VERSION {
            return Err(lacks(format!(
                "its completion entries have version {} (cqe_version), and kernels need version {CQE_VERSION}",
                general.cqe_version
            )));
        }
        if !general.cq_overrun_ignore {
            return Err(lacks("its completion queues cannot ignore overrun (cq_oi is 0)".to_owned()));
        }
        let longest = MAX_ENTRY_BLOCKS * BLOCK_BYTES;
        if usize::from(general.max_wqe_bytes) < longest {
            return Err(lacks(format!(
                "its send entries have at most {} bytes (max_wqe_sz_sq), and kernels post entries of {longest} bytes",
                general.max_wqe_bytes
            )));
        }
        let atomics =
            AtomicCapabilities::get_from(&query(devx, &facts.name, CapabilityKind::Atomic)?).unwrap_or_default();
        if !(atomics.has_extended(4) && atomics.has_extended(8)) {
            return Err(lacks(format!(
                "no masked atomics on 4 and 8 bytes, which signals and 32-bit atomics need (atomic_operations is {:#x}, \
                 atomic_size_qp is {:#x})",
                atomics.operations, atomics.sizes_qp
            )));
        }
        if atomics.endianness_modes == 0 {
            let reason = "8-byte results of atomics are big-endian (atomic_req_8B_endianness_mode is 0), and its \
                          firmware has no other mode; update the firmware";
            return Err(lacks(reason.to_owned()));
        }
        let more = match general.has_more {
            true => Capabilities2::get_from(&query(devx, &facts.name, CapabilityKind::General2)?).unwrap_or_default(),
            false => Capabilities2::default(),
        };
        let flame = choice.blue_flame.then(|| flame(&general, choice)).transpose().map_err(&unavailable)?;
        if choice.record == RecordChoice::Off && !more.no_doorbell_record {
            return Err(unavailable(
                "its queue pairs need a doorbell record (send_dbr_mode_no_dbr_ext is 0); set WARPBELL_RDMA_RECORD=auto"
                    .to_owned(),
            ));
        }
        // The register for whole entries belongs to queue pairs with a record.
        let no_record = more.no_doorbell_record && choice.record != RecordChoice::On && flame.is_none();
        let mut notes = Vec::new();
        let udp_source = if facts.port.link == LinkLayer::Ethernet && facts.port.udp {
            roce(devx, &facts.name, &mut notes)
        } else {
            None
        };
        Ok(Self {
            log_max_blocks: general.log_max_qp_size.into(),
            max_receive_bytes: general.max_receive_bytes.into(),
            scatter_to_cqe: general.scatter_to_cqe,
            no_record,
            flame,
            udp_source,
            notes,
        })
    }
}

/// Returns the distance of the halves of a BlueFlame register, or the reason why there is none.
fn flame(general: &Capabilities, choice: &DeviceChoice) -> Result<u32, String> {
    let unset = "unset WARPBELL_RDMA_BLUEFLAME";
    if !general.blue_flame {
        return Err(format!("its doorbell registers take no entries (bf is 0); {unset}"));
    }
    if !LOG_FLAME_BYTES.contains(&general.log_blue_flame_bytes) {
        return Err(format!(
            "its BlueFlame registers have 2^{} bytes (log_bf_reg_size), and 2^{} to 2^{} bytes are supported; {unset}",
            general.log_blue_flame_bytes,
            LOG_FLAME_BYTES.start(),
            LOG_FLAME_BYTES.end()
        ));
    }
    if choice.record == RecordChoice::Off {
        return Err(format!(
            "a BlueFlame register belongs to a queue pair with a doorbell record; {unset}, or set WARPBELL_RDMA_RECORD=auto"
        ));
    }
    if choice.doorbell == DoorbellChoice::Cpu {
        return Err(format!(
            "kernels write BlueFlame registers, and a CPU thread writes the doorbells; {unset}, or set \
             WARPBELL_RDMA_DOORBELL=auto"
        ));
    }
    Ok(1 << (general.log_blue_flame_bytes - 1))
}

/// Returns the range of UDP source ports that the NIC accepts; `None` if the NIC states none.
fn roce(devx: &dyn Devx, device: &str, notes: &mut Vec<String>) -> Option<RangeInclusive<u16>> {
    let roce = match query(devx, device, CapabilityKind::Roce) {
        Ok(bytes) => RoceCapabilities::get_from(&bytes).unwrap_or_default(),
        Err(error) => {
            tracing::debug!(%error, "the NIC states no capabilities of RoCE");
            return None;
        }
    };
    if ![0, ROCE_PORT].contains(&roce.udp_destination) {
        notes.push(format!(
            "RoCE packets go to UDP port {} (r_roce_dest_udp_port), not {ROCE_PORT}: all hosts must use the same",
            roce.udp_destination
        ));
    }
    let range = roce.udp_source_min..=roce.udp_source_max;
    (roce.udp_source_max != 0 && !range.is_empty()).then_some(range)
}

/// Moves a port into the valid range. Ports that differ stay apart as far as the range allows.
pub(super) fn within(port: u16, range: &RangeInclusive<u16>) -> u16 {
    if range.contains(&port) {
        return port;
    }
    let ports = u32::from(range.end() - range.start()) + 1;
    range.start() + (u32::from(port) % ports) as u16
}

fn query(devx: &dyn Devx, device: &str, kind: CapabilityKind) -> Result<Vec<u8>, RdmaError> {
    let wrong = |e| RdmaError::System { what: "building a command".to_owned(), source: std::io::Error::other(e) };
    let input = QueryHcaCap { kind }.to_bytes().map_err(wrong)?;
    let mut output = vec![0; QueryHcaCap::REPLY_BYTES];
    let result = devx.command(&input, &mut output);
    outcome(device, &format!("asking for capabilities ({kind:?})"), &input, result, &output)?;
    Ok(QueryHcaCap::capabilities(&output).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ports_end_within_the_range(port: u16, a: u16, b: u16) {
            let range = a.min(b)..=a.max(b);
            let moved = within(port, &range);
            prop_assert!(range.contains(&moved));
            prop_assert!(!range.contains(&port) || moved == port);
        }
    }
}
