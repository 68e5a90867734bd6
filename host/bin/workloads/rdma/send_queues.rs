//! Posts messages from a CPU thread, to the same kind of queue pair over the same adapter.

use super::endpoint::{Endpoint, Half, LAST_CALL, sign_of};
use super::setting::{Atomic, Kind, Setting, Verb};
use super::{Sent, Side, Stamps, because};
use crate::workloads::error::MeasureError;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use warpbell::rdma::{PostError, PostRequests};
use warpbell::wire::mlx5::segment::DataSegment;
use warpbell::wire::mlx5::{self, Operation, Payload, Remote};

/// Iterations of a loop between two checks of the clock and of cancellation.
const POLLS_PER_CHECK: u32 = 256;

/// Counters of one queue pair; the queue pair's own counters continue from size to size.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    posted: u64,
    done: u64,
    /// Value of the queue pair's counter before the first message.
    base: u64,
}

/// Parameters of the messages of one size.
struct Messages<'m> {
    setting: &'m Setting,
    endpoint: &'m Endpoint,
    bytes: u64,
    local: u64,
    remote: u64,
    local_key: u32,
    remote_key: u32,
    slots: u64,
    stride: u64,
    started: Instant,
    side: &'m Side<'m>,
}

impl Messages<'_> {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_over(&self) -> bool {
        self.setting.duration.is_some_and(|d| self.started.elapsed() >= d)
    }

    fn offset(&self, pair: u64, i: u64) -> u64 {
        pair * self.endpoint.span() + i % self.slots * self.stride
    }

    /// Posts message `i` of a queue pair, without the doorbell.
    fn post(&self, send_queue: &mut dyn PostRequests, pair: u64, i: u64, signalled: bool) -> Result<u64, PostError> {
        let at = self.offset(pair, i);
        let here = DataSegment::new(self.local + at, self.local_key, self.bytes as u32);
        let there = |at| Remote { address: self.remote + at, key: self.remote_key };
        let pieces = [here];
        let mut inline = [0u8; super::MOST_INLINE as usize];
        let operation = match self.setting.test.verb {
            Verb::Read => Operation::Read { remote: there(at), into: &pieces },
            Verb::Atomic => {
                let action = match self.setting.atomic {
                    Atomic::FetchAdd => mlx5::Atomic::FetchAdd { add: 1 },
                    // Compares with the value that the previous message wrote.
                    Atomic::CompareSwap => mlx5::Atomic::CompareSwap { swap: i + 1, compare: i },
                };
                Operation::Atomic { remote: there(self.offset(pair, 0)), action, landing: here }
            }
            Verb::Write | Verb::Send => {
                let bytes = self.bytes as usize;
                let most = self.setting.inline_bytes.min(send_queue.inline_bytes());
                let inline = inline.get_mut(..bytes).filter(|_| self.bytes <= most);
                // In a write test only this thread writes the outbox.
                let inline = inline.and_then(|data| {
                    self.endpoint.region().read(at as usize, data).ok()?;
                    Some(&*data)
                });
                let payload = inline.map_or(Payload::Pieces(&pieces), Payload::Inline);
                Operation::Write { remote: there(at), payload, immediate: None }
            }
        };
        send_queue.post(operation, signalled)
    }

    fn failed(&self, send_queue: &dyn PostRequests, done: u64, source: PostError) -> MeasureError {
        let (bytes, why) = (self.bytes, because(send_queue.failure()));
        MeasureError::Failed(format!(
            "messages of {bytes} bytes posted by the CPU: after {done} of them, {source}{why}"
        ))
    }
}

/// Posts this side's messages and waits for all of them.
pub(super) fn run(
    side: &Side<'_>,
    setting: &Setting,
    endpoint: &Endpoint,
    send_queues: &mut [Box<dyn PostRequests>],
    bytes: u64,
) -> Result<Sent, MeasureError> {
    let (local, remote) = endpoint.ways(setting.test.verb);
    let (local_key, remote_key) = endpoint.keys();
    let (slots, stride) = (setting.slots(bytes), Setting::stride(bytes));
    let started = Instant::now();
    let m = Messages { setting, endpoint, bytes, local, remote, local_key, remote_key, slots, stride, started, side };
    match (setting.test.kind, send_queues) {
        (Kind::Bandwidth, send_queues) => bandwidth(&m, send_queues),
        (Kind::Latency, [send_queue]) if setting.test.goes_there_and_back() => there_and_back(&m, send_queue.as_mut()),
        (Kind::Latency, [send_queue]) => one_by_one(&m, send_queue.as_mut()),
        (Kind::Latency, _) => Ok(Sent::default()),
    }
}

