//! A queue pair whose objects are created by commands: memory, completion queue, queue pair, and its state transitions.

use super::devx::{Devx, DevxObject, Umem, outcome, register};
use super::doorbell::{Doorbell, Mailbox};
use crate::memory::Place;
use crate::rdma::connection::{
    HOP_LIMIT, LOG_LONGEST_MESSAGE, RETRIES, RNR_RETRIES, RNR_TIMER, log_reads, log_reads_in,
};
use crate::rdma::{QueuePlan, QueueRings, RdmaError, Route};
use crate::wire::be::FieldError;
use crate::wire::mlx5::devx::qp::{ATOMIC_UP_TO_64, PM_MIGRATED, QpMemory, rq_type, scatter, service};
use crate::wire::mlx5::devx::{
    CreateCq, CreateQp, ModifyQp, QpCommand, QpContext, QpState, QueryQp, REPLY_BYTES, Transition,
};
use crate::wire::mlx5::doorbell::RecordMode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Timestamp formats of completions in the order of attempts: the device's default, then free running for devices that
/// support only that.
const TIMESTAMP_FORMATS: [u8; 2] = [1, 0];
/// log2 of the page size of GPU memory in units of 4 KiB: 64 KiB.
const LOG_GPU_PAGE: u8 = 4;

/// Properties that all queue pairs of an adapter share.
pub(super) struct Common<'a> {
    /// Name of the NIC, for messages.
    pub device: &'a str,
    pub devx: &'a dyn Devx,
    pub event_queue: u32,
    pub port: u8,
    /// True if short messages can go into their completion entry.
    pub scatter_to_cqe: bool,
}

/// A queue pair with all its objects. Fields are dropped in order: queue pair, completion queues, mailbox, doorbell,
/// registrations, memory. Then nothing can write to freed memory.
#[derive(Debug)]
pub(super) struct DirectQueue {
    pair: Option<Object>,
    completions: Option<Object>,
    /// Completion queue of the receives, if there is a receive ring.
    received: Option<Object>,
    _mailbox: Option<Mailbox>,
    doorbell: Arc<Doorbell>,
    /// Doorbell record mode.
    pub mode: RecordMode,
    umems: Umems,
    pub memory: QueueRings,
    /// Name of the NIC.
    device: String,
    /// Way of registration of the queue's memory, in words.
    pub registration: String,
    /// True if the last query failed.
    unanswered: AtomicBool,
}

#[derive(Debug)]
struct Object {
    handle: Box<dyn DevxObject>,
    number: u32,
}

#[derive(Debug)]
struct Umems {
    work: Box<dyn Umem>,
    completions: Box<dyn Umem>,
    received: Option<Box<dyn Umem>>,
    records: Box<dyn Umem>,
}

/// A completion queue that is to be created.
struct CompletionPlan<'a> {
    umem: &'a dyn Umem,
    entries: u32,
    collapsed: bool,
    /// Number of its doorbell record. The queue pair's own record is number 0.
    record: usize,
}

fn field(e: FieldError) -> RdmaError {
    RdmaError::System { what: "building a command".to_owned(), source: std::io::Error::other(e) }
}

