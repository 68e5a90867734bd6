//! Tests of remedies in containers: each names what the container's engine takes.

use super::*;

const CONTAINER: (Area, &str, &str) = (Host, "", "container");
/// First GPU of the server as long as CUDA does not show it.
const HIDDEN: (Area, &str, &str) = (GPU, "0000:03:00.0", "driver");

/// Returns the server as a container of the engine that creates `sign` sees it: without a CUDA driver, and with the
/// files of the server's driver.
fn inside(sign: &str) -> (Fixture, GpuFacts) {
    let (tree, _) = server();
    tree.file(sign, "");
    (tree, GpuFacts::none("no CUDA driver: libcuda.so.1 not found"))
}

/// Returns a container of Kubernetes on the server.
fn pod() -> (Fixture, GpuFacts) {
    let (tree, facts) = inside("/etc/hosts");
    tree.file("/proc/self/cgroup", "0::/\n");
    tree.file(
        "/proc/self/mountinfo",
        "602 600 8:1 /var/lib/kubelet/pods/1/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n",
    );
    (tree, facts)
}

fn remove(tree: &Fixture, names: &[&str]) {
    for name in names {
        std::fs::remove_file(tree.root().join(name)).unwrap();
    }
}

#[test]
fn gpus_come_by_the_option_of_the_engine() {
    let docker = "start the container with --gpus all";
    let podman = "start the container with --device nvidia.com/gpu=all";
    let engines = [
        (inside("/.dockerenv"), docker),
        (inside("/run/.containerenv"), podman),
        (pod(), "give the container the resource nvidia.com/gpu"),
    ];
    for (shape, option) in engines {
        expect(&look(&shape), HIDDEN, Fail, "is loaded, but: no CUDA driver", Some(option));
        remove(&shape.0, &["dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0"]);
        let r = look(&shape);
        expect(&r, HIDDEN, Fail, "there is no /dev/nvidiactl", Some(option));
        let missing = "/dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia0 not passed in";
        expect(&r, CONTAINER, Warn, missing, Some(option));
        assert!(!find(&r, Host, "", "container").fix.as_ref().unwrap().to_string().contains("--device /dev/nvidia"));
    }
}

#[test]
fn a_sandbox_that_hides_the_module_still_shows_whose_the_gpu_is() {
    let shape = inside("/.dockerenv");
    remove(&shape.0, &["proc/driver/nvidia/version", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0"]);
    let r = look(&shape);
    expect(&r, HIDDEN, Fail, "there is no /dev/nvidiactl", Some("--gpus all"));
    expect(&r, CONTAINER, Warn, "/dev/nvidiactl", Some("--gpus all"));
}

#[test]
fn a_part_of_the_gpus_is_enough() {
    let (tree, facts) = server();
    tree.file("/.dockerenv", "").node("/dev/nvidia3", 0o666);
    remove(&tree, &["dev/nvidia0"]);
    let shape = (tree, GpuFacts { gpus: facts.gpus.map(|g| g.into_iter().take(1).collect()), ..facts });
    let r = look(&shape);
    expect(&r, CONTAINER, Fine, "docker, no device node is missing", None);
    // The other GPU belongs to another container.
    expect(&r, (GPU, "0000:83:00.0", "driver"), Fail, "does not show it", None);
}

#[test]
fn devices_and_gpus_are_named_with_an_option_each() {
    let shape = inside("/.dockerenv");
    remove(&shape.0, &["dev/vfio/15", "dev/nvidiactl"]);
    let fix = "start the container with --device /dev/vfio/15; start the container with --gpus all";
    expect(&look(&shape), CONTAINER, Warn, "/dev/vfio/15, /dev/nvidiactl not passed in", Some(fix));
    let shape = pod();
    remove(&shape.0, &["dev/vfio/15"]);
    expect(&look(&shape), CONTAINER, Warn, "kubernetes, /dev/vfio/15 not passed in", Some("a device plugin"));
}

#[test]
fn limits_are_raised_where_the_engine_may() {
    let with = |shape: (Fixture, GpuFacts), map: &str| {
        process(&shape.0, shape.0.stranger(), "000001ffffffffff", "65536");
        shape.0.file("/proc/self/uid_map", map);
        look(&shape)
    };
    let memlock = (Host, "", "memlock");
    let all = "0 0 4294967295\n";
    expect(&with(inside("/.dockerenv"), all), memlock, Fine, "CAP_IPC_LOCK", None);
    // A user's engine: its capabilities do not count, and its user's limit is the most that it can give.
    let user = "0 1000 1\n1 100000 65536\n";
    let fix = "on the host: `* - memlock unlimited` in /etc/security/limits.d";
    expect(&with(inside("/run/.containerenv"), user), memlock, Fail, "64 KiB", Some(fix));
    let shape = pod();
    process(&shape.0, shape.0.stranger(), "0", "65536");
    expect(&look(&shape), memlock, Fail, "64 KiB", Some("LimitMEMLOCK of the node's container runtime"));
}

#[test]
fn drives_are_bound_and_given_away_on_the_host() {
    let (tree, facts) = inside("/run/.containerenv");
    tree.node("/dev/vfio/15", 0o600);
    tree.file("/proc/self/uid_map", "0 1000 1\n1 100000 65536\n");
    let shape = (tree, facts);
    let rights = (Nvme, "0000:04:00.0", "rights");
    expect(&look(&shape), rights, Fail, "may not open /dev/vfio/15", Some("--group-add keep-groups"));
    let drive = Device { group: Some(40), driver: None, ..nvme() };
    shape.0.pci("pci0000:00/0000:00:1f.0", &drive).group_type(40, "DMA-FQ");
    expect(&look(&shape), (Nvme, "0000:00:1f.0", "driver"), Warn, "no driver holds it", Some("on the host: find out"));
}
