"""The guest kernels: the distribution's own, and those built from its sources with iommufd, VFIO device files, and VFIO without an
IOMMU."""

import lzma
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from packages import RigError, Suite, candidate, dependency, digest, fetched, first_known, made, need, run, threads, unpacked

HERE = Path(__file__).resolve().parent

# The newest that Debian's default suites have first. The cloud flavour is the same kernel with fewer drivers.
STOCK = ["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64", "linux-image-amd64"]
SOURCE = ["linux-source-6.12", "linux-source"]

# What the tests load in the guest, where it is not built in.
MODULES = ["nvme_core", "nvme", "vfio", "vfio_iommu_type1", "vfio_pci_core", "vfio_pci"]
# The newest with all drivers: the cloud flavour has no Soft-RoCE.
STOCK_FULL = ["linux-image-6.12-amd64", "linux-image-amd64"]
# For drives of other machines: disks in memory to export, with blocks of 512 and 4096 bytes; the kernel's target and initiator over TCP
# and over RDMA; Soft-RoCE, which needs its checksum first.
FABRICS = ["crc32c_generic", "configfs", "brd", "null_blk", "nvme_core", "nvmet", "nvmet_tcp", "nvme_fabrics", "nvme_tcp"]
FABRICS += ["crc32_generic", "ib_uverbs", "rdma_ucm", "rdma_rxe", "nvmet_rdma", "nvme_rdma"]
# Networks to the other machine, which are cut.
FABRICS += ["virtio_pci", "virtio_net", "sch_netem"]


class Kernel:
    """A kernel image and its modules in the order in which they have to be loaded."""

    def __init__(self, image, modules, key):
        self.image = Path(image)
        self.modules = modules
        self.key = key


def stock(cache, wanted=None):
    """The distribution's kernel: VFIO by group and type1, or other modules, which may need all drivers."""
    meta, _ = first_known(STOCK_FULL if wanted else STOCK)
    package = dependency(meta, "linux-image-")
    version = candidate(package)
    folder = unpacked(cache, package, version)
    images = sorted(folder.glob("boot/vmlinuz-*"))
    if len(images) != 1:
        raise RigError(f"package {package} {version} holds {len(images)} kernel images")
    tree = next((t for t in (folder / "lib/modules", folder / "usr/lib/modules") if t.is_dir()), None)
    return Kernel(images[0], in_load_order(tree, wanted or MODULES), digest(package, version, *(wanted or [])))


def source(cache, package, suite):
    """The package with a kernel's sources, its version, and where it comes from: the newest known one, or what was asked for."""
    if package:
        taken = Suite(cache, suite) if suite else None
        version = candidate(package, taken)
        if not version:
            where = f"suite {suite} has no" if suite else "apt knows no"
            raise RigError(f"{where} package {package}; name the suite of Debian that has it (--suite)")
        return package, version, taken
    package, version = first_known(SOURCE)
    if package == "linux-source":
        package = dependency(package, "linux-source-")
        version = candidate(package)
    return package, version, None


def built(cache, log=print, named=None, suite=None):
    """A kernel from the distribution's sources: VFIO by group, by device file, and without an IOMMU. Minutes the first time. One
    that is named also has dma-bufs of device memory."""
    package, version, suite = source(cache, named, suite)
    config = (HERE / "kernel.config").read_text() + (HERE / "kernel-dmabuf.config").read_text() * bool(named)
    key = digest(package, version, config.encode())
    folder = made(cache / f"kernel-{key}", lambda out: build(cache, package, version, suite, config, out, log))
    modules = [folder / "nvme-core.ko", folder / "nvme.ko"]
    return Kernel(folder / "bzImage", modules, key)


def build(cache, package, version, suite, config, out, log):
    """Builds the kernel and the modules of its NVMe driver into `out`."""
    for program, name in (("make", "make"), ("gcc", "gcc"), ("flex", "flex"), ("bison", "bison"), ("bc", "bc"), ("xz", "xz-utils")):
        need(program, name)
    if not Path("/usr/include/libelf.h").exists():
        raise RigError("no libelf.h, which the kernel's build tools need; install it (apt-get install libelf-dev)")
    deb = fetched(cache, package, version, suite)
    started = time.monotonic()
    log(f"building {package} {version}; this takes minutes, once")
    tree = out / "tree"
    tree.mkdir()
    unpack = (
        f"dpkg-deb --fsys-tarfile '{deb}' | tar xO --wildcards './usr/src/linux-source-*.tar.xz' | xz -dc -T0 "
        "| tar x --strip-components=1 --exclude='*/Documentation/*.rst' --exclude='*/drivers/gpu/drm/amd/*.[ch]'"
    )
    run(["bash", "-o", "pipefail", "-c", unpack], cwd=tree)
    (tree / "rig.config").write_text(config)
    run(["make", "-s", "allnoconfig", "KCONFIG_ALLCONFIG=rig.config"], cwd=tree)
    missing = not_taken(config, (tree / ".config").read_text())
    if missing:
        raise RigError(f"{package} {version} does not take these options of kernel*.config: {', '.join(missing)}")
    # The same sources make the same image, whoever builds them.
    environment = dict(os.environ, KBUILD_BUILD_TIMESTAMP="1970-01-01", KBUILD_BUILD_USER="rig", KBUILD_BUILD_HOST="rig")
    run(["make", "-s", f"-j{threads()}", "bzImage", "modules"], cwd=tree, env=environment)
    shutil.copy(tree / "arch/x86/boot/bzImage", out / "bzImage")
    shutil.copy(tree / ".config", out / "config")
    for module in ("nvme-core.ko", "nvme.ko"):
        shutil.copy(tree / "drivers/nvme/host" / module, out / module)
    shutil.rmtree(tree)
    log(f"built in {time.monotonic() - started:.0f} s")


def not_taken(wanted, config):
    """Options that were asked for and that the configuration does not have."""
    lines = set(config.splitlines())
    asked = re.findall(r"^(CONFIG_\w+)=(\S+)$", wanted, re.MULTILINE)
    return [name for name, value in asked if value != "n" and f"{name}={value}" not in lines]


def in_load_order(tree, wanted):
    """The files of these modules and of what they need, each after what it needs. Built-in ones have no file."""
    files = {re.split(r"\.ko", p.name)[0].replace("-", "_"): p for p in tree.rglob("*.ko*")}
    order, seen = [], set()

    def add(name):
        if name in seen or name not in files:
            return
        seen.add(name)
        for needed in depends(content(files[name])):
            add(needed)
        order.append(files[name])

    for name in wanted:
        add(name)
    return order


def content(path):
    """A module as the kernel takes it."""
    path = Path(path)
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run([need("zstd", "zstd"), "-dc", path], stdout=subprocess.PIPE, check=True).stdout
    return path.read_bytes()


def depends(module):
    """The names that a module says it needs (its `.modinfo` section: `depends=a,b`)."""
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    names = found.group(1).decode() if found else ""
    return [n.replace("-", "_") for n in names.split(",") if n]
