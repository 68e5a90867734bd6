//! A volume, its cache and its arrays on faulty devices: the outcome is the right data, or an error that names the
//! place.

use super::Volume;
use crate::engine::{Engine, EngineError};
use crate::nvme::{NvmeError, RecoveryPolicy, RetryBudget};
use crate::storage::cache::Cache;
use crate::storage::disk::{Drive, LandingChoice, OverwritePolicy};
use crate::storage::error::StorageError;
use crate::wire::nvme::status;
use std::time::{Duration, Instant};

/// Deadline for waits that a fault makes expire.
const SHORT: Duration = Duration::from_millis(300);
const COUNT: u64 = 20_000;

fn on(spec: &str) -> Volume {
    let drive = Drive::open(spec).unwrap();
    Volume::on(&Engine::cpu().unwrap(), [drive]).queues(2).depth(16).landing(LandingChoice::Bounce).build().unwrap()
}

/// Makes a volume on a new file, which has a write cache and so takes flushes.
fn on_file(faults: &str) -> (Volume, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    (on(&format!("soft:{},{faults}", file.path().display())), file)
}

fn values() -> Vec<u64> {
    (0..COUNT).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

fn status_of(e: &StorageError) -> Option<crate::wire::nvme::Status> {
    match e {
        StorageError::Nvme(e) => e.status().map(|s| s.without_flags()),
        _ => None,
    }
}

#[test]
fn a_failed_flush_is_named_and_stores_nothing_under_a_name() {
    let (v, _file) = on_file("fail-flush=every:1");
    let e = v.flush().unwrap_err();
    assert_eq!(status_of(&e), Some(status::WRITE_FAULT));
    assert!(e.to_string().contains("flush of namespace 1"), "{e}");
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new").display().to_string();
    let drive = Drive::create(&format!("soft:{new},fail-flush=every:1"), 1 << 20, &OverwritePolicy::none()).unwrap();
    let e = Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap().flush().unwrap_err().to_string();
    assert!(e.contains(&new) && !e.contains("/proc/"), "{e}");
    // The first flush erases the old manifest, the second is of the data.
    let (v, _file) = on_file("fail-flush=every:2");
    let e = v.store_array("a", &values()).unwrap_err();
    assert_eq!(status_of(&e), Some(status::WRITE_FAULT), "{e}");
    assert!(v.manifest().is_err(), "data that is not on the medium has no name");
}

/// Makes a volume whose operations share `budget`, and whose aborted commands are not waited for.
fn with_budget(spec: &str, budget: &RetryBudget, deadline: Duration) -> Volume {
    let builder = Volume::on(&Engine::cpu().unwrap(), [Drive::open(spec).unwrap()]);
    let v = builder.deadline(deadline).retry_budget(budget).build().unwrap();
    v.set_recovery(RecoveryPolicy { abort_grace: Duration::from_millis(20), ..RecoveryPolicy::requeue() });
    v
}

/// Returns a budget of which nothing is regained before the test ends.
fn used_up() -> RetryBudget {
    let (budget, now) = (RetryBudget::new(), Instant::now());
    let day = Duration::from_secs(24 * 3600);
    budget.charge(now, now + day, day);
    budget
}

#[test]
fn a_command_is_submitted_again_only_at_the_expense_of_the_budget() {
    let reads = |budget: &RetryBudget, deadline| {
        let v = with_budget("soft:mem:1M,lose-completion=every:2", budget, deadline);
        [(); 2].map(|()| v.read_blocks(0, &mut [0; 512]))
    };
    // The second command is lost, and the third is its second submission.
    let budget = RetryBudget::new();
    let [first, second] = reads(&budget, Duration::from_secs(2));
    first.and(second).unwrap();
    assert!(budget.left(Instant::now(), Duration::from_secs(2)) < RetryBudget::whole(Duration::from_secs(2)));
    let [first, second] = reads(&used_up(), SHORT);
    first.unwrap();
    assert!(matches!(second, Err(StorageError::Nvme(NvmeError::TimedOut { .. }))), "{second:?}");
}

#[test]
fn a_device_without_budget_gets_no_command_until_it_is_recovered() {
    let v = with_budget("soft:mem:1M,lose-completion=every:1", &used_up(), SHORT);
    let mut block = [0; 512];
    let first = v.read_blocks(7, &mut block).unwrap_err();
    assert!(matches!(first, StorageError::Nvme(NvmeError::TimedOut { .. })), "{first}");
    for next in [v.read_blocks(0, &mut block), v.write_blocks(0, &block), v.store_array("a", &[1u8]).map(drop)] {
        let e = next.unwrap_err();
        let StorageError::Nvme(NvmeError::BudgetExhausted { command, allowed, .. }) = &e else { panic!("{e}") };
        assert_eq!((&**command, *allowed), ("read of 1 block(s) at LBA 7 of namespace 1", 4 * SHORT));
    }
    v.recover().unwrap();
    let again = v.read_blocks(0, &mut block).unwrap_err();
    assert!(matches!(again, StorageError::Nvme(NvmeError::TimedOut { .. })), "{again}");
}

#[test]
fn a_device_that_does_not_answer_is_no_damage() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let spec = format!("soft:{}", file.path().display());
    on(&spec).store_array("a", &values()).unwrap();
    // The superblocks are below.
    let v = with_budget(&format!("{spec},lose-completion=256-500"), &used_up(), SHORT);
    let e = v.verify(false).unwrap_err();
    assert!(matches!(e, StorageError::Nvme(NvmeError::TimedOut { .. })), "{e}");
}

