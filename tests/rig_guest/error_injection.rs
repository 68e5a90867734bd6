//! Tests sectors of the medium that cannot be read.

use super::machine::{self, BOUND, FAULTY, bind, spec};
use warpbell::engine::{Engine, Outcome, RunError};
use warpbell::nvme::{HostQueue, HostQueueOptions};
use warpbell::storage::{Drive, Volume};
use warpbell::wire::nvme::status;

/// Namespace and the LBA that cannot be read.
const BAD: [(u32, u64); 2] = [(1, 700), (2, 90)];

#[test]
#[ignore = "needs the rig"]
fn a_bad_sector_is_a_media_error_with_its_lba() {
    machine::inside();
    bind(FAULTY);
    for (nsid, bad) in BAD {
        let drive = Drive::open(&spec(FAULTY, nsid)).unwrap();
        let (controller, ns) = (drive.controller().clone(), drive.namespace().clone());
        let block = ns.block_bytes();
        let options = HostQueueOptions::default().depth(8).bytes_per_command(block);
        let mut queue = HostQueue::create(&controller, options).unwrap();
        for good in [bad - 1, bad + 1] {
            queue.read(&ns, good, &mut vec![0; block]).unwrap();
        }
        let e = queue.read(&ns, bad, &mut vec![0; block]).unwrap_err();
        println!("  {e}");
        assert_eq!(e.status().unwrap().without_flags(), status::UNRECOVERED_READ_ERROR);
        assert!(e.to_string().contains(&format!("LBA {bad} ")), "{e}");
        // The bad block in the middle of a longer transfer, one block to a command.
        let e = queue.read(&ns, bad - 4, &mut vec![0; 8 * block]).unwrap_err();
        assert!(e.to_string().contains(&format!("LBA {bad} ")), "{e}");
        queue.read(&ns, bad + 1, &mut vec![0; block]).unwrap();
    }
}

#[test]
#[ignore = "needs the rig"]
fn kernels_report_it_too() {
    machine::inside();
    bind(FAULTY);
    let engine = Engine::cpu().unwrap();
    for (nsid, bad) in BAD {
        let volume = Volume::on(&engine, [Drive::open(&spec(FAULTY, nsid)).unwrap()]).queues(2).build().unwrap();
        let buffer = volume.allocate_data(4 << 20).unwrap();
        let run = volume.start_read(0, 1000, 1, &buffer).unwrap();
        match run.finish_within(BOUND) {
            Err(RunError::Operations { errors, .. }) => {
                println!("  {}", errors[0]);
                assert_eq!((errors[0].lba, errors[0].blocks), (bad, 1));
                assert!(
                    matches!(errors[0].outcome, Outcome::DeviceError(s) if s.without_flags() == status::UNRECOVERED_READ_ERROR)
                );
            }
            other => panic!("{other:?}"),
        }
        volume.check().unwrap();
    }
}
