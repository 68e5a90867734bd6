//! A queue pair of a reliable connection: its states, its work requests and its completions.

use super::{Buffer, ProtectionDomain, address_handle, answer, failed};
use crate::rdma::connection::{RETRIES, RNR_RETRIES, RNR_TIMER};
use crate::rdma::proxy::{Action, Done, Piece, PostError, ReceiveCompletion, ReceiveQueue, Request, SendQueue};
use crate::rdma::sys::{
    self, Verbs, ibv_access_flags as access, ibv_cq, ibv_mtu, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask as mask,
    ibv_qp_init_attr, ibv_qp_state as state, ibv_qp_type, ibv_recv_wr, ibv_send_flags as send, ibv_send_wr, ibv_sge,
    ibv_wc, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode as opcode,
};
use crate::rdma::{RdmaError, Route};
use crate::wire::mlx5::CqeOpcode;
use crate::wire::mlx5::wqe::SendWith;
use std::io;
use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Largest number of completions per poll.
const BATCH: usize = 32;
/// Number of receives that a queue pair without a receive ring keeps posted. Immediates and sends of the other side
/// consume them.
const RECEIVES: u32 = 64;
/// Flags of a completion with immediate data, and of one that invalidated a key (rdma-core `verbs.h`, `enum
/// ibv_wc_flags`).
const WITH_IMMEDIATE: u32 = 1 << 1;
const WITH_INVALIDATION: u32 = 1 << 3;
/// Largest inline payload of a request in bytes, if the device allows it.
const INLINE: u32 = 220;

/// A completion queue.
#[derive(Debug)]
pub(in crate::rdma) struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: verbs calls may come from any thread.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    fn new(domain: &Arc<ProtectionDomain>, entries: u32) -> Result<Self, RdmaError> {
        let context = domain.context();
        // SAFETY: an open device; no channel.
        let raw = unsafe { domain.verbs().ibv_create_cq(context.raw(), entries as i32, null_mut(), null_mut(), 0) };
        let raw = NonNull::new(raw);
        let raw = raw
            .ok_or_else(|| failed(format!("creating a completion queue of {entries} entries on {}", context.name())))?;
        Ok(Self { raw, domain: domain.clone() })
    }

    fn poll(&mut self, mut each: impl FnMut(&ibv_wc)) -> io::Result<usize> {
        // SAFETY: integers, for which zero is a valid value.
        let mut entries: [ibv_wc; BATCH] = unsafe { zeroed() };
        // SAFETY: writes at most `BATCH` entries; `&mut self` excludes concurrent calls.
        let count = unsafe { sys::poll_cq(self.raw.as_ptr(), BATCH as i32, entries.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| io::Error::other(format!("polling failed ({count})")))?;
        entries.iter().take(count).for_each(&mut each);
        Ok(count)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: created by this type; the queue pair that used it was destroyed before.
        unsafe { self.domain.verbs().ibv_destroy_cq(self.raw.as_ptr()) };
    }
}

#[derive(Debug)]
struct RawQueuePair {
    verbs: &'static Verbs,
    raw: NonNull<ibv_qp>,
}

// SAFETY: verbs calls may come from any thread.
unsafe impl Send for RawQueuePair {}

impl Drop for RawQueuePair {
    fn drop(&mut self) {
        // SAFETY: created by `VerbsQueue::new`, destroyed once.
        unsafe { self.verbs.ibv_destroy_qp(self.raw.as_ptr()) };
    }
}

/// Source of a queue pair's receives.
#[derive(Clone, Debug)]
pub(in crate::rdma) enum ReceiveSource {
    /// The queue pair posts its own. Messages land in this memory, which nothing reads.
    Unread(Arc<Buffer>),
    /// The owner posts them for the entries of a receive ring.
    Ring {
        /// Largest number of receives at a time.
        slots: u32,
        /// Largest number of pieces of a receive.
        pieces: u32,
    },
}

impl ReceiveSource {
    fn most(&self) -> (u32, u32) {
        match *self {
            Self::Unread(_) => (RECEIVES, 1),
            Self::Ring { slots, pieces } => (slots, pieces),
        }
    }
}

/// A queue pair with its completion queues. Fields are dropped in order: the queue pair first.
#[derive(Debug)]
pub(in crate::rdma) struct VerbsQueue {
    raw: RawQueuePair,
    sends: CompletionQueue,
    receives: CompletionQueue,
    source: ReceiveSource,
    port: u8,
    inline: u32,
    pieces: u32,
    receives_posted: u32,
    /// Number of resets. It is the identifier of each receive.
    life: u64,
    /// True if a receive of this life was flushed.
    flushed: bool,
}