impl DirectQueue {
    /// Allocates and registers memory in `place` and creates the queues in it. The queue pair is in its initial state,
    /// in which receives can be posted. With a mailbox, kernels write that instead of the register.
    ///
    /// # Errors
    /// Objects of earlier steps are freed when a step fails.
    /// * [`RdmaError::Queue`] if the plan's ring size is not supported, or kernels reach neither register nor mailbox.
    /// * [`RdmaError::Memory`] if the memory cannot be allocated.
    /// * [`RdmaError::Registration`] if the NIC cannot register it.
    /// * [`RdmaError::System`] if the firmware rejects a command.
    pub fn new(
        common: &Common<'_>,
        plan: QueuePlan,
        place: Place,
        doorbell: Arc<Doorbell>,
        mode: RecordMode,
        mailbox: Option<Mailbox>,
    ) -> Result<Self, RdmaError> {
        let mut memory = QueueRings::new(plan, place)?;
        memory.set_blue_flame(if mailbox.is_none() { doorbell.flame() } else { 0 });
        let bell = mailbox.as_ref().map(|m| (m.memory().clone(), 0)).or_else(|| doorbell.mapped(mode));
        let (bell, offset) = bell.ok_or_else(|| RdmaError::Queue {
            blocks: memory.blocks(),
            reason: "kernels can access neither its doorbell nor a mailbox".to_owned(),
        })?;
        memory.set_doorbell(bell, offset);
        let (work, registration) = register(common.devx, memory.work(), "work queues")?;
        let (completions, _) = register(common.devx, memory.completions(), "a completion ring")?;
        let received = memory.receives().map(|r| register(common.devx, r.completions(), "a completion ring"));
        let received = received.transpose()?.map(|(umem, _)| umem);
        let (records, _) = register(common.devx, memory.records(), "a doorbell record")?;
        let umems = Umems { work, completions, received, records };
        let mut this = Self {
            pair: None,
            completions: None,
            received: None,
            _mailbox: mailbox,
            doorbell,
            mode,
            umems,
            memory,
            device: common.device.to_owned(),
            registration,
            unanswered: AtomicBool::new(false),
        };
        this.make(common)?;
        Ok(this)
    }

    /// Returns log2 of the queue memory's page size in units of 4 KiB.
    fn log_page(&self) -> u8 {
        if self.memory.work().host().is_some() { 0 } else { LOG_GPU_PAGE }
    }

    /// Creates the queues. Their memory must be in its initial state.
    fn make(&mut self, common: &Common<'_>) -> Result<(), RdmaError> {
        let (collapsed, entries) = (self.memory.plan().collapsed, self.memory.entries());
        let sends = CompletionPlan { umem: &*self.umems.completions, entries, collapsed, record: 1 };
        self.completions = Some(self.make_completions(common, &sends)?);
        if let (Some(umem), Some(r)) = (&self.umems.received, self.memory.receives()) {
            let entries = 1 << r.plan().log_slots;
            let receives = CompletionPlan { umem: &**umem, entries, collapsed: false, record: 2 };
            self.received = Some(self.make_completions(common, &receives)?);
        }
        let mut last = None;
        for ts_format in TIMESTAMP_FORMATS {
            let input = self.create_command(common, ts_format).to_bytes().map_err(field)?;
            match create(common, "creating a queue pair", &input) {
                Ok(pair) => {
                    self.pair = Some(pair);
                    let initial = self.change(Transition::ResetToInit, "its initial state", initial(common.port));
                    // A queue pair that takes no receives is not used.
                    return initial.inspect_err(|_| self.pair = None);
                }
                Err(e) => last = last.or(Some(e)),
            }
        }
        Err(last.unwrap_or_else(|| self.closed()))
    }

    fn make_completions(&self, common: &Common<'_>, plan: &CompletionPlan<'_>) -> Result<Object, RdmaError> {
        let command = CreateCq {
            collapsed: plan.collapsed,
            overrun_ignore: true,
            log_size: plan.entries.ilog2() as u8,
            uar_page: self.doorbell.page(),
            eqn: common.event_queue,
            dbr_umem_valid: true,
            dbr_umem_id: self.umems.records.id(),
            // The NIC reads nothing from it: overrun is ignored, and nothing arms the queue.
            dbr_offset: (plan.record * QueueRings::record_bytes()) as u64,
            umem_valid: true,
            umem_id: plan.umem.id(),
            log_page_size: self.log_page(),
            ..CreateCq::default()
        };
        create(common, "creating a completion queue", &command.to_bytes().map_err(field)?)
    }

