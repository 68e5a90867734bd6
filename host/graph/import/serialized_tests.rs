//! Tests of GAP's serialized graphs.

use super::tests::{WEIGHTED, arcs, message};
use super::*;
use crate::graph::csr::{Neighbours, Weights};

/// Returns a graph as gapbs writes it: directed graphs also have in-edges.
pub(super) fn serialize(directed: bool, lists: &[Vec<(u32, i32)>], weighted: bool) -> Vec<u8> {
    let arcs: usize = lists.iter().map(Vec::len).sum();
    let mut turned = vec![Vec::new(); lists.len()];
    for (v, list) in lists.iter().enumerate() {
        for &(n, w) in list {
            turned[n as usize].push((v as u32, w));
        }
    }
    let mut out = vec![u8::from(directed)];
    out.extend((arcs as i64).to_ne_bytes());
    out.extend((lists.len() as i64).to_ne_bytes());
    for lists in [lists, &turned].into_iter().take(1 + usize::from(directed)) {
        let mut offset = 0i64;
        out.extend(offset.to_ne_bytes());
        for list in lists {
            offset += list.len() as i64;
            out.extend(offset.to_ne_bytes());
        }
        for &(n, w) in lists.iter().flatten() {
            out.extend(n.to_ne_bytes());
            if weighted {
                out.extend(w.to_ne_bytes());
            }
        }
    }
    out
}

#[test]
pub(super) fn serialized_graphs_are_read_in_both_directions() {
    let lists = [vec![(1, 5), (2, 6)], vec![(2, 7)], vec![]];
    for (name, weighted) in [("g.sg", false), ("g.wsg", true)] {
        let bytes = serialize(true, &lists, weighted);
        let loaded = load_bytes(name, &bytes, &WEIGHTED).unwrap();
        assert_eq!(arcs(&loaded.csr), [(0, 1), (0, 2), (1, 2)]);
        assert!(loaded.csr.directed());
        let expected = if weighted { vec![5, 6, 7] } else { vec![1, 1, 1] };
        assert_eq!(loaded.csr.weights(), Some(&Weights::U32(expected)));
        let options = LoadOptions { orientation: Orientation::Undirected, wide: true, ..WEIGHTED };
        let both = load_bytes(name, &bytes, &options).unwrap();
        assert_eq!(both.csr.edges(), 3);
        assert_eq!(both.csr.neighbours(), &Neighbours::U64(vec![1, 2, 0, 2, 0, 1]));
    }
    let lists = [vec![(1, 5)], vec![(0, 5), (2, 7)], vec![(1, 7)]];
    let loaded = load_bytes("g.wsg", &serialize(false, &lists, true), &WEIGHTED).unwrap();
    assert_eq!((loaded.csr.directed(), loaded.csr.edges()), (false, 2));
    assert_eq!(loaded.summary.orientation, OrientationReason::Declared);
    let directed = LoadOptions { orientation: Orientation::Directed, ..Default::default() };
    assert!(load_bytes("g.wsg", &serialize(false, &lists, true), &directed).unwrap().csr.directed());
    // Unsorted lists with duplicates and self-loops become simple.
    let lists = [vec![(2, 9), (1, 5), (0, 1), (2, 3)], vec![], vec![]];
    let csr = load_bytes("g.wsg", &serialize(true, &lists, true), &WEIGHTED).unwrap().csr;
    assert_eq!((arcs(&csr), csr.weights()), (vec![(0, 1), (0, 2)], Some(&Weights::U32(vec![5, 3]))));
}

#[test]
fn damaged_serialized_graphs_are_refused() {
    let lists = [vec![(1, 5)], vec![(0, 5)]];
    let good = serialize(false, &lists, true);
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        message(load_bytes("g.wsg", &bad, &WEIGHTED))
    };
    let offsets = 17;
    let edges = offsets + 3 * 8;
    for (found, expected) in [
        (with(0, &[7]), "the first byte is 7"),
        (with(1, &(-1i64).to_ne_bytes()), "the header names -1 edges"),
        (with(9, &(1i64 << 40).to_ne_bytes()), "the header names 1099511627776 vertices"),
        (with(1, &i64::MAX.to_ne_bytes()), "the file has 57; it is cut short, or has no weights and must end in .sg"),
        (with(9, &1i64.to_ne_bytes()), "1 vertices and 2 edges make 49 bytes, the file has 57"),
        (with(offsets, &1i64.to_ne_bytes()), "offset 0 is 1, it must lie between 0 and 0; the file is damaged"),
        (with(offsets + 8, &9i64.to_ne_bytes()), "offset 1 is 9, it must lie between 0 and 2"),
        (with(offsets + 16, &1i64.to_ne_bytes()), "offset 2 is 1, it must lie between 2 and 2"),
        (with(edges, &9i32.to_ne_bytes()), "edge 0 leads to vertex 9, but there are 2 vertices"),
        (with(edges, &(-1i32).to_ne_bytes()), "edge 0 leads to vertex 4294967295"),
        (with(edges + 4, &(-3i32).to_ne_bytes()), "edge 0 has the weight -3; shortest paths need"),
        (with(edges + 4, &6i32.to_ne_bytes()), "0 -> 1 has no equal edge 1 -> 0"),
        (with(edges + 8, &1i32.to_ne_bytes()), "0 -> 1 has no equal edge 1 -> 0"),
        (message(load_bytes("g.wsg", &good[..50], &WEIGHTED)), "make 57 bytes, the file has 50; it is cut short"),
        (message(load_bytes("g.wsg", &good[..9], &WEIGHTED)), "9 bytes are too few for the 17 bytes of a header"),
        (message(load_bytes("g.sg", &good, &WEIGHTED)), "has int32 weights and must end in .wsg"),
        (message(load_bytes("g.sg", &serialize(false, &[], false), &WEIGHTED)), "holds no vertex"),
    ] {
        assert!(found.contains(expected), "{found}");
    }
}
