//! Data: sizes, digests, block sizes, volumes, kernels.

use super::*;
use crate::engine::Engine;
use crate::storage::{Cache, OverwritePolicy, Volume};
use crate::wire::nvme::io;
use crate::wire::nvme::tcp::Digests;
use crate::wire::nvme::{SqEntry, status};

each_transport!(
    targets_without_in_capsule_data_and_with_little_room_work,
    errors_of_the_device_arrive_as_they_are,
    a_volume_with_a_cache_is_read_by_kernels,
    a_stripe_of_a_local_and_a_remote_device_works,
    qtest_and_read_only_devices_are_exported_too
);

fn write_and_read(e: &Exported, config: &FabricsConfig) {
    let r = Remote::new(config);
    let block = r.namespace.block_bytes();
    let mut q = r.queue();
    let most = q.max_transfer_bytes();
    let policy = e.device.controller();
    let mut local = HostQueue::create(policy, HostQueueOptions::default()).unwrap();
    for (seed, bytes) in [block, 4096, 8192, 4096 * 3, most, most + block, 4 * most].into_iter().enumerate() {
        let data = pattern(bytes, seed);
        let lba = seed as u64;
        q.write(&r.namespace, lba, &data).unwrap();
        let mut back = vec![0; bytes];
        q.read(&r.namespace, lba, &mut back).unwrap();
        assert!(back == data, "{bytes} bytes through the connection");
        back.fill(0);
        local.read(e.device.namespace(), lba, &mut back).unwrap();
        assert!(back == data, "{bytes} bytes on the device");
    }
    q.write_zeroes(&r.namespace, 3..5, true).unwrap();
    let mut back = vec![1; 2 * block];
    q.read(&r.namespace, 3, &mut back).unwrap();
    assert!(back.iter().all(|b| *b == 0));
    q.deallocate(&r.namespace, &[0..1, 2..3]).unwrap();
    q.flush_always(&r.namespace).unwrap();
}

#[test]
fn blocks_come_back_with_and_without_digests() {
    for (device, bits) in
        [("soft:mem:2M,threads=1", 0), ("soft:mem:4M,block=4096,threads=1", 1), ("soft:mem:2M,threads=1", 3)]
    {
        let e = Exported::new(TargetTransport::Tcp, device, |c| c);
        write_and_read(&e, &e.config().digests(Digests::from_bits(bits)));
    }
}

fn targets_without_in_capsule_data_and_with_little_room_work(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:2M,threads=1", |c| {
        c.in_capsule_bytes(0).max_transfer_bytes(8192).queue_entries(4)
    });
    write_and_read(&e, &e.config());
    let e = Exported::new(transport, "soft:mem:2M,threads=1,reorder,latency=10us-300us", |c| {
        c.in_capsule_bytes(65_536).max_transfer_bytes(1 << 20)
    });
    write_and_read(&e, &e.config());
}

fn errors_of_the_device_arrive_as_they_are(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:1M,threads=1,media-error=read:100", |c| c);
    let r = e.connect();
    let mut q = r.queue();
    let error = q.read(&r.namespace, 100, &mut [0; 512]).unwrap_err();
    assert_eq!(status_of(&error), Some(status::UNRECOVERED_READ_ERROR));
    let cid = q.reserve().unwrap();
    let mut beyond = SqEntry::new(io::READ, cid, 1);
    beyond.set_range(1 << 40, 1);
    (beyond.prp1, beyond.prp2) = q.data_pointers(cid, 512);
    assert_eq!(q.execute(cid, beyond).unwrap().status().without_flags(), status::LBA_OUT_OF_RANGE);
    // Memory that is not mapped.
    beyond.set_range(0, 1);
    beyond.prp1 = 0x1000;
    assert_eq!(q.execute(cid, beyond).unwrap().status().without_flags(), status::DATA_TRANSFER_ERROR);
    let unknown = SqEntry::new(0x55, cid, 1);
    assert_eq!(q.execute(cid, unknown).unwrap().status().without_flags(), status::INVALID_OPCODE);
    let elsewhere = SqEntry { nsid: 77, ..beyond };
    assert_eq!(q.execute(cid, elsewhere).unwrap().status().without_flags(), status::INVALID_NAMESPACE);
    q.release(cid);
    assert!(r.controller.health().unwrap().temperature_k > 0);
}

