//! Tests of the checks of RDMA devices and their remedies.

use super::*;
use crate::rdma::fixture::{Link, Nic};
use Area::Nic as NIC;
use rdma_machines::*;

#[test]
fn a_big_server_lacks_nothing_but_a_switch_without_redirection() {
    let r = look(&big_server());
    assert!(r.checks.iter().all(|c| c.status != Fail), "{:#?}", r.checks);
    for i in 0..8 {
        let (device, port) = (format!("mlx5_{i}"), format!("mlx5_{i}:1"));
        expect(
            &r,
            (NIC, &device, "driver"),
            Fine,
            "mlx5_core, firmware 28.39.1002 (MT_0000000838), node GUID 0c42",
            None,
        );
        expect(&r, (NIC, &device, "rights"), Fine, &format!("/dev/infiniband/uverbs{i} can be opened"), None);
        expect(&r, (NIC, &device, "devx"), Fine, "libmlx5 are present; firmware commands", None);
        expect(&r, (NIC, &device, "link"), Fine, "Gen5 x16", None);
        expect(&r, (NIC, &device, "iommu"), Fine, "does not translate", None);
        expect(&r, (NIC, &port, "port"), Fine, "active, link up, InfiniBand, 400 Gb/s (4X NDR), LID 17", None);
        expect(&r, (NIC, &port, "gid"), Fine, "index 0, fe80::e42:a1ff:feb2:c3d4: the port's own", None);
        let pair = format!("gpu {i} mlx5_{i}");
        expect(&r, (Pci, &pair, "distance"), Fine, "PIX", None);
        match i {
            5 => expect(
                &r,
                (Pci, &pair, "acs"),
                Warn,
                "redirects at 0000:62:00.0 0000:62:01.0: peer traffic goes up to the root complex and back",
                Some("pci=disable_acs_redir=0000:62:00.0;0000:62:01.0 on the kernel command line"),
            ),
            _ => expect(&r, (Pci, &pair, "acs"), Fine, "off at every port", None),
        }
        let others = (0..8).filter(|o| *o != i).map(|o| o.to_string()).collect::<Vec<_>>().join(" ");
        let reach = format!("gpu {others}: loads, stores, atomics over NVLink");
        expect(&r, (GPU, &i.to_string(), "peers"), Fine, &reach, None);
    }
    // InfiniBand has no traffic class, and its path MTU is in no file.
    assert!(r.checks.iter().all(|c| !["traffic class", "mtu", "ecn", "pfc"].contains(&c.name)));
    expect(
        &r,
        (Host, "", "modules"),
        Fine,
        "loaded: ib_core ib_uverbs mlx5_ib nvidia_peermem; not loaded: gdrdrv",
        None,
    );
    expect(&r, (Host, "", "verbs library"), Fine, "rdma-core 50.0: /usr/lib/x86_64-linux-gnu/libibverbs.so.1", None);
    expect(&r, (Host, "", "peermem"), Fine, "dma-buf, for data and queues (Linux 6.8)", None);
    expect(&r, (Host, "", "files"), Fine, "1048576 files", None);
    expect(&r, (Host, "", "memlock"), Fine, "without limit", None);
    assert_eq!((r.network.peer_gpus, r.network.peer_pairs.reach), (8, 28));
    assert_eq!((r.network.mlx5_ports, r.network.verbs_ports), (8, 8));
    let line = r.to_string().lines().find(|l| l.starts_with("network path")).unwrap().to_owned();
    let expected = "peer 8 GPUs that reach each other, shared memory ok; this machine has mlx5 8 ports, verbs 8 ports";
    assert_eq!(line, format!("network path   {expected}"));
}

