//! Tests the driver against QEMU's NVMe model, an independent implementation of a controller. No guest, no kernel.
#![cfg(all(feature = "storage", feature = "cpu-image"))]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::{NamedTempFile, TempDir};
use warpbell::engine::{Engine, Run};
use warpbell::memory::{DmaError, Place, Space};
use warpbell::nvme::qtest::{self, QtestConfig, QtestError, QtestNamespace};
use warpbell::nvme::{
    Attachment, Controller, Doorbell, HostQueue, HostQueueOptions, Landing, NvmeError, QueueOptions, Ready, WriteCache,
};
use warpbell::storage::{Drive, LandingChoice, Volume};
use warpbell::wire::nvme::log::EventKind;
use warpbell::wire::nvme::{SqEntry, Status, admin, cc, feature, io, log_page, register, status};

const MIB: usize = 1 << 20;
/// Page size that the driver uses.
const PAGE: usize = 4096;

/// Starts QEMU, or skips the test without QEMU.
fn start(config: QtestConfig) -> Option<Attachment> {
    match qtest::start(config) {
        Ok(attachment) => Some(attachment),
        Err(e @ QtestError::NoQemu { .. }) => {
            assert!(std::env::var_os("WARPBELL_REQUIRE_QEMU").is_none(), "{e}");
            println!("SKIP: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn open(config: QtestConfig) -> Option<Arc<Controller<Ready>>> {
    let controller = Controller::new(start(config)?).unwrap();
    Some(Arc::new(controller.enable().map_err(|(_, e)| e).unwrap()))
}

/// Returns an image in which every 8 bytes hold their own offset.
fn image(bytes: usize) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&pattern(0, bytes)).unwrap();
    file
}

fn pattern(offset: usize, bytes: usize) -> Vec<u8> {
    (offset..offset + bytes).step_by(8).flat_map(|o| (o as u64 ^ 0x5a5a_0000_0000_0000).to_le_bytes()).collect()
}

fn config(file: &NamedTempFile, block: u32) -> QtestConfig {
    let namespace = QtestNamespace::new(file.path()).block_bytes(block);
    QtestConfig::new(namespace).ram_bytes(64 << 20)
}

fn host_queue(controller: &Arc<Controller<Ready>>) -> HostQueue<'static> {
    HostQueue::create(controller, HostQueueOptions::default()).unwrap()
}

fn read_file(path: &Path, offset: usize, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    File::open(path).unwrap().read_exact_at(&mut out, offset as u64).unwrap();
    out
}

#[test]
fn bring_up_and_identify() {
    let file = image(MIB);
    let config = config(&file, 512).serial("WB,0042".into()).mdts(Some(5)).max_queues(Some(3));
    let Some(controller) = open(config) else { return };
    let id = controller.identify();
    assert_eq!((id.serial().as_str(), id.model().as_str(), id.vendor()), ("WB,0042", "QEMU NVMe Ctrl", 0x1b36));
    assert!(!id.firmware().is_empty());
    assert_eq!((id.mdts(), controller.max_data_transfer()), (5, Some(128 << 10)));
    assert_eq!((id.sq_entry_shift().0, id.cq_entry_shift().0), (6, 4));
    assert_eq!((controller.version().0, controller.kind()), (1, "qtest"));
    assert_eq!(controller.name(), format!("qtest:{}", file.path().display()));
    assert_eq!(controller.granted_queues(), 3);
    assert_eq!(controller.cap().max_queue_entries(), 2048);
    assert_eq!(controller.feature(feature::NUMBER_OF_QUEUES).unwrap(), 2 << 16 | 2);
    let before = controller.feature(feature::VOLATILE_WRITE_CACHE).unwrap();
    controller.set_feature(feature::VOLATILE_WRITE_CACHE, before ^ 1).unwrap();
    assert_eq!(controller.feature(feature::VOLATILE_WRITE_CACHE).unwrap(), before ^ 1);
    assert_eq!(controller.feature(0xee).unwrap_err().status().unwrap().without_flags(), status::INVALID_FIELD);
    let health = controller.health().unwrap();
    assert!((250..400).contains(&health.temperature_k), "{health:?}");
    assert!(controller.error_log().unwrap().is_empty());
    controller.check().unwrap();
}

