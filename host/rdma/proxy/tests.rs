mod receives;

use super::engine::INLINE_BYTES;
use super::*;
use crate::memory::{Place, Space};
use crate::rdma::ring_service::{ReceiveService, RingService};
use crate::rdma::{QueuePlan, QueueRings, ReceivePlan};
use crate::wire::mlx5::cqe::{Cqe, Outcome};
use crate::wire::mlx5::doorbell::{QpRecord, SendDoorbell};
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::{
    Atomic, BLOCK_BYTES, CQE_BYTES, Completion, CompletionRing, Flags, Operation, Payload, SendRing, Syndrome, Wqe,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::Arc;

const NUMBER: u32 = 0x77;
const LOG_BLOCKS: u32 = 4;
const WINDOW: usize = 4;
const REMOTE_KEY: u32 = 0x500;
const LOCAL_KEY: u32 = 0x600;
const BOUNCE_KEY: u32 = 0x700;
const BYTES: usize = 256;

/// State that the fake device and the test share.
struct Memory {
    remote: Vec<u8>,
    local: Vec<u8>,
    bounce: Vec<u8>,
    under_way: VecDeque<Request>,
    /// Free slots of the device's queue.
    room: usize,
    /// Changes of remote words by other clients, one before each request of the device: address, and addend.
    meddlers: VecDeque<(usize, u64)>,
    /// Status of the next request.
    status: u8,
    refuse: bool,
    posted: usize,
    swaps: usize,
    stale: Vec<Done>,
    /// Receives that the device has, and how many it takes.
    receives: VecDeque<(u64, Vec<Piece>)>,
    receive_room: usize,
    refuse_receives: bool,
    receive_completions: Vec<ReceiveCompletion>,
    /// Receives that the device had whenever a request was posted to it.
    receives_at_posts: Vec<usize>,
    failed: usize,
}

#[derive(Clone)]
struct Fake(Arc<Mutex<Memory>>);

impl Fake {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Memory {
            remote: vec![0; BYTES],
            local: vec![0; BYTES],
            bounce: vec![0; (WINDOW + 1) * INLINE_BYTES],
            under_way: VecDeque::new(),
            room: WINDOW,
            meddlers: VecDeque::new(),
            status: 0,
            refuse: false,
            posted: 0,
            swaps: 0,
            stale: Vec::new(),
            receives: VecDeque::new(),
            receive_room: usize::MAX,
            refuse_receives: false,
            receive_completions: Vec::new(),
            receives_at_posts: Vec::new(),
            failed: 0,
        })))
    }
    fn lock(&self) -> parking_lot::MutexGuard<'_, Memory> {
        self.0.lock()
    }
}

