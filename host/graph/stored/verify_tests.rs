//! Tests of the complete verification: every kind of damage is found, in pieces of any size.

use super::tests::{graph, loaded, name, open, store, volume};
use super::*;
use crate::engine::Engine;
use crate::graph::import::{LoadOptions, WeightMode, load_bytes};
use crate::graph::{Csr, CsrOptions};
use crate::storage::{Drive, MANIFEST_BYTES, OverwritePolicy};
use proptest::prelude::*;

/// Sizes of pieces, in arcs: each arc is the first of a piece for some of them.
const PIECES: [usize; 4] = [1, 2, 5, 1 << 18];

/// Writes 32-bit words into an array of graph `g`. The array then counts as changed, and its checksum as unknown.
fn overwrite(v: &Volume, array: &str, first: usize, words: &[u32]) {
    let entry = v.manifest().unwrap().find(&format!("g/{array}")).unwrap().clone();
    v.write_bytes(entry.offset + 4 * first as u64, bytemuck::cast_slice(words)).unwrap();
}

/// Returns the one error that pieces of all sizes find.
fn error(v: &Volume) -> String {
    let stored = open(v, "g").unwrap();
    let texts = PIECES.map(|arcs| stored.verify_in_pieces(v, arcs).unwrap_err().to_string());
    assert!(texts.iter().all(|t| *t == texts[0]), "{texts:?}");
    texts[0].clone()
}

/// Returns a volume with a graph of these edges.
fn stored(edges: &[(u64, u64, u32)], directed: bool, weights: u8) -> Volume {
    let v = volume("soft:mem:1M");
    store(&v, "g", graph(edges, directed, false, weights)).unwrap();
    v
}

/// Vertex 0 leads to 1 to 6, which lead to 7 and on.
fn fan() -> Vec<(u64, u64, u32)> {
    let spokes = (1..7).map(|i| (0, i, 3));
    spokes.chain((1..7).map(|i| (i, 7 + i % 3, 4))).chain([(12, 12, 5), (7, 12, 6)]).collect()
}

#[test]
fn damage_of_each_kind_is_named() {
    for (directed, weights, array, first, words, part) in [
        // Lists: out of range, twice, out of order, another edge.
        (true, 0, "neighbours", 0, &[50][..], "leads to vertex 50"),
        (true, 0, "in-neighbours", 3, &[4_000_000_000], "leads to vertex 4000000000"),
        (true, 0, "neighbours", 1, &[1], "the list of vertex 0 has 1 behind 1"),
        (true, 0, "neighbours", 4, &[6, 5], "the list of vertex 0 has 5 behind 6"),
        (true, 0, "neighbours", 5, &[0], "the list of vertex 0 has 0 behind 5"),
        (true, 0, "neighbours", 5, &[40], "the in-lists differ"),
        (true, 0, "in-neighbours", 0, &[9], "the best-connected in-neighbours differ"),
        (false, 0, "neighbours", 5, &[11], "missing in one direction"),
        // Hub neighbours: another one, too few, too many, in another order.
        (true, 0, "hubs", 0, &[9], "the best-connected neighbours differ"),
        (true, 0, "hubs", 0, &[2, 1], "the best-connected neighbours differ"),
        (true, 0, "hubs", 0, &[1, 2, 3, u32::MAX], "the best-connected neighbours differ"),
        (true, 0, "hubs", 6, &[8], "the best-connected neighbours differ"),
        (true, 0, "hubs", 3, &[5], "the best-connected neighbours differ"),
        (true, 0, "in-hubs", 4, &[2], "the best-connected in-neighbours differ"),
        // A self-loop of another vertex than 12.
        (true, 0, "self-loops", 0, &[1 << 7], "the self-loops differ"),
        // Weighted edges: another neighbour, another weight, one that is larger than all.
        (true, 1, "weighted-neighbours", 0, &[9], "its weighted edges are not those"),
        (false, 1, "weighted-neighbours", 1, &[2], "has another weight there"),
        (true, 1, "weighted-neighbours", 1, &[7], "its largest weight is 7, the header says 6"),
        (true, 2, "weighted-neighbours", 1, &[(-1f32).to_bits()], "the weight -1 of edge 0 -> 1"),
        (true, 2, "weighted-neighbours", 3, &[f32::NAN.to_bits()], "the weight NaN of edge 0 -> 2"),
    ] {
        let v = stored(&fan(), directed, weights);
        open(&v, "g").unwrap().verify(&v).unwrap();
        overwrite(&v, array, first, words);
        let text = error(&v);
        assert!(text.contains("`g` is damaged") && text.contains(part), "{array} {words:?}: {text}");
    }
}

