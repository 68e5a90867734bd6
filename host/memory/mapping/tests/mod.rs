//! Every mapping backend end to end against a fake machine, with injected faults.

mod fake;

use super::*;
use crate::memory::{IommuError, IommuKind, MemoryError};
use fake::{Device, Faults, Machine, gpu_memory};
use std::collections::HashMap;
use std::sync::Arc;

const GDRDRV: &str = "/dev/gdrdrv";
const LIBNVM: &str = "/dev/libnvm0";
const IMPORT: &str = "/dev/dmabuf_import";
const MAP_PA: &str = "/dev/iommu_map_pa";
const ENOTSUPP: i32 = 524;

/// Each mapping backend, with the modules and the kind of IOMMU that it works with.
const WORKING: [(MappingBackend, &[&str], Option<IommuKind>); 6] = [
    (MappingBackend::Gdrdrv, &[GDRDRV], Some(IommuKind::Type1)),
    (MappingBackend::DmaBufMmap, &[], Some(IommuKind::Type1)),
    (MappingBackend::Iommufd, &[], Some(IommuKind::Iommufd)),
    (MappingBackend::Libnvm, &[LIBNVM], None),
    (MappingBackend::DmabufImport, &[IMPORT], None),
    (MappingBackend::IommuMapPa, &[IMPORT, MAP_PA], Some(IommuKind::Type1)),
];

fn backends(machine: &Machine, kind: Option<IommuKind>, choice: BackendChoice) -> (MappingBackends, Device) {
    let backends = MappingBackends::with(machine.sys(), Arc::new(machine.clone()), machine.device(kind), choice);
    (backends, Device { machine: machine.clone(), translated: kind.is_some() })
}

