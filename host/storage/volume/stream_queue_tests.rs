//! Transfers of streams on a software controller: contents, order among kernels, failures, late devices, full queues.

use super::*;
use crate::args;
use crate::engine::{Engine, RunError, testing};
use crate::storage::{Drive, LandingChoice};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn volume(engine: &Engine, specs: &[&str], landing: LandingChoice) -> Volume {
    Volume::on(engine, specs.iter().map(|s| Drive::open(s).unwrap())).chunk(4096).landing(landing).build().unwrap()
}

fn numbers(engine: &Engine, stream: &Stream, data: &DataBuffer, count: u64, start: u64, step: u64) {
    // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
    unsafe { stream.launch("wb_iota", engine.grid(64, 1), args!(data, count, start, step)) }.unwrap();
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|i| ((i * 31) >> 3) as u8).collect()
}

#[test]
fn blocks_move_between_kernels_in_the_order_of_the_stream() {
    let engine = testing::engine(0);
    let (one, three) = (&["soft:mem:4M"][..], &["soft:mem:2M", "soft:mem:2M", "soft:mem:2M"][..]);
    for (specs, landing) in [
        (one, LandingChoice::Bounce),
        (one, LandingChoice::Auto),
        (three, LandingChoice::Bounce),
        (three, LandingChoice::Auto),
    ] {
        let v = volume(&engine, specs, landing);
        let stream = engine.stream().unwrap();
        let queue = StreamQueue::new(&stream, &v).unwrap();
        let (out, back) = (v.allocate_data(64 << 10).unwrap(), v.allocate_data((64 << 10) + 512).unwrap());
        // Many more commands than the queue holds, so that both rings wrap.
        for round in 0..50u64 {
            let first = round * 7 % 100;
            numbers(&engine, &stream, &out, 8192, round, 3);
            queue.prepare_write(first, 128, &out, 0).unwrap();
            queue.trigger().unwrap();
            // The write takes what the first kernel stored, and the read finds it.
            numbers(&engine, &stream, &out, 8192, 0, 0);
            queue.prepare_read(first, 128, &back, 512).unwrap();
            queue.trigger().unwrap();
            stream.synchronize(SOON).unwrap();
            let expected: Vec<u64> = (0..8192).map(|i| round + 3 * i).collect();
            assert!(back.get_slice::<u64>(512, 8192).unwrap() == expected, "{specs:?} {landing:?} round {round}");
        }
        let mut stored = vec![0; 64 << 10];
        v.read_blocks(49 * 7 % 100, &mut stored).unwrap();
        let last: Vec<u8> = (0..8192u64).flat_map(|i| (49 + 3 * i).to_ne_bytes()).collect();
        assert!(stored == last);
    }
}

#[test]
fn several_triggers_and_kernels_wait_for_the_host_once() {
    let engine = testing::engine(0);
    let v = volume(&engine, &["soft:mem:1M"], LandingChoice::Auto);
    let stored = pattern(512 << 10);
    v.write_blocks(0, &stored).unwrap();
    let stream = engine.stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let data = v.allocate_data(512 << 10).unwrap();
    queue.trigger().unwrap();
    assert!(engine.is_idle(), "nothing was prepared");
    for part in 0..16 {
        queue.prepare_read(part * 64, 32, &data, part as usize * (32 << 10)).unwrap();
        queue.prepare_read(part * 64 + 32, 32, &data, part as usize * (32 << 10) + (16 << 10)).unwrap();
        queue.trigger().unwrap();
    }
    stream.synchronize(SOON).unwrap();
    assert!(data.get_slice::<u8>(0, 512 << 10).unwrap() == stored);
    assert!(engine.is_idle());
}

#[test]
fn a_full_queue_is_refused_with_numbers_and_works_again() {
    let engine = testing::engine(0);
    let v = volume(&engine, &["soft:mem:1M"], LandingChoice::Auto);
    let stream = engine.stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let data = v.allocate_data(512).unwrap();
    for i in 0..queue.capacity() as u64 {
        queue.prepare_read(i, 1, &data, 0).unwrap();
    }
    let e = queue.prepare_read(0, 1, &data, 0).unwrap_err().to_string();
    assert!(e.contains("room for 0 of 63"), "{e}");
    queue.trigger().unwrap();
    assert!(queue.prepare_read(0, 1, &data, 0).is_err());
    stream.synchronize(SOON).unwrap();
    queue.prepare_read(0, 1, &data, 0).unwrap();
    queue.trigger().unwrap();
    stream.synchronize(SOON).unwrap();
}