#[test]
fn the_matrix_has_gpus_drives_and_rdma_devices() {
    let text = look(&big_server()).to_string();
    let rows: Vec<_> = text.lines().skip_while(|l| *l != "pci").skip(1).take(34).map(|l| l.trim_end()).collect();
    // All columns would take 142 characters.
    let (one, other) = rows.split_at(17);
    assert!(rows.iter().all(|row| row.len() <= 80), "{rows:#?}");
    assert_eq!(one[0], format!("          0000:15:00.0{}", columns("mlx5_", 0..7)));
    assert_eq!(other[0], format!("          mlx5_7{}", columns("gpu ", 0..8)));
    // Below the same switch, behind another host bridge of the socket, on the other socket.
    assert_eq!(one[1], "  gpu 0   PIX           PIX     NODE    NODE    NODE    SYS     SYS     SYS");
    assert_eq!(other[1], "  gpu 0   SYS     X      NODE   NODE   NODE   SYS    SYS    SYS    SYS");
    assert_eq!(one[9], "  mlx5_0  PIX           X       NODE    NODE    NODE    SYS     SYS     SYS");
    assert_eq!(other[9], "  mlx5_0  SYS     PIX    NODE   NODE   NODE   SYS    SYS    SYS    SYS");
    assert!(one[16].starts_with("  mlx5_7  SYS ") && other[16].starts_with("  mlx5_7  X "), "{rows:#?}");
}

fn columns(name: &str, numbers: std::ops::Range<usize>) -> String {
    numbers.map(|i| format!("  {name}{i}")).collect()
}

#[test]
fn a_container_is_told_which_nodes_and_limits_it_lacks() {
    let r = look(&big_container());
    let fix = "start the container with --device /dev/infiniband/uverbs3 --cap-add IPC_LOCK --ulimit memlock=-1";
    expect(&r, (NIC, "mlx5_3", "rights"), Fail, "this container has no /dev/infiniband/uverbs3", Some(fix));
    expect(&r, (NIC, "mlx5_3", "devx"), Skip, "the device node, which cannot be opened", None);
    expect(
        &r,
        (Host, "", "container"),
        Warn,
        "/dev/infiniband/uverbs0, /dev/infiniband/uverbs1",
        Some("--device /dev/infiniband/uverbs7"),
    );
    expect(&r, (Host, "", "memlock"), Fail, "RDMA locks all registered memory", Some("--ulimit memlock=-1"));
    expect(&r, (Host, "", "files"), Warn, "1024 files", Some("--ulimit nofile=16384"));
    expect(&r, (Host, "", "verbs library"), Warn, "no libibverbs.so.1", Some("apt install libibverbs1"));
    assert_eq!((r.network.mlx5_ports, r.network.verbs_ports), (0, 0));
    assert!(r.network.why[0].contains("nic mlx5_0 rights: this container has no"), "{:?}", r.network.why);
}

#[test]
fn a_roce_server_is_told_what_its_ports_lack() {
    let r = look(&roce_server());
    let gid = "index 3, ::ffff:192.168.0.2 of ens1f0np0: RoCE v2, IPv4-mapped";
    expect(&r, (NIC, "mlx5_0:1", "gid"), Fine, gid, None);
    expect(
        &r,
        (NIC, "mlx5_0:1", "mtu"),
        Warn,
        "ens1f0np0 has 1500: path MTU 1024, of 4096",
        Some("ip link set ens1f0np0 mtu 9000"),
    );
    expect(
        &r,
        (NIC, "mlx5_0:1", "traffic class"),
        Warn,
        "0 (DSCP 0) is forced: priority 0",
        Some("echo 106 > /sys/class/infiniband/mlx5_0/tc/1/traffic_class"),
    );
    expect(&r, (NIC, "mlx5_0:1", "pfc"), Skip, "unknown: the driver does not report", None);
    expect(
        &r,
        (NIC, "mlx5_0:1", "ecn"),
        Warn,
        "notifies in all priorities, slows down in no priority, not both in priority 3",
        Some("/sys/class/net/ens1f0np0/ecn/$s/enable/3"),
    );
    expect(&r, (NIC, "mlx5_1:1", "port"), Warn, "down, disabled, Ethernet", Some("ip link set ens1f1np1 up"));
    assert!(
        r.checks.iter().all(|c| c.subject != "mlx5_1:1" || c.name == "port"),
        "a port that is down is not examined"
    );
    expect(&r, (NIC, "mlx5_1", "rights"), Fail, "may not open /dev/infiniband/uverbs1", Some("chmod 666"));
    expect(&r, (NIC, "mlx5_0", "iommu"), Fine, "no GPU is below the same switch", None);
    expect(&r, (Pci, "gpu 0 mlx5_0", "distance"), Warn, "SYS", Some("below the GPU's switch"));
    expect(
        &r,
        (Host, "", "peermem"),
        Warn,
        "no dma-buf, and nvidia_peermem is not loaded",
        Some("modprobe nvidia_peermem"),
    );
    expect(&r, (Host, "", "verbs library"), Warn, "rdma-core 39.0", Some("44 or later"));
    expect(&r, (Host, "", "files"), Warn, "1024 files", Some("ulimit -n 16384"));
    assert_eq!((r.network.mlx5_ports, r.network.verbs_ports), (1, 1));
}

