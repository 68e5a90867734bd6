//! Arrays with checksums of their own: written without mark and page checksums, and never taken for damaged.

use super::plan::Plan;
use super::verify::ArrayState;
use crate::engine::testing;
use crate::storage::disk::Drive;
use crate::storage::volume::Volume;

const BYTES: u64 = 256 << 10;

fn open(path: &std::path::Path, page_checksums: bool) -> Volume {
    let drive = Drive::open(&format!("soft:{}", path.display())).unwrap();
    Volume::on(&testing::cpu(), [drive]).page_checksums(page_checksums).build().unwrap()
}

/// Adds `own` with an unwritten rest, and returns its first byte.
fn add_own(v: &Volume) -> u64 {
    let plan = Plan::new().self_checked("own", 4096, BYTES / 4096);
    let mut writer = v.contents().add(plan, "it").unwrap();
    writer.append_bytes("own", crate::storage::ElementType::Record, &[1; 5000]).unwrap();
    writer.finish().unwrap().find("own").unwrap().offset
}

#[test]
fn writes_of_the_owner_leave_no_trace_in_the_volume() {
    for page_checksums in [false, true] {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 << 20).unwrap();
        let v = open(file.path(), page_checksums);
        // Page checksums of an array that was there before must not stay.
        v.store_array("before", &vec![7u8; BYTES as usize]).unwrap();
        v.contents().add(Plan::new().array::<u8>("other", 0), "it").unwrap().finish().unwrap();
        v.remove(&["before"]).unwrap();
        let mut writer = v.contents().add(Plan::new().array::<u8>("table", 3 * BYTES), "it").unwrap();
        writer.append("table", &vec![3u8; 3 * BYTES as usize]).unwrap();
        writer.finish().unwrap();
        let first = add_own(&v);
        v.write_blocks(first >> v.block_shift(), &[9; 8192]).unwrap();
        // The program ends here, without a flush.
        drop(v);
        let v = open(file.path(), page_checksums);
        let found = v.verify(false).unwrap();
        assert!(found.is_intact() && found.damaged.is_empty(), "{found:?}");
        let state = |name: &str| found.arrays.iter().find(|a| a.name == name).unwrap().state;
        assert_eq!((state("table"), state("own")), (ArrayState::Intact, ArrayState::Changed));
        // Nobody computes a checksum of the array, which the owner's next write would make wrong.
        v.accept_changes().unwrap();
        v.write_blocks(first >> v.block_shift(), &[5; 8192]).unwrap();
        v.write_bytes(first + 10_001, &[6; 5]).unwrap();
        assert!(v.disk().integrity.is_pending().unwrap(), "no mark was needed");
        let manifest = v.manifest().unwrap();
        let own = manifest.find("own").unwrap();
        assert!(own.self_checked && own.changed && own.checksum == 0);
        assert!(v.verify(false).unwrap().is_intact());
    }
}
