//! Commands about queue pairs: the shared context, creation, transitions and query.

use super::{OPCODE, expect_opcode, layout, opcode};
use crate::wire::be::{Field, FieldError};

/// Bytes of a command with a context.
pub const CONTEXT_COMMAND_BYTES: usize = 272;
/// Bytes of a command that only names a queue pair.
pub const SHORT_COMMAND_BYTES: usize = 16;

const QPN: Field = Field::new("qpn", 0x08, 23, 0);
const OPT_PARAM_MASK: Field = Field::new("opt_param_mask", 0x10, 31, 0);

/// Values of [`QpContext::service`].
pub mod service {
    /// Reliable connection.
    pub const RELIABLE_CONNECTION: u8 = 0;
    /// Dynamically connected initiator.
    pub const DYNAMIC_INITIATOR: u8 = 5;
}

/// Values of [`QpContext::rq_type`].
pub mod rq_type {
    /// The queue pair has its own receive queue.
    pub const OWN: u8 = 0;
    /// The queue pair uses a shared receive queue.
    pub const SHARED: u8 = 1;
    /// The queue pair has no receive queue.
    pub const NONE: u8 = 3;
}

/// Values of [`QpContext::cs_res`].
pub mod scatter {
    /// Messages go to the memory of their receive alone.
    pub const NONE: u8 = 0;
    /// Messages of up to 32 bytes go into their completion entry of 64 bytes (Linux `mlx5_ib.h`,
    /// `MLX5_RES_SCAT_DATA32_CQE`).
    pub const UP_TO_32: u8 = 1;
}

/// Bits of `opt_param_mask`: optional fields that a transition sets.
pub mod opt_param {
    /// Remote reads.
    pub const REMOTE_READ: u32 = 1 << 1;
    /// Remote writes.
    pub const REMOTE_WRITE: u32 = 1 << 3;
    /// Partition key.
    pub const PKEY_INDEX: u32 = 1 << 4;
    /// Receiver-not-ready timer.
    pub const MIN_RNR_NAK: u32 = 1 << 6;
    /// Port.
    pub const PORT: u32 = 1 << 16;
    /// Differentiated services code point.
    pub const DSCP: u32 = 1 << 17;
    /// Source GID.
    pub const SOURCE_GID: u32 = 1 << 23;
}

/// Path migration state of a queue pair without migration.
pub const PM_MIGRATED: u8 = 3;
/// Atomic mode: atomics of up to 64 bits, including the extended ones.
pub const ATOMIC_UP_TO_64: u8 = 3;
/// Atomic mode: the two atomics of the InfiniBand specification.
pub const ATOMIC_IB_SPEC: u8 = 1;