/// Keeps as many messages in flight as allowed, on all queue pairs in turn.
fn bandwidth(m: &Messages<'_>, send_queues: &mut [Box<dyn PostRequests>]) -> Result<Sent, MeasureError> {
    let s = m.setting;
    let (depth, list, every) = (u64::from(s.tx_depth), u64::from(s.post_list), u64::from(s.cq_mod));
    let mut goals = vec![if s.duration.is_some() { u64::MAX } else { s.iterations }; send_queues.len()];
    let mut all: Vec<Progress> =
        send_queues.iter().map(|p| Progress { base: p.posted(), ..Progress::default() }).collect();
    let mut stamps = s.stamps().then(|| vec![Stamps::default(); send_queues.len()]);
    let (mut turns, mut idle_since, mut ended) = (0u32, None::<Instant>, 0);
    while all.iter().zip(&goals).any(|(p, goal)| p.done < *goal) {
        let mut moved = false;
        for (pair, send_queue) in send_queues.iter_mut().map(Box::as_mut).enumerate() {
            let (p, goal) = (&mut all[pair], &mut goals[pair]);
            // After the time is over, one more message is posted. It is the last and requests a completion.
            if *goal == u64::MAX && m.is_over() {
                *goal = p.posted + 1;
            }
            let n = list.min(*goal - p.posted);
            if n > 0 && p.posted - p.done + n <= depth {
                let now = m.now();
                for _ in 0..n {
                    let signalled = (p.posted + 1).is_multiple_of(every) || p.posted + 1 == *goal;
                    m.post(send_queue, pair as u64, p.posted, signalled)
                        .map_err(|e| m.failed(send_queue, send_queue.completed() - p.base, e))?;
                    p.posted += 1;
                    if let Some(stamps) = &mut stamps {
                        stamps[pair].posted.push(now);
                    }
                }
                send_queue.ring();
                moved = true;
            }
            // Every message counts one: it is one block of the ring, or one verbs request.
            let complete =
                send_queue.poll().map_err(|e| m.failed(send_queue, send_queue.completed() - p.base, e))? - p.base;
            if complete > p.done {
                ended = m.now();
                if let Some(stamps) = &mut stamps {
                    stamps[pair].completed.extend((p.done..complete).map(|_| ended));
                }
                p.done = complete;
                moved = true;
            }
        }
        turns = turns.wrapping_add(1);
        if moved {
            idle_since = None;
        } else {
            // With few processors, the adapter may be a thread that needs the processor of this one.
            std::thread::yield_now();
        }
        if turns.is_multiple_of(POLLS_PER_CHECK) {
            if m.side.engine.is_cancelled() {
                return Err(MeasureError::Stopped);
            }
            let waited = if moved { Duration::ZERO } else { idle_since.get_or_insert_with(Instant::now).elapsed() };
            if waited > m.side.deadline {
                let late = all.iter().position(|p| p.done < p.posted).unwrap_or(0);
                return Err(m.failed(send_queues[late].as_ref(), all[late].done, send_queues[late].late(waited)));
            }
        }
    }
    let stamps = stamps.map(|mut each| if each.len() == 1 { each.remove(0) } else { Stamps::merged(each) });
    Ok(Sent { done: all.iter().map(|p| p.done).collect(), elapsed_ns: ended, stamps })
}