#[test]
fn software_and_other_makers_devices_are_verbs_alone() {
    let r = look(&soft_roce());
    expect(&r, (NIC, "rxe0", "driver"), Fine, "software RDMA on wlp2s0", None);
    expect(&r, (NIC, "rxe0:1", "gid"), Fine, "index 1, ::ffff:10.0.0.7 of wlp2s0: RoCE v2, IPv4-mapped", None);
    expect(&r, (NIC, "rxe0:1", "mtu"), Fine, "1500: path MTU 1024", None);
    expect(&r, (Host, "", "memlock"), Warn, "`unlimited` is usual", Some("/etc/security/limits.d"));
    assert_eq!((r.network.mlx5_ports, r.network.verbs_ports), (0, 1));
    assert!(r.checks.iter().all(|c| !["devx", "traffic class", "ecn", "peermem"].contains(&c.name)));

    let r = look(&cloud());
    expect(&r, (NIC, "efa_0", "driver"), Fine, "efa, firmware 0.0.0.0", None);
    expect(&r, (NIC, "efa_0", "driver"), Fine, "not mlx5", None);
    expect(&r, (NIC, "efa_0", "link"), Skip, "unknown", None);
    expect(&r, (NIC, "efa_0:1", "port"), Fine, "active, link up, no known link layer, 100 Gb/s", None);
    expect(&r, (NIC, "efa_0:1", "gid"), Fine, "index 0", None);
    expect(&r, (Pci, "gpu 0 efa_0", "distance"), Warn, "the host's tree may differ", Some("nvidia-smi topo -m"));
    assert_eq!((r.network.peer_gpus, r.network.mlx5_ports, r.network.verbs_ports), (1, 0, 1));
}

#[test]
fn no_device_is_no_failure() {
    let r = look(&laptop());
    expect(&r, (NIC, "", "driver"), Skip, "no RDMA device", None);
    assert_eq!((r.network.mlx5_ports, r.network.verbs_ports, r.network.shared_memory), (0, 0, true));
    assert!(r.network.why.is_empty(), "{:?}", r.network.why);
    let line = "peer 0 GPUs, shared memory ok; this machine has mlx5 none, verbs none";
    assert!(r.to_string().contains(&format!("network path   {line}")));
}

#[test]
fn a_card_without_an_rdma_device_is_named() {
    let card = |driver| Device { id: (0x15b3, 0x1021), class: 0x02_00_00, driver, ..Device::default() };
    let with = |driver| {
        let (tree, facts) = laptop();
        tree.pci("pci0000:00/0000:00:1c.0/0000:3b:00.0", &card(driver));
        look(&(tree, facts))
    };
    let subject = (NIC, "0000:3b:00.0", "driver");
    expect(
        &with(Some("mlx5_core")),
        subject,
        Warn,
        "ConnectX-7, held by mlx5_core, without an RDMA device",
        Some("modprobe mlx5_ib"),
    );
    expect(&with(Some("vfio-pci")), subject, Skip, "held by vfio-pci, for a virtual machine", None);
    expect(&with(None), subject, Warn, "no driver holds it", Some("modprobe mlx5_core mlx5_ib"));
    assert!(with(None).to_string().contains("\nnic 0000:3b:00.0\n"));
    let shape = big_container();
    std::fs::remove_dir_all(shape.0.root().join("sys/class/infiniband")).unwrap();
    expect(&look(&shape), (NIC, "0000:14:00.0", "driver"), Warn, "this container sees", Some("--network host"));
}

