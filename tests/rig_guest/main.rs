//! What runs in the virtual machine of `tests/rig` and nowhere else: VFIO, an IOMMU, drives that fail and drives that are pulled.

mod host;
mod machine;

mod setting {
    use super::{host, machine};

    /// The host sees the same medium, the kernel the same devices: what the other tests rely on.
    #[test]
    fn the_machine_is_as_described() {
        if !machine::inside() {
            return;
        }
        println!("VFIO by {}", machine::vfio());
        for bdf in [machine::TWO, machine::MATE, machine::FAULTY, machine::PEER] {
            assert!(machine::device(bdf).join("iommu_group").exists(), "{bdf} is behind no IOMMU");
        }
        for port in [machine::PORT_ORDERLY, machine::PORT_SURPRISE, machine::PORT_RESET] {
            assert!(machine::behind(port).is_some(), "nothing behind {port}");
        }
        assert_eq!(machine::behind(machine::PORT_SPARE), None);
        assert_eq!(host::qmp("query-status", serde_json::json!({}))["status"], "running");
        assert_eq!(host::image("mate-512", 4096, 3), [0; 3]);
        assert!(machine::kernel_log().contains("DMAR: IOMMU enabled"));
    }
}