#[test]
fn edges_of_other_vertices_are_found_by_their_in_lists() {
    // The offset of vertex 10 is moved, which gives its edge to vertex 9, or the edge of vertex 9 to it.
    let edges: Vec<_> = (0..49).map(|i| (i, i + 1, 1)).collect();
    for (array, offset) in [("offsets", 11), ("offsets", 9), ("in-offsets", 10), ("in-offsets", 8)] {
        let v = stored(&edges, true, 0);
        overwrite(&v, array, 2 * 10, &[offset]);
        let text = error(&v);
        assert!(text.contains("is damaged"), "{array} {offset}: {text}");
    }
}

#[test]
fn a_device_that_damages_data_is_told_before_what_the_data_contradicts() {
    let folder = tempfile::tempdir().unwrap();
    for array in ["neighbours", "weighted-neighbours", "in-neighbours", "hubs", "self-loops"] {
        let file = folder.path().join(array);
        let drive = Drive::create(&format!("soft:{}", file.display()), 1 << 20, &OverwritePolicy::none()).unwrap();
        let v = Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap();
        store(&v, "g", graph(&fan(), true, false, 1)).unwrap();
        let at = v.manifest().unwrap().find(&format!("g/{array}")).unwrap().offset as usize;
        drop(v);
        let mut image = std::fs::read(&file).unwrap();
        image[at] ^= 2;
        std::fs::write(&file, image).unwrap();
        let v = volume(&format!("soft:{}", file.display()));
        let found = open(&v, "g").and_then(|g| g.verify_in_pieces(&v, 3)).unwrap_err();
        let text = found.to_string();
        assert!(matches!(found, GraphError::Storage(_)) && text.contains(&format!("g/{array}")), "{array}: {text}");
    }
}