/// Examines a machine with one RoCE card whose port has `link` and `class`.
fn one_port(link: Link, class: Option<&'static str>) -> Report {
    let (tree, facts) = laptop();
    let mut nic = Nic::connectx6dx("mlx5_0").place("pci0000:00/0000:00:1c.0/0000:3b:00.0").link(link);
    if let Some(class) = class {
        nic = nic.traffic_class(class);
    }
    nic.build(&tree);
    look(&(tree, facts))
}

#[test]
fn identifiers_that_reach_only_neighbours_are_said() {
    let roce = || Link::roce("ens1", "10.0.0.1");
    let add = Some("ip addr add ADDRESS/PREFIX dev ens1");
    let gid = (NIC, "mlx5_0:1", "gid");
    expect(
        &one_port(roce().gids(2), None),
        gid,
        Warn,
        "RoCE v2, link-local IPv6: it reaches only peers on the same link",
        add,
    );
    expect(&one_port(roce().gids(1), None), gid, Warn, "index 0, fe80::e42:a1ff:feb2:c3d4 of ens1: RoCE v1", add);
    expect(&one_port(roce().gids(0), None), gid, Fail, "no valid entry", add);
    let (tree, facts) = laptop();
    tree.file("/.dockerenv", "");
    Nic::connectx6dx("mlx5_0").place("pci0000:00/0000:3b:00.0").link(roce().gids(0)).build(&tree);
    expect(&look(&(tree, facts)), gid, Fail, "no valid entry", Some("--network host"));
}

#[test]
fn classes_are_judged_by_what_the_driver_shows() {
    let class = |text| one_port(Link::roce("ens1", "10.0.0.1"), text);
    let name = (NIC, "mlx5_0:1", "traffic class");
    expect(
        &class(None),
        name,
        Skip,
        "unknown: this driver has no /sys/class/infiniband/mlx5_0/tc/1/traffic_class",
        None,
    );
    expect(&class(Some("")), name, Warn, "none is forced", Some("echo 106 >"));
    expect(&class(Some("nonsense")), name, Skip, "unknown", None);
    expect(&class(Some("Global tclass=160\n")), name, Fine, "160 (DSCP 40) is forced: priority 5", None);
}

#[test]
fn a_port_in_another_class_than_the_rest_is_found() {
    let (tree, facts) = laptop();
    let classes = [("mlx5_0", "106"), ("mlx5_1", "106"), ("mlx5_2", "96")];
    for (i, (name, class)) in classes.into_iter().enumerate() {
        let nic = Nic::connectx6dx(name).place(&format!("pci0000:00/0000:{:02x}:00.0", 0x3b + i));
        let text: &'static str = if class == "106" { "Global tclass=106\n" } else { "Global tclass=96\n" };
        nic.link(Link::roce(["ens0", "ens1", "ens2"][i], "10.0.0.1"))
            .traffic_class(text)
            .node(i as u32, Some(0o666))
            .build(&tree);
    }
    let r = look(&(tree, facts));
    expect(&r, (NIC, "mlx5_0:1", "traffic class"), Fine, "106 (DSCP 26)", None);
    let detail = "96 (DSCP 24) is forced, and 106 (DSCP 26) on mlx5_0:1";
    expect(&r, (NIC, "mlx5_2:1", "traffic class"), Warn, detail, Some("echo 106 > /sys/class/infiniband/mlx5_2/tc"));
}

#[test]
fn ports_that_wait_say_what_for() {
    let port = |link| one_port(link, None);
    let name = (NIC, "mlx5_0:1", "port");
    let init = Link::infiniband().state("2: INIT", "5: LinkUp");
    expect(&port(init), name, Warn, "initializing, link up, InfiniBand: no subnet manager", Some("opensm"));
    let polling = Link::infiniband().state("1: DOWN", "2: Polling");
    expect(&port(polling), name, Warn, "down, polling, InfiniBand: no cable", Some("connect a cable"));
    expect(&port(Link::infiniband().state("nonsense", "")), name, Skip, "unknown", None);
}