    fn create_command(&self, common: &Common<'_>, ts_format: u8) -> CreateQp {
        let cqn = self.completions.as_ref().map_or(0, |c| c.number);
        let receives = self.memory.receives().map(|r| r.plan());
        let scatters = common.scatter_to_cqe && receives.is_some_and(|r| r.data_in_entries);
        let context = QpContext {
            service: service::RELIABLE_CONNECTION,
            pm_state: PM_MIGRATED,
            pd: common.devx.protection_domain(),
            log_rq_size: receives.map_or(0, |r| r.log_slots as u8),
            log_rq_stride: receives.map_or(0, |r| r.log_stride as u8),
            log_sq_size: self.memory.plan().log_blocks as u8,
            ts_format,
            uar_page: self.doorbell.page(),
            send_dbr_mode: self.mode as u8,
            log_page_size: self.log_page(),
            cqn_send: cqn,
            cqn_receive: self.received.as_ref().map_or(cqn, |c| c.number),
            rq_type: if receives.is_some() { rq_type::OWN } else { rq_type::NONE },
            cs_res: if scatters { scatter::UP_TO_32 } else { scatter::NONE },
            dbr_umem_valid: true,
            dbr_umem_id: self.umems.records.id(),
            ..QpContext::default()
        };
        CreateQp { context, memory: QpMemory { offset: 0, umem_id: self.umems.work.id(), valid: true } }
    }

    /// Returns the error of a queue pair that no longer exists.
    fn closed(&self) -> RdmaError {
        RdmaError::Queue {
            blocks: self.memory.blocks(),
            reason: "it could not be created again after a failure".to_owned(),
        }
    }

    fn pair(&mut self) -> Result<&mut Object, RdmaError> {
        let closed = self.closed();
        self.pair.as_mut().ok_or(closed)
    }

    /// Returns the queue pair number. It changes with a reset.
    pub fn number(&self) -> u32 {
        self.pair.as_ref().map_or(0, |p| p.number)
    }

    /// Moves the queue pair from its initial state to ready to send. `&mut self` ensures that state changes never overlap.
    ///
    /// # Errors
    /// * [`RdmaError::System`] if the next hop's hardware address is not found, or the firmware rejects a step.
    /// * [`RdmaError::Queue`] if the queue pair no longer exists.
    pub fn connect(&mut self, common: &Common<'_>, route: &Route) -> Result<(), RdmaError> {
        let mac = match route.ethernet {
            false => None,
            true => Some(common.devx.remote_mac(route).map_err(|source| RdmaError::System {
                what: "finding the next hop's hardware address (can this host reach the other by `ping`?)".to_owned(),
                source,
            })?),
        };
        for (transition, what, context) in transitions(common.port, route, mac) {
            self.change(transition, what, context)?;
        }
        Ok(())
    }

    fn change(&mut self, transition: Transition, what: &str, context: QpContext) -> Result<(), RdmaError> {
        let command = ModifyQp { transition, qpn: self.pair()?.number, opt_param_mask: 0, context };
        self.modify(&command.to_bytes().map_err(field)?, what)
    }

    fn short(&mut self, command: QpCommand, what: &str) -> Result<(), RdmaError> {
        let number = self.pair()?.number;
        self.modify(&command.to_bytes(number).map_err(field)?, what)
    }

    fn modify(&mut self, input: &[u8], what: &str) -> Result<(), RdmaError> {
        let pair = self.pair()?;
        let mut output = [0; REPLY_BYTES];
        let result = pair.handle.modify(input, &mut output);
        let words = format!("moving queue pair {:#x} to {what}", pair.number);
        outcome(&self.device, &words, input, result, &output)?;
        Ok(())
    }

    /// Queries the firmware for the queue pair's context.
    ///
    /// # Errors
    /// * [`RdmaError::System`] if the query fails, or its reply is invalid.
    /// * [`RdmaError::Queue`] if the queue pair no longer exists.
    pub fn query(&self) -> Result<QueryQp, RdmaError> {
        let pair = self.pair.as_ref().ok_or_else(|| self.closed())?;
        let input = QpCommand::Query.to_bytes(pair.number).map_err(field)?;
        let mut output = [0; QueryQp::BYTES];
        let result = pair.handle.query(&input, &mut output);
        outcome(&self.device, &format!("querying queue pair {:#x}", pair.number), &input, result, &output)?;
        QueryQp::from_bytes(&output).map_err(field)
    }

