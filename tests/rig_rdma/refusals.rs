//! What is not to be had here is said by name.

use super::setting::{self, DEVICE, IWARP, two_ranks, warpbell};

/// A world of two over this transport is refused; what is said.
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

#[test]
#[ignore = "needs the rig"]
fn the_doctor_knows_the_device() {
    setting::inside();
    let done = setting::run(&mut warpbell(&["doctor"]));
    assert!(done.out.contains(DEVICE));
}