#[test]
fn two_ports_of_one_device_are_numbered_in_the_text() {
    let (tree, facts) = laptop();
    let nic = Nic::connectx6dx("mlx5_0").place("pci0000:00/0000:3b:00.0");
    nic.link(Link::roce("ens1", "10.0.0.1")).link(Link::down("ens2")).build(&tree);
    let text = look(&(tree, facts)).to_string();
    assert!(text.contains("port 1: active") && text.contains("port 2: down, disabled"), "{text}");
    assert!(text.contains("ip link set ens2 up"), "{text}");
}

#[test]
fn gpus_that_do_not_reach_each_other_are_said() {
    let (tree, mut facts) = server();
    let apart = |gpu, peer| super::super::GpuPeer {
        gpu,
        peer,
        access: Some(Err("the chipset does not support it".into())),
        atomics: Some(false),
        nvlink: Some(false),
        cuda: Some(false),
    };
    facts.peers = vec![apart(0, 1), apart(1, 0)];
    let r = look(&(tree, facts));
    expect(&r, (GPU, "0", "peers"), Warn, "gpu 1: out of reach: the chipset does not support it", None);
    assert_eq!((r.network.peer_pairs.apart, r.network.peer_pairs.reach), (1, 0));
    assert!(r.to_string().contains("peer 2 GPUs that do not reach each other"));
    // A fact that nothing reports stays unknown.
    let r = look(&server());
    expect(&r, (GPU, "0", "peers"), Skip, "unknown", None);
    assert_eq!(r.network.peer_pairs.unknown, 1);
}

#[test]
fn gpu_memory_has_several_ways_to_a_device() {
    let (tree, facts) = roce_server();
    modules(&tree, &["nvidia_peermem"]);
    let peermem = (Host, "", "peermem");
    expect(&look(&(tree, facts)), peermem, Fine, "nvidia_peermem is loaded", None);
    let (tree, mut facts) = roce_server();
    facts.gpus.as_mut().unwrap()[0].dma_buf = Some(true);
    let need = "queues in GPU memory need Linux 6.1, this is Linux 5.15";
    expect(&look(&(tree, facts)), peermem, Warn, need, Some("modprobe nvidia_peermem"));
    let (tree, mut facts) = roce_server();
    facts.gpus.as_mut().unwrap()[0].gpu_direct_rdma = Some(false);
    expect(&look(&(tree, facts)), peermem, Warn, "no GPU gives other devices access", None);
    let (tree, _) = roce_server();
    expect(&look(&(tree, GpuFacts::none("no CUDA driver"))), peermem, Skip, "unknown", None);
}

#[test]
fn modules_are_read_from_either_list() {
    let (tree, facts) = soft_roce();
    std::fs::remove_dir_all(tree.root().join("sys/module")).unwrap();
    tree.file("/proc/modules", "ib_uverbs 200704 1 rdma_rxe, Live 0x0\nib_core 1 0 - Live 0x0\n");
    let r = look(&(tree, facts));
    expect(&r, (Host, "", "modules"), Fine, "loaded: ib_core ib_uverbs; not loaded: mlx5_ib", None);
    std::fs::remove_file(soft_roce().0.root().join("proc/modules")).unwrap_err();
}

#[test]
fn translation_below_a_switch_costs_a_detour() {
    let (tree, facts) = big_server();
    tree.group_type(5, "DMA-FQ");
    let r = look(&(tree, facts));
    let detour = "transfers of gpu 0's memory go up to the root complex";
    expect(&r, (NIC, "mlx5_0", "iommu"), Warn, detour, Some("iommu=pt in GRUB_CMDLINE_LINUX"));
}