#[test]
fn namespaces_of_both_block_sizes_and_none_else() {
    let (a, b, c) = (image(MIB), image(2 * MIB), image(MIB));
    let mut config = config(&a, 512);
    config.namespaces.push(QtestNamespace::new(b.path()).block_bytes(4096));
    config.namespaces.push(QtestNamespace { metadata_bytes: 8, ..QtestNamespace::new(c.path()) });
    let Some(controller) = open(config) else { return };
    assert_eq!(controller.namespaces().unwrap(), [1, 2, 3]);
    let (one, two) = (controller.namespace(1).unwrap(), controller.namespace(2).unwrap());
    assert_eq!((one.blocks(), one.block_bytes(), one.bytes()), (2048, 512, MIB as u64));
    assert_eq!((two.blocks(), two.block_bytes(), two.bytes()), (512, 4096, 2 * MIB as u64));
    let e = controller.namespace(3).unwrap_err().to_string();
    assert!(e.contains("namespace 3") && e.contains("8 bytes of metadata"), "{e}");
    for missing in [4, 200, 0x1_0000] {
        let e = controller.namespace(missing).unwrap_err();
        assert!(matches!(&e, NvmeError::NoNamespace { active, .. } if active == &[1, 2, 3]), "{e}");
    }
    let mut queue = host_queue(&controller);
    let mut out = vec![0; 8192];
    queue.read(&two, 3, &mut out).unwrap();
    assert_eq!(out, pattern(3 * 4096, 8192));
    queue.write(&two, 511, &[7; 4096]).unwrap();
    queue.write(&one, 2047, &[9; 512]).unwrap();
    queue.flush(&one).unwrap();
    queue.flush(&two).unwrap();
    assert_eq!(read_file(b.path(), 511 * 4096, 4096), [7; 4096]);
    assert_eq!(read_file(a.path(), 2047 * 512, 512), [9; 512]);
    assert_eq!(read_file(a.path(), 0, 2047 * 512), pattern(0, 2047 * 512));
}

/// Tests one block to MDTS: PRP1 alone, PRP1 and PRP2, lists.
#[test]
fn transfers_of_every_length() {
    for block in [512usize, 4096] {
        let file = image(8 * MIB);
        let Some(controller) = open(config(&file, block as u32)) else { return };
        let ns = controller.namespace(1).unwrap();
        let most = controller.max_data_transfer().unwrap() as usize;
        assert_eq!(most, 512 << 10);
        let options = HostQueueOptions::default().depth(4).bytes_per_command(most);
        let mut queue = HostQueue::create(&controller, options).unwrap();
        assert_eq!(queue.max_transfer_bytes(), most);
        let lengths: Vec<usize> =
            [1, PAGE / block, 2 * PAGE / block - 1, 2 * PAGE / block, 2 * PAGE / block + 1, 100, most / block - 1]
                .into_iter()
                .map(|blocks| blocks.max(1) * block)
                .chain([most, most + block, 3 * MIB])
                .collect();
        for (i, bytes) in lengths.into_iter().enumerate() {
            let lba = (i * 5) as u64;
            let mut out = vec![0; bytes];
            queue.read(&ns, lba, &mut out).unwrap();
            assert!(out == read_file(file.path(), lba as usize * block, bytes), "read of {bytes} at {lba}");
            let data: Vec<u8> = out.iter().map(|b| b.wrapping_add(i as u8 + 1)).collect();
            queue.write(&ns, lba, &data).unwrap();
            queue.flush(&ns).unwrap();
            assert!(data == read_file(file.path(), lba as usize * block, bytes), "write of {bytes} at {lba}");
        }
    }
}