#[test]
fn a_deeper_queue_takes_more_commands_before_the_host_waits() {
    let engine = testing::engine(0);
    for landing in [LandingChoice::Bounce, LandingChoice::Auto] {
        let v = volume(&engine, &["soft:mem:1M,entries=2000"], landing);
        let stored = pattern(1 << 20);
        v.write_blocks(0, &stored).unwrap();
        let stream = engine.stream().unwrap();
        let queue = StreamQueue::with_depth(&stream, &v, 1024).unwrap();
        assert_eq!(queue.capacity(), 1023);
        let data = v.allocate_data(1 << 20).unwrap();
        // The ring wraps in the second round. Blocks go to places in another order.
        for round in 0..3u64 {
            for i in 0..1000u64 {
                let to = (i * 7 + round) % 1000;
                queue.prepare_read(i, 1, &data, to as usize * 512).unwrap();
            }
            queue.trigger().unwrap();
            stream.synchronize(SOON).unwrap();
            let found = data.get_slice::<u8>(0, 1000 * 512).unwrap();
            for i in 0..1000 {
                let to = (i * 7 + round as usize) % 1000;
                assert!(found[to * 512..][..512] == stored[i * 512..][..512], "round {round}, block {i}");
            }
        }
        for depth in [0, 1, 48, 2048, 1 << 17] {
            let e = StreamQueue::with_depth(&stream, &v, depth).unwrap_err().to_string();
            assert!(e.contains(&format!("a queue of {depth} entries")) && e.contains("from 2 to 1024"), "{e}");
        }
    }
}

#[test]
fn mistakes_are_refused_before_anything_is_prepared() {
    let (engine, other) = (testing::engine(0), Engine::cpu().unwrap());
    let v = volume(&engine, &["soft:mem:64k"], LandingChoice::Auto);
    let stream = engine.stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let data = v.allocate_data(4096).unwrap();
    let refused = |first, count, offset| {
        let e = queue.prepare_read(first, count, &data, offset).unwrap_err().to_string();
        assert_eq!(e, queue.prepare_write(first, count, &data, offset).unwrap_err().to_string());
        e
    };
    assert!(refused(127, 2, 0).contains("128 blocks"));
    assert!(refused(0, u64::MAX, 0).contains("128 blocks"));
    assert!(refused(0, 9, 0).contains("4608 bytes from byte 0 on exceed the buffer of 4096 bytes"));
    assert!(refused(0, 1, usize::MAX).contains("exceed"));
    assert!(refused(0, 1, 2).contains("multiple of 4"));
    let theirs = volume(&other, &["soft:mem:64k"], LandingChoice::Auto);
    assert!(StreamQueue::new(&stream, &theirs).unwrap_err().to_string().contains("another engine"));
    let foreign = theirs.allocate_data(4096).unwrap();
    assert!(queue.prepare_read(0, 1, &foreign, 0).unwrap_err().to_string().contains("another engine"));
    let drives = ["soft:mem:64k", "soft:mem:64k"].map(|s| Drive::open(s).unwrap());
    let copies = Volume::on(&engine, drives).replicated(true).build().unwrap();
    assert!(StreamQueue::new(&stream, &copies).unwrap_err().to_string().contains("another copy"));
    let none = Drive::open("soft:mem:64k,queues=1").unwrap();
    let none = Volume::on(&engine, [none]).queues(1).build().unwrap();
    assert!(StreamQueue::new(&stream, &none).unwrap_err().to_string().contains("queue"));
    stream.synchronize(SOON).unwrap();
}

#[test]
fn a_failed_command_is_told_with_its_place_and_the_next_one_works() {
    let engine = testing::engine(0);
    let v = volume(&engine, &["soft:mem:1M", "soft:mem:1M,media-error=100-100"], LandingChoice::Auto);
    let stream = engine.stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let data = v.allocate_data(256 << 10).unwrap();
    queue.prepare_read(0, 512, &data, 0).unwrap();
    queue.trigger().unwrap();
    numbers(&engine, &stream, &data, 1, 5, 0);
    let e = stream.synchronize(SOON).unwrap_err();
    let RunError::Operations { kernel, errors, count } = &e else { panic!("{e}") };
    assert!(kernel.contains("stream transfers"), "{kernel}");
    assert_eq!((*count, errors[0].device, errors[0].opcode), (1, 1, 2), "{e}");
    assert!((errors[0].lba..errors[0].lba + u64::from(errors[0].blocks)).contains(&100), "{e}");
    assert!(matches!(errors[0].outcome, Outcome::DeviceError(_)), "{e}");
    queue.prepare_read(0, 8, &data, 0).unwrap();
    queue.trigger().unwrap();
    stream.synchronize(SOON).unwrap();
}