/// Returns reason and remedy of a backend that is chosen by name and does not work. Checks that nothing is left open.
fn failure(
    backend: MappingBackend,
    modules: &[&'static str],
    kind: Option<IommuKind>,
    faults: Faults,
) -> (String, String) {
    let machine = Machine::new(modules, faults);
    let (backends, device) = backends(&machine, kind, BackendChoice::Only(backend));
    let refused = backends.choose(&gpu_memory(SCRATCH_BYTES), &device).unwrap_err();
    assert_eq!(machine.left(), Vec::<String>::new(), "{refused}");
    assert_eq!(backends.trusted(), None);
    match refused {
        MappingError::MappingBackend { backend: r, reason, next, .. } => {
            assert_eq!(r, backend);
            (reason, next)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn each_backend_maps_reads_back_and_gives_back() {
    for (backend, modules, kind) in WORKING {
        let machine = Machine::new(modules, Faults::default());
        let (backends, device) = backends(&machine, kind, BackendChoice::Only(backend));
        let scratch = gpu_memory(SCRATCH_BYTES);
        assert_eq!(backends.choose(&scratch, &device).unwrap(), backend);
        assert_eq!(machine.left(), Vec::<String>::new(), "{backend}");
        let region = gpu_memory(4 * GPU_PAGE);
        // Miri takes minutes for all of it.
        let filled = if cfg!(miri) { 4096 } else { region.len() };
        region.fill(0, filled, 0x5a).unwrap();
        let mapping = backends.map(&region, &device).unwrap();
        assert_eq!(mapping.bytes, region.len());
        assert!(!machine.left().is_empty(), "{backend} holds something while it maps");
        // The read-back restored the content.
        assert!(region.get_slice::<u8>(0, filled).unwrap() == vec![0x5a; filled], "{backend}");
        device.device_writes(&mapping, 2 * GPU_PAGE).unwrap();
        // Dropped on another thread than the one that mapped.
        std::thread::spawn(move || drop(mapping)).join().unwrap();
        assert_eq!(machine.left(), Vec::<String>::new(), "{backend}");
        let attempts = backends.attempts();
        assert_eq!((attempts.len(), attempts[0].outcome), (1, Outcome::Taken));
    }
}

#[test]
fn gdrdrvs_handles_are_pages_of_the_host_whatever_their_size() {
    for host_page in [4096, 16_384, 65_536] {
        let machine = Machine::new(&[GDRDRV], Faults { host_page: Some(host_page), ..Faults::default() });
        let (backends, device) =
            backends(&machine, Some(IommuKind::Type1), BackendChoice::Only(MappingBackend::Gdrdrv));
        assert_eq!(
            backends.choose(&gpu_memory(SCRATCH_BYTES), &device).unwrap(),
            MappingBackend::Gdrdrv,
            "pages of {host_page}"
        );
    }
}

/// Request numbers from the modules' published headers, computed by hand: direction, size, type and number. The fake
/// modules use the constants of the mapping backends, so they would not notice a wrong one.
#[test]
fn requests_and_structures_are_those_of_the_headers() {
    use std::mem::offset_of;
    // GDRCopy, gdrdrv.h: type DAh.
    assert_eq!(
        (gdrdrv::PIN_BUFFER, gdrdrv::UNPIN_BUFFER, gdrdrv::GET_VERSION),
        (0xc028_da01, 0xc008_da02, 0xc008_daff)
    );
    assert_eq!((offset_of!(gdrdrv::PinBuffer, size), offset_of!(gdrdrv::PinBuffer, handle)), (8, 32));
    // BaM, ioctl.h: type 80h.
    assert_eq!((libnvm::MAP_DEVICE_MEMORY, libnvm::UNMAP_MEMORY), (0x4018_8002, 0x4008_8003));
    assert_eq!((offset_of!(libnvm::MapMemory, n_pages), offset_of!(libnvm::MapMemory, ioaddrs)), (8, 16));
    // uPCIe, dmabuf_import.h and iommu_map_pa.h: type 'u', 75h.
    assert_eq!(
        (dmabuf_import::ATTACH, dmabuf_import::DETACH, dmabuf_import::GET_MAP),
        (0xc008_7547, 0x4004_7548, 0xc008_7549)
    );
    assert_eq!((iommu_map_pa::MAP_PA, iommu_map_pa::UNMAP_PA), (0xc040_7503, 0x4008_7502));
    let at = [
        offset_of!(iommu_map_pa::MapPa, dmabuf_fd),
        offset_of!(iommu_map_pa::MapPa, page_size),
        offset_of!(iommu_map_pa::MapPa, nphys),
        offset_of!(iommu_map_pa::MapPa, prot),
        offset_of!(iommu_map_pa::MapPa, iova_base),
        offset_of!(iommu_map_pa::MapPa, user_phys_ptr),
        offset_of!(iommu_map_pa::MapPa, map_handle),
    ];
    assert_eq!(at, [16, 20, 24, 28, 40, 48, 56]);
}

#[test]
fn auto_takes_the_first_that_works_and_says_why_not_the_others() {
    let faults = Faults { map: Some(ENOTSUPP), ..Faults::default() };
    let machine = Machine::new(&[IMPORT, MAP_PA], faults);
    let (backends, device) = backends(&machine, Some(IommuKind::Type1), BackendChoice::Auto);
    assert_eq!(backends.choose(&gpu_memory(SCRATCH_BYTES), &device).unwrap(), MappingBackend::IommuMapPa);
    let attempts = backends.attempts();
    assert_eq!(attempts.iter().map(|a| a.backend).collect::<Vec<_>>(), MappingBackend::ALL[..6]);
    let text: Vec<String> = attempts.iter().map(Attempt::to_string).collect();
    for (i, words) in [
        (0, "gdrdrv passed over: /dev/gdrdrv: No such file"),
        (1, "ENOTSUPP"),
        (2, "only iommufd maps a dma-buf"),
        (3, "libnvm passed over: /dev/libnvm0: No such file"),
        (4, "dmabuf_import returns bus addresses, but vfio type1"),
        (5, "iommu-map-pa taken: 131072 bytes"),
    ] {
        assert!(text[i].contains(words), "{}", text[i]);
    }
    let json = serde_json::to_value(&attempts).unwrap();
    assert_eq!((&json[0]["outcome"], &json[5]["backend"]), (&"passed-over".into(), &"iommu-map-pa".into()));
    // A second call returns the first result without a new attempt.
    assert_eq!(backends.choose(&gpu_memory(SCRATCH_BYTES), &device).unwrap(), MappingBackend::IommuMapPa);
    assert_eq!(backends.attempts().len(), 6);
    assert_eq!(machine.left(), Vec::<String>::new());
}

#[test]
fn a_machine_without_modules_has_no_way_and_says_so() {
    let machine = Machine::new(&[], Faults { map: Some(ENOTSUPP), ..Faults::default() });
    let (backends, device) = backends(&machine, Some(IommuKind::Type1), BackendChoice::Auto);
    let region = gpu_memory(SCRATCH_BYTES);
    let text = backends.choose(&region, &device).unwrap_err().to_string();
    assert!(text.contains("gdrdrv: /dev/gdrdrv") && text.contains("bounce landing"), "{text}");
    assert!(
        matches!(backends.map(&region, &device), Err(MappingError::NoBackend { attempts, .. }) if attempts.len() == 6)
    );
    let host = BackendChoice::Only(MappingBackend::Host);
    let (backends, device) = self::backends(&machine, Some(IommuKind::Type1), host);
    assert!(backends.choose(&region, &device).unwrap_err().to_string().contains("host memory, not GPU memory"));
}

#[test]
fn a_module_that_is_absent_or_closed_names_the_way_to_it() {
    for (backend, modules, kind) in WORKING.into_iter().filter(|w| !w.1.is_empty()) {
        let (reason, next) = failure(backend, &[], kind, Faults::default());
        assert!(reason.contains("/dev/") && reason.contains("No such file"), "{backend}: {reason}");
        assert!(next.contains("modprobe") || next.contains("load"), "{backend}: {next}");
        let open = HashMap::from([(modules[0], libc::EACCES)]);
        let (reason, next) = failure(backend, modules, kind, Faults { open, ..Faults::default() });
        assert!(
            reason.contains("ermission") && next.contains("root") && next.contains(modules[0]),
            "{backend}: {next}"
        );
    }
}

#[test]
fn a_failure_names_the_request() {
    let refused = |backend, modules: &[&'static str], kind, request, code| {
        let request = HashMap::from([(request, code)]);
        failure(backend, modules, kind, Faults { request, ..Faults::default() })
    };
    let type1 = Some(IommuKind::Type1);
    let (reason, next) = refused(MappingBackend::Gdrdrv, &[GDRDRV], type1, gdrdrv::PIN_BUFFER, libc::ENOMEM);
    assert!(reason.starts_with("GDRDRV_IOC_PIN_BUFFER") && next.contains("BAR1"), "{reason}; {next}");
    let (reason, next) = refused(MappingBackend::Gdrdrv, &[GDRDRV], type1, gdrdrv::GET_VERSION, libc::ENOTTY);
    assert!(reason.contains("GET_VERSION") && next.contains("release"), "{reason}; {next}");
    let (reason, _) = refused(MappingBackend::Libnvm, &[LIBNVM], None, libnvm::MAP_DEVICE_MEMORY, libc::EINVAL);
    assert!(reason.starts_with("NVM_MAP_DEVICE_MEMORY"), "{reason}");
    let (reason, next) = refused(MappingBackend::DmabufImport, &[IMPORT], None, dmabuf_import::ATTACH, libc::EPERM);
    assert!(reason.starts_with("DMABUF_IMPORT_ATTACH") && next.contains("root"), "{reason}; {next}");
    let (reason, _) = refused(MappingBackend::DmabufImport, &[IMPORT], None, dmabuf_import::GET_MAP, libc::EFAULT);
    assert!(reason.starts_with("DMABUF_IMPORT_GET_MAP"), "{reason}");
    let (reason, next) =
        refused(MappingBackend::IommuMapPa, &[IMPORT, MAP_PA], type1, iommu_map_pa::MAP_PA, libc::EINVAL);
    assert!(reason.starts_with("IOMMU_MAP_PA") && next.contains("vfio-pci"), "{reason}; {next}");
    let faults = || Faults { map: Some(ENOTSUPP), ..Faults::default() };
    let (reason, next) = failure(MappingBackend::DmaBufMmap, &[], type1, faults());
    assert!(reason.contains("ENOTSUPP") && next.contains("gdrdrv"), "{reason}; {next}");
    let (reason, _) = failure(MappingBackend::Gdrdrv, &[GDRDRV], type1, faults());
    assert!(reason.starts_with("mmap of /dev/gdrdrv"), "{reason}");
}

#[test]
fn a_dma_buf_that_the_driver_attaches_to_nobody_names_the_topology_check() {
    const OVERRIDE: &str = "NVreg_GrdmaPciTopoCheckOverride=1";
    let import = |request| {
        let request = HashMap::from([(request, ENOTSUPP)]);
        failure(MappingBackend::DmabufImport, &[IMPORT], None, Faults { request, ..Faults::default() })
    };
    for (reason, next) in [
        import(dmabuf_import::ATTACH),
        import(dmabuf_import::GET_MAP),
        failure(
            MappingBackend::Iommufd,
            &[],
            Some(IommuKind::Iommufd),
            Faults { iommu: Some(ENOTSUPP), ..Faults::default() },
        ),
    ] {
        assert!(reason.contains("524") && next.contains(OVERRIDE), "{reason}; {next}");
    }
    // Mapping a dma-buf into the CPU attaches no device, so no topology is checked.
    let faults = Faults { map: Some(ENOTSUPP), ..Faults::default() };
    let (_, next) = failure(MappingBackend::DmaBufMmap, &[], Some(IommuKind::Type1), faults);
    assert!(!next.contains(OVERRIDE), "{next}");
}

#[test]
fn a_read_back_that_fails_names_memory_encryption_where_it_is_on() {
    const ENCRYPTION: &str = "mem_encrypt=off";
    let failing = || [Faults { wrong_view: true, ..Faults::default() }, Faults { astray: 4096, ..Faults::default() }];
    for faults in failing() {
        let (_, next) = failure(MappingBackend::Gdrdrv, &[GDRDRV], Some(IommuKind::Type1), faults);
        assert!(!next.contains(ENCRYPTION), "{next}");
    }
    for faults in failing() {
        let faults = Faults { encrypts_memory: true, ..faults };
        let (reason, next) = failure(MappingBackend::Gdrdrv, &[GDRDRV], Some(IommuKind::Type1), faults);
        assert!(reason.starts_with("read back:") && next.contains(ENCRYPTION), "{reason}; {next}");
    }
}

#[test]
fn another_version_of_gdrdrv_is_not_spoken_to() {
    let faults = Faults { version: Some(0x3_0001), ..Faults::default() };
    let (reason, _) = failure(MappingBackend::Gdrdrv, &[GDRDRV], Some(IommuKind::Type1), faults);
    assert_eq!(reason, "gdrdrv has version 3.1, but warpbell supports 2.x");
}

#[test]
fn an_iommu_that_refuses_is_passed_over() {
    for (backend, modules, kind) in WORKING.into_iter().take(3) {
        let faults = Faults { iommu: Some(libc::EOPNOTSUPP), ..Faults::default() };
        let (reason, next) = failure(backend, modules, kind, faults);
        assert!(reason.contains("not supported") && next.contains("another mapping"), "{backend}: {reason}; {next}");
    }
}

#[test]
fn the_limit_on_locked_memory_is_the_remedy_where_it_was_reached() {
    let locked = |allowed| IommuError::MemoryLock { device: "0000:65:00.0".into(), needed: 2, used: 0, allowed };
    let next = BackendError::Iommu(locked(1)).next(MappingBackend::Gdrdrv, &Linux);
    assert!(next.contains("ulimit -l"), "{next}");
    // If the limit was not reached, the kernel lacks memory for its tables.
    let faults = Faults { iommu: Some(libc::ENOMEM), ..Faults::default() };
    let (_, next) = failure(MappingBackend::Gdrdrv, &[GDRDRV], Some(IommuKind::Type1), faults);
    assert!(next.starts_with("map less memory"), "{next}");
}

#[test]
fn the_wrong_kind_of_iommu_is_named() {
    let (reason, next) = failure(MappingBackend::Gdrdrv, &[GDRDRV], Some(IommuKind::Iommufd), Faults::default());
    assert!(reason.contains("only VFIO type1") && next.contains("group"), "{reason}; {next}");
    let (reason, _) = failure(MappingBackend::Iommufd, &[], Some(IommuKind::Type1), Faults::default());
    assert!(reason.contains("only iommufd maps a dma-buf"), "{reason}");
    // Modules that return bus addresses do not work if an IOMMU translates.
    for (backend, module) in [(MappingBackend::Libnvm, LIBNVM), (MappingBackend::DmabufImport, IMPORT)] {
        let (reason, next) = failure(backend, &[module], Some(IommuKind::Type1), Faults::default());
        assert!(reason.contains("translates") && next.contains("iommu=pt"), "{backend}: {reason}; {next}");
    }
    for backend in [MappingBackend::Gdrdrv, MappingBackend::IommuMapPa, MappingBackend::Iommufd] {
        let (_, next) = failure(backend, &[GDRDRV, IMPORT, MAP_PA], None, Faults::default());
        assert!(next.contains("vfio-pci") || next.contains("VFIO"), "{backend}: {next}");
    }
}

#[test]
fn what_is_not_read_back_is_not_trusted() {
    for (backend, modules, kind) in WORKING {
        for astray in [4096, GPU_PAGE as u64] {
            let (reason, next) = failure(backend, modules, kind, Faults { astray, ..Faults::default() });
            assert!(reason.starts_with("read back:") && next.contains("ACS"), "{backend}: {reason}; {next}");
        }
        let (reason, _) = failure(backend, modules, kind, Faults { reads_nothing: true, ..Faults::default() });
        assert!(reason.contains("the device reads other bytes"), "{backend}: {reason}");
    }
    for (backend, modules, kind) in WORKING.into_iter().take(2) {
        let (reason, _) = failure(backend, modules, kind, Faults { wrong_view: true, ..Faults::default() });
        assert!(reason.contains("the CPU mapping shows"), "{backend}: {reason}");
    }
}

#[test]
fn addresses_with_gaps_are_refused_where_nothing_closes_them() {
    let gap = || Faults { gap: true, ..Faults::default() };
    for (backend, module) in [(MappingBackend::Libnvm, LIBNVM), (MappingBackend::DmabufImport, IMPORT)] {
        let (reason, next) = failure(backend, &[module], None, gap());
        assert!(reason.contains("not consecutive") && next.contains("2 MiB"), "{backend}: {reason}; {next}");
    }
    let (reason, _) =
        failure(MappingBackend::DmabufImport, &[IMPORT], None, Faults { short: true, ..Faults::default() });
    assert!(reason.contains("65536 of 131072 bytes were mapped"), "{reason}");
}

#[test]
fn a_device_that_may_still_write_keeps_its_mapping_for_ever() {
    let machine = Machine::new(&[GDRDRV], Faults { hangs: true, ..Faults::default() });
    let (backends, device) = backends(&machine, Some(IommuKind::Type1), BackendChoice::Auto);
    let scratch = gpu_memory(SCRATCH_BYTES);
    assert!(backends.choose(&scratch, &device).is_err());
    let (left, weak) = (machine.left(), scratch.downgrade());
    drop(scratch);
    assert!(left.iter().any(|l| l.contains("IOMMU pages")) && weak.upgrade().is_some(), "{left:?}");
}

#[test]
fn memory_that_shares_its_gpu_pages_is_refused() {
    let machine = Machine::new(&[GDRDRV], Faults::default());
    let (backends, device) = backends(&machine, Some(IommuKind::Type1), BackendChoice::Auto);
    backends.choose(&gpu_memory(SCRATCH_BYTES), &device).unwrap();
    let small = gpu_memory(4096);
    assert!(backends.map(&small, &device).unwrap_err().to_string().contains("not whole GPU pages"));
    assert_eq!(machine.left(), Vec::<String>::new());
}

#[test]
fn a_survey_goes_as_far_as_there_is_anything() {
    let machine = Machine::new(&[GDRDRV, "/dev/iommu"], Faults::default());
    let scratch = gpu_memory(SCRATCH_BYTES);
    let seen = survey(&machine.sys(), &machine, Some(&scratch));
    let outcome = |backend: MappingBackend| seen.iter().find(|a| a.backend == backend).unwrap().outcome;
    assert_eq!(seen.len(), MappingBackend::ALL.len());
    for backend in [MappingBackend::Gdrdrv, MappingBackend::DmaBufMmap, MappingBackend::Iommufd, MappingBackend::Host] {
        assert_eq!(outcome(backend), Outcome::Ready, "{backend}");
    }
    for backend in [MappingBackend::Libnvm, MappingBackend::DmabufImport, MappingBackend::IommuMapPa] {
        assert_eq!(outcome(backend), Outcome::PassedOver, "{backend}");
    }
    assert_eq!(machine.left(), Vec::<String>::new());
    let bare = survey(&machine.sys(), &machine, None);
    assert!(bare.iter().take(6).all(|a| a.outcome == Outcome::PassedOver));
    assert_eq!(bare[0].reason, "there is no GPU");
    assert!(bare[3].reason.contains("No such file"), "{}", bare[3]);
}

#[test]
fn this_machine_is_surveyed_without_harm() {
    let sys: Arc<dyn Syscalls> = Arc::new(Linux);
    let seen = survey(&sys, &DriverDmaBuf, None);
    assert!(seen.iter().all(|a| a.outcome != Outcome::Taken && !a.reason.is_empty()), "{seen:?}");
}

#[test]
fn the_cpu_reads_and_writes_gpu_memory_through_gdrdrv() {
    let machine = Machine::new(&[GDRDRV], Faults::default());
    let sys: Arc<dyn Syscalls> = Arc::new(machine.clone());
    let region = gpu_memory(GPU_PAGE);
    let bytes: Vec<u8> = (0..GPU_PAGE).map(|i| (i * 7 + i / 256) as u8).collect();
    region.write(0, &bytes).unwrap();
    let view = CpuView::with(&sys, &region).unwrap();
    for (at, n) in [(0, GPU_PAGE), (16, 100), (8, 24), (3, 50), (GPU_PAGE - 1, 1), (GPU_PAGE, 0)] {
        let mut seen = vec![0; n];
        view.read(at, &mut seen).unwrap();
        assert_eq!(seen, bytes[at..at + n], "{n} bytes at {at}");
        let other: Vec<u8> = seen.iter().map(|b| !b).collect();
        view.write(at, &other).unwrap();
        assert_eq!(region.get_slice::<u8>(at, n).unwrap(), other);
        region.write(at, &bytes[at..at + n]).unwrap();
    }
    for (at, n) in [(GPU_PAGE, 1), (1, GPU_PAGE), (usize::MAX, 2)] {
        let expected = |e| matches!(e, Err(MemoryError::OutOfBounds { .. }));
        assert!(expected(view.read(at, &mut vec![0; n])) && expected(view.write(at, &vec![0; n])), "{n} at {at}");
    }
    assert!(!machine.left().is_empty());
    drop((view, region));
    assert_eq!(machine.left(), Vec::<String>::new());
}

#[test]
fn a_view_that_gdrdrv_does_not_give_is_refused_by_name() {
    let refused = |files: &[&'static str], faults: Faults| {
        let machine = Machine::new(files, faults);
        let sys: Arc<dyn Syscalls> = Arc::new(machine.clone());
        let text = CpuView::with(&sys, &gpu_memory(GPU_PAGE)).unwrap_err().to_string();
        assert_eq!(machine.left(), Vec::<String>::new());
        text
    };
    let absent = refused(&[], Faults::default());
    assert!(absent.contains("gdrdrv does not work: /dev/gdrdrv: No such file"), "{absent}");
    assert!(absent.contains("modprobe gdrdrv"), "{absent}");
    let pin = HashMap::from([(gdrdrv::PIN_BUFFER, libc::ENOMEM)]);
    let pinned = refused(&[GDRDRV], Faults { request: pin, ..Faults::default() });
    assert!(pinned.contains("GDRDRV_IOC_PIN_BUFFER"), "{pinned}");
    let wrong = refused(&[GDRDRV], Faults { wrong_view: true, ..Faults::default() });
    assert!(wrong.contains("the CPU mapping shows"), "{wrong}");
}
