//! Tests submission queues in a controller's own memory: the drive `mate` has a buffer of 16 MiB in its BAR 2.

use super::machine::{self, BOUND, MATE, TWO, bind};
use warpbell::engine::Engine;
use warpbell::memory::Space;
use warpbell::nvme::{HostQueue, QueueOptions};
use warpbell::storage::{Drive, QueueMemoryChoice, Volume};

const BUFFER_BYTES: u64 = 16 << 20;
const BYTES: usize = 256 << 10;

fn pattern(seed: u32) -> Vec<u8> {
    (0..BYTES as u32).map(|i| (i.wrapping_add(seed).wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}

fn spec(bdf: &str) -> String {
    let api = if machine::vfio() == "group" { "group" } else { "cdev" };
    format!("nvme:{bdf},api={api}")
}

#[test]
#[ignore = "needs the rig"]
fn a_host_queue_submits_through_the_buffer() {
    machine::inside();
    bind(MATE);
    let drive = Drive::open(&spec(MATE)).unwrap();
    let (controller, ns) = (drive.controller(), drive.namespace());
    let options = QueueOptions::default().count(3).depth(16).submission_in_buffer(true);
    let mut set = controller.create_queues(&Space::cpu(), options).unwrap();
    let buffer = controller.memory_buffer().unwrap();
    println!("  {} bytes at {:#x}, {} free", buffer.bytes(), buffer.base(), buffer.free_bytes());
    assert_eq!((buffer.bytes(), buffer.free_bytes()), (BUFFER_BYTES, BUFFER_BYTES - 3 * 4096));
    for index in 0..3 {
        let data = pattern(index);
        // Many times around a ring of sixteen.
        let mut queue = HostQueue::on(&mut set, index).unwrap();
        queue.write(ns, 8, &data).unwrap();
        let mut out = vec![0; BYTES];
        queue.read(ns, 8, &mut out).unwrap();
        assert!(out == data, "queue {index}");
    }
    controller.reset().unwrap();
    set.reset().unwrap();
    let mut out = vec![0; BYTES];
    HostQueue::on(&mut set, 1).unwrap().read(ns, 8, &mut out).unwrap();
    assert!(out == pattern(2), "after a reset");
    drop(set);
    assert_eq!(buffer.free_bytes(), BUFFER_BYTES);
}

#[test]
#[ignore = "needs the rig"]
fn kernels_submit_through_the_buffer() {
    machine::inside();
    bind(MATE);
    let engine = Engine::cpu().unwrap();
    let drive = Drive::open(&spec(MATE)).unwrap();
    let volume = Volume::on(&engine, [drive]).queues(2).depth(16).queue_memory(QueueMemoryChoice::Cmb).build().unwrap();
    println!("  {}", volume.path());
    assert!(volume.path().to_string().contains("queues cmb"));
    let buffer = volume.allocate_data(BYTES).unwrap();
    let data = pattern(7);
    buffer.write(0, &data).unwrap();
    volume.start_write(64, (BYTES / 512) as u64, 8, &buffer).unwrap().finish_within(BOUND).unwrap();
    buffer.write(0, &vec![0; BYTES]).unwrap();
    volume.start_read(64, (BYTES / 512) as u64, 8, &buffer).unwrap().finish_within(BOUND).unwrap();
    let mut out = vec![0; BYTES];
    buffer.read(0, &mut out).unwrap();
    assert!(out == data);
}

#[test]
#[ignore = "needs the rig"]
fn a_drive_without_one_says_so() {
    machine::inside();
    bind(TWO);
    let drive = Drive::open(&spec(TWO)).unwrap();
    let built = Volume::on(&Engine::cpu().unwrap(), [drive]).queue_memory(QueueMemoryChoice::Cmb).build();
    let text = built.unwrap_err().to_string();
    assert!(text.contains("queues cmb") && text.contains("CAP.CMBS is 0"), "{text}");
}