/// Returns the checks of one RoCE port whose interface reports these lossless priorities and this map from DSCP.
fn bridged(class: &'static str, lossless: u8, by_dscp: &[(u8, u8)]) -> Vec<Check> {
    let (tree, _) = laptop();
    let nic = Nic::connectx6dx("mlx5_0").place("pci0000:00/0000:3b:00.0").link(Link::roce("ens1", "10.0.0.1"));
    nic.traffic_class(class).ecn(0xff, 0xff).build(&tree);
    let sysfs = Sysfs::at(tree.root());
    let mut nics = crate::rdma::RdmaDevice::all(&sysfs);
    let lossless = crate::rdma::Priorities(lossless);
    nics[0].ports[0].bridging = Some(crate::rdma::Bridging { lossless, by_dscp: by_dscp.to_vec() });
    let mut checks = Vec::new();
    super::super::nic::check(&sysfs, &super::super::Machine::read(&sysfs), &nics, None, &[], &mut checks);
    checks
}

#[test]
fn a_class_that_no_lossless_priority_takes_is_found() {
    let of = |checks: &[Check], name: &str| checks.iter().find(|c| c.name == name).unwrap().clone();
    // Priority 5 is lossless and receives only DSCP 59.
    let map = [(59, 5), (42, 0), (26, 3)];
    let wrong = bridged("Global tclass=106\n", 1 << 5, &map);
    let class = of(&wrong, "traffic class");
    assert_eq!(class.status, Warn, "{class:?}");
    assert_eq!(class.detail, "106 (DSCP 26) is forced: priority 3, which is not lossless here; priority 5 is");
    assert!(class.fix.as_ref().unwrap().to_string().starts_with("echo 238 > "), "{class:?}");
    assert_eq!(of(&wrong, "pfc").detail, "priority 5 is lossless");
    let right = of(&bridged("Global tclass=236\n", 1 << 5, &map), "traffic class");
    assert_eq!((right.status, right.detail.as_str()), (Fine, "236 (DSCP 59) is forced: priority 5"));

    let lossy = bridged("Global tclass=106\n", 0, &[]);
    assert_eq!((of(&lossy, "pfc").status, of(&lossy, "traffic class").status), (Warn, Fine));
    assert!(of(&lossy, "pfc").fix.unwrap().to_string().contains("--pfc 0,0,0,1,0,0,0,0"));
    // An administrator may have made the lowest priority lossless.
    assert_eq!(of(&bridged("Global tclass=0\n", 1, &[]), "traffic class").status, Fine);
    // The remedy names a class of a lossless priority.
    let fix = of(&bridged("", 1 << 4, &[]), "traffic class").fix.unwrap().to_string();
    assert!(fix.starts_with("echo 138 > "), "{fix}");
}

/// Returns the requirements of RDMA on a machine: for each whether it is possible, or the reason.
fn required(shape: &(Fixture, GpuFacts)) -> [Option<String>; 3] {
    let r = examine(&Sysfs::at(shape.0.root()), &shape.1, &[Require::Rdma, Require::Mlx5, Require::Verbs]);
    let because = |i: usize| r.requirements[i].because.as_ref().map(ToString::to_string);
    [because(0), because(1), because(2)]
}

#[test]
fn rdma_can_be_required() {
    assert_eq!(required(&big_server()), [None, None, None]);
    let [rdma, mlx5, verbs] = required(&laptop()).map(Option::unwrap);
    assert!(rdma.contains("no InfiniBand or RoCE device") && verbs == rdma, "{rdma}");
    assert!(mlx5.contains("no mlx5 device"), "{mlx5}");
    // Devices that this process may not open, and a library that is missing.
    let [rdma, mlx5, _] = required(&big_container()).map(Option::unwrap);
    assert!(rdma.contains("host verbs library: the loader finds no libibverbs.so.1; apt install"), "{rdma}");
    assert!(mlx5.contains("libibverbs"), "{mlx5}");
    let (tree, facts) = big_server();
    std::fs::remove_dir_all(tree.root().join("dev/infiniband")).unwrap();
    let [rdma, ..] = required(&(tree, facts)).map(Option::unwrap);
    assert!(rdma.starts_with("nic mlx5_0 rights: "), "{rdma}");
}

#[test]
fn software_rdma_is_verbs_and_no_mlx5() {
    let [rdma, mlx5, verbs] = required(&soft_roce());
    assert_eq!((rdma, verbs), (None, None));
    assert!(mlx5.unwrap().contains("no mlx5 device"));
}
