//! Tests that features that are not available here fail with an error that names them.

use super::setting::{self, ADDRESS, DEVICE, IWARP, two_ranks, warpbell};
use std::path::{Path, PathBuf};

/// Starts a world of two over this transport, which must fail. Returns the message.
#[track_caller]
fn refused(transport: &str, variables: &[(&str, &str)]) -> String {
    let mut command = two_ranks(transport, &["warpbell", "bench", "shmem", "put_bw", "--engine", "cpu", "-n", "10"]);
    command.envs(variables.iter().copied());
    let done = setting::run(&mut command);
    assert!(!done.well, "{transport} {variables:?} is there");
    done.text()
}

#[test]
#[ignore = "needs the rig"]
fn mlx5_says_why_it_is_not_available() {
    setting::inside();
    let said = refused("mlx5", &[]);
    assert!(said.contains("mlx5 adapter: ") && said.contains(DEVICE), "{said}");
}

#[test]
#[ignore = "needs the rig"]
fn a_device_without_reliable_connections_of_its_own_is_refused() {
    setting::inside();
    let said = refused("verbs", &[("WARPBELL_RDMA_DEVICE", IWARP)]);
    assert!(said.contains("verbs adapter: ") && said.contains(IWARP) && said.contains("iWARP"), "{said}");
}

#[test]
#[ignore = "needs the rig"]
fn a_device_that_is_not_there_is_named() {
    setting::inside();
    let said = refused("verbs", &[("WARPBELL_RDMA_DEVICE", "mlx5_7")]);
    assert!(said.contains("mlx5_7") && said.contains(DEVICE), "{said}");
}

/// Renames the verbs library until this is dropped. Tests run one at a time here.
struct Hidden(Vec<PathBuf>);

impl Hidden {
    fn new() -> Self {
        let folders = ["/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu"];
        let mut hidden = Self(Vec::new());
        // One of them may be a link to the other.
        for file in folders.map(|f| Path::new(f).join("libibverbs.so.1")) {
            if std::fs::rename(&file, file.with_extension("hidden")).is_ok() {
                hidden.0.push(file);
            }
        }
        assert!(!hidden.0.is_empty(), "no libibverbs.so.1 in {folders:?}");
        hidden
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        for file in &self.0 {
            std::fs::rename(file.with_extension("hidden"), file).unwrap();
        }
    }
}

#[test]
#[ignore = "needs the rig"]
fn a_library_that_is_absent_is_named_with_its_package() {
    setting::inside();
    let hidden = Hidden::new();
    let said = refused("verbs", &[]);
    for word in ["libibverbs.so.1: it cannot be loaded (libibverbs.so.1: ", "install libibverbs1 and ibverbs-providers"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    // The program itself needs no verbs library.
    assert!(setting::run(&mut warpbell(&["info"])).well);
    drop(hidden);
    let again = ["warpbell", "bench", "shmem", "put_bw", "--engine", "cpu", "-b", "8", "-e", "8", "-n", "10"];
    assert!(setting::run(&mut two_ranks("verbs", &again)).well);
}

#[test]
#[ignore = "needs the rig"]
fn the_doctor_knows_the_device() {
    setting::inside();
    let done = setting::run(&mut warpbell(&["doctor", "--require", "rdma,verbs"]));
    assert!(done.well && done.out.contains(DEVICE));
    // The doctor breaks its lines.
    let words = done.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("64 bytes arrived"), "no queue pair was tried");
    let lacking = setting::run(&mut warpbell(&["doctor", "--require", "mlx5"]));
    assert!(!lacking.well && lacking.err.contains("no mlx5 device"));
}

#[test]
#[ignore = "needs the rig"]
fn a_device_is_accepted_over_verbs() {
    setting::inside();
    let side = |words: &[&str]| {
        let short = ["--max-size", "64", "--idle", "1s", "--soak", "100ms"];
        let mut command = warpbell(&[&["accept", "rdma", "--device", DEVICE], &short[..], words].concat());
        command.env("WARPBELL_SECRET", "of the two hosts of this test");
        command
    };
    let mut peer = side(&["--serve"]).spawn().unwrap();
    let done = setting::run(&mut side(&["--peer", ADDRESS]));
    let ended = peer.wait().unwrap();
    assert!(done.well && done.out.contains("accepted: 8 steps passed"));
    assert!(done.out.contains("rank 1 is gone") && ended.success());
}