/// Tests data that begins inside a page: PRP1 with an offset, the rest from page starts.
#[test]
fn data_may_begin_inside_a_page() {
    let file = image(MIB);
    let Some(controller) = open(config(&file, 512)) else { return };
    let space = Space::cpu();
    let data = controller.dma().allocate(&space, 8 * PAGE).unwrap();
    let list = controller.dma().allocate(&space, PAGE).unwrap();
    let entries: Vec<u64> = (1..5).map(|i| data.iova + i * PAGE as u64).collect();
    list.region.set_slice(0, &entries).unwrap();
    let mut queue = host_queue(&controller);
    for (offset, bytes, prp2) in
        [(512, 512, 0), (3584, 1024, data.iova + PAGE as u64), (2048, 3 * PAGE + 1024, list.iova)]
    {
        data.region.fill(0, data.bytes, 0xee).unwrap();
        let cid = queue.reserve().unwrap();
        let mut entry = SqEntry { prp1: data.iova + offset as u64, prp2, ..SqEntry::new(io::READ, 0, 1) };
        entry.set_range(7, (bytes / 512) as u32);
        let done = queue.execute(cid, entry).unwrap();
        queue.release(cid);
        assert!(done.status().is_success(), "{}", done.status());
        let mut expected = vec![0xee; data.bytes];
        expected[offset..offset + bytes].copy_from_slice(&pattern(7 * 512, bytes));
        let mut got = vec![0; data.bytes];
        data.region.read(0, &mut got).unwrap();
        assert!(got == expected, "{bytes} bytes at offset {offset}");
    }
}

/// Tests every queue that the controller has, all with commands in flight, around the ring many times.
#[test]
fn one_to_all_queues() {
    let file = image(MIB);
    let Some(controller) = open(config(&file, 512).max_queues(Some(5))) else { return };
    let ns = controller.namespace(1).unwrap();
    let space = Space::cpu();
    for count in [1, 2, 5] {
        let options = QueueOptions::default().count(count).depth(8).landing(Landing::Bounce { bytes_per_slot: 1024 });
        let mut set = controller.create_queues(&space, options).unwrap();
        assert_eq!((set.doorbell(), set.max_transfer_bytes()), (Doorbell::Cpu, 1024));
        assert_eq!(controller.free_queues(), 5 - count);
        for index in 0..count {
            let mut queue = HostQueue::on(&mut set, index).unwrap();
            // 100 commands: twelve laps of a ring of eight, seven in flight at a time.
            let mut out = vec![0; 100 * 1024];
            queue.read(&ns, u64::from(index), &mut out).unwrap();
            assert!(out == pattern(index as usize * 512, 100 * 1024), "queue {index} of {count}");
        }
        set.check().unwrap();
    }
    let e = controller.create_queues(&space, QueueOptions::default().count(6)).unwrap_err();
    assert!(matches!(e, NvmeError::TooManyQueues { asked: 6, granted: 5, used: 0, .. }), "{e}");
    let e = controller.create_queues(&space, QueueOptions::default().depth(4096)).unwrap_err();
    assert!(matches!(e, NvmeError::TooDeep { depth: 4096, most: 2048, fits: 2048, .. }), "{e}");
    // The deepest ring that the controller takes.
    let deep = HostQueueOptions::default().depth(2048).bytes_per_command(512);
    let mut out = vec![0; 1000 * 512];
    HostQueue::create(&controller, deep).unwrap().read(&ns, 0, &mut out).unwrap();
    assert!(out == pattern(0, out.len()));
}

#[test]
fn tickets_wrap() {
    let file = image(MIB);
    let Some(controller) = open(config(&file, 512)) else { return };
    let ns = controller.namespace(1).unwrap();
    for depth in [2u32, 16] {
        let options = QueueOptions::default()
            .depth(depth)
            .first_ticket(0u32.wrapping_sub(4 * depth))
            .landing(Landing::Bounce { bytes_per_slot: 512 });
        let mut set = controller.create_queues(&Space::cpu(), options).unwrap();
        for round in 0..3 {
            let mut out = vec![0; 7 * 512 * depth as usize];
            HostQueue::on(&mut set, 0).unwrap().read(&ns, round, &mut out).unwrap();
            assert!(out == pattern(round as usize * 512, out.len()), "depth {depth}, round {round}");
        }
    }
}

