//! Controllers whose service threads never run: the threads that wait for commands execute them.

use crate::args;
use crate::engine::testing;
use crate::soft::model::{ModelSource, slow};
use crate::soft::nvme::{SoftConfig, SoftController};
use crate::storage::{Cache, Drive, Volume};
use std::time::{Duration, Instant};

const COUNT: u64 = 40_000;
/// Deadline of waits that a fault makes expire.
const SHORT: Duration = Duration::from_millis(300);

fn values() -> Vec<u64> {
    (0..COUNT).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

/// Returns a volume on a controller in this state.
fn alone(spec: &str) -> (SoftController, Volume) {
    alone_as(SoftConfig::parse(spec).unwrap())
}

fn alone_as(config: SoftConfig) -> (SoftController, Volume) {
    let controller = SoftController::start_without_service(config).unwrap();
    let drive = Drive::attach(controller.attachment(), None).unwrap();
    let volume = Volume::on(&testing::cpu(), [drive]).queues(3).depth(16).build().unwrap();
    (controller, volume)
}

fn cache(volume: &Volume) -> Cache {
    Cache::on(volume).bytes(64 << 10).build().unwrap()
}

#[test]
fn the_host_and_kernels_execute_the_commands_that_they_wait_for() {
    for threads in [1, 2, 3] {
        let (controller, volume) = alone(&format!("mem:4M,threads={threads}"));
        volume.store_array("a", &values()).unwrap();
        assert!(volume.read_array::<u64>("a").unwrap() == values());
        let cache = cache(&volume);
        let array = cache.open::<u64>("a").unwrap();
        for _ in 0..3 {
            // A kernel loads the elements.
            assert!(array.read(0..COUNT).unwrap() == values());
            cache.discard().unwrap();
        }
        // Queues are deleted and memory is unmapped, which the service has to agree to.
        drop((array, cache, volume));
        assert!(controller.statistics().total().reads > 0, "the commands were those of this controller");
    }
}

#[test]
fn commands_of_a_modelled_drive_complete_in_the_threads_that_wait() {
    let model = ModelSource::Given(Box::new(slow()));
    let (controller, volume) = alone_as(SoftConfig::parse("mem:4M,threads=1").unwrap().model(model));
    volume.store_array("a", &values()).unwrap();
    let cache = cache(&volume);
    let array = cache.open::<u64>("a").unwrap();
    let (before, began) = (controller.statistics().total().reads, Instant::now());
    assert!(array.read(0..COUNT).unwrap() == values());
    let reads = controller.statistics().total().reads - before;
    // The drive makes up for a moment of idleness at first.
    let shortest = Duration::from_secs_f64(reads as f64 / slow().read.iops[1].1) - Duration::from_millis(1);
    assert!(reads > 50 && began.elapsed() >= shortest, "{reads} reads in {:?}", began.elapsed());
    drop((array, cache, volume));
}

#[test]
fn a_doorbell_belongs_to_the_service_of_its_queue() {
    const THREADS: usize = 3;
    for stride in [0, 4] {
        let spec = format!("mem:4M,queues=8,threads={THREADS},stride={stride}");
        let controller = SoftController::start(SoftConfig::parse(&spec).unwrap()).unwrap();
        let window = controller.0.core.shell.doorbells.window().unwrap();
        let services = controller.0.assisted.lock();
        let owners = |offset: usize| {
            let address = window.base.addr().get() + offset;
            (0..THREADS).filter(|i| services[*i].has_doorbell(address)).collect::<Vec<_>>()
        };
        for queue in 1..=8 {
            for doorbell in [2 * queue, 2 * queue + 1] {
                assert_eq!(owners(doorbell * (4 << stride)), [(queue - 1) % THREADS], "{stride} {queue}");
            }
        }
        // The admin queue's, and memory behind the last page.
        assert!([0, 4 << stride, window.bytes].iter().all(|offset| owners(*offset).is_empty()));
    }
}

#[test]
fn a_wait_that_executes_commands_ends_at_its_deadline_and_when_it_is_told_to_stop() {
    let (_controller, volume) = alone("mem:4M,threads=1,lose-completion=1024-1031");
    let cached = cache(&volume);
    // Of page 128 on, which is block 1024.
    let array = cached.array::<u64>(128, 2000).unwrap();
    volume.set_deadline(SHORT).unwrap();
    let e = array.read(0..2000).unwrap_err().to_string();
    assert!(e.contains("timed out"), "{e}");
    volume.recover().unwrap();

    let (_controller, volume) = alone("mem:4M,threads=1,latency=3600s");
    let cached = cache(&volume);
    volume.set_deadline(Duration::from_secs(7200)).unwrap();
    let engine = volume.engine().clone();
    let run = testing::start(&engine, "wb_cache_touch", engine.grid(32, 1), args!(&cached, 0u64, 16u64)).unwrap();
    while cached.occupancy().unwrap().busy == 0 {
        std::thread::yield_now();
    }
    // The kernel waits for reads that are executed and not completed.
    run.stop().unwrap();
    volume.set_deadline(SHORT).unwrap();
    testing::finish_stopped(run);
    volume.recover().unwrap();
}
