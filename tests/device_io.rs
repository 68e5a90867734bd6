//! Reads and writes on all storage devices that are available, and verifies the data. By default this runs on the
//! software controller. The virtual machine rig (`tests/rig`) runs the same binary on controllers behind VFIO.
//!
//! * `WARPBELL_TEST_DEVICES`: specifications, separated by spaces; each test runs on each in turn. Their content is
//!   lost.
//! * `WARPBELL_TEST_PAIR`: two devices with the same block size, for striping and replication.
#![cfg(all(feature = "storage", feature = "soft", feature = "cpu-image"))]

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use warpbell::engine::{Engine, Run};
use warpbell::memory::{Place, Space};
use warpbell::nvme::{Controller, HostQueue, HostQueueOptions, Landing, Namespace, QueueOptions, Ready};
use warpbell::storage::{Drive, LandingChoice, Volume};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Bytes of a device that a test reads and writes, from its first block.
const TOUCHED: usize = 4 * MIB;
/// Time within which every run has ended, even on an emulated processor.
const BOUND: Duration = Duration::from_secs(120);
/// Largest transfer that is tested if the controller states no limit (MDTS 0).
const LARGEST: usize = 512 * KIB;

fn named(variable: &str, otherwise: &[&str]) -> Vec<String> {
    match std::env::var(variable) {
        Ok(text) => text.split_whitespace().map(str::to_owned).collect(),
        Err(_) => otherwise.iter().map(|s| (*s).to_owned()).collect(),
    }
}

fn devices() -> Vec<String> {
    named("WARPBELL_TEST_DEVICES", &["soft:mem:8M,transfer=512k", "soft:mem:8M,block=4096,transfer=512k"])
}

fn pair() -> Vec<String> {
    named("WARPBELL_TEST_PAIR", &["soft:mem:8M", "soft:mem:9M"])
}

fn open(spec: &str) -> Drive {
    println!("device {spec}");
    Drive::open(spec).unwrap_or_else(|e| panic!("{spec}: {e}"))
}

/// Returns random bytes, generated eight at a time: one by one they would take an emulated processor longer than the
/// transfers.
fn noise(rng: &mut SmallRng, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    rng.fill(&mut data[..]);
    data
}

/// Expected contents of the first bytes of a namespace, filled at random and written once.
struct Shadow {
    data: Vec<u8>,
    block: usize,
    rng: SmallRng,
}

impl Shadow {
    fn written(queue: &mut HostQueue<'_>, ns: &Namespace, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let data = noise(&mut rng, TOUCHED);
        queue.write(ns, 0, &data).unwrap();
        Self { data, block: ns.block_bytes(), rng }
    }

    /// Writes at one place and reads at another, `bytes` each.
    fn exchange(&mut self, queue: &mut HostQueue<'_>, ns: &Namespace, bytes: usize) {
        let blocks = (TOUCHED - bytes) / self.block;
        let (to, from) = (self.rng.random_range(0..=blocks), self.rng.random_range(0..=blocks));
        let new = noise(&mut self.rng, bytes);
        queue.write(ns, to as u64, &new).unwrap();
        self.data[to * self.block..to * self.block + bytes].copy_from_slice(&new);
        let mut out = vec![0; bytes];
        queue.read(ns, from as u64, &mut out).unwrap();
        let expected = &self.data[from * self.block..from * self.block + bytes];
        assert!(out == expected, "{bytes} bytes at LBA {from} are not what was written");
    }

    fn check_all(&self, queue: &mut HostQueue<'_>, ns: &Namespace) {
        let mut out = vec![0; TOUCHED];
        queue.read(ns, 0, &mut out).unwrap();
        let wrong = (0..TOUCHED / self.block).find(|b| {
            let range = b * self.block..(b + 1) * self.block;
            out[range.clone()] != self.data[range]
        });
        assert_eq!(wrong, None, "this block is not what was written last");
    }
}

fn parts(drive: &Drive) -> (Arc<Controller<Ready>>, Namespace) {
    (drive.controller().clone(), drive.namespace().clone())
}