#[test]
fn a_lost_completion_ends_at_the_deadline_and_the_queue_is_made_again() {
    let engine = testing::engine(0);
    engine.set_deadline(Duration::from_millis(100)).unwrap();
    let v = volume(&engine, &["soft:mem:1M,lose-completion=40-40"], LandingChoice::Auto);
    let stored = pattern(4096);
    v.write_blocks(64, &stored).unwrap();
    let stream = engine.stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let data = v.allocate_data(8192).unwrap();
    queue.prepare_read(40, 1, &data, 0).unwrap();
    queue.prepare_read(64, 8, &data, 4096).unwrap();
    queue.trigger().unwrap();
    numbers(&engine, &stream, &data, 1, 5, 0);
    let e = stream.synchronize(SOON).unwrap_err();
    let RunError::Operations { errors, count, .. } = &e else { panic!("{e}") };
    assert_eq!((*count, errors[0].lba, errors[0].outcome), (1, 40, Outcome::TimedOut), "{e}");
    assert!(engine.is_idle() && !engine.space().is_poisoned());
    // The new queue takes commands.
    queue.prepare_read(64, 8, &data, 0).unwrap();
    queue.trigger().unwrap();
    stream.synchronize(SOON).unwrap();
    assert!(data.get_slice::<u8>(0, 4096).unwrap() == stored);
}

#[test]
fn commands_behind_a_kernel_that_failed_are_not_late() {
    let engine = testing::engine(0);
    let v = volume(&engine, &["soft:mem:1M,media-error=7-7"], LandingChoice::Auto);
    let stored = pattern(4096);
    v.write_blocks(64, &stored).unwrap();
    let stream = engine.stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let (data, out) = (v.allocate_data(4096).unwrap(), v.allocate_data(4096).unwrap());
    let args = args!(&v, 7u64, 1u64, 1u32, &out);
    // SAFETY: these are the arguments that the kernel takes, as in `Volume::start_read`.
    unsafe { stream.launch("wb_read_blocks", engine.grid(32, 1), args) }.unwrap();
    queue.prepare_read(64, 8, &data, 0).unwrap();
    queue.trigger().unwrap();
    queue.prepare_read(64, 8, &data, 0).unwrap();
    let e = stream.synchronize(SOON).unwrap_err();
    let RunError::Operations { errors, .. } = &e else { panic!("{e}") };
    assert!(errors.len() == 1 && errors[0].lba == 7, "{e}");
    // The command that was prepared and not triggered is still there.
    queue.trigger().unwrap();
    stream.synchronize(SOON).unwrap();
    assert!(data.get_slice::<u8>(0, 4096).unwrap() == stored);
}

#[test]
fn a_stream_that_is_dropped_ends_its_waits() {
    let engine = testing::engine(0);
    engine.set_deadline(Duration::from_secs(3600)).unwrap();
    let v = volume(&engine, &["soft:mem:1M,lose-completion=40-40"], LandingChoice::Auto);
    let drives = Arc::downgrade(&v.0);
    let stream = engine.stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let data = v.allocate_data(512).unwrap();
    queue.prepare_read(40, 1, &data, 0).unwrap();
    queue.trigger().unwrap();
    assert!(!stream.is_finished().unwrap());
    drop((queue, data, v));
    assert!(drives.upgrade().is_some(), "the stream keeps what its steps use");
    drop(stream);
    assert!(engine.is_idle() && !engine.space().is_poisoned());
    assert!(drives.upgrade().is_none());
}

#[test]
fn a_limit_ends_a_stream_that_waits_for_a_device() {
    let engine = testing::engine(0);
    engine.set_deadline(Duration::from_secs(3600)).unwrap();
    let v = volume(&engine, &["soft:mem:1M,lose-completion=40-40"], LandingChoice::Auto);
    let stream = engine.stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let data = v.allocate_data(512).unwrap();
    queue.prepare_read(40, 1, &data, 0).unwrap();
    queue.trigger().unwrap();
    let e = stream.synchronize(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(e, RunError::TimedOut { .. }), "{e}");
    assert!(engine.is_idle() && !engine.space().is_poisoned());
}

#[test]
fn kernels_and_a_stream_queue_share_a_device() {
    let engine = testing::engine(0);
    let v = volume(&engine, &["soft:mem:4M"], LandingChoice::Auto);
    let stored = pattern(1 << 20);
    v.write_blocks(0, &stored).unwrap();
    let stream = engine.stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let (by_stream, by_kernel) = (v.allocate_data(1 << 20).unwrap(), v.allocate_data(1 << 20).unwrap());
    for _ in 0..4 {
        queue.prepare_read(0, 2048, &by_stream, 0).unwrap();
        queue.trigger().unwrap();
        v.start_read(0, 2048, 8, &by_kernel).unwrap().finish().unwrap();
        stream.synchronize(SOON).unwrap();
    }
    assert!(by_stream.get_slice::<u8>(0, 1 << 20).unwrap() == stored);
    assert!(by_kernel.get_slice::<u8>(0, 1 << 20).unwrap() == stored);
}
