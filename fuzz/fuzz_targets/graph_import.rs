//! Imports arbitrary bytes in any graph format. The result is a consistent graph, or an error of one line.
//!
//! The first two bytes choose the format and the options, the rest is the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell::graph::import::{ColumnNames, IdKind, LoadOptions, Orientation, WeightMode, load_bytes};

const NAMES: [&str; 14] = [
    "g.el", "g.txt", "g.wel", "g.mtx", "g.v", "g.e", "g.sg", "g.wsg", "g.csv", "g.tsv", "g.gr", "g.graph", "out.g",
    "g.col",
];
const COLUMNS: [Option<&str>; 4] = [None, Some("src=1,dst=3"), Some("weight=3"), Some("src=a,dst=b,weight=c")];
const VERTICES: [Option<u64>; 3] = [None, Some(7), Some(1 << 40)];
const IDS: [IdKind; 3] = [IdKind::Auto, IdKind::Names, IdKind::Numbers];
const ORIENTATIONS: [Orientation; 3] = [Orientation::Auto, Orientation::Directed, Orientation::Undirected];
/// Memory limit: small, so that a header that claims much is rejected and does not stop the fuzzer.
const MEMORY: u64 = 64 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, ids], file)) = data.split_first_chunk() else { return };
    let choice = usize::from(choice);
    let ids = usize::from(ids);
    let columns: Option<ColumnNames> =
        COLUMNS[ids / IDS.len() % COLUMNS.len()].map(|text| text.parse().expect("columns of this list"));
    let options = LoadOptions::default()
        .ids(IDS[ids % IDS.len()])
        .columns(columns.as_ref())
        .vertices(VERTICES[ids / (IDS.len() * COLUMNS.len()) % VERTICES.len()])
        .exact_weights(ids & 0x80 != 0)
        .orientation(ORIENTATIONS[choice / NAMES.len() % ORIENTATIONS.len()])
        .weights(if choice & 0x80 == 0 { WeightMode::Ignore } else { WeightMode::Input })
        .keep_self_loops(choice & 0x40 != 0)
        .memory(Some(MEMORY));
    match load_bytes(NAMES[choice % NAMES.len()], file, &options) {
        Ok(loaded) => {
            let csr = loaded.csr;
            assert!(csr.vertices() > 0);
            if let Some(names) = csr.ids().names() {
                assert!(names.iter().is_sorted_by(|a, b| a < b));
                assert!(names.iter().zip(0..).all(|(name, v)| csr.ids().vertex(name) == Some(v)));
            }
            assert_eq!(csr.offsets().last(), Some(&csr.arcs()));
            assert!(loaded.exact_weights.is_none_or(|exact| exact.len() as u64 == csr.arcs()));
            assert!(loaded.notices.iter().all(|notice| !notice.to_string().contains('\n')));
            assert!((0..csr.vertices()).all(|v| csr.neighbours_of(v).is_sorted_by(|a, b| a < b)));
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
