use std::sync::Arc;
use warpbell::engine::{Args, KernelArg};
use warpbell::nvme::QueueSet;

fn main() {}

pub fn queues_reset(queues: Arc<QueueSet>, args: &mut Args) {
    queues.push(args);
    queues.reset().unwrap();
}