#[test]
fn a_controller_is_identified() {
    for spec in devices() {
        let drive = open(&spec);
        let (controller, ns) = parts(&drive);
        let id = controller.identify();
        println!("  {} serial {} {} x {} bytes", id.model(), id.serial(), ns.blocks(), ns.block_bytes());
        assert!(!id.model().is_empty() && !id.serial().is_empty());
        assert!(controller.namespaces().unwrap().contains(&ns.id()));
        assert!(drive.bytes() >= TOUCHED as u64, "the tests need {TOUCHED} bytes");
        assert!((200..400).contains(&controller.health().unwrap().temperature_k));
        controller.check().unwrap();
    }
}

/// Tests one block to MDTS and past it: PRP1 alone, PRP1 and PRP2, lists, several commands.
#[test]
fn transfers_of_every_length() {
    for spec in devices() {
        let drive = open(&spec);
        let (controller, ns) = parts(&drive);
        let most = controller.max_data_transfer().map_or(LARGEST, |b| (b as usize).min(LARGEST));
        let mut queue =
            HostQueue::create(&controller, HostQueueOptions::default().depth(8).bytes_per_command(most)).unwrap();
        assert_eq!(queue.max_transfer_bytes(), most);
        let mut shadow = Shadow::written(&mut queue, &ns, 1);
        let block = shadow.block;
        let mut lengths = vec![block, 4096, 8192 - block, 8192, 8192 + block, 12288, most / 2, most - block, most];
        lengths.push(most + block);
        lengths.retain(|b| *b >= block);
        for bytes in lengths {
            for _ in 0..4 {
                shadow.exchange(&mut queue, &ns, bytes);
            }
        }
        queue.flush(&ns).unwrap();
        shadow.check_all(&mut queue, &ns);
    }
}

/// Tests one queue to all that the controller grants, each many times around its ring.
#[test]
fn one_to_all_queues() {
    for spec in devices() {
        let drive = open(&spec);
        let (controller, ns) = parts(&drive);
        let all = controller.free_queues();
        println!("  {all} queues");
        for count in [1, 2, all / 2, all].into_iter().filter(|n| *n > 0) {
            let options =
                QueueOptions::default().count(count).depth(4).landing(Landing::Bounce { bytes_per_slot: 4096 });
            let mut set = controller.create_queues(&Space::cpu(), options).unwrap();
            let mut shadow = Shadow::written(&mut HostQueue::on(&mut set, 0).unwrap(), &ns, count.into());
            let mut order: Vec<u32> = (0..count).collect();
            order.shuffle(&mut shadow.rng);
            for index in order {
                let mut queue = HostQueue::on(&mut set, index).unwrap();
                // 2 x 64 KiB in pages are 32 commands: eight times around a ring of four.
                shadow.exchange(&mut queue, &ns, 64 * KIB);
            }
            shadow.check_all(&mut HostQueue::on(&mut set, count - 1).unwrap(), &ns);
            set.check().unwrap();
            drop(set);
            assert_eq!(controller.free_queues(), all);
        }
    }
}

/// Tests tickets that wrap at 32 bits, on rings of the smallest size and a larger one.
#[test]
fn tickets_wrap() {
    for spec in devices() {
        let drive = open(&spec);
        let (controller, ns) = parts(&drive);
        for depth in [2u32, 16] {
            let first_ticket = 0u32.wrapping_sub(4 * depth);
            let options = QueueOptions::default().depth(depth).first_ticket(first_ticket).memory(Place::Host);
            let mut set = controller.create_queues(&Space::cpu(), options).unwrap();
            let mut queue = HostQueue::on(&mut set, 0).unwrap();
            let mut shadow = Shadow::written(&mut queue, &ns, u64::from(depth));
            for _ in 0..40 {
                shadow.exchange(&mut queue, &ns, 4096);
            }
            shadow.check_all(&mut queue, &ns);
        }
    }
}