fn a_volume_with_a_cache_is_read_by_kernels(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:4M,block=4096,threads=1", |c| c);
    let c = e.config();
    let spec = format!("nvmf:{}://127.0.0.1:{}/{NQN},threads=1,queues=4,keep-alive=60", c.transport, c.port);
    let drive = Drive::create(&spec, 1 << 20, &OverwritePolicy::none()).unwrap();
    let volume = Volume::on(&Engine::cpu().unwrap(), [drive]).queues(2).depth(16).build().unwrap();
    volume.set_deadline(GENEROUS).unwrap();
    let values: Vec<u64> = (0..40_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    volume.store_array("a", &values).unwrap();
    assert!(volume.read_array::<u64>("a").unwrap() == values);
    let cache = Cache::on(&volume).bytes(64 << 10).build().unwrap();
    assert!(cache.open::<u64>("a").unwrap().read(0..40_000).unwrap() == values);
    drop((cache, volume));
    // The device itself has the same array.
    let again = Drive::open(&spec).unwrap();
    let volume = Volume::on(&Engine::cpu().unwrap(), [again]).build().unwrap();
    assert!(volume.read_array::<u64>("a").unwrap() == values);
}

fn a_stripe_of_a_local_and_a_remote_device_works(transport: TargetTransport) {
    let e = Exported::new(transport, "soft:mem:4M,threads=1", |c| c);
    let local = Drive::open("soft:mem:4M,threads=1").unwrap();
    let remote = Drive::attach(connect(&e.config()).unwrap().attachment(), None).unwrap();
    let volume = Volume::on(&Engine::cpu().unwrap(), [local, remote]).queues(1).depth(16).build().unwrap();
    volume.set_deadline(GENEROUS).unwrap();
    let values: Vec<u32> = (0..200_000).collect();
    volume.store_array("a", &values).unwrap();
    let cache = Cache::on(&volume).bytes(64 << 10).build().unwrap();
    assert!(cache.open::<u32>("a").unwrap().read(0..200_000).unwrap() == values);
    assert!(e.target().commands() > 0);
}

fn qtest_and_read_only_devices_are_exported_too(transport: TargetTransport) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let e = Exported::new(transport, &format!("soft:{},read-only,threads=1", file.path().display()), |c| c);
    let r = e.connect();
    assert!(r.namespace.write_protected());
    let error = r.queue().write(&r.namespace, 0, &[0; 512]).unwrap_err();
    assert_eq!(status_of(&error), Some(status::NAMESPACE_WRITE_PROTECTED));
}

#[test]
fn discovery_and_a_check_report_the_subsystem() {
    let e = Exported::new(TargetTransport::Tcp, "soft:mem:1M,namespaces=2,threads=1", |c| c.queues(3));
    let at = e.target().address().to_string();
    let records = fabrics::discover(&format!("tcp://{at}"), |c| c.connect_timeout(GENEROUS)).unwrap();
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!((record.subsystem.as_str(), record.service.parse::<u16>().unwrap()), (NQN, e.target().address().port()));
    assert_eq!((record.address.as_str(), record.transport.to_string().as_str()), ("127.0.0.1", "tcp"));
    let report = fabrics::check(&FabricsConfig { queues: None, ..e.config() }).unwrap();
    assert_eq!((report.queues, report.limits.queue_entries, report.limits.in_capsule_bytes), (3, 128, 4096));
    assert_eq!((report.namespaces, report.limits.max_transfer_bytes), (vec![1, 2], Some(128 << 10)));
    until("the hosts have left", || e.target().hosts() == 0);
    assert!(matches!(fabrics::discover("::1", |c| c), Err(FabricsError::Options { .. })));
}