impl Memory {
    fn word(&mut self, at: usize) -> &mut [u8] {
        &mut self.remote[at..at + 8]
    }
    fn buffer(&mut self, key: u32) -> &mut Vec<u8> {
        match key {
            LOCAL_KEY => &mut self.local,
            BOUNCE_KEY => &mut self.bounce,
            other => panic!("key {other:#x} was never handed out"),
        }
    }
    fn gather(&mut self, pieces: &[Piece]) -> Vec<u8> {
        let part = |m: &mut Self, p: &Piece| m.buffer(p.key)[p.address as usize..][..p.bytes as usize].to_vec();
        pieces.iter().flat_map(|p| part(self, p)).collect()
    }
    fn scatter(&mut self, pieces: &[Piece], mut bytes: &[u8]) {
        for p in pieces {
            let (now, rest) = bytes.split_at(p.bytes as usize);
            self.buffer(p.key)[p.address as usize..][..now.len()].copy_from_slice(now);
            bytes = rest;
        }
    }
    fn run(&mut self, r: &Request) {
        if let Some((at, add)) = self.meddlers.pop_front() {
            let old = u64::from_ne_bytes(self.word(at).try_into().unwrap());
            self.word(at).copy_from_slice(&old.wrapping_add(add).to_ne_bytes());
        }
        match r.action {
            Action::Write { remote, .. } => {
                let bytes = self.gather(&r.local);
                self.remote[remote.address as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            Action::Read { remote } => {
                let count: usize = r.local.iter().map(|p| p.bytes as usize).sum();
                let bytes = self.remote[remote.address as usize..][..count].to_vec();
                self.scatter(&r.local, &bytes);
            }
            Action::FetchAdd { remote, add } => {
                let old = u64::from_ne_bytes(self.word(remote.address as usize).try_into().unwrap());
                self.word(remote.address as usize).copy_from_slice(&old.wrapping_add(add).to_ne_bytes());
                self.scatter(&r.local, &old.to_ne_bytes());
            }
            Action::CompareSwap { remote, compare, swap } => {
                assert_eq!(remote.address % 8, 0, "verbs know aligned words alone");
                self.swaps += 1;
                let old = u64::from_ne_bytes(self.word(remote.address as usize).try_into().unwrap());
                if old == compare {
                    self.word(remote.address as usize).copy_from_slice(&swap.to_ne_bytes());
                }
                self.scatter(&r.local, &old.to_ne_bytes());
            }
            Action::Send { .. } => {}
        }
    }
}

impl SendQueue for Fake {
    fn pieces(&self) -> usize {
        2
    }
    fn post(&mut self, request: &Request) -> Result<(), PostError> {
        let mut m = self.lock();
        if m.refuse {
            return Err(PostError::Refused(std::io::Error::from_raw_os_error(libc::EINVAL)));
        }
        if m.under_way.len() >= m.room {
            return Err(PostError::Full);
        }
        assert!(m.under_way.len() < WINDOW, "no more under way than there are places");
        m.posted += 1;
        let receives = m.receives.len();
        m.receives_at_posts.push(receives);
        m.under_way.push_back(request.clone());
        Ok(())
    }
    fn poll(&mut self, out: &mut Vec<Done>) -> std::io::Result<()> {
        let mut m = self.lock();
        out.append(&mut m.stale);
        if let Some(r) = m.under_way.pop_front() {
            let status = std::mem::take(&mut m.status);
            if status == 0 {
                m.run(&r);
            }
            out.push(Done { id: r.id, status, vendor: 0x88 });
        }
        Ok(())
    }
    fn tend(&mut self) -> u64 {
        0
    }
}

impl ReceiveQueue for Fake {
    fn post_receive(&mut self, id: u64, pieces: &[Piece]) -> Result<(), PostError> {
        let mut m = self.lock();
        if m.refuse_receives {
            return Err(PostError::Refused(std::io::Error::from_raw_os_error(libc::EINVAL)));
        }
        if m.receives.len() >= m.receive_room {
            return Err(PostError::Full);
        }
        m.receives.push_back((id, pieces.to_vec()));
        Ok(())
    }
    fn poll_receives(&mut self, out: &mut Vec<ReceiveCompletion>) -> std::io::Result<()> {
        out.append(&mut self.lock().receive_completions);
        Ok(())
    }
    fn fail(&mut self) {
        self.lock().failed += 1;
    }
}

impl Bounce for Fake {
    fn piece(&self, slot: usize, bytes: u32) -> Piece {
        Piece { address: (slot * INLINE_BYTES) as u64, bytes, key: BOUNCE_KEY }
    }
    fn write(&self, slot: usize, bytes: &[u8]) {
        assert!(slot < WINDOW && bytes.len() <= INLINE_BYTES);
        self.lock().bounce[slot * INLINE_BYTES..][..bytes.len()].copy_from_slice(bytes);
    }
    fn read(&self, slot: usize) -> u64 {
        u64::from_ne_bytes(self.lock().bounce[slot * INLINE_BYTES..][..8].try_into().unwrap())
    }
}

impl Landing for Fake {
    fn land(&self, key: u32, address: u64, bytes: &[u8]) -> bool {
        let mut m = self.lock();
        let end = address as usize + bytes.len();
        let known = key == LOCAL_KEY && end <= BYTES;
        if known {
            m.local[address as usize..end].copy_from_slice(bytes);
        }
        known
    }

    fn load(&self, key: u32, address: u64, out: &mut [u8]) -> bool {
        let (m, end) = (self.lock(), address as usize + out.len());
        let known = key == LOCAL_KEY && end <= BYTES;
        if known {
            out.copy_from_slice(&m.local[address as usize..end]);
        }
        known
    }
}

/// The kernel's side of the ring.
struct Kernel {
    memory: Arc<QueueRings>,
    next: u64,
    seen: u64,
}

impl Kernel {
    fn post(&mut self, operation: Operation<'_>) -> u64 {
        let index = self.next;
        let entry = Wqe { index: index as u16, qpn: NUMBER, flags: Flags::SIGNALLED, target: None, operation };
        let bytes = entry.to_bytes().unwrap();
        let ring = SendRing::new(LOG_BLOCKS).unwrap();
        for (i, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let mut whole = [0; BLOCK_BYTES];
            whole[..block.len()].copy_from_slice(block);
            self.memory.ring().write(ring.offset(index + i as u64), &whole).unwrap();
        }
        self.next += bytes.len().div_ceil(BLOCK_BYTES) as u64;
        let (at, record) = (offset_of!(QpRecord, send), QpRecord::new(0, self.next));
        self.memory.records().write(at, bytemuck::bytes_of(&record.send)).unwrap();
        let bell = SendDoorbell::new(NUMBER, self.next).to_bytes();
        self.memory.records().write(QueueRings::doorbell_offset(), &bell).unwrap();
        index
    }

    fn completions(&mut self) -> Vec<Completion> {
        let ring = CompletionRing::new(LOG_BLOCKS).unwrap();
        let mut all = Vec::new();
        loop {
            let mut bytes = [0; CQE_BYTES];
            self.memory.completions().read(ring.offset(self.seen), &mut bytes).unwrap();
            let cqe: Cqe = bytemuck::cast(bytes);
            if !ring.is_written(self.seen, cqe.op_own) {
                return all;
            }
            all.push(cqe.completion().unwrap());
            self.seen += 1;
        }
    }
}

fn rig() -> (Kernel, Engine<Fake, Fake, Fake>, Fake) {
    rig_with(None)
}

fn rig_with(receives: Option<ReceivePlan>) -> (Kernel, Engine<Fake, Fake, Fake>, Fake) {
    let plan = QueuePlan { space: Space::cpu(), log_blocks: LOG_BLOCKS, collapsed: false, data: Place::Host, receives };
    let memory = Arc::new(QueueRings::new(plan, Place::Host).unwrap());
    let fake = Fake::new();
    let ring = RingService::new(memory.clone(), NUMBER).unwrap();
    let receives = ReceiveService::new(&memory, NUMBER).unwrap();
    let engine = Engine::new(fake.clone(), ring, fake.clone(), fake.clone(), WINDOW).with_receives(receives);
    (Kernel { memory, next: 0, seen: 0 }, engine, fake)
}

fn run(engine: &mut Engine<Fake, Fake, Fake>) {
    for _ in 0..1000 {
        if !engine.step() && engine.queue.lock().under_way.is_empty() {
            return;
        }
    }
    panic!("the engine never comes to rest");
}

fn remote(address: u64) -> Remote {
    Remote { address, key: REMOTE_KEY }
}

fn inline(address: u64, bytes: &[u8]) -> Operation<'_> {
    Operation::Write { remote: remote(address), payload: Payload::Inline(bytes), immediate: None }
}

fn atomic(address: u64, action: Atomic, land: u64) -> Operation<'static> {
    let landing = DataSegment::new(land, LOCAL_KEY, action.operand_bytes());
    Operation::Atomic { remote: remote(address), action, landing }
}