/// Posts one message after the completion of the previous one.
fn one_by_one(m: &Messages<'_>, send_queue: &mut dyn PostRequests) -> Result<Sent, MeasureError> {
    let s = m.setting;
    let mut stamps = s.stamps().then(Stamps::default);
    let mut done = 0;
    while if s.duration.is_some() { !m.is_over() } else { done < s.iterations } {
        if let Some(stamps) = &mut stamps {
            stamps.posted.push(m.now());
        }
        let end = m.post(send_queue, 0, done, true).map_err(|e| m.failed(send_queue, done, e))?;
        send_queue.ring();
        send_queue.wait(end, m.side.deadline).map_err(|e| m.failed(send_queue, done, e))?;
        done += 1;
        if done.is_multiple_of(POLLS_PER_CHECK.into()) && m.side.engine.is_cancelled() {
            return Err(MeasureError::Stopped);
        }
    }
    Ok(Sent { done: vec![done], elapsed_ns: m.now(), stamps })
}

/// A byte of registered memory that an adapter writes or reads.
struct FlagByte(NonNull<u8>);

impl FlagByte {
    fn get(&self) -> u8 {
        // SAFETY: a byte of the endpoint's memory, which lives as long as the measurement. During the measurement only
        // atomic accesses and the adapter reach it.
        unsafe { AtomicU8::from_ptr(self.0.as_ptr()) }.load(Ordering::Acquire)
    }

    fn set(&self, value: u8) {
        // SAFETY: a byte of the endpoint's memory, which lives as long as the measurement. During the measurement only
        // atomic accesses and the adapter reach it.
        unsafe { AtomicU8::from_ptr(self.0.as_ptr()) }.store(value, Ordering::Release);
    }
}

/// Sends a message and receives one in turn, as `there_and_back` of `kernels/bench/rdma.cu` does.
fn there_and_back(m: &Messages<'_>, send_queue: &mut dyn PostRequests) -> Result<Sent, MeasureError> {
    let s = m.setting;
    let begins = m.side.ranks.rank() == m.side.client;
    let flag_at = |half| {
        let at = m.endpoint.offset(half) + m.bytes - 1;
        let base = m
            .endpoint
            .region()
            .host()
            .ok_or_else(|| m.failed(send_queue, 0, PostError::OutOfReach { number: send_queue.number() }))?;
        // SAFETY: the byte is within the region: each half has at least the bytes of a message.
        Ok::<_, MeasureError>(FlagByte(unsafe { base.add(at as usize) }))
    };
    let (sends, comes) = (flag_at(Half::Outbox)?, flag_at(Half::Inbox)?);
    let mut stamps = s.stamps().then(Stamps::default);
    let (mut done, mut last) = (0u64, false);
    while if s.duration.is_some() { !last } else { done < s.iterations } {
        if begins {
            last = m.is_over();
        } else {
            last = receive(m, &comes, done)?;
        }
        sends.set(if last { LAST_CALL } else { sign_of(done) });
        if let Some(stamps) = &mut stamps {
            stamps.posted.push(m.now());
        }
        let end = m.post(send_queue, 0, 0, true).map_err(|e| m.failed(send_queue, done, e))?;
        send_queue.ring();
        send_queue.wait(end, m.side.deadline).map_err(|e| m.failed(send_queue, done, e))?;
        if begins {
            receive(m, &comes, done)?;
        }
        done += 1;
    }
    Ok(Sent { done: vec![done], elapsed_ns: m.now(), stamps })
}

/// Waits for message `i`. Returns true if it is the last.
fn receive(m: &Messages<'_>, comes: &FlagByte, i: u64) -> Result<bool, MeasureError> {
    let (mut turns, mut since) = (0u32, None::<Instant>);
    loop {
        match comes.get() {
            sign if sign == sign_of(i) => return Ok(false),
            LAST_CALL if m.setting.duration.is_some() => return Ok(true),
            _ => {}
        }
        turns = turns.wrapping_add(1);
        if !turns.is_multiple_of(POLLS_PER_CHECK) {
            std::hint::spin_loop();
            continue;
        }
        std::thread::yield_now();
        if m.side.engine.is_cancelled() {
            return Err(MeasureError::Stopped);
        }
        let waited = since.get_or_insert_with(Instant::now).elapsed();
        if waited > m.side.deadline {
            return Err(MeasureError::Failed(format!(
                "messages of {} bytes: message {i} of the other side did not arrive within {waited:?}; check the output of that side",
                m.bytes
            )));
        }
    }
}
