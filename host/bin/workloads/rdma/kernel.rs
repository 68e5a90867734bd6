//! Runs the kernels that post messages. The parameters mirror `kernels/bench/rdma/side.cuh`.

use super::endpoint::{Endpoint, Half};
use super::setting::{Atomic, Kind, Setting, Verb};
use super::{LIMIT, Sent, Side, Stamps, because};
use crate::workloads::error::MeasureError;
use crate::workloads::params::{
    RDMA_COMPARE_SWAP, RDMA_FETCH_ADD, RDMA_READ, RDMA_WRITE, RdmaResult as Left, RdmaSide as Parameters,
};
use warpbell::engine::{Args, Grid, KernelArg, Outcome, abi};
use warpbell::memory::{MemoryError, Place, Region};
use warpbell::rdma::QueuePair;

impl KernelArg for Parameters {
    fn push(&self, args: &mut Args) {
        args.push_value(*self);
    }
}

/// Table of an endpoint's send queues for kernels, which also keep their counters in it.
#[derive(Debug)]
pub(super) struct Queues(Region);

impl Queues {
    pub(super) fn new(side: &Side<'_>, queues: &[Box<dyn QueuePair>]) -> Result<Self, MemoryError> {
        let region = side.engine.allocate(Place::Device, size_of::<abi::SendQueue>() * queues.len())?;
        let all: Vec<abi::SendQueue> = (0u32..)
            .zip(queues)
            .map(|(index, queue)| abi::SendQueue {
                index,
                pe: abi::NO_PE,
                ..queue.memory().send_queue(queue.number(), queue.flags())
            })
            .collect();
        region.set_slice(0, &all)?;
        Ok(Self(region))
    }
}

/// Memory for the results of a kernel for one size. It is allocated before the other side's kernel can run: if both
/// sides share a GPU, memory should not be allocated while that kernel waits for this side's kernel.
#[derive(Debug)]
pub(super) struct Buffers {
    posted: Option<Region>,
    completed: Option<Region>,
    results: Region,
    stamps: usize,
}

impl Buffers {
    pub(super) fn new(side: &Side<'_>, setting: &Setting) -> Result<Self, MemoryError> {
        let pairs = setting.queue_pairs as usize;
        let stamps = if setting.stamps() { pairs * setting.iterations as usize } else { 0 };
        let allocate = |bytes| side.engine.allocate(Place::Device, bytes);
        let times = |n: usize| (n > 0).then(|| allocate(n * size_of::<u64>())).transpose();
        let posted = times(stamps)?;
        let completed = times(if setting.test.kind == Kind::Bandwidth { stamps } else { 0 })?;
        Ok(Self { posted, completed, results: allocate(pairs * size_of::<Left>())?, stamps })
    }
}

/// Returns the kernel of a test, and its grid: a warp for each queue pair.
pub(super) fn launch_of(setting: &Setting, width: u32) -> (&'static str, Grid) {
    let (kernel, blocks) = match setting.test.kind {
        Kind::Bandwidth => ("wb_rdma_bandwidth", setting.queue_pairs),
        Kind::Latency if setting.test.goes_there_and_back() => ("wb_rdma_there_and_back", 1),
        Kind::Latency => ("wb_rdma_one_by_one", 1),
    };
    (kernel, Grid { blocks, threads: width })
}

/// Launches this side's kernel and waits for its end.
pub(super) fn run(
    side: &Side<'_>,
    setting: &Setting,
    endpoint: &Endpoint,
    (pairs_of, queues): (&[Box<dyn QueuePair>], &Queues),
    buffers: &Buffers,
    bytes: u64,
) -> Result<Sent, MeasureError> {
    let engine = side.engine;
    let (width, pairs) = (engine.warp_width(), setting.queue_pairs);
    let verb = setting.test.verb;
    let Buffers { posted, completed, results, stamps } = buffers;
    let stamps = *stamps;
    let address = |region: &Option<Region>| region.as_ref().map_or(0, Region::address);
    let (outbox_address, target_address) = endpoint.ways(verb);
    let (local_key, remote_key) = endpoint.keys();
    let parameters = Parameters {
        queues: queues.0.address(),
        control: engine.control_address(),
        outbox: endpoint.region().address() + endpoint.offset(Half::Outbox),
        outbox_address,
        inbox: endpoint.region().address() + endpoint.offset(Half::Inbox),
        target_address,
        posted: address(posted),
        completed: address(completed),
        results: results.address(),
        bytes,
        stride: Setting::stride(bytes),
        span: endpoint.span(),
        iterations: setting.iterations,
        duration_ns: setting.duration.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
        queue_count: pairs,
        local_key: local_key.to_be(),
        remote_key: remote_key.to_be(),
        slots: setting.slots(bytes) as u32,
        tx_depth: setting.tx_depth,
        post_list: setting.post_list.min(width),
        inline_bytes: setting.inline_bytes as u32,
        verb: match (verb, setting.atomic) {
            (Verb::Write | Verb::Send, _) => RDMA_WRITE,
            (Verb::Read, _) => RDMA_READ,
            (Verb::Atomic, Atomic::FetchAdd) => RDMA_FETCH_ADD,
            (Verb::Atomic, Atomic::CompareSwap) => RDMA_COMPARE_SWAP,
        },
        begins: u32::from(side.ranks.rank() == side.client),
        reserved: 0,
    };
    let (kernel, grid) = launch_of(setting, width);
    // SAFETY: the arguments are this kernel's parameters; the memory that they refer to lives until the run has ended.
    unsafe { engine.launch(kernel, grid, Args::new().with(parameters)) }?
        .finish_within(LIMIT + setting.duration.unwrap_or_default())?;

    let results: Vec<Left> = results.get_slice(0, pairs as usize)?;
    for (queue, result) in pairs_of.iter().zip(&results) {
        match Outcome::from_word(result.word) {
            Outcome::Done => {}
            Outcome::Stopped if engine.is_cancelled() => return Err(MeasureError::Stopped),
            outcome => {
                let (number, done, failure) = (queue.number(), result.done, queue.failure());
                return Err(MeasureError::Failed(format!(
                    "messages of {bytes} bytes posted by kernels: queue pair {number:#x}: after {done} of them, {outcome}{}",
                    because(failure)
                )));
            }
        }
    }
    let started = results.iter().map(|r| r.started_ns).min().unwrap_or(0);
    let ended = results.iter().map(|r| r.ended_ns).max().unwrap_or(0);
    let read = |region: &Option<Region>| region.as_ref().map(|r| r.get_slice::<u64>(0, stamps)).transpose();
    let stamps = match (read(posted)?, read(completed)?) {
        (Some(posted), completed) => {
            let completed = completed.unwrap_or_default();
            Some(if pairs > 1 { Stamps::merged([Stamps { posted, completed }]) } else { Stamps { posted, completed } })
        }
        _ => None,
    };
    Ok(Sent { done: results.iter().map(|r| r.done).collect(), elapsed_ns: ended.saturating_sub(started), stamps })
}
