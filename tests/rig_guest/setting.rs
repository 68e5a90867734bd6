//! Tests the assumptions of the other tests.

use super::{host, machine};

/// Tests that the host sees the same media, and the kernel the same devices.
#[test]
#[ignore = "needs the rig"]
fn the_machine_is_as_described() {
    machine::inside();
    println!("VFIO by {}", machine::vfio());
    for bdf in [machine::TWO, machine::MATE, machine::FAULTY, machine::PEER] {
        assert!(machine::device(bdf).join("iommu_group").exists(), "{bdf} is behind no IOMMU");
    }
    assert_eq!(host::qmp("query-status", serde_json::json!({}))["status"], "running");
    // A place that no test writes.
    assert_eq!(host::image("spare", 15 << 20, 3), [0; 3]);
    assert!(machine::kernel_log().contains("DMAR: IOMMU enabled"));
    assert_eq!(machine::vfio() == "iommufd", std::path::Path::new("/dev/iommu").exists());
}
