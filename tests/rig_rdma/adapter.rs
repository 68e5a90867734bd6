//! Tests the proxy without a world: entries as kernels write them, posted one by one, on two connected queue pairs of a
//! Soft-RoCE device.

use super::setting::{self, DEVICE, LONG};
use warpbell::memory::{Place, Region, Space};
use warpbell::rdma::{
    Adapter, CpuSendQueue, DeviceChoice, PostError, PostRequests, QueuePair, QueuePlan, Registration, Rights,
    Transport, open,
};
use warpbell::wire::mlx5::segment::DataSegment;
use warpbell::wire::mlx5::{Atomic, Operation, Payload, Remote, Syndrome};

const BYTES: usize = 64 << 10;
/// The ring is shorter than the number of posts, so that it wraps.
const LOG_BLOCKS: u32 = 4;

struct Memory {
    registration: Box<dyn Registration>,
    region: Region,
}

impl Memory {
    fn new(adapter: &dyn Adapter, rights: Rights) -> Self {
        let region = Space::cpu().allocate(Place::Host, BYTES).unwrap();
        Self { registration: adapter.register_region(&region, rights).unwrap(), region }
    }

    fn here(&self, offset: u64, bytes: u32) -> DataSegment {
        DataSegment::new(self.registration.address() + offset, self.registration.local_key(), bytes)
    }

    fn there(&self, offset: u64) -> Remote {
        Remote { address: self.registration.address() + offset, key: self.registration.remote_key() }
    }

    fn word(&self, offset: usize) -> u64 {
        self.region.get(offset).unwrap()
    }
}

/// Returns two connected queue pairs. Tests post to the first.
fn connected(adapter: &dyn Adapter, collapsed: bool) -> (CpuSendQueue, Box<dyn QueuePair>) {
    let create = || {
        adapter.create(QueuePlan::new(Space::cpu(), Place::Host).log_blocks(LOG_BLOCKS).collapsed(collapsed)).unwrap()
    };
    let (mut near, mut far) = (create(), create());
    let (near_at, far_at) = (near.address(), far.address());
    near.connect(&far_at).unwrap();
    far.connect(&near_at).unwrap();
    (CpuSendQueue::new(near).unwrap(), far)
}

/// Posts one entry and waits for it.
fn post(send_queue: &mut CpuSendQueue, operation: Operation<'_>) -> Result<(), PostError> {
    let end = send_queue.post(operation, true)?;
    send_queue.ring();
    send_queue.wait(end, LONG)
}

fn adapter() -> Box<dyn Adapter> {
    let adapter = open(Transport::Verbs, &DeviceChoice::default().named(DEVICE).unwrap(), &Space::cpu()).unwrap();
    println!("{}", adapter.path());
    adapter
}

#[test]
#[ignore = "needs the rig"]
fn every_kind_of_entry_does_what_it_says() {
    setting::inside();
    let adapter = adapter();
    let (near, far) = (Memory::new(&*adapter, Rights::ALL), Memory::new(&*adapter, Rights::ALL));
    for collapsed in [false, true] {
        let (mut send_queue, _peer) = connected(&*adapter, collapsed);
        let pattern: Vec<u8> = (0..BYTES).map(|i| (i * 7 + i / 251 + usize::from(collapsed)) as u8).collect();
        near.region.write(0, &pattern).unwrap();
        // Every length around that of one packet, each into its own place.
        for bytes in [1usize, 28, 64, 4095, 4096, 4097, 20_000] {
            far.region.fill(0, BYTES, 0).unwrap();
            let pieces = [near.here(3, bytes as u32)];
            let write = Operation::Write { remote: far.there(5), payload: Payload::Pieces(&pieces), immediate: None };
            post(&mut send_queue, write).unwrap();
            let mut came = vec![0u8; BYTES];
            far.region.read(0, &mut came).unwrap();
            assert_eq!(came[5..5 + bytes], pattern[3..3 + bytes], "{bytes} bytes");
            assert!(came[..5].iter().chain(&came[5 + bytes..]).all(|&b| b == 0), "{bytes} bytes: more was written");
        }
        let text = b"in the entry itself, over its end and into the next block";
        let write = Operation::Write { remote: far.there(64), payload: Payload::Inline(text), immediate: None };
        post(&mut send_queue, write).unwrap();
        let mut came = vec![0; text.len()];
        far.region.read(64, &mut came).unwrap();
        assert_eq!(came, text);
        let into = [near.here(512, 40), near.here(1024, 17)];
        post(&mut send_queue, Operation::Read { remote: far.there(64), into: &into }).unwrap();
        near.region.read(512, &mut came[..40]).unwrap();
        near.region.read(1024, &mut came[40..]).unwrap();
        assert_eq!(came, text);
        atomics(&mut send_queue, &near, &far);
    }
}

