//! Tests of the reports' text, to the letter.

use super::{look, rdma_machines, shapes};
use crate::doctor::GpuFacts;
use crate::pci::fixture::Fixture;

/// Returns the text with the user's number and the version replaced, which differ between runs.
fn text(shape: &(Fixture, GpuFacts)) -> String {
    let text = look(shape).to_string().replace(&format!("uid {}", shape.0.stranger()), "uid USER");
    text.replacen(env!("CARGO_PKG_VERSION"), "VERSION", 1) + "\n"
}

/// Compares line by line, so that a failure shows a single line.
#[track_caller]
fn same(shown: &str, expected: &str) {
    for (s, e) in shown.lines().zip(expected.lines()) {
        assert_eq!(s, e);
    }
    assert_eq!(shown.lines().count(), expected.lines().count(), "{shown}");
}

#[test]
fn a_laptop() {
    same(&text(&shapes::laptop()), include_str!("laptop.txt"));
}

#[test]
fn a_workstation() {
    same(&text(&shapes::workstation()), include_str!("workstation.txt"));
}

#[test]
fn a_server() {
    same(&text(&shapes::server()), include_str!("server.txt"));
}

#[test]
fn a_roce_server() {
    same(&text(&rdma_machines::roce_server()), include_str!("roce_server.txt"));
}

#[test]
fn a_laptop_with_soft_roce() {
    same(&text(&rdma_machines::soft_roce()), include_str!("soft_roce.txt"));
}

#[test]
fn a_virtual_machine_in_a_cloud() {
    same(&text(&rdma_machines::cloud()), include_str!("cloud.txt"));
}