#[test]
fn a_wait_ends_when_the_engine_is_told_to_end() {
    let v = with_budget("soft:mem:1M,latency=3600s", &RetryBudget::new(), Duration::from_secs(3600));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| v.read_blocks(0, &mut [0; 512]));
        v.engine().cancel().unwrap();
        let ended = waiting.join().unwrap();
        assert!(matches!(ended, Err(StorageError::Engine(EngineError::Cancelled))), "{ended:?}");
    });
    // Later commands, which may clean up, do not wait anew.
    let next = v.write_blocks(0, &[0; 512]);
    assert!(matches!(next, Err(StorageError::Engine(EngineError::Cancelled))), "{next:?}");
}

#[test]
fn an_array_is_not_read_further_once_the_engine_is_told_to_end() {
    let v = on("soft:mem:1M");
    v.store_array("a", &values()).unwrap();
    v.engine().cancel().unwrap();
    let read = v.read_array::<u64>("a");
    assert!(matches!(read, Err(StorageError::Engine(EngineError::Cancelled))), "{read:?}");
}

#[test]
fn a_repeated_completion_ends_in_the_right_data_or_in_an_error() {
    for every in [1, 2, 5, 7] {
        let v = on(&format!("soft:mem:1M,repeat-completion=every:{every}"));
        v.set_deadline(SHORT).unwrap();
        v.set_recovery(RecoveryPolicy { abort_grace: Duration::from_millis(20), ..RecoveryPolicy::requeue() });
        let mut right = 0;
        for round in 0..20 {
            // A write that is taken for complete too early leaves the data of the round before.
            let data: Vec<u8> = (0..64u32 << 10).map(|i| (i / 512 + round * 7) as u8).collect();
            let mut back = vec![0; data.len()];
            match v.write_blocks(64, &data).and_then(|()| v.read_blocks(64, &mut back)) {
                Ok(()) => {
                    assert!(back == data, "every {every}");
                    right += 1;
                }
                Err(e) => assert!(e.to_string().contains("which is not outstanding"), "every {every}: {e}"),
            }
        }
        v.check().unwrap();
        assert!(right > 0 || every == 1, "every {every}: nothing came through");
    }
}

#[test]
fn a_torn_write_is_named_and_repeated_by_its_owner_or_found_by_the_checksum() {
    let v = on("soft:mem:1M,torn-write=100-100");
    let e = v.write_blocks(96, &[1; 8 * 512]).unwrap_err();
    assert_eq!(status_of(&e), Some(status::WRITE_FAULT));
    assert!(e.to_string().contains("LBA 96"), "{e}");
    v.write_blocks(104, &[1; 8 * 512]).unwrap();

    let v = on("soft:mem:1M,torn-write=silent:140-140");
    v.store_array("a", &values()).unwrap();
    let e = v.read_array::<u64>("a").unwrap_err();
    assert!(e.to_string().contains("checksum"), "{e}");
}

#[test]
fn changed_data_is_found_by_the_checksum() {
    let v = on("soft:mem:1M,corrupt=write:120-130");
    v.store_array("a", &values()).unwrap();
    let e = v.read_array::<u64>("a").unwrap_err();
    assert!(e.to_string().contains("checksum"), "{e}");

    let v = on("soft:mem:1M,corrupt=read:120-130");
    v.store_array("a", &values()).unwrap();
    let e = v.read_array::<u64>("a").unwrap_err();
    assert!(e.to_string().contains("checksum"), "{e}");
}

#[test]
fn a_trickle_of_completions_is_waited_for_and_ended_by_the_deadline() {
    let v = on("soft:mem:1M,slow-drain=2ms");
    v.store_array("a", &values()).unwrap();
    assert!(v.read_array::<u64>("a").unwrap() == values());
    let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
    assert!(cache.open::<u64>("a").unwrap().read(0..2000).unwrap() == values()[..2000]);

    let v = on("soft:mem:1M,slow-drain=1s");
    let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
    v.set_deadline(SHORT).unwrap();
    let array = cache.array::<u64>(1, 2000).unwrap();
    let e = array.read(0..2000).unwrap_err().to_string();
    assert!(e.contains("timed out"), "{e}");
    v.recover().unwrap();
}

#[test]
fn a_volume_that_shrinks_names_the_first_block_that_is_gone() {
    let v = on("soft:mem:1M,shrink=200:after:60");
    v.store_array("a", &values()).unwrap();
    let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
    let array = cache.open::<u64>("a").unwrap();
    // These are enough commands for the fault to occur.
    let failed = (0..20).find_map(|_| cache.discard().and_then(|()| array.read(0..COUNT).map(drop)).err());
    let text = failed.expect("the array lies beyond block 200").to_string();
    assert!(text.contains("LBA out of range"), "{text}");
    let e = v.read_blocks(198, &mut [0; 8 * 512]).unwrap_err();
    assert_eq!(status_of(&e), Some(status::LBA_OUT_OF_RANGE));
    assert!(e.to_string().contains("LBA 198"), "{e}");
    v.recover().unwrap();
    assert!(v.read_blocks(192, &mut [0; 8 * 512]).is_ok());
    assert!(array.read(0..1000).unwrap() == values()[..1000]);
}

#[test]
fn kernels_end_in_time_on_a_device_that_repeats_completions() {
    for every in [1, 3, 50] {
        let v = on(&format!("soft:mem:1M,repeat-completion=every:{every},latency=0us-300us"));
        v.set_deadline(SHORT).unwrap();
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        // A repeated completion that comes while its slot is in use again cannot be told from the slot's own
        // completion. The data is not compared here, since only a checksum would detect that.
        let array = cache.array::<u64>(1, COUNT).unwrap();
        for _ in 0..6 {
            if cache.discard().and_then(|()| array.read(0..COUNT)).is_err() {
                v.recover().unwrap();
            }
        }
        v.check().unwrap();
        assert_eq!(cache.occupancy().unwrap().busy, 0, "every {every}");
    }
}