impl VerbsQueue {
    /// Creates a queue pair for `requests` requests in flight, in its initial state, on this port.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device rejects a step.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        requests: u32,
        pieces: u32,
        port: u8,
        source: ReceiveSource,
    ) -> Result<Self, RdmaError> {
        let (most, most_pieces) = source.most();
        let sends = CompletionQueue::new(domain, requests + 1)?;
        let receives = CompletionQueue::new(domain, most)?;
        let verbs = domain.verbs();
        let create = |inline: u32| {
            // SAFETY: integers and pointers, for which zero is a valid value.
            let mut attr: ibv_qp_init_attr = unsafe { zeroed() };
            attr.send_cq = sends.raw.as_ptr();
            attr.recv_cq = receives.raw.as_ptr();
            attr.qp_type = ibv_qp_type::IBV_QPT_RC;
            attr.cap.max_send_wr = requests;
            attr.cap.max_recv_wr = most;
            attr.cap.max_send_sge = pieces;
            attr.cap.max_recv_sge = most_pieces;
            attr.cap.max_inline_data = inline;
            // SAFETY: a live domain and completion queues of the same device.
            let raw = NonNull::new(unsafe { verbs.ibv_create_qp(domain.raw(), &mut attr) });
            raw.map(|r| (r, attr.cap.max_inline_data.min(inline)))
        };
        // Devices without inline data reject a request for it.
        let (raw, inline) = create(INLINE).or_else(|| create(0)).ok_or_else(|| {
            failed(format!(
                "creating a queue pair of {requests} requests of {pieces} pieces, and {most} receives, on {}",
                domain.context().name()
            ))
        })?;
        let raw = RawQueuePair { verbs, raw };
        let mut this =
            Self { raw, sends, receives, source, port, inline, pieces, receives_posted: 0, life: 0, flushed: false };
        this.initialise()?;
        Ok(this)
    }

    /// Returns the queue pair number.
    pub fn number(&self) -> u32 {
        // SAFETY: alive until dropped.
        unsafe { (*self.raw.raw.as_ptr()).qp_num }
    }

    /// Returns the largest inline payload of a request in bytes.
    pub fn inline_bytes(&self) -> u32 {
        self.inline
    }

    fn modify(&mut self, to: &str, attr: &mut ibv_qp_attr, masks: &[mask]) -> Result<(), RdmaError> {
        let all = masks.iter().fold(0, |all, m| all | m.0);
        // SAFETY: a live queue pair; `&mut self` serialises its state changes.
        let code = unsafe { self.raw.verbs.ibv_modify_qp(self.raw.raw.as_ptr(), attr, all as i32) };
        answer(code, || format!("moving queue pair {:#x} to {to}", self.number()))
    }

    /// Moves the queue pair from reset to its initial state and posts its receives.
    fn initialise(&mut self) -> Result<(), RdmaError> {
        let rights =
            access::IBV_ACCESS_REMOTE_WRITE.0 | access::IBV_ACCESS_REMOTE_READ.0 | access::IBV_ACCESS_REMOTE_ATOMIC.0;
        let mut attr = blank();
        attr.qp_state = state::IBV_QPS_INIT;
        attr.port_num = self.port;
        attr.qp_access_flags = rights;
        self.modify(
            "its initial state",
            &mut attr,
            &[mask::IBV_QP_STATE, mask::IBV_QP_PKEY_INDEX, mask::IBV_QP_PORT, mask::IBV_QP_ACCESS_FLAGS],
        )?;
        self.receives_posted = 0;
        self.post_receives();
        Ok(())
    }

    /// Moves the queue pair from its initial state to ready to receive, then to ready to send.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device rejects the path or an attribute.
    pub fn connect(&mut self, route: &Route) -> Result<(), RdmaError> {
        let mut attr = blank();
        attr.qp_state = state::IBV_QPS_RTR;
        attr.path_mtu = ibv_mtu(route.mtu.field().into());
        attr.dest_qp_num = route.remote;
        attr.rq_psn = route.receive_psn;
        attr.max_dest_rd_atomic = route.reads_in;
        attr.min_rnr_timer = RNR_TIMER;
        attr.ah_attr = address_handle(route);
        self.modify(
            "ready to receive",
            &mut attr,
            &[
                mask::IBV_QP_STATE,
                mask::IBV_QP_AV,
                mask::IBV_QP_PATH_MTU,
                mask::IBV_QP_DEST_QPN,
                mask::IBV_QP_RQ_PSN,
                mask::IBV_QP_MAX_DEST_RD_ATOMIC,
                mask::IBV_QP_MIN_RNR_TIMER,
            ],
        )?;
        let mut attr = blank();
        attr.qp_state = state::IBV_QPS_RTS;
        attr.timeout = route.ack_timeout;
        attr.retry_cnt = RETRIES;
        attr.rnr_retry = RNR_RETRIES;
        attr.sq_psn = route.send_psn;
        attr.max_rd_atomic = route.reads_out;
        self.modify(
            "ready to send",
            &mut attr,
            &[
                mask::IBV_QP_STATE,
                mask::IBV_QP_TIMEOUT,
                mask::IBV_QP_RETRY_CNT,
                mask::IBV_QP_RNR_RETRY,
                mask::IBV_QP_SQ_PSN,
                mask::IBV_QP_MAX_QP_RD_ATOMIC,
            ],
        )
    }

    /// Moves the queue pair to its error state, which flushes all its requests.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device rejects the step.
    pub fn fail(&mut self) -> Result<(), RdmaError> {
        let mut attr = blank();
        attr.qp_state = state::IBV_QPS_ERR;
        self.modify("its error state", &mut attr, &[mask::IBV_QP_STATE])
    }

    /// Moves the queue pair from any state to its initial state. It can then be connected again. Completions of the
    /// previous life may still be in the queue.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device rejects a step.
    pub fn reset(&mut self) -> Result<(), RdmaError> {
        self.fail()?;
        let mut attr = blank();
        attr.qp_state = state::IBV_QPS_RESET;
        self.modify("reset", &mut attr, &[mask::IBV_QP_STATE])?;
        for queue in [&mut self.sends, &mut self.receives] {
            while queue.poll(|_| ()).is_ok_and(|n| n == BATCH) {}
        }
        // Completions of the previous life may still arrive.
        self.life += 1;
        self.flushed = false;
        self.initialise()
    }

    /// Keeps the receives of a queue pair without a receive ring posted.
    fn post_receives(&mut self) {
        let ReceiveSource::Unread(landing) = &self.source else { return };
        let piece = ibv_sge { addr: landing.address(), length: landing.len() as u32, lkey: landing.key() };
        while self.receives_posted < RECEIVES {
            if self.post_one(self.life, &mut [piece]).is_err() {
                return;
            }
            self.receives_posted += 1;
        }
    }

    /// Posts a receive. The device checks the memory that the pieces name against its registrations.
    fn post_one(&self, id: u64, pieces: &mut [ibv_sge]) -> Result<(), PostError> {
        // SAFETY: integers and pointers, for which zero is a valid value.
        let mut request: ibv_recv_wr = unsafe { zeroed() };
        request.wr_id = id;
        request.sg_list = pieces.as_mut_ptr();
        request.num_sge = pieces.len() as i32;
        let mut bad = null_mut();
        // SAFETY: a live queue pair; the call reads the request and its list.
        posted(unsafe { sys::post_recv(self.raw.raw.as_ptr(), &mut request, &mut bad) })
    }
}

