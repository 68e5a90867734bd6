//! Reports of `nvme`.

use crate::program::command;
use crate::validator::{has, report};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

#[test]
fn controllers_are_described() {
    has(&report("nvme list --device soft:mem:1M"), &["/devices/0/namespaces/0/size_bytes"]);
    has(&report("nvme id soft:mem:1M,namespaces=2"), &["/namespaces/1/lbafs/0/ds", "/controller/subnqn"]);
    has(&report("nvme smart soft:mem:1M"), &["/firmware/revisions/6"]);
    report("nvme error-log soft:mem:1M");
    report("nvme format-check soft:mem:1M");
}

/// A process that exports a device, and is ended with the test.
struct Exported(Child);

impl Drop for Exported {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn devices_of_other_machines_are_described() {
    let args = ["nvme", "serve", "soft:mem:1M,threads=1", "--nqn", "nqn.a:b", "--listen", "127.0.0.1:0"];
    let mut child = command(&args).stdout(Stdio::piped()).spawn().unwrap();
    // Kept open: a program whose standard output is closed ends at its next line.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _exported = Exported(child);
    let [address, device] = [lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap()];
    let address = address.rsplit(' ').next().unwrap();
    let device = device.trim().strip_prefix("--device ").unwrap();
    has(&report(&format!("nvme discover {address}")), &["/records/0/device"]);
    has(&report(&format!("nvme connect-check {device}")), &["/ports/0/address", "/namespaces/0"]);
}
