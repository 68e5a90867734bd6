//! Tests drives without an IOMMU: they are opened only if named, and then use physical addresses.
//!
//! The module's name chooses these tests in the machine without an IOMMU.

use super::machine::{self, BOUND, MATE, TWO, bind, driver, spec, text, warpbell};
use super::programs::{distances, policy};
use std::fs;
use std::ops::RangeInclusive;
use warpbell::memory::Space;
use warpbell::nvme::vfio::{self, VfioApi, VfioConfig, VfioError};

const SWITCH: &str = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
const HUGE: u64 = 2 << 20;
/// Taint flag of a kernel whose user space has had such a device (its Documentation: tainted kernels, bit 6).
const TAINT_USER: u64 = 1 << 6;

fn config() -> VfioConfig {
    VfioConfig::new(MATE.parse().unwrap()).unsafe_no_iommu(true)
}

/// Returns the physical addresses of memory, as the kernel lists them.
fn system_memory() -> Vec<RangeInclusive<u64>> {
    let map = fs::read_to_string("/proc/iomem").unwrap();
    let number = |t: &str| u64::from_str_radix(t, 16).unwrap();
    let lines = map.lines().filter_map(|l| l.strip_suffix(" : System RAM"));
    lines.map(|range| range.split_once('-').unwrap()).map(|(first, last)| number(first)..=number(last)).collect()
}

#[test]
#[ignore = "needs the rig"]
fn a_drive_without_an_iommu_is_refused_by_name() {
    machine::unguarded();
    if driver(MATE).as_deref() == Some("vfio-pci") {
        assert!(warpbell(&["nvme", "unbind", MATE]).status.success());
        machine::until("the kernel's driver", BOUND, || (driver(MATE).as_deref() == Some("nvme")).then_some(()));
    }
    assert!(!machine::device(MATE).join("iommu_group").exists());
    fs::write(SWITCH, "N").unwrap();
    let refused = warpbell(&["nvme", "bind", MATE]);
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains(MATE) && said.contains("no IOMMU group") && said.contains("--unsafe-no-iommu"), "{said}");
    assert_eq!(driver(MATE).as_deref(), Some("nvme"), "a refusal changed something");
    let taken = warpbell(&["nvme", "bind", MATE, "--unsafe-no-iommu"]);
    assert!(taken.status.success() && text(&taken.stderr).contains("any memory of this machine"));
    assert_eq!(driver(MATE).as_deref(), Some("vfio-pci"));
    assert_eq!(fs::read_to_string(SWITCH).unwrap().trim(), "Y");
    // Binding alone does not allow use: a program that opens the drive has to name the risk as well.
    let error = vfio::open(&config().unsafe_no_iommu(false)).unwrap_err();
    assert!(matches!(error, VfioError::Unsafe { .. }), "{error}");
    let plain = format!("nvme:{MATE},nsid=1");
    let refused = warpbell(&["bench", "nvme", "--engine", "cpu", "--runtime", "1s", "--device", &plain]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("unsafe-no-iommu"));
    let error = vfio::open(&config().api(VfioApi::Cdev)).unwrap_err().to_string();
    assert!(error.contains("leave out api=cdev"), "{error}");
    // The doctor does not call such a drive usable.
    let doctor = warpbell(&["doctor"]);
    let words: Vec<String> = text(&doctor.stdout).split_whitespace().map(str::to_owned).collect();
    assert!(words.join(" ").contains("without an IOMMU"));
}

#[test]
#[ignore = "needs the rig"]
fn device_addresses_are_physical_ones_of_memory() {
    machine::unguarded();
    bind(MATE);
    let open = vfio::open(&config()).unwrap();
    assert_eq!(open.api, VfioApi::Group);
    let tainted: u64 = fs::read_to_string("/proc/sys/kernel/tainted").unwrap().trim().parse().unwrap();
    assert_ne!(tainted & TAINT_USER, 0, "the kernel knows nothing of it");
    let (dma, space, ranges) = (&open.attachment.dma, Space::cpu(), system_memory());
    assert!(dma.iommu().is_none());
    let mut held: Vec<_> = [1, 4096, 3 << 20, 5 << 20].iter().map(|b| dma.allocate(&space, *b).unwrap()).collect();
    held.sort_by_key(|r| r.iova);
    for region in &held {
        let last = region.iova + region.bytes as u64 - 1;
        println!("  {} bytes at {:#x}", region.bytes, region.iova);
        assert!(region.iova.is_multiple_of(HUGE));
        assert!(
            ranges.iter().any(|r| r.contains(&region.iova) && r.contains(&last)),
            "{:#x} is no memory",
            region.iova
        );
    }
    assert!(held.windows(2).all(|w| w[0].iova + w[0].bytes as u64 <= w[1].iova));
}

#[test]
#[ignore = "needs the rig"]
fn a_lack_of_huge_pages_is_told_with_the_command_that_ends_it() {
    machine::unguarded();
    bind(MATE);
    let open = vfio::open(&config()).unwrap();
    let before = fs::read_to_string(HUGE_PAGES).unwrap();
    fs::write(HUGE_PAGES, "0").unwrap();
    let error = open.attachment.dma.allocate(&Space::cpu(), 4096);
    fs::write(HUGE_PAGES, before.trim()).unwrap();
    let text = error.unwrap_err().to_string();
    println!("  {text}");
    assert!(text.contains(MATE) && text.contains("sysctl vm.nr_hugepages="), "{text}");
    open.attachment.dma.allocate(&Space::cpu(), 4096).unwrap();
}

#[test]
#[ignore = "needs the rig"]
fn a_search_equals_that_over_the_software_controller() {
    machine::unguarded();
    bind(TWO);
    let expected = distances("soft", &["--device", "soft:mem"]);
    assert!(expected.len() > 100_000);
    for nsid in [1, 2] {
        let device = spec(TWO, nsid);
        let options: Vec<&str> = ["--device", &device].into_iter().chain(policy(&device)).collect();
        assert!(distances("unguarded", &options) == expected, "namespace {nsid}: other distances");
    }
}