/// Converts the result of a call that posts.
fn posted(code: i32) -> Result<(), PostError> {
    match code.abs() {
        0 => Ok(()),
        libc::ENOMEM | libc::EAGAIN | libc::EBUSY => Err(PostError::Full),
        code => Err(PostError::Refused(io::Error::from_raw_os_error(code))),
    }
}

fn blank() -> ibv_qp_attr {
    // SAFETY: integers and bytes, for which zero is a valid value.
    unsafe { zeroed() }
}

impl SendQueue for VerbsQueue {
    fn pieces(&self) -> usize {
        self.pieces as usize
    }

    fn post(&mut self, request: &Request) -> Result<(), PostError> {
        let mut pieces: Vec<ibv_sge> =
            request.local.iter().map(|p| ibv_sge { addr: p.address, length: p.bytes, lkey: p.key }).collect();
        // SAFETY: integers and pointers, for which zero is a valid value.
        let mut wr: ibv_send_wr = unsafe { zeroed() };
        wr.wr_id = request.id;
        wr.sg_list = pieces.as_mut_ptr();
        wr.num_sge = pieces.len() as i32;
        let bytes: u64 = request.local.iter().map(|p| u64::from(p.bytes)).sum();
        let inline = request.own_bytes && bytes <= u64::from(self.inline);
        let flag = |on: bool, flag: send| if on { flag.0 } else { 0 };
        wr.send_flags = flag(true, send::IBV_SEND_SIGNALED)
            | flag(request.fence, send::IBV_SEND_FENCE)
            | flag(request.solicited, send::IBV_SEND_SOLICITED)
            | flag(inline, send::IBV_SEND_INLINE);
        match request.action {
            Action::Write { remote, immediate } => {
                wr.wr.rdma.remote_addr = remote.address;
                wr.wr.rdma.rkey = remote.key;
                wr.opcode = opcode::IBV_WR_RDMA_WRITE;
                if let Some(value) = immediate {
                    wr.opcode = opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
                    wr.__bindgen_anon_1.imm_data = value.to_be();
                }
            }
            Action::Read { remote } => {
                wr.wr.rdma.remote_addr = remote.address;
                wr.wr.rdma.rkey = remote.key;
                wr.opcode = opcode::IBV_WR_RDMA_READ;
            }
            Action::Send { with: SendWith::Nothing } => wr.opcode = opcode::IBV_WR_SEND,
            Action::Send { with: SendWith::Immediate(value) } => {
                wr.opcode = opcode::IBV_WR_SEND_WITH_IMM;
                wr.__bindgen_anon_1.imm_data = value.to_be();
            }
            Action::Send { with: SendWith::Invalidate(key) } => {
                wr.opcode = opcode::IBV_WR_SEND_WITH_INV;
                wr.__bindgen_anon_1.invalidate_rkey = key;
            }
            Action::FetchAdd { remote, add } => {
                wr.wr.atomic.remote_addr = remote.address;
                wr.wr.atomic.rkey = remote.key;
                wr.wr.atomic.compare_add = add;
                wr.opcode = opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
            }
            Action::CompareSwap { remote, compare, swap } => {
                wr.wr.atomic.remote_addr = remote.address;
                wr.wr.atomic.rkey = remote.key;
                wr.wr.atomic.compare_add = compare;
                wr.wr.atomic.swap = swap;
                wr.opcode = opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
            }
        }
        let mut bad = null_mut();
        // SAFETY: a live queue pair; the call reads the request and its list. The device checks the memory that they
        // name against its registrations.
        posted(unsafe { sys::post_send(self.raw.raw.as_ptr(), &mut wr, &mut bad) })
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> io::Result<()> {
        self.sends.poll(|wc| {
            out.push(Done { id: wc.wr_id, status: wc.status.0 as u8, vendor: wc.vendor_err as u8 });
        })?;
        Ok(())
    }

    fn tend(&mut self) -> u64 {
        let mut taken = 0;
        let (life, mut failed) = (self.life, false);
        let polled = self.receives.poll(|wc| {
            taken += u64::from(wc.status == ibv_wc_status::IBV_WC_SUCCESS);
            failed |= wc.status != ibv_wc_status::IBV_WC_SUCCESS && wc.wr_id == life;
        });
        self.flushed |= failed;
        self.receives_posted = self.receives_posted.saturating_sub(polled.unwrap_or(0) as u32);
        if taken > 0 {
            self.post_receives();
        }
        taken
    }

    fn is_flushed(&self) -> bool {
        self.flushed
    }
}

impl ReceiveQueue for VerbsQueue {
    fn post_receive(&mut self, id: u64, pieces: &[Piece]) -> Result<(), PostError> {
        let mut pieces: Vec<ibv_sge> =
            pieces.iter().map(|p| ibv_sge { addr: p.address, length: p.bytes, lkey: p.key }).collect();
        self.post_one(id, &mut pieces)
    }