    /// Returns the reason of a failure if the queue pair is in an error state. A failed query says nothing about the
    /// queue pair, and the next call repeats it. Kernels' waits end at their deadline anyway.
    pub fn failure(&self) -> Option<String> {
        if self.pair.is_none() {
            return Some(self.closed().to_string());
        }
        let state = match self.query() {
            Ok(q) => q.context,
            Err(error) => {
                if !self.unanswered.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the state of queue pair {:#x} cannot be queried; the query is repeated", self.number());
                }
                return None;
            }
        };
        self.unanswered.store(false, Ordering::Relaxed);
        match state.qp_state() {
            Some(QpState::Error | QpState::SendQueueError) => Some(format!(
                "queue pair {:#x} is in its error state; the adapter was at block {:#x} of {:#x}",
                self.number(),
                state.hw_sq_block,
                state.sw_sq_block
            )),
            Some(_) => None,
            None => {
                tracing::warn!("queue pair {:#x} is in state {}, which is not defined", self.number(), state.state);
                None
            }
        }
    }

    /// Flushes the queue pair and creates it again in the same memory. The completion queues are created again too, since
    /// the adapter goes on counting their laps.
    ///
    /// # Errors
    /// * [`RdmaError::System`] if the firmware rejects a step.
    /// * [`RdmaError::Memory`] if the memory cannot be cleared.
    pub fn reset(&mut self, common: &Common<'_>) -> Result<(), RdmaError> {
        if self.pair.is_some() {
            self.short(QpCommand::ToError, "its error state")?;
            self.short(QpCommand::ToReset, "reset")?;
        }
        self.pair = None;
        (self.completions, self.received) = (None, None);
        self.memory.clear()?;
        self.make(common)
    }
}

fn create(common: &Common<'_>, what: &str, input: &[u8]) -> Result<Object, RdmaError> {
    let mut output = [0; REPLY_BYTES];
    match common.devx.create(input, &mut output) {
        Ok(handle) => {
            let number = outcome(common.device, what, input, Ok(()), &output)?;
            Ok(Object { handle, number })
        }
        Err(e) => {
            let failed = outcome(common.device, what, input, Err(e), &output);
            Err(failed.err().unwrap_or_else(|| RdmaError::System {
                what: what.to_owned(),
                source: std::io::Error::other("the firmware gave no reason"),
            }))
        }
    }
}

/// Returns the context of a queue pair's initial state.
fn initial(port: u8) -> QpContext {
    QpContext {
        port,
        remote_read: true,
        remote_write: true,
        remote_atomic: true,
        atomic_mode: ATOMIC_UP_TO_64,
        ..QpContext::default()
    }
}

/// Returns the transitions of a connection with their names and contexts.
pub(super) fn transitions(port: u8, route: &Route, mac: Option<[u8; 6]>) -> [(Transition, &'static str, QpContext); 2] {
    let mut receive = QpContext {
        mtu: route.mtu.field(),
        log_msg_max: LOG_LONGEST_MESSAGE,
        remote_qpn: route.remote,
        next_receive_psn: route.receive_psn,
        min_rnr_nak: RNR_TIMER,
        log_rra_max: log_reads_in(route.reads_in),
        port,
        ..QpContext::default()
    };
    if let Some((index, gid)) = route.global {
        receive.src_gid_index = index;
        receive.hop_limit = HOP_LIMIT;
        receive.set_remote_gid(gid.0);
    }
    if route.ethernet {
        // The priority is Ethernet's own field here. The service level belongs to InfiniBand.
        receive.udp_sport = route.udp_source;
        receive.dscp = route.traffic_class.dscp();
        receive.ecn = route.traffic_class.0 & 0b11;
        receive.eth_prio = route.service_level & 0b111;
        receive.set_remote_mac(mac.unwrap_or_default());
    } else {
        receive.rlid = route.lid;
        receive.sl = route.service_level;
        // Firmware rejects a class if there is no header to carry it.
        receive.grh = route.global.is_some();
        receive.tclass = if receive.grh { route.traffic_class.0 } else { 0 };
    }
    let send = QpContext {
        ack_timeout: route.ack_timeout,
        retry_count: RETRIES,
        rnr_retry: RNR_RETRIES,
        log_sra_max: log_reads(route.reads_out),
        next_send_psn: route.send_psn,
        port,
        ..QpContext::default()
    };
    [
        (Transition::InitToReadyToReceive, "ready to receive", receive),
        (Transition::ReadyToReceiveToSend, "ready to send", send),
    ]
}