#[test]
fn error_statuses_are_those_of_the_specification() {
    let file = image(MIB);
    let Some(controller) = open(config(&file, 512).mdts(Some(1))) else { return };
    let ns = controller.namespace(1).unwrap();
    let options = HostQueueOptions::default().depth(8).bytes_per_command(8192);
    let mut queue = HostQueue::create(&controller, options).unwrap();
    let mut status_of = |opcode: u8, nsid: u32, lba: u64, blocks: u32| -> Status {
        let cid = queue.reserve().unwrap();
        let mut entry = SqEntry::new(opcode, cid, nsid);
        entry.set_range(lba, blocks);
        (entry.prp1, entry.prp2) = queue.data_pointers(cid, blocks.min(16) as usize * 512);
        let done = queue.execute(cid, entry).unwrap();
        queue.release(cid);
        done.status()
    };
    assert!(status_of(io::READ, 1, 2047, 1).is_success());
    assert_eq!(status_of(io::READ, 1, 2047, 2).without_flags(), status::LBA_OUT_OF_RANGE);
    assert_eq!(status_of(io::WRITE, 1, 2048, 1).without_flags(), status::LBA_OUT_OF_RANGE);
    assert_eq!(status_of(io::READ, 1, u64::MAX, 1).without_flags(), status::LBA_OUT_OF_RANGE);
    assert_eq!(status_of(0x7f, 1, 0, 1).without_flags(), status::INVALID_OPCODE);
    // A namespace that the controller could have but does not, and one that it could not have.
    assert_eq!(status_of(io::READ, 9, 0, 1).without_flags(), status::INVALID_FIELD);
    assert_eq!(status_of(io::READ, 0xffff_fff0, 0, 1).without_flags(), status::INVALID_NAMESPACE);
    // Past MDTS, which is 8 KiB here.
    assert_eq!(status_of(io::READ, 1, 0, 17).without_flags(), status::INVALID_FIELD);
    assert!(status_of(io::READ, 1, 0, 16).is_success());
    drop(queue);
    // The blocking calls return an error with all that is known.
    assert!(matches!(host_queue(&controller).read(&ns, 2048, &mut [0; 512]), Err(NvmeError::Range { .. })));
}

#[test]
fn a_media_error_names_its_block() {
    let file = image(MIB);
    let mut rules = NamedTempFile::new().unwrap();
    rules.write_all(b"[inject-error]\nevent = \"read_aio\"\nerrno = \"5\"\nonce = \"off\"\nsector = \"40\"\n").unwrap();
    rules.write_all(b"[inject-error]\nevent = \"write_aio\"\nerrno = \"5\"\nonce = \"on\"\nsector = \"50\"\n").unwrap();
    let mut config = config(&file, 512);
    config.namespaces[0].blkdebug = Some(rules.path().into());
    let Some(controller) = open(config) else { return };
    let ns = controller.namespace(1).unwrap();
    let mut queue = host_queue(&controller);
    let mut out = [0; 512];
    for lba in [39, 41] {
        queue.read(&ns, lba, &mut out).unwrap();
    }
    let e = queue.read(&ns, 40, &mut out).unwrap_err();
    assert_eq!(e.status().unwrap().without_flags(), status::UNRECOVERED_READ_ERROR);
    let text = e.to_string();
    assert!(text.contains("read of 1 block(s) at LBA 40 of namespace 1 on queue 1"), "{text}");
    assert!(text.contains("unrecovered read error (type 0x2, code 0x81"), "{text}");
    let e = queue.write(&ns, 50, &[1; 512]).unwrap_err();
    assert_eq!(e.status().unwrap().without_flags(), status::WRITE_FAULT);
    // The queue continues, and the block is readable once it was rewritten.
    queue.write(&ns, 50, &[1; 512]).unwrap();
    queue.read(&ns, 50, &mut out).unwrap();
    assert_eq!(out, [1; 512]);
    // A long read fails as a whole, though most of it was read.
    let mut long = vec![0; MIB];
    assert!(queue.read(&ns, 0, &mut long).unwrap_err().status().is_some());
    drop(queue);
    let log = controller.error_log().unwrap();
    println!("{} entries in the error log", log.len());
}