/// Tests each kind of atomic operation: the word afterwards, and the landed old value.
fn atomics(send_queue: &mut CpuSendQueue, near: &Memory, far: &Memory) {
    const BEFORE: u64 = 0xffff_fff0_0000_0001;
    let mut each = |action: Atomic, bytes: u32, after: u64| {
        far.region.set(128, BEFORE).unwrap();
        near.region.fill(256, 16, 0xaa).unwrap();
        let landing = near.here(256, bytes);
        post(send_queue, Operation::Atomic { remote: far.there(128), action, landing }).unwrap();
        assert_eq!(far.word(128), after, "{action:?}");
        let mut landed = [0u8; 16];
        near.region.read(256, &mut landed).unwrap();
        // The old value, in either byte order: the kernels' tests check which one.
        let old = &BEFORE.to_le_bytes()[..bytes as usize];
        let is_old = landed[..bytes as usize] == *old || landed[..bytes as usize].iter().rev().eq(old);
        assert!(is_old && landed[bytes as usize..].iter().all(|&b| b == 0xaa), "{action:?}: {landed:x?}");
    };
    each(Atomic::FetchAdd { add: 0x10_0000_0007 }, 8, BEFORE.wrapping_add(0x10_0000_0007));
    each(Atomic::CompareSwap { swap: 9, compare: BEFORE }, 8, 9);
    each(Atomic::CompareSwap { swap: 9, compare: BEFORE + 1 }, 8, BEFORE);
    each(Atomic::MaskedAdd32 { add: u32::MAX, boundary: 0 }, 4, BEFORE - 1);
    let all = u64::MAX;
    each(Atomic::MaskedSwap64 { swap: 5, compare: 0, swap_mask: all, compare_mask: 0 }, 8, 5);
    let low = 0xffff_ffff;
    each(Atomic::MaskedSwap64 { swap: 5, compare: 1, swap_mask: low, compare_mask: low }, 8, (BEFORE & !low) | 5);
    each(
        Atomic::MaskedSwap32 { swap: 8, compare: 1, swap_mask: u32::MAX, compare_mask: u32::MAX },
        4,
        (BEFORE & !low) | 8,
    );
}

#[test]
#[ignore = "needs the rig"]
fn the_ring_goes_round_and_keeps_its_order() {
    setting::inside();
    const TURNS: u64 = 300;
    let adapter = adapter();
    let (near, far) = (Memory::new(&*adapter, Rights::ALL), Memory::new(&*adapter, Rights::ALL));
    let (mut send_queue, _peer) = connected(&*adapter, false);
    for turn in 1..=TURNS {
        let data = turn.to_ne_bytes();
        let write = Operation::Write { remote: far.there(0), payload: Payload::Inline(&data), immediate: None };
        send_queue.post(write, false).unwrap();
        let add = Operation::Atomic {
            remote: far.there(8),
            action: Atomic::FetchAdd { add: turn },
            landing: near.here(0, 8),
        };
        let end = send_queue.post(add, true).unwrap();
        send_queue.ring();
        // A few rounds in flight.
        let behind = end.saturating_sub(8);
        send_queue.wait(behind, LONG).unwrap();
    }
    let posted = send_queue.posted();
    send_queue.wait(posted, LONG).unwrap();
    assert_eq!((far.word(0), far.word(8)), (TURNS, TURNS * (TURNS + 1) / 2));
}

#[test]
#[ignore = "needs the rig"]
fn what_the_device_refuses_comes_back_as_its_syndrome() {
    setting::inside();
    let adapter = adapter();
    let near = Memory::new(&*adapter, Rights::ALL);
    let far = Memory::new(&*adapter, Rights::ALL);
    let only_reads = Memory::new(&*adapter, Rights::LOCAL_WRITE | Rights::REMOTE_READ);
    let (past, wrong_key) = (far.there(BYTES as u64 - 8), Remote { key: far.there(0).key ^ 0x55, ..far.there(0) });
    for (what, remote, local, syndrome) in [
        ("a wrong remote key", wrong_key, near.here(0, 64), Syndrome::REMOTE_ACCESS),
        ("past the end", past, near.here(0, 64), Syndrome::REMOTE_ACCESS),
        ("no right to write", only_reads.there(0), near.here(0, 64), Syndrome::REMOTE_ACCESS),
        (
            "a wrong local key",
            far.there(0),
            DataSegment::new(near.registration.address(), 0x1234_5678, 64),
            Syndrome::LOCAL_PROTECTION,
        ),
    ] {
        let (mut send_queue, _peer) = connected(&*adapter, false);
        far.region.fill(0, BYTES, 0x11).unwrap();
        let pieces = [local];
        let write = Operation::Write { remote, payload: Payload::Pieces(&pieces), immediate: None };
        let error = post(&mut send_queue, write).expect_err(what);
        println!("{what}: {error}");
        let PostError::Failed { failure, .. } = &error else { panic!("{what}: {error}") };
        // The kernel's Soft-RoCE flushes requests that failed locally, and forgets the cause (rxe_comp.c,
        // flush_send_wqe).
        let own = syndrome == Syndrome::LOCAL_PROTECTION && failure.syndrome == Syndrome::FLUSHED;
        assert!(failure.syndrome == syndrome || own, "{what}: {failure}");
        let mut bytes = vec![0; BYTES];
        far.region.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&b| b == 0x11), "{what}: something was written");
        // Nothing after it is executed.
        let write = Operation::Write { remote: far.there(0), payload: Payload::Inline(b"late"), immediate: None };
        post(&mut send_queue, write).expect_err(what);
        assert_eq!(far.word(0), 0x1111_1111_1111_1111, "{what}");
    }
}