/// Lets kernels write doorbells, wait and transfer data themselves. The host reads the kernels' data, and they read the
/// host's.
fn kernels_move(volume: &Volume, each: u32, seed: u64) {
    let block = volume.block_bytes();
    let blocks = (MIB / block) as u64;
    let mut rng = SmallRng::seed_from_u64(seed);
    let data = noise(&mut rng, MIB);
    let (from, to) = (rng.random_range(0..blocks), 2 * blocks + rng.random_range(0..blocks));
    volume.write_blocks(from, &data).unwrap();
    let buffer = volume.allocate_data(MIB).unwrap();
    let end = |run: Run| run.finish_within(BOUND).unwrap_or_else(|e| panic!("{volume}, {each} blocks at a time: {e}"));
    end(volume.start_read(from, blocks, each, &buffer).unwrap());
    let mut moved = vec![0; MIB];
    buffer.read(0, &mut moved).unwrap();
    assert!(moved == data, "{volume}: what kernels read is not what the host wrote");
    moved.iter_mut().for_each(|b| *b = !*b);
    buffer.write(0, &moved).unwrap();
    end(volume.start_write(to, blocks, each, &buffer).unwrap());
    volume.flush().unwrap();
    let mut back = vec![0; MIB];
    volume.read_blocks(to, &mut back).unwrap();
    assert!(back == moved, "{volume}: what the host read is not what kernels wrote");
    volume.check().unwrap();
}

#[test]
fn kernels_drive_it_themselves() {
    let engine = Engine::cpu().unwrap();
    for spec in devices() {
        let most = open(&spec).controller().max_data_transfer().map_or(LARGEST, |b| (b as usize).min(LARGEST));
        for (queues, depth, landing, bytes) in [
            (1, 2, LandingChoice::Bounce, 4096),
            (3, 16, LandingChoice::Direct, 12288),
            (2, 8, LandingChoice::Bounce, most),
            (2, 8, LandingChoice::Direct, most),
        ] {
            let builder = Volume::on(&engine, [open(&spec)]).queues(queues).depth(depth).landing(landing);
            let volume = builder.transfer(bytes).build().unwrap();
            println!("  {volume}");
            kernels_move(&volume, (bytes / volume.block_bytes()) as u32, u64::from(queues));
        }
    }
}

#[test]
fn two_are_striped() {
    let engine = Engine::cpu().unwrap();
    for chunk in [4096, 24 << 10] {
        let drives: Vec<Drive> = pair().iter().map(|s| open(s)).collect();
        let each = drives[0].bytes().min(drives[1].bytes()) / chunk * chunk;
        let volume = Volume::on(&engine, drives).chunk(chunk).queues(2).build().unwrap();
        assert_eq!(volume.bytes(), 2 * each);
        for blocks in [1, 8, 33] {
            kernels_move(&volume, blocks, chunk + u64::from(blocks));
        }
    }
}

#[test]
fn two_are_replicated() {
    let engine = Engine::cpu().unwrap();
    let open_both = || pair().iter().map(|s| open(s)).collect::<Vec<Drive>>();
    let drives = open_both();
    let least = drives[0].bytes().min(drives[1].bytes());
    let volume = Volume::on(&engine, drives).replicated(true).chunk(8192).queues(2).build().unwrap();
    assert_eq!(volume.bytes(), least);
    // The drives begin with the data that each of them held.
    volume.write_blocks(0, &vec![0; TOUCHED]).unwrap();
    for blocks in [1, 8, 16] {
        kernels_move(&volume, blocks, 99 + u64::from(blocks));
    }
    let mut whole = vec![0; TOUCHED];
    volume.read_blocks(0, &mut whole).unwrap();
    if volume.name().contains("soft:mem") {
        // Memory does not outlive its controller.
        return;
    }
    drop(volume);
    for drive in open_both() {
        let (controller, ns) = parts(&drive);
        let mut copy = vec![0; TOUCHED];
        let mut queue = HostQueue::create(&controller, HostQueueOptions::default()).unwrap();
        queue.read(&ns, 0, &mut copy).unwrap();
        assert!(copy == whole, "{} does not hold what the volume holds", drive.name());
    }
}
