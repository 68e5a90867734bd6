//! Parses arbitrary bytes as a frame between software NICs, and as a send ring written by a kernel. Each is read or
//! rejected. A frame that was read is equal when it is written again. `cargo test` runs the same with fewer inputs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use warpbell::memory::{Place, Space};
use warpbell::rdma::ring_service::{Fetched, RingService};
use warpbell::rdma::{QueuePlan, QueueRings};
use warpbell::soft::nic::Frame;
use warpbell::wire::mlx5::doorbell::SendDoorbell;

const NUMBER: u32 = 0x40;

fuzz_target!(|input: &[u8]| {
    if let Some(frame) = Frame::decode(input) {
        assert_eq!(frame.encode(), input);
    }
    let Some((&announced, entries)) = input.split_first() else { return };
    let plan = QueuePlan::new(Space::cpu(), Place::Host).log_blocks(3).collapsed(announced & 0x80 != 0);
    let memory = Arc::new(QueueRings::new(plan, Place::Host).expect("memory"));
    let mut ring = RingService::new(memory.clone(), NUMBER).expect("host memory");
    memory.ring().write(0, &entries[..entries.len().min(512)]).expect("in bounds");
    let next = u64::from(announced & 0xf);
    memory.records().set(4, (next as u32).to_be()).expect("in bounds");
    let doorbell = SendDoorbell::new(NUMBER, next).to_bytes();
    memory.records().write(QueueRings::doorbell_offset(), &doorbell).expect("in bounds");
    let mut last = None;
    for _ in 0..16 {
        match ring.fetch() {
            Fetched::Request(posted, _) => last = Some(posted.index),
            Fetched::Nothing => break,
            Fetched::Refused(..) | Fetched::Flushed(_) => {}
        }
    }
    if let Some(index) = last {
        ring.complete(index);
    }
    assert_eq!(ring.outstanding(), 0);
});
