//! Reports on stored graphs, tables and arrays.

use crate::program::{folder, name, succeeds, write};
use crate::validator::{has, report, report_of};

#[test]
fn stored_graphs_are_described() {
    let folder = folder();
    let device = |file: &str| format!("--device soft:{}", name(&folder.path().join(file)));
    let at = device("graphs.img");
    report(&format!("graph import kron:6 --name one {at}"));
    report(&format!("graph import kron:6 --name two --weights integers --lists plain {at}"));
    has(&report(&format!("graph list {at}")), &["/graphs/1/weights"]);
    report(&format!("graph info one {at}"));
    has(&report(&format!("graph info two {at}")), &["/graph/weight_type", "/opening/host_bytes"]);
    report(&format!("graph verify one {at}"));
    report(&format!("graph bfs stored:one --source 1 --engine cpu {at}"));
    report(&format!("graph delete one {at}"));
    let of_parts = device("part{pe}.img");
    report(&format!("graph import kron:8 --name parts --parts 2 {of_parts}"));
    let at = device("part1.img");
    has(&report(&format!("graph list {at}")), &["/graphs/0/part/parts"]);
    has(&report(&format!("graph info parts {at}")), &["/part/part"]);
}

#[test]
fn tables_are_described() {
    let folder = folder();
    let header = format!("{:117}\n", "{'descr': '<u4', 'fortran_order': False, 'shape': (30, 33), }");
    let array = [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), &[0; 30 * 33 * 4]].concat();
    let file = write(&folder, "v.npy", array);
    let at = format!("--device soft:{}", name(&folder.path().join("tables.img")));
    report(&format!("table import {file} --name v {at}"));
    has(&report(&format!("table list {at}")), &["/tables/0/row_shape/0"]);
    for command in ["info", "verify", "delete"] {
        report(&format!("table {command} v {at}"));
    }
}

#[test]
fn arrays_of_a_volume_are_described() {
    let folder = folder();
    let [a, b] = ["a.img", "b.img"].map(|file| folder.path().join(file));
    let (a_spec, b_spec) = (format!("soft:{}", name(&a)), format!("soft:{}", name(&b)));
    let copies = ["--replicate", "--page-checksums", "--engine", "cpu", "--device", &a_spec, "--device", &b_spec];
    succeeds(&[&["graph", "bfs", "urand:10:16", "--source", "1"][..], &copies].concat());
    let verify = format!("volume verify {a_spec} {b_spec} --replicate");
    has(&report(&verify), &["/arrays/0/copy"]);
    let mut bytes = std::fs::read(&b).unwrap();
    bytes[150_000] ^= 1;
    std::fs::write(&b, bytes).unwrap();
    has(&report_of(&verify, 1), &["/damaged/0/lba"]);
    let repaired = report(&format!("{verify} --repair"));
    assert!(repaired["repaired_bytes"].as_u64() > Some(0), "{repaired}");
    // A copy without superblocks is left out.
    let mut bytes = std::fs::read(&b).unwrap();
    bytes[..64 << 10].fill(0);
    std::fs::write(&b, bytes).unwrap();
    has(&report_of(&verify, 1), &["/lost/0/reason"]);
}