#[test]
fn errors_name_the_identifiers_of_the_input() {
    let v = volume("soft:mem:1M");
    let text = b"100 700 1\n100 800 1\n700 800 1\n";
    let options = LoadOptions::default().weights(WeightMode::Ignore);
    let loaded = load_bytes("x.wel", text, &options).unwrap();
    GraphToStore::with_lists(name("g"), loaded, ListForm::Plain).store(&v, false, &mut |_| ()).unwrap();
    overwrite(&v, "neighbours", 0, &[2, 1]);
    let text = error(&v);
    assert!(text.contains("the list of vertex 100 has ") && text.contains("700"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn any_other_word_of_an_edge_list_is_found(
        edges in prop::collection::vec((0u64..30, 0u64..30, 1u32..9), 1..90), directed: bool, weighted: bool,
        part in 0usize..4, at in any::<prop::sample::Index>(), word in prop_oneof![0u32..50, any::<u32>()],
        arcs in 1usize..40,
    ) {
        let v = stored(&edges, directed, u8::from(weighted));
        let array = ["neighbours", "in-neighbours", "hubs", "weighted-neighbours"][part];
        let manifest = v.manifest().unwrap();
        let Ok(entry) = manifest.find(&format!("g/{array}")) else { return Ok(()) };
        let first = at.index(entry.bytes() as usize / 4);
        let mut old = [0u8; 4];
        v.read_bytes(entry.offset + 4 * first as u64, &mut old).unwrap();
        let csr = open(&v, "g").unwrap().read(&v).unwrap();
        let is_self_loop =
            |arc| (0..csr.vertices()).any(|u| csr.range(u).contains(&arc) && csr.neighbours().get(arc) == u);
        // A weight of a directed graph or of a self-loop has no second copy to differ from, unless it was or is the largest.
        let is_free = part == 3 && first % 2 == 1 && (directed || is_self_loop(first / 2));
        overwrite(&v, array, first, &[word]);
        let is_same = u32::from_le_bytes(old) == word;
        let found = open(&v, "g").unwrap().verify_in_pieces(&v, arcs);
        prop_assert!(is_free || found.is_ok() == is_same, "{} {} {:?}: {:?}", array, first, word, found);
    }
}

#[test]
fn a_piece_has_as_many_arcs_as_were_asked_for_and_all_are_read() {
    let edges: Vec<_> = (0..300u64).map(|i| (i % 50, i * 7 % 41, (i % 9 + 1) as u32)).collect();
    for (directed, weights) in [(false, 1), (true, 3), (true, 0)] {
        let v = stored(&edges, directed, weights);
        let stored = open(&v, "g").unwrap();
        let csr = stored.read(&v).unwrap();
        for at_once in PIECES {
            let mut reader = arcs::ArcReader::new(&stored, &v, false, weights > 0, at_once).unwrap();
            let mut index = 0;
            while let Some(piece) = reader.next_piece().unwrap() {
                assert!(piece.arcs().count() <= at_once);
                for arc in piece.arcs() {
                    assert!(csr.range(arc.from).contains(&index));
                    assert_eq!(arc.to, csr.neighbours().get(index));
                    let weight = csr.weights().map(|w| match w {
                        crate::graph::Weights::U32(w) => StoredWeight::U32(w[index]),
                        crate::graph::Weights::F32(w) => StoredWeight::F32(w[index]),
                        crate::graph::Weights::F64(w) => StoredWeight::F64(w[index]),
                    });
                    assert_eq!(arc.weight, weight);
                    index += 1;
                }
            }
            assert_eq!(index as u64, csr.arcs());
            assert!(reader.next_piece().unwrap().is_none(), "the end stays the end");
        }
    }
}

#[test]
fn a_cancelled_engine_ends_the_verification() {
    let v = stored(&fan(), true, 0);
    let stored = open(&v, "g").unwrap();
    v.engine().cancel().unwrap();
    assert!(matches!(stored.verify(&v), Err(GraphError::Engine(_) | GraphError::Storage(_))));
}

#[cfg(feature = "soft")]
#[test]
fn each_array_is_read_once() {
    use crate::soft::nvme::{SoftConfig, SoftController};
    use std::time::{Duration, Instant};

    let controller = SoftController::start(SoftConfig::parse("mem:8M").unwrap()).unwrap();
    let drive = Drive::attach(controller.attachment(), None).unwrap();
    let v = Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap();
    let scattered = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 2000;
    let edges: Vec<_> = (0..200_000).map(|i| (i % 2000, scattered(i))).collect();
    let csr = Csr::from_edges(2000, &edges, CsrOptions::default().directed(true)).unwrap();
    GraphToStore::with_lists(name("g"), loaded(csr), ListForm::Plain).store(&v, false, &mut |_| ()).unwrap();
    let stored = open(&v, "g").unwrap();
    let lists = 2 * 4 * (stored.info().arcs + 4 * 2000);
    // The service thread publishes its counters after each batch.
    let counted = || {
        let (mut last, mut since) = (0, Instant::now());
        while since.elapsed() < Duration::from_millis(50) {
            let now = controller.statistics().total().read_bytes;
            if now != last {
                (last, since) = (now, Instant::now());
            }
            std::thread::yield_now();
        }
        last
    };
    let before = counted();
    stored.verify(&v).unwrap();
    let read = counted() - before;
    // Each access to an array may read the manifest, too.
    let most = lists + 10 * MANIFEST_BYTES as u64;
    assert!((lists..most).contains(&read), "{read} bytes for {lists} of lists");
}