#[test]
fn a_late_command_is_given_up_and_the_queue_reset() {
    let file = image(MIB);
    let mut config = config(&file, 512);
    config.namespaces[0].drive_options = vec!["throttling.bps-total=2048".into()];
    let Some(controller) = open(config) else { return };
    let ns = controller.namespace(1).unwrap();
    let mut set = controller.create_queues(&Space::cpu(), QueueOptions::default()).unwrap();
    let mut queue = HostQueue::on(&mut set, 0).unwrap();
    queue.set_deadline(Duration::from_millis(30));
    let started = Instant::now();
    // A first page passes at once. The next waits two seconds, longer than deadline and abort together. This model
    // reports of every Abort that the command was not aborted.
    queue.read(&ns, 0, &mut [0; PAGE]).unwrap();
    let e = queue.read(&ns, 8, &mut [0; PAGE]).unwrap_err();
    assert!(e.to_string().contains("reset the queues"), "{e}");
    assert!(matches!(e, NvmeError::TimedOut { queue: 1, opcode: io::READ, .. }), "{e}");
    assert!(started.elapsed() < Duration::from_secs(60));
    drop(queue);
    set.check().unwrap();
    let mut queue = HostQueue::on(&mut set, 0).unwrap();
    let mut out = [0; 512];
    queue.read(&ns, 9, &mut out).unwrap();
    assert_eq!(out[..], pattern(9 * 512, 512));
}

#[test]
fn reset_shutdown_and_a_controller_left_enabled() {
    let file = image(MIB);
    let Some(attachment) = start(config(&file, 512)) else { return };
    let enable = || Controller::new(attachment.clone()).unwrap().enable().map_err(|(_, e)| e).unwrap();
    let check = |controller: Controller<Ready>| {
        let controller = Arc::new(controller);
        let ns = controller.namespace(1).unwrap();
        let mut out = [0; 4096];
        host_queue(&controller).read(&ns, 8, &mut out).unwrap();
        assert_eq!(out[..], pattern(8 * 512, 4096));
        Arc::into_inner(controller).expect("the queue gave its share back")
    };
    // Reset: disabled and enabled again.
    let disabled = check(enable()).disable().unwrap();
    assert!(!disabled.is_enabled().unwrap());
    let again = check(disabled.enable().map_err(|(_, e)| e).unwrap());
    // An orderly shutdown.
    let disabled = again.shutdown().unwrap();
    check(disabled.enable().map_err(|(_, e)| e).unwrap());
    // A predecessor that died with queues: none of them works, and the registers stay as they were.
    let controller = Arc::new(enable());
    std::mem::forget(controller.create_queues(&Space::cpu(), QueueOptions::default()).unwrap());
    std::mem::forget(controller);
    assert_ne!(attachment.port.read32(register::CC).unwrap() & cc::EN, 0);
    check(enable());
    // Dropping the controller disables it.
    drop(enable());
    assert_eq!(attachment.port.read32(register::CC).unwrap() & cc::EN, 0);
}

/// Tests kernels on CPU threads with forwarded doorbells: one queue to all, one block to MDTS, direct and bounced.
#[test]
fn kernels_drive_it_through_forwarded_doorbells() {
    let file = image(2 * MIB);
    let engine = Engine::cpu().unwrap();
    let Some(attachment) = start(config(&file, 512).max_queues(Some(5))) else { return };
    let most = 512 << 10;
    // The volume keeps a fifth queue for the host.
    for (queues, depth, landing, each) in [
        (1, 2, LandingChoice::Bounce, 1),
        (4, 8, LandingChoice::Bounce, 24),
        (3, 16, LandingChoice::Direct, 7),
        (2, 4, LandingChoice::Bounce, most / 512),
        (2, 4, LandingChoice::Direct, most / 512),
    ] {
        let what = format!("{queues} queues of {depth}, {each} blocks, {landing:?}");
        let drive = Drive::attach(attachment.clone(), None).unwrap();
        let volume =
            Volume::on(&engine, [drive]).queues(queues).depth(depth).landing(landing).transfer(most).build().unwrap();
        let bytes = if each == 1 { 300 * 512 } else { MIB };
        let buffer = volume.allocate_data(bytes).unwrap();
        let (blocks, each) = ((bytes / 512) as u64, each as u32);
        let end = |run: Run| run.finish_within(Duration::from_secs(120)).unwrap_or_else(|e| panic!("{what}: {e}"));
        end(volume.start_read(5, blocks, each, &buffer).unwrap());
        let mut got = vec![0; bytes];
        buffer.read(0, &mut got).unwrap();
        assert!(got == read_file(file.path(), 5 * 512, bytes), "{what}");
        got.iter_mut().for_each(|b| *b = !*b);
        buffer.write(0, &got).unwrap();
        end(volume.start_write(2048, blocks, each, &buffer).unwrap());
        volume.flush().unwrap();
        assert!(got == read_file(file.path(), MIB, bytes), "{what}");
    }
}

