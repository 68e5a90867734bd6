//! Tests of formats with headers of their own, of compressed inputs, and of chosen formats.

use super::tests::{WEIGHTED, arcs, message, plain, read, weighted};
use super::*;
use crate::graph::csr::Weights;
use crate::graph::ids::Ids;
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fs;
use std::io::Write;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

#[test]
fn compressed_files_are_read_as_their_contents() {
    let text: String = (0..5000).map(|i| format!("{} {}\n", i % 700, i * 7 % 900)).collect();
    let expected = plain("g.el", &text).csr;
    let halves = text.split_at(text.find("\n").unwrap() + 1);
    let joined = |one: fn(&[u8]) -> Vec<u8>| [one(halves.0.as_bytes()), one(halves.1.as_bytes())].concat();
    // A frame that decoders skip: its length, and contents.
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3], zstd(text.as_bytes()).as_slice()].concat();
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("g.el.gz", gzip(text.as_bytes())),
        ("g.el.GZ", joined(gzip)),
        ("g.el.zst", zstd(text.as_bytes())),
        ("g.el.zstd", joined(zstd)),
        ("skipped.el.zst", skipped),
        // Zeros fill the last block of a medium, and may be in front of another member.
        ("padded.el.gz", [gzip(text.as_bytes()).as_slice(), &[0; 700]].concat()),
        ("between.el.gz", [gzip(halves.0.as_bytes()).as_slice(), &[0; 9], &gzip(halves.1.as_bytes())].concat()),
        // The contents count, not the ending.
        ("g.el", gzip(text.as_bytes())),
        ("plain.el.gz", text.clone().into_bytes()),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(load(&path, &LoadOptions::default()).unwrap().csr, expected, "{name}");
        assert_eq!(load_bytes(name, &bytes, &LoadOptions::default()).unwrap().csr, expected, "{name}");
    }
}

#[test]
fn what_follows_the_last_member_of_gzip_is_not_dropped() {
    for behind in [&b"more"[..], b"\0\0more", b"\x1f", b"\0\x1f\x8b\x08"] {
        let found = message(load_bytes("g.el.gz", &[&gzip(b"1 2\n"), behind].concat(), &LoadOptions::default()));
        assert!(found.starts_with("g.el.gz: cannot be decompressed ("), "{found}");
    }
}

/// Head of a Zstandard frame with a window of `1 << log` bytes, and a last raw block of `text`.
fn frame(log: u8, text: &[u8]) -> Vec<u8> {
    let block = (text.len() as u32) << 3 | 1;
    [&[0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3], &block.to_le_bytes()[..3], text].concat()
}

#[test]
fn a_window_that_is_too_large_is_named() {
    let with = |log, memory| load_bytes("g.el.zst", &frame(log, b"1 2\n"), &LoadOptions::default().memory(memory));
    assert_eq!(with(27, None).unwrap().csr.vertices(), 2);
    assert_eq!(
        message(with(31, None)),
        "g.el.zst: its Zstandard window has 2.0 GiB, more than the 128.0 MiB that are decompressed; decompress the file first, or compress it with a smaller window"
    );
    assert_eq!(
        message(with(24, Some(8 << 20))),
        "g.el.zst: its Zstandard window has 16.0 MiB, more than the 4.0 MiB that are decompressed within the limit of memory; raise the limit, or compress the file with a smaller window"
    );
    assert_eq!(with(22, Some(8 << 20)).unwrap().csr.vertices(), 2);
}

#[test]
fn ldbc_files_may_be_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("g.v.gz"), gzip(b"1\n2\n3\n4\n")).unwrap();
    fs::write(at("g.e.gz"), gzip(b"1 2\n2 4\n")).unwrap();
    fs::write(at("g.properties"), "graph.g.directed = false\n").unwrap();
    for name in ["g.v.gz", "g.e.gz"] {
        let loaded = load(&at(name), &LoadOptions::default()).unwrap();
        assert_eq!((loaded.csr.vertices(), loaded.csr.edges(), loaded.csr.directed()), (4, 2, false), "{name}");
    }
}

#[test]
fn damaged_and_oversized_compressed_files_are_refused() {
    let text = "1 2\n".repeat(100_000);
    for (name, whole) in [("g.el.gz", gzip(text.as_bytes())), ("g.el.zst", zstd(text.as_bytes()))] {
        let cut = message(load_bytes(name, &whole[..whole.len() - 3], &LoadOptions::default()));
        assert!(cut.contains(name) && cut.contains("cannot be decompressed") && cut.contains("cut short"), "{cut}");
        let mut flipped = whole.clone();
        let middle = whole.len() / 2;
        flipped[middle] ^= 0x55;
        assert!(load_bytes(name, &flipped, &LoadOptions::default()).is_err(), "{name}");
        let small = message(load_bytes(name, &whole, &LoadOptions::default().memory(Some(100_000))));
        assert!(small.contains("need at least") && small.contains("97.7 KiB is free"), "{small}");
    }
}

