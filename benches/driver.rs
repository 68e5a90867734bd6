//! The driver's host paths against the software controller: admin commands, queue creation, submission from the host.
//! Figures include the controller's share, which runs on threads of the same machine.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::sync::Arc;
use warpbell::memory::Space;
use warpbell::nvme::{Controller, HostQueue, HostQueueOptions, Landing, Namespace, QueueOptions, Ready};
use warpbell::soft::nvme::{SoftConfig, SoftController};
use warpbell::wire::nvme::feature;

const DEVICE_BYTES: u64 = 16 << 20;
/// Blocks of 4 KiB that one round reads.
const ROUND: usize = 256;
const BLOCK: usize = 4096;

fn open() -> (Arc<Controller<Ready>>, Namespace) {
    let config = SoftConfig::memory(DEVICE_BYTES).block_bytes(BLOCK as u32).threads(1);
    let soft = SoftController::start(config).expect("memory for the device");
    let controller = Controller::new(soft.attachment()).expect("a controller");
    let controller = Arc::new(controller.enable().map_err(|(_, e)| e).expect("ready"));
    let namespace = controller.namespace(1).expect("a namespace");
    (controller, namespace)
}

fn admin(c: &mut Criterion) {
    let (controller, _) = open();
    c.bench_function("admin/get_feature", |b| {
        b.iter(|| controller.feature(feature::NUMBER_OF_QUEUES).expect("an answer"));
    });
    c.bench_function("admin/identify_namespace", |b| b.iter(|| controller.namespace(1).expect("a namespace")));
    let space = Space::cpu();
    let landing = Landing::Bounce { bytes_per_slot: BLOCK };
    let options = QueueOptions::default().count(4).depth(256).landing(landing);
    c.bench_function("admin/create_and_delete_4_queues", |b| {
        b.iter_batched(
            || options.clone(),
            |o| controller.create_queues(&space, o).expect("queues"),
            BatchSize::PerIteration,
        );
    });
}

fn host_queue(c: &mut Criterion) {
    let (controller, namespace) = open();
    let mut group = c.benchmark_group("host_queue");
    for depth in [2, 32, 128] {
        let options = HostQueueOptions::default().depth(depth).bytes_per_command(BLOCK);
        let mut queue = HostQueue::create(&controller, options).expect("a queue");
        let mut out = vec![0; ROUND * BLOCK];
        group.throughput(Throughput::Elements(ROUND as u64));
        group.bench_function(format!("read_4k/in_flight_{}", depth - 1), |b| {
            b.iter(|| queue.read(&namespace, 0, &mut out).expect("data"));
        });
    }
    let options = HostQueueOptions::default().depth(32).bytes_per_command(128 << 10);
    let mut queue = HostQueue::create(&controller, options).expect("a queue");
    let data = vec![7; DEVICE_BYTES as usize];
    group.throughput(Throughput::Bytes(DEVICE_BYTES));
    group.bench_function("write_128k/in_flight_31", |b| b.iter(|| queue.write(&namespace, 0, &data).expect("written")));
    group.finish();
}

criterion_group!(benches, admin, host_queue);
criterion_main!(benches);