layout! {
    /// Context of a queue pair with its primary address path. It has the same offsets in every command.
    pub struct QpContext {
        /// State, as in [`QpState`]. Only in the reply to a query.
        state: u8 = 0x18 [31:28],
        /// Service: a value of [`service`].
        service: u8 = 0x18 [23:16],
        /// Path migration state: [`PM_MIGRATED`].
        pm_state: u8 = 0x18 [12:11],
        /// Writes of 8 bytes are atomic.
        atomic_like_write: bool = 0x1c [29:29],
        /// Prefers latency to bandwidth.
        latency_sensitive: bool = 0x1c [28:28],
        /// Protection domain.
        pd: u32 = 0x1c [23:0],
        /// Path MTU: 1 to 5 for 256 to 4096 bytes.
        mtu: u8 = 0x20 [31:29],
        /// log2 of the longest message.
        log_msg_max: u8 = 0x20 [28:24],
        /// log2 of the receive entries.
        log_rq_size: u8 = 0x20 [22:19],
        /// log2 of a receive entry's segments.
        log_rq_stride: u8 = 0x20 [18:16],
        /// True if there is no send queue.
        no_sq: bool = 0x20 [15:15],
        /// log2 of the send queue's blocks.
        log_sq_size: u8 = 0x20 [14:11],
        /// Timestamp format.
        ts_format: u8 = 0x20 [7:6],
        /// Data arrives in order.
        data_in_order: bool = 0x20 [5:5],
        /// Counter set.
        counter_set: u8 = 0x24 [31:24],
        /// Page of the doorbell register.
        uar_page: u32 = 0x24 [23:0],
        /// Doorbell record mode: see [`crate::wire::mlx5::doorbell::RecordMode`].
        send_dbr_mode: u8 = 0x28 [31:30],
        /// Number that completion entries carry.
        user_index: u32 = 0x28 [23:0],
        /// log2 of the page size, in units of 4 KiB.
        log_page_size: u8 = 0x2c [28:24],
        /// The peer's queue pair number.
        remote_qpn: u32 = 0x2c [23:0],
        /// Partition key.
        pkey_index: u16 = 0x30 [15:0],
        /// Packets have a global route header.
        grh: bool = 0x34 [23:23],
        /// Source path bits.
        mlid: u8 = 0x34 [22:16],
        /// LID of the peer; 0 on Ethernet.
        rlid: u16 = 0x34 [15:0],
        /// Retransmission timer: 4.096 us * 2^n.
        ack_timeout: u8 = 0x38 [31:27],
        /// Index of the source GID.
        src_gid_index: u8 = 0x38 [23:16],
        /// Rate limit.
        stat_rate: u8 = 0x38 [11:8],
        /// Hop limit.
        hop_limit: u8 = 0x38 [7:0],
        /// Traffic class.
        tclass: u8 = 0x3c [27:20],
        /// Flow label.
        flow_label: u32 = 0x3c [19:0],
        /// First half of the peer's GID.
        rgid_high: u64 = 0x40 [63:0],
        /// Second half of the peer's GID. An IPv4 address is `::ffff:a.b.c.d`.
        rgid_low: u64 = 0x48 [63:0],
        /// The code point does not come from this context.
        force_dscp: bool = 0x50 [27:27],
        /// The congestion bits do not come from this context.
        force_ecn: bool = 0x50 [26:26],
        /// The priority does not come from this context.
        force_eth_prio: bool = 0x50 [24:24],
        /// Congestion bits.
        ecn: u8 = 0x50 [23:22],
        /// Differentiated services code point: the traffic class without its two low bits.
        dscp: u8 = 0x50 [21:16],
        /// UDP source port: spreads queue pairs over paths.
        udp_sport: u16 = 0x50 [15:0],
        /// Ethernet priority.
        eth_prio: u8 = 0x54 [30:28],
        /// InfiniBand service level.
        sl: u8 = 0x54 [27:24],
        /// Port of the adapter.
        port: u8 = 0x54 [23:16],
        /// First two bytes of the peer's MAC address.
        rmac_high: u16 = 0x54 [15:0],
        /// Last four bytes of the peer's MAC address.
        rmac_low: u32 = 0x58 [31:0],
        /// log2 of the packets between acknowledgement requests.
        log_ack_req_freq: u8 = 0x88 [31:28],
        /// log2 of the largest number of this side's outstanding reads and atomics.
        log_sra_max: u8 = 0x88 [23:21],
        /// Number of retransmissions.
        retry_count: u8 = 0x88 [18:16],
        /// Retries while the receiver is not ready; 7 for unlimited.
        rnr_retry: u8 = 0x88 [15:13],
        /// First packet sequence number to send.
        next_send_psn: u32 = 0x90 [23:0],
        /// Completion queue of the send queue.
        cqn_send: u32 = 0x94 [23:0],
        /// log2 of the largest number of the peer's outstanding reads and atomics.
        log_rra_max: u8 = 0xa8 [23:21],
        /// Atomic mode: [`ATOMIC_UP_TO_64`] or [`ATOMIC_IB_SPEC`].
        atomic_mode: u8 = 0xa8 [19:16],
        /// The peer may read.
        remote_read: bool = 0xa8 [15:15],
        /// The peer may write.
        remote_write: bool = 0xa8 [14:14],
        /// The peer may execute atomics.
        remote_atomic: bool = 0xa8 [13:13],
        /// The queue accepts wait entries.
        master: bool = 0xa8 [0:0],
        /// Receiver-not-ready timer: delay of a sender whose receiver is not ready.
        min_rnr_nak: u8 = 0xac [28:24],
        /// First packet sequence number to expect.
        next_receive_psn: u32 = 0xac [23:0],
        /// Completion queue of the receive queue.
        cqn_receive: u32 = 0xb4 [23:0],
        /// Byte offset of the doorbell record.
        dbr_offset: u64 = 0xb8 [63:0],
        /// Key of datagrams (Q_Key).
        q_key: u32 = 0xc0 [31:0],
        /// Kind of receive queue: a value of [`rq_type`].
        rq_type: u8 = 0xc4 [26:24],
        /// Shared receive queue.
        srqn: u32 = 0xc4 [23:0],
        /// Number of the peer's executed requests. Only in the reply to a query.
        rmsn: u32 = 0xc8 [23:0],
        /// Block that the adapter has reached. Only in the reply to a query.
        hw_sq_block: u16 = 0xcc [31:16],
        /// Block up to which doorbells have announced. Only in the reply to a query.
        sw_sq_block: u16 = 0xcc [15:0],
        /// Requester data that completion entries may contain: 0 for none.
        cs_req: u8 = 0xdc [15:8],
        /// Responder data that completion entries may contain: a value of [`scatter`].
        cs_res: u8 = 0xdc [7:0],
        /// Access key of dynamically connected targets.
        dc_access_key: u64 = 0xe0 [63:0],
        /// The doorbell record is in [`QpContext::dbr_umem_id`].
        dbr_umem_valid: bool = 0xe8 [28:28],
        /// Memory of the doorbell record.
        dbr_umem_id: u32 = 0xfc [31:0],
    }
}

