//! Tests of tables against a plain model.

use super::*;
use crate::engine::testing;
use crate::storage::{Drive, ElementType, LandingChoice};

fn volume(specs: &[&str], landing: LandingChoice) -> Volume {
    let drives: Vec<_> = specs.iter().map(|s| Drive::open(s).unwrap()).collect();
    Volume::on(&testing::cpu(), drives).depth(16).chunk(16384).transfer(8192).landing(landing).build().unwrap()
}

/// Returns the words of rows, each another one.
fn words(rows: u64, each: u64) -> Vec<u32> {
    (0..rows * each).map(|i| (i as u32).wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995).collect()
}

#[test]
fn rows_come_by_their_numbers() {
    for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
        for specs in [&["soft:mem:2M"][..], &["soft:mem:1M,block=4096"; 2]] {
            let v = volume(specs, landing);
            for each in [16, 25, 128, 129, 1024, 5000] {
                let rows = 700_000 / (each * 4);
                let all = words(rows, each);
                let table = Table::from_rows(&v, "t", &all, each).unwrap();
                let indices: Vec<u64> = (0..100).map(|i| i * 7919 % rows).collect();
                let model: Vec<u32> = indices
                    .iter()
                    .flat_map(|i| &all[(i * each) as usize..((i + 1) * each) as usize])
                    .copied()
                    .collect();
                assert!(table.gather_to_vec::<u32>(&indices).unwrap() == model, "{each} on {v}");
                let narrow: Vec<u32> = indices.iter().map(|i| *i as u32).collect();
                let out = v.engine().allocate(crate::memory::Place::Device, model.len() * 4).unwrap();
                table.gather(&narrow, &out).unwrap();
                assert!(out.get_slice::<u32>(0, model.len()).unwrap() == model, "{each} on {v}");
                Table::remove(&v, "t").unwrap();
            }
        }
    }
}

#[test]
fn tables_are_stored_by_name_beside_others() {
    let v = volume(&["soft:mem:4M"], LandingChoice::Direct);
    assert!(Table::list(&v).unwrap().is_empty());
    let unknown = Table::open(&v, "a").build().unwrap_err().to_string();
    assert!(unknown.contains("no table is called `a`; none is stored there"), "{unknown}");
    v.store_array("numbers", &[7u64; 100]).unwrap();
    Table::from_rows(&v, "b", &words(10, 32), 32).unwrap();
    let zeros = Table::create(&v, "a", ElementType::F64, 8, 100).unwrap();
    assert!(zeros.gather_to_vec::<f64>(&[99u32]).unwrap() == [0.0; 8]);
    let list = Table::list(&v).unwrap();
    let names: Vec<_> = list.iter().map(|t| (t.name.as_str(), t.layout.as_ref().unwrap().rows(), t.bytes)).collect();
    assert_eq!(names, [("a", 100, 128 + 6400), ("b", 10, 128 + 1280)]);
    let exists = Table::create(&v, "b", ElementType::U8, 64, 1).unwrap_err();
    assert!(matches!(exists, StorageError::Table(TableError::Exists { .. })), "{exists}");
    let replaced = TableLayout::new(ElementType::U8, &[64], 2).unwrap();
    let mut writer = TableWriter::new(&v, "b", &replaced, true).unwrap();
    assert!(matches!(writer.append(&[0u32]), Err(StorageError::Table(TableError::Type { .. }))));
    writer.append(&[3u8; 128]).unwrap();
    assert_eq!(writer.finish().unwrap().gather_to_vec::<u8>(&[1u64, 0]).unwrap(), [3; 128]);
    Table::remove(&v, "a").unwrap();
    assert!(Table::remove(&v, "a").unwrap_err().to_string().contains("there is `b`"));
    assert_eq!(v.read_array::<u64>("numbers").unwrap(), [7; 100]);
    for bad in ["", "a/b", "a b"] {
        assert!(matches!(Table::open(&v, bad).build(), Err(StorageError::Table(TableError::Name(_)))), "{bad}");
    }
    assert!(Table::from_rows(&v, "c", &[1u32; 33], 32).unwrap_err().to_string().contains("no whole rows"));
    assert!(Table::from_rows(&v, "c", &[1u32; 33], 0).is_err());
}

#[test]
fn an_index_that_is_no_row_is_told_with_its_position() {
    let v = volume(&["soft:mem:1M"], LandingChoice::Bounce);
    let table = Table::from_rows(&v, "t", &words(100, 32), 32).unwrap();
    for position in [0, 1, 63, 99] {
        let mut indices = vec![5u64; 100];
        indices[position] = u64::from(u32::MAX) + 100;
        let e = table.gather_to_vec::<u32>(&indices).unwrap_err();
        let text = format!("index 4294967395 at position {position} of the batch is no row; rows are numbered 0 to 99");
        assert!(e.to_string().contains(&text), "{e}");
        assert_eq!(table.gather_to_vec::<u32>(&[0u64]).unwrap(), words(1, 32));
    }
}