#[test]
fn memory_that_the_model_cannot_reach_is_refused() {
    let file = image(MIB);
    let Some(controller) = open(config(&file, 512).ram_bytes(16 << 20)) else { return };
    let space = Space::cpu();
    let options = QueueOptions::default().memory(Place::Device);
    let e = controller.create_queues(&space, options).unwrap_err();
    assert!(matches!(e, NvmeError::Dma(DmaError::Unreachable { .. })), "{e}");
    assert!(e.to_string().contains("QEMU's RAM"), "{e}");
    let landing = Landing::Bounce { bytes_per_slot: 1 << 20 };
    let e = controller.create_queues(&space, QueueOptions::default().landing(landing)).unwrap_err();
    assert!(matches!(e, NvmeError::Dma(DmaError::Exhausted { .. })), "{e}");
    // Neither failure left a queue behind.
    assert_eq!(controller.free_queues(), controller.granted_queues());
    controller.create_queues(&space, QueueOptions::default()).unwrap();
}

#[test]
fn admin_mistakes_have_their_status() {
    let file = image(MIB);
    let Some(controller) = open(config(&file, 512)) else { return };
    let queue = host_queue(&controller);
    assert!(!controller.abort(queue.id(), 7).unwrap(), "there is no such command");
    assert!(controller.abort(40, 7).unwrap_err().status().is_some(), "there is no such queue");
    let e = controller.feature(0).unwrap_err();
    assert!(matches!(e, NvmeError::Command { queue: 0, opcode: admin::GET_FEATURES, .. }), "{e}");
}

#[test]
fn a_qemu_that_does_not_start_says_why() {
    let file = image(MIB);
    let broken = config(&file, 512).controller_options(vec!["no_such_option=1".into()]);
    match qtest::start(broken) {
        Err(QtestError::NoQemu { .. }) => (),
        Err(e @ QtestError::Qemu { .. }) => assert!(e.to_string().contains("no_such_option"), "{e}"),
        other => panic!("{other:?}"),
    }
    // A path that is no image.
    let dir = TempDir::new().unwrap();
    match qtest::start(QtestConfig::new(QtestNamespace::new(dir.path()))) {
        Err(QtestError::NoQemu { .. }) => (),
        Err(e) => assert!(e.to_string().contains(dir.path().to_str().unwrap()), "{e}"),
        Ok(_) => panic!("a folder is no image"),
    }
}