/// States of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum QpState {
    /// Reset.
    Reset = 0,
    /// Initialised.
    Init = 1,
    /// Ready to receive.
    ReadyToReceive = 2,
    /// Ready to send.
    ReadyToSend = 3,
    /// Send queue error.
    SendQueueError = 4,
    /// Send queue drained.
    SendQueueDrained = 5,
    /// Error: everything is flushed.
    Error = 6,
}

impl QpContext {
    /// Returns the state; `None` if it is not defined.
    pub const fn qp_state(&self) -> Option<QpState> {
        Some(match self.state {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::ReadyToReceive,
            3 => QpState::ReadyToSend,
            4 => QpState::SendQueueError,
            5 => QpState::SendQueueDrained,
            6 => QpState::Error,
            _ => return None,
        })
    }
    /// Sets the peer's GID.
    pub fn set_remote_gid(&mut self, gid: [u8; 16]) {
        let v = u128::from_be_bytes(gid);
        (self.rgid_high, self.rgid_low) = ((v >> 64) as u64, v as u64);
    }
    /// Sets the peer's MAC.
    pub fn set_remote_mac(&mut self, mac: [u8; 6]) {
        let [a, b, c, d, e, f] = mac;
        (self.rmac_high, self.rmac_low) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
    }
}

layout! {
    /// Memory of a queue pair's rings, behind the context in CREATE_QP.
    pub struct QpMemory {
        /// Byte offset of the rings.
        offset: u64 = 0x100 [63:0],
        /// Memory of the rings.
        umem_id: u32 = 0x108 [31:0],
        /// The rings are in [`QpMemory::umem_id`].
        valid: bool = 0x10c [31:31],
    }
}

/// The command CREATE_QP: creates a queue pair in registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateQp {
    /// The context.
    pub context: QpContext,
    /// Memory of the rings: the receive queue, which has 64 bytes at least, and directly behind it the send queue.
    pub memory: QpMemory,
}

impl CreateQp {
    /// Encodes the command.
    ///
    /// # Errors
    /// [`FieldError::TooLarge`] if a value has more bits than its field.
    pub fn to_bytes(&self) -> Result<[u8; CONTEXT_COMMAND_BYTES], FieldError> {
        let mut bytes = [0; CONTEXT_COMMAND_BYTES];
        OPCODE.set(&mut bytes, opcode::CREATE_QP.into())?;
        self.context.put(&mut bytes)?;
        self.memory.put(&mut bytes)?;
        Ok(bytes)
    }
    /// Decodes the command.
    ///
    /// # Errors
    /// [`FieldError::Undefined`] if the bytes are another command, or a value has no defined meaning.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FieldError> {
        expect_opcode(bytes, opcode::CREATE_QP)?;
        Ok(Self { context: QpContext::get_from(bytes)?, memory: QpMemory::get_from(bytes)? })
    }
}

/// State transitions that carry a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Transition {
    /// Reset to initialised: sets port and access rights.
    ResetToInit = opcode::RST2INIT_QP,
    /// Initialised to ready to receive: sets the peer and the path to it.
    InitToReadyToReceive = opcode::INIT2RTR_QP,
    /// Ready to receive to ready to send: sets timers and retries.
    ReadyToReceiveToSend = opcode::RTR2RTS_QP,
    /// Changes a queue pair that is ready to send.
    ReadyToSend = opcode::RTS2RTS_QP,
}