fn done(c: &[Completion]) -> Vec<u16> {
    c.iter().inspect(|c| assert_eq!(c.outcome, Outcome::Done, "{c:?}")).map(|c| c.wqe_counter).collect()
}

#[test]
fn bytes_go_out_and_come_in() {
    let (mut kernel, mut engine, fake) = rig();
    let long: Vec<u8> = (0..100).collect();
    kernel.post(inline(8, &long));
    let nop = kernel.post(Operation::Nop);
    let into = [DataSegment::new(0, LOCAL_KEY, 3), DataSegment::new(10, LOCAL_KEY, 2)];
    let read = kernel.post(Operation::Read { remote: remote(9), into: &into });
    run(&mut engine);
    let m = fake.lock();
    assert_eq!(m.remote[8..108], long[..]);
    assert_eq!((&m.local[..3], &m.local[10..12]), (&[1, 2, 3][..], &[4, 5][..]));
    drop(m);
    let all = kernel.completions();
    assert_eq!(done(&all), [0, nop as u16, read as u16]);
    assert_eq!(all[2].bytes, 5);
}

#[test]
fn a_full_device_loses_nothing() {
    let (mut kernel, mut engine, fake) = rig();
    fake.lock().room = 1;
    for i in 0..12u8 {
        kernel.post(inline(u64::from(i), &[i + 1]));
    }
    run(&mut engine);
    assert_eq!(done(&kernel.completions()), (0..12).collect::<Vec<_>>());
    assert_eq!(fake.lock().remote[..12], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
}

#[test]
fn a_half_word_atomic_spares_the_other_half() {
    let (mut kernel, mut engine, fake) = rig();
    fake.lock().remote[16..24].copy_from_slice(&[1, 0, 0, 0, 9, 0, 0, 0]);
    // Another client changes the lower half just before each compare-swap.
    fake.lock().meddlers = VecDeque::from([(16, 1), (16, 1), (16, 1)]);
    let add = Atomic::MaskedAdd32 { add: 5, boundary: 0 };
    kernel.post(atomic(20, add, 32));
    // Entries behind it must wait for it.
    let into = [DataSegment::new(64, LOCAL_KEY, 8)];
    kernel.post(Operation::Read { remote: remote(16), into: &into });
    run(&mut engine);
    assert_eq!(done(&kernel.completions()), [0, 1]);
    let m = fake.lock();
    assert_eq!(m.remote[16..24], [4, 0, 0, 0, 14, 0, 0, 0]);
    assert_eq!(m.local[64..72], m.remote[16..24]);
    // The old value, as an adapter delivers it.
    assert_eq!(m.local[32..36], add.landing(9)[..4]);
    assert_eq!(m.swaps, 4);
}

#[test]
fn a_swap_that_misses_changes_nothing_and_ends() {
    let (mut kernel, mut engine, fake) = rig();
    fake.lock().remote[..8].copy_from_slice(&7u64.to_ne_bytes());
    let miss = Atomic::MaskedSwap64 { swap: 1, compare: 8, swap_mask: 0xff, compare_mask: 0xff };
    kernel.post(atomic(0, miss, 0));
    let hit = Atomic::MaskedSwap64 { swap: 0x100, compare: 7, swap_mask: 0xff00, compare_mask: 0xff };
    let second = kernel.post(atomic(0, hit, 8));
    run(&mut engine);
    assert_eq!(done(&kernel.completions()), [0, second as u16]);
    let m = fake.lock();
    assert_eq!(m.remote[..8], 0x107u64.to_ne_bytes());
    assert_eq!((&m.local[..8], &m.local[8..16]), (&7u64.to_ne_bytes()[..], &7u64.to_ne_bytes()[..]));
}

#[test]
fn plain_atomics_are_the_devices_own() {
    let (mut kernel, mut engine, fake) = rig();
    kernel.post(atomic(0, Atomic::FetchAdd { add: 3 }, 0));
    kernel.post(atomic(0, Atomic::MaskedAdd64 { add: 4, boundary: 0 }, 8));
    kernel.post(atomic(0, Atomic::CompareSwap { swap: 1, compare: 7 }, 16));
    run(&mut engine);
    assert_eq!(done(&kernel.completions()), [0, 1, 2]);
    let m = fake.lock();
    assert_eq!((m.remote[0], m.local[8], m.local[16], m.posted, m.swaps), (1, 3, 7, 3, 1));
}

#[test]
fn a_failure_is_the_first_and_what_follows_is_flushed() {
    let (mut kernel, mut engine, fake) = rig();
    kernel.post(inline(0, &[1]));
    engine.step();
    kernel.post(Operation::Nop);
    kernel.post(inline(1, &[2]));
    engine.step();
    fake.lock().status = 10;
    run(&mut engine);
    kernel.post(inline(2, &[3]));
    run(&mut engine);
    let all = kernel.completions();
    let words: Vec<_> = all.iter().map(|c| c.ok().err().map(|f| (f.syndrome, f.vendor.0))).collect();
    let flushed = Some((Syndrome::FLUSHED, 0xf9));
    assert_eq!(words, [None, None, Some((Syndrome::REMOTE_ACCESS, 0x88)), flushed]);
    assert!(engine.failure().unwrap().contains("remote access error"), "{:?}", engine.failure());
}

#[test]
fn what_verbs_cannot_say_fails_behind_what_they_can() {
    for refuse in [false, true] {
        let (mut kernel, mut engine, fake) = rig();
        kernel.post(inline(0, &[1]));
        engine.step();
        fake.lock().refuse = refuse;
        if refuse {
            kernel.post(inline(1, &[2]));
        } else {
            kernel.post(Operation::Wait { cqn: 1, index: 0 });
        }
        kernel.post(inline(2, &[3]));
        run(&mut engine);
        let all = kernel.completions();
        let words: Vec<_> = all.iter().map(|c| c.ok().err().map(|f| f.syndrome)).collect();
        assert_eq!(words, [None, Some(Syndrome::LOCAL_QP_OPERATION), Some(Syndrome::FLUSHED)]);
        assert!(engine.failure().is_some());
        assert_eq!(fake.lock().remote[..3], [1, 0, 0]);
    }
    // The result of an atomic must land in known memory.
    let (mut kernel, mut engine, _) = rig();
    kernel.post(atomic(4, Atomic::MaskedAdd32 { add: 1, boundary: 0 }, BYTES as u64));
    run(&mut engine);
    assert_eq!(kernel.completions()[0].ok().unwrap_err().syndrome, Syndrome::LOCAL_PROTECTION);
}

#[test]
fn a_second_life_hears_nothing_of_the_first() {
    let (mut kernel, mut engine, fake) = rig();
    kernel.post(inline(0, &[1]));
    kernel.post(inline(1, &[1]));
    engine.step();
    let old: Vec<_> = fake.lock().under_way.drain(..).map(|r| Done { id: r.id, status: 5, vendor: 0 }).collect();
    assert_eq!(old.len(), 2);
    kernel.memory.clear().unwrap();
    engine.reset();
    fake.lock().stale = old;
    (kernel.next, kernel.seen) = (0, 0);
    kernel.post(inline(2, &[1]));
    run(&mut engine);
    assert_eq!(done(&kernel.completions()), [0]);
    assert_eq!(engine.failure(), None);
}

#[test]
fn a_thread_serves_until_it_is_dropped() {
    struct Turns(Arc<std::sync::atomic::AtomicUsize>);
    impl RingUser for Turns {
        fn step(&mut self) -> bool {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            false
        }
    }
    let turns = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = || turns.load(std::sync::atomic::Ordering::Relaxed);
    let service = Service::start("test").unwrap();
    let slot: Arc<Mutex<dyn RingUser>> = Arc::new(Mutex::new(Turns(turns.clone())));
    service.add(slot.clone());
    while count() < 3 {
        std::thread::yield_now();
    }
    service.remove(&slot);
    drop(service);
    // The thread has dropped its reference.
    assert_eq!(Arc::strong_count(&slot), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Atomic(u64, Atomic),
    Nop,
}

fn steps() -> impl Strategy<Value = Step> {
    let word = 0u64..8;
    prop_oneof![
        (0u64..64, prop::collection::vec(any::<u8>(), 1..150)).prop_map(|(a, b)| Step::Write(a, b)),
        (word.clone(), any::<u64>()).prop_map(|(w, add)| Step::Atomic(w * 8, Atomic::FetchAdd { add })),
        (0u64..16, any::<u32>(), any::<u32>())
            .prop_map(|(w, add, boundary)| Step::Atomic(w * 4, Atomic::MaskedAdd32 { add, boundary })),
        (0u64..16, any::<u32>(), 0u32..2, any::<u32>(), 0u32..2).prop_map(
            |(w, swap, compare, swap_mask, compare_mask)| {
                Step::Atomic(w * 4, Atomic::MaskedSwap32 { swap, compare, swap_mask, compare_mask })
            }
        ),
        (word, any::<u64>(), any::<u64>()).prop_map(|(w, swap, swap_mask)| {
            Step::Atomic(w * 8, Atomic::MaskedSwap64 { swap, compare: 0, swap_mask, compare_mask: 0 })
        }),
        Just(Step::Nop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any sequence has the same effect as its operations one after the other.
    #[test]
    fn every_sequence_is_carried_out_in_its_order(all in prop::collection::vec(steps(), 1..40), room in 1usize..=WINDOW) {
        let (mut kernel, mut engine, fake) = rig();
        fake.lock().room = room;
        let mut model = vec![0u8; BYTES];
        let mut count = 0;
        for step in &all {
            match step {
                Step::Write(at, bytes) => {
                    model[*at as usize..][..bytes.len()].copy_from_slice(bytes);
                    kernel.post(inline(*at, bytes));
                }
                Step::Atomic(at, action) => {
                    let n = action.operand_bytes() as usize;
                    let mut old = [0; 8];
                    old[..n].copy_from_slice(&model[*at as usize..][..n]);
                    let old = u64::from_ne_bytes(old);
                    model[*at as usize..][..n].copy_from_slice(&action.apply(old).to_ne_bytes()[..n]);
                    kernel.post(atomic(*at, *action, 128));
                    run(&mut engine);
                    prop_assert_eq!(&fake.lock().local[128..128 + n], &action.landing(old)[..n]);
                }
                Step::Nop => {
                    kernel.post(Operation::Nop);
                }
            }
            if kernel.next % 8 > 4 {
                run(&mut engine);
            }
            count += kernel.completions().iter().filter(|c| c.ok().is_ok()).count();
        }
        run(&mut engine);
        count += kernel.completions().iter().filter(|c| c.ok().is_ok()).count();
        prop_assert_eq!(count, all.len());
        prop_assert_eq!(&fake.lock().remote, &model);
    }
}
