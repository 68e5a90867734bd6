//! Reports as people see them, to the letter.

use super::{look, shapes};
use crate::doctor::GpuFacts;
use crate::pci::recorded::Recorded;

/// The text, with the number of the user, which depends on who runs the test, replaced.
fn text(shape: &(Recorded, GpuFacts)) -> String {
    look(shape).to_string().replace(&format!("uid {}", shape.0.stranger()), "uid USER") + "\n"
}

#[test]
fn dump() {
    for (n, s) in [
        ("laptop", shapes::laptop()),
        ("workstation", shapes::workstation()),
        ("server", shapes::server()),
        ("guest", shapes::guest()),
        ("container", shapes::container()),
        ("libnvm", shapes::libnvm()),
    ] {
        std::fs::write(format!("/tmp/dump-{n}.txt"), text(&s)).unwrap();
    }
}

/// Compares line by line, so that a difference is seen as one line.
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