impl Transition {
    const ALL: [Self; 4] =
        [Self::ResetToInit, Self::InitToReadyToReceive, Self::ReadyToReceiveToSend, Self::ReadyToSend];
}

/// The command that executes a [`Transition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModifyQp {
    /// The transition.
    pub transition: Transition,
    /// Queue pair.
    pub qpn: u32,
    /// Optional fields that are set: bits of [`opt_param`].
    pub opt_param_mask: u32,
    /// The new values.
    pub context: QpContext,
}

impl ModifyQp {
    /// Encodes the command.
    ///
    /// # Errors
    /// [`FieldError::TooLarge`] if a value has more bits than its field.
    pub fn to_bytes(&self) -> Result<[u8; CONTEXT_COMMAND_BYTES], FieldError> {
        let mut bytes = [0; CONTEXT_COMMAND_BYTES];
        OPCODE.set(&mut bytes, self.transition as u64)?;
        QPN.set(&mut bytes, self.qpn.into())?;
        OPT_PARAM_MASK.set(&mut bytes, self.opt_param_mask.into())?;
        self.context.put(&mut bytes)?;
        Ok(bytes)
    }
    /// Decodes the command.
    ///
    /// # Errors
    /// [`FieldError::Undefined`] if the bytes are another command, or a value has no defined meaning.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FieldError> {
        let value = OPCODE.get(bytes);
        let transition = Transition::ALL.into_iter().find(|t| *t as u64 == value);
        Ok(Self {
            transition: transition.ok_or(FieldError::Undefined { field: "opcode", value })?,
            qpn: QPN.get(bytes) as u32,
            opt_param_mask: OPT_PARAM_MASK.get(bytes) as u32,
            context: QpContext::get_from(bytes)?,
        })
    }
}

/// Commands that only name a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum QpCommand {
    /// Destroys the queue pair.
    Destroy = opcode::DESTROY_QP,
    /// Moves any state to error, which flushes everything in the queues.
    ToError = opcode::TO_ERROR_QP,
    /// Moves any state to reset. The adapter's block counter restarts at 0.
    ToReset = opcode::TO_RESET_QP,
    /// Queries the context; the reply is [`QueryQp`].
    Query = opcode::QUERY_QP,
}

impl QpCommand {
    const ALL: [Self; 4] = [Self::Destroy, Self::ToError, Self::ToReset, Self::Query];

    /// Encodes the command for queue pair `qpn`.
    ///
    /// # Errors
    /// [`FieldError::TooLarge`] if `qpn` has more than 24 bits.
    pub fn to_bytes(self, qpn: u32) -> Result<[u8; SHORT_COMMAND_BYTES], FieldError> {
        let mut bytes = [0; SHORT_COMMAND_BYTES];
        OPCODE.set(&mut bytes, self as u64)?;
        QPN.set(&mut bytes, qpn.into())?;
        Ok(bytes)
    }
    /// Decodes the command. Returns it with its queue pair number.
    ///
    /// # Errors
    /// [`FieldError::Undefined`] if the bytes are another command.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, u32), FieldError> {
        let value = OPCODE.get(bytes);
        let command = Self::ALL.into_iter().find(|c| *c as u64 == value);
        Ok((command.ok_or(FieldError::Undefined { field: "opcode", value })?, QPN.get(bytes) as u32))
    }
}

/// Reply to [`QpCommand::Query`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryQp {
    /// The queue pair's present context.
    pub context: QpContext,
}

impl QueryQp {
    /// Bytes of the reply (`query_qp_out` of `mlx5_ifc.h`). Firmware may reject any other length.
    pub const BYTES: usize = 272;

    /// Decodes the reply. The caller has checked its status with [`super::Reply::check`].
    ///
    /// # Errors
    /// [`FieldError::Undefined`] if a value has no defined meaning.
    pub fn from_bytes(reply: &[u8]) -> Result<Self, FieldError> {
        Ok(Self { context: QpContext::get_from(reply)? })
    }
    /// Returns the number of announced blocks that the adapter has not reached yet.
    pub const fn blocks_waiting(&self) -> u16 {
        self.context.sw_sq_block.wrapping_sub(self.context.hw_sq_block)
    }
}