#[test]
fn a_chosen_format_goes_before_the_ending() {
    let with = |name: &str, format| read(name, "1 2 7\n", &WEIGHTED.format(Some(format)));
    assert_eq!(with("edges.dat", FileFormat::Wel).unwrap().csr.weights(), Some(&Weights::U32(vec![7])));
    assert_eq!(with("edges.el", FileFormat::Txt).unwrap().csr.weights(), Some(&Weights::U32(vec![7])));
    assert!(message(with("edges.wel", FileFormat::El)).contains("a third column"));
    let text = message(load(Path::new("-"), &LoadOptions::default()));
    assert!(text.contains("standard input") && text.contains("el txt wel csv"), "{text}");
}

#[test]
fn headers_of_tables_name_their_columns() {
    let text = "\u{feff}# exported\nid,Source,Target,Weight\r\n0, 5 ,\"6\",2\r\n1,6,7,3\r\n";
    let loaded = weighted("g.csv", text);
    assert_eq!(arcs(&loaded.csr), [(5, 6), (6, 7)]);
    assert_eq!(loaded.csr.weights(), Some(&Weights::U32(vec![2, 3])));
    assert_eq!(loaded.summary.format, Format::Separated);
    assert_eq!(arcs(&plain("g.tsv", "dst\tsrc\n1\t2\n").csr), [(2, 1)]);
    assert_eq!(arcs(&plain("g.csv", "3,4\n4,5").csr), [(3, 4), (4, 5)]);
    for (name, text, expected) in [
        (
            "g.csv",
            "source,weight\n1,2\n",
            "g.csv: no column of targets among `source`, `weight`; known are source, src",
        ),
        ("g.csv", "to,to,from\n", "g.csv: two columns of targets among `to`, `to`, `from`; known are"),
        (
            "g.csv",
            "a,b,c\n1,2,3\n",
            "g.csv line 1: `a`, `b`, `c` above a line of numbers is a heading whose columns are not known",
        ),
        ("g.csv", "1\n", "g.csv line 1: `1` is one column: no comma, semicolon, vertical bar or tab is in it"),
        ("g.csv", "src,dst\n1,2\n1,2,3\n", "g.csv line 3: 3 column(s) where 2 are expected"),
        ("g.csv", "1,2\n\"1,2\n", "g.csv line 2: a quoted field does not end on this line"),
        ("g.csv", "1,2,\n", "g.csv line 1: `` is not a weight"),
        (
            "g.csv",
            "1 2\n",
            "g.csv line 1: `1 2` is one column: no comma, semicolon, vertical bar or tab is in it; read the",
        ),
        ("g.tsv", "# nothing\n", "g.tsv: holds no vertex"),
    ] {
        let found = message(read(name, text, &WEIGHTED));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn road_networks_are_read() {
    let text = "c 9th DIMACS\np sp 4 4\nc arcs\na 1 2 17\na 2 1 17\na 2 3 5\n\na 3 2 5\n";
    let loaded = weighted("r.gr", text);
    assert_eq!(loaded.csr.ids(), &Ids::dense(1, 4), "vertex 4 has no road");
    assert_eq!(loaded.csr.weights(), Some(&Weights::U32(vec![17, 17, 5, 5])));
    assert_eq!((loaded.csr.directed(), loaded.summary.orientation), (false, OrientationReason::Symmetric));
    assert!(plain("r.gr", "p sp 2 1\na 1 2 3\n").csr.directed());
    for (text, expected) in [
        ("c x\n", "r.gr: ends before the line with its sizes (p sp VERTICES ARCS, or p edge VERTICES EDGES)"),
        ("a 1 2 3\n", "r.gr line 1: `a 1 2 3`: the problem line, such as `p sp VERTICES ARCS`, comes first"),
        ("p max 2 1\n", "`p max 2 1`: problems are `p sp VERTICES ARCS` and `p edge VERTICES EDGES`"),
        ("p edge 2 1\na 1 2\n", "line 2: `a 1 2`: lines of edges are `e A B`"),
        ("p edge 2 1\ne 1 2 3\n", "line 2: 4 column(s) where 3 are expected"),
        ("p edge 3 3\ne 1 2\ne 2 3\n", "the header names 3 entries, the file holds 2"),
        ("p sp 2\n", "`p sp 2`: the problem line has two whole numbers"),
        ("p sp 2 1\na 1 3 1\n", "line 2: vertex 3 is larger than the 2 vertices that the header names"),
        ("p sp 2 1\na 0 1 1\n", "line 2: vertex 0 in a file whose vertices are counted from 1"),
        ("p sp 2 1\na 1 2\n", "line 2: 3 column(s) where 4 are expected"),
        ("p sp 2 1\ne 1 2 1\n", "line 2: `e 1 2 1`: lines of arcs are `a FROM TO WEIGHT`"),
        ("p sp 2 1\np sp 2 1\n", "line 2: `p sp 2 1`: there is one problem line"),
        ("p sp 2 1\nc but no arcs at all\n", "the header names 1 entries, the file holds 0"),
        ("p sp 2 99\na 1 2 1\n", "cannot hold more than 1"),
        ("p sp 0 0\n", "r.gr: holds no vertex"),
        ("p sp 2 1\na 1 2 -1\n", "line 2: weight -1 is negative"),
    ] {
        let found = message(read("r.gr", text, &WEIGHTED));
        assert!(found.contains(expected), "{found}");
    }
}

/// The graph of the METIS manual's figure 2 (a): 7 vertices, 11 edges.
const MANUAL: &str = "7 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n5 4 7\n6 4\n";

#[test]
fn metis_graphs_are_read() {
    let loaded = plain("m.graph", MANUAL);
    assert_eq!((loaded.csr.vertices(), loaded.csr.edges(), loaded.csr.directed()), (7, 11, false));
    assert_eq!(loaded.csr.neighbours_of(0).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!((loaded.summary.orientation, loaded.summary.duplicates), (OrientationReason::Declared, 0));
    // An empty line is a vertex without edges, and comments are none.
    let text = "% head\n4 1 001\n% first\n3 9\n\n1 9\n\n\n\n";
    let loaded = weighted("m.metis", text);
    assert_eq!(arcs(&loaded.csr), [(1, 3), (3, 1)]);
    assert_eq!((loaded.csr.vertices(), loaded.csr.weights()), (4, Some(&Weights::U32(vec![9, 9]))));
    // Vertex sizes and weights are passed over; real weights of edges are kept.
    let loaded = weighted("m.graph", "2 1 111 2\n7 1 1 2 0.5\n8 1 1 1 0.5\n");
    assert_eq!(loaded.csr.weights(), Some(&Weights::F32(vec![0.5, 0.5])));
    for (text, expected) in [
        ("% x\n", "m.graph: ends before the line with its sizes (vertices and edges)"),
        ("7\n", "line 1: `7` is not a METIS header"),
        ("2 1 2\n", "`2 1 2` is not a METIS header"),
        ("2 1 000 3\n", "`2 1 000 3` is not a METIS header"),
        ("3 1\n2\n1\n", "m.graph: the header names 3 vertices, the file has 2 lines for vertices"),
        ("2 1\n2\n1\n1\n", "m.graph: the header names 2 vertices, the file has 3 lines for vertices"),
        ("2 1\n2\n\n", "the header names 2 entries, the file holds 1"),
        ("2 1\n\n1 1\n", "the header names 2 entries, the file holds 0"),
        (
            "3 2\n1 2\n1 3\n\n",
            "m.graph: vertex 1 is its own neighbour (1 self-loops in all), which METIS graphs do not have",
        ),
        ("3 2\n2\n1 2\n3 3\n", "m.graph: vertex 2 is its own neighbour (3 self-loops in all)"),
        ("2 1\n3\n1\n", "line 2: vertex 3 is larger than the 2 vertices"),
        ("2 1\n0\n1\n", "line 2: vertex 0 in a file whose vertices are counted from 1"),
        ("2 1 1\n2\n1 5\n", "line 2: the line has 1 numbers, but each neighbour has a weight behind it"),
        ("2 1 10\n\n1 1\n", "the header names 2 entries, the file holds 1"),
        ("2 0 11 2\n1\n1 1\n", "line 2: the line has 1 numbers, but the header names a vertex size or more"),
        ("9 99\n", "cannot hold more than 0"),
        ("0 0\n", "m.graph: holds no vertex"),
    ] {
        let found = message(read("m.graph", text, &WEIGHTED));
        assert!(found.contains(expected), "{text:?}: {found}");
    }
    for piece in 1..40 {
        assert_eq!(load_pieces("m.graph", MANUAL.as_bytes(), &LoadOptions::default(), piece).unwrap().csr.edges(), 11);
    }
}