/// Returns the process that the port talks to, from its debug text.
fn pid(attachment: &Attachment) -> libc::pid_t {
    let text = format!("{:?}", attachment.port);
    let digits: String = text.rsplit("process ").next().unwrap().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn a_qemu_that_dies_is_reported_and_one_that_is_dropped_ends() {
    let file = image(MIB);
    let Some(attachment) = start(config(&file, 512)) else { return };
    let first = pid(&attachment);
    let controller = Controller::new(attachment).unwrap().enable().map_err(|(_, e)| e).unwrap();
    // SAFETY: plain system call; the process is our child.
    unsafe { libc::kill(first, libc::SIGKILL) };
    let e = controller.namespaces().unwrap_err();
    assert!(matches!(e, NvmeError::Port(_)), "{e}");
    assert!(e.to_string().contains("QEMU is gone"), "{e}");
    drop(controller);
    // A thread that opened a device may end before the device is closed.
    let file = image(MIB);
    let opened = config(&file, 512);
    let attachment = std::thread::spawn(move || start(opened)).join().unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let controller = Controller::new(attachment.clone()).unwrap();
    let second = pid(&attachment);
    drop((controller, attachment));
    // SAFETY: signal 0 only tests whether the process exists; it was reaped, so it does not.
    assert_eq!(unsafe { libc::kill(second, 0) }, -1);
}

// --- beyond reads and writes -----------------------------------------------------------------------------------------

#[test]
fn blocks_of_every_size_up_to_a_page() {
    for block in [1024usize, 2048] {
        let file = image(MIB);
        let Some(controller) = open(config(&file, block as u32)) else { return };
        let ns = controller.namespace(1).unwrap();
        assert_eq!((ns.block_bytes(), ns.bytes()), (block, MIB as u64));
        let mut out = vec![0; 5 * block];
        host_queue(&controller).read(&ns, 3, &mut out).unwrap();
        assert!(out == pattern(3 * block, 5 * block));
        drop(controller);
        let spec = format!("qtest:{},block={block},ram=64M", file.path().display());
        let volume = Volume::on(&Engine::cpu().unwrap(), [Drive::open(&spec).unwrap()]).queues(1).build().unwrap();
        assert_eq!(volume.block_bytes(), block);
        let buffer = volume.allocate_data(64 * block).unwrap();
        volume.start_read(7, 64, 4, &buffer).unwrap().finish().unwrap();
        let mut out = vec![0; 64 * block];
        buffer.read(0, &mut out).unwrap();
        assert!(out == pattern(7 * block, 64 * block));
    }
}

#[test]
fn blocks_are_zeroed_and_given_back() {
    let file = image(MIB);
    let Some(controller) = open(config(&file, 512)) else { return };
    let ns = controller.namespace(1).unwrap();
    let id = controller.identify();
    assert!(id.write_zeroes() && id.dataset_management());
    let limits = controller.limits().unwrap();
    assert!(limits.write_zeroes_blocks(&ns) > 0 && limits.ranges() > 0);
    let mut queue = host_queue(&controller);
    queue.write_zeroes(&ns, 8..24, false).unwrap();
    queue.write_zeroes(&ns, 40..41, true).unwrap();
    queue.deallocate(&ns, &[64..72, 80..96]).unwrap();
    let mut out = vec![1; MIB];
    queue.read(&ns, 0, &mut out).unwrap();
    let original = pattern(0, MIB);
    for (block, bytes) in out.chunks(512).enumerate() {
        let at = block * 512;
        match block {
            8..24 | 40 => assert!(bytes.iter().all(|b| *b == 0), "block {block}"),
            // The controller may choose the contents of these.
            64..72 | 80..96 => {}
            _ => assert!(bytes == &original[at..at + 512], "block {block}"),
        }
    }
    let past = queue.write_zeroes(&ns, 2040..2049, false).unwrap_err();
    assert!(matches!(past, NvmeError::Range { lba: 2040, .. }), "{past}");
}

#[test]
fn the_write_cache_is_switched_and_flushed() {
    let file = image(MIB);
    let Some(controller) = open(config(&file, 512)) else { return };
    let ns = controller.namespace(1).unwrap();
    let mut queue = host_queue(&controller);
    for (on, cache) in [(false, WriteCache::Off), (true, WriteCache::On)] {
        controller.set_write_cache(on).unwrap();
        assert_eq!(controller.write_cache().unwrap(), cache);
        queue.write(&ns, 5, &[u8::from(on) + 3; 512]).unwrap();
        queue.flush(&ns).unwrap();
        assert_eq!(read_file(file.path(), 5 * 512, 512), [u8::from(on) + 3; 512]);
    }
    queue.flush_always(&ns).unwrap();
}

#[test]
fn a_temperature_beyond_its_threshold_is_an_event() {
    let file = image(MIB);
    let Some(controller) = open(config(&file, 512)) else { return };
    controller.watch_events().unwrap();
    assert!(controller.events().unwrap().is_empty());
    let now = u32::from(controller.health().unwrap().temperature_k);
    controller.set_feature(feature::TEMPERATURE_THRESHOLD, now - 10).unwrap();
    let started = Instant::now();
    let seen = loop {
        let seen = controller.events().unwrap();
        if !seen.is_empty() || started.elapsed() > Duration::from_secs(20) {
            break seen;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((seen[0].kind(), seen[0].log_page()), (EventKind::Health, log_page::HEALTH), "{}", seen[0]);
    assert!(!controller.health().unwrap().warnings().is_empty());
    // The driver submits the event requests again after a reset.
    controller.reset().unwrap();
    assert!(controller.events().unwrap().is_empty());
    controller.set_feature(feature::TEMPERATURE_THRESHOLD, now - 10).unwrap();
    while controller.events().unwrap().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(40));
        std::thread::sleep(Duration::from_millis(5));
    }
}