    fn poll_receives(&mut self, out: &mut Vec<ReceiveCompletion>) -> io::Result<()> {
        self.receives.poll(|wc| out.push(receive_completion(wc)))?;
        Ok(())
    }

    fn fail(&mut self) {
        // A queue pair that cannot be moved to its error state is in it, or was never connected.
        let _ = Self::fail(self);
    }
}

fn receive_completion(wc: &ibv_wc) -> ReceiveCompletion {
    let has = |flag: u32| wc.wc_flags & flag != 0;
    let by_write = wc.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
    let (immediate, invalidates) = (has(WITH_IMMEDIATE), has(WITH_INVALIDATION));
    // SAFETY: two names of one integer.
    let word = unsafe { wc.__bindgen_anon_1.imm_data };
    ReceiveCompletion {
        id: wc.wr_id,
        status: wc.status.0 as u8,
        vendor: wc.vendor_err as u8,
        bytes: wc.byte_len,
        what: match (by_write, immediate, invalidates) {
            (true, ..) => CqeOpcode::WriteImm,
            (_, true, _) => CqeOpcode::SendImm,
            (.., true) => CqeOpcode::SendInval,
            _ => CqeOpcode::Send,
        },
        // The device has the immediate in network byte order, and the key in this machine's.
        immediate: match (immediate, invalidates) {
            (true, _) => Some(u32::from_be(word)),
            (false, true) => Some(word),
            (false, false) => None,
        },
    }
}
