"""Programs of packages that the guest runs and this machine need not have: network set-up, libibverbs with its providers, perftest,
nvme-cli."""

import re

from initramfs import loaded_from, needed_libraries
from packages import RigError, candidates, fetched_together, run, unpacked

# Where the programs come from, and with `ibv_devinfo` libibverbs.so.1, which warpbell loads by its name. What they need of other packages is looked for as far down as it takes.
PACKAGES = ["iproute2", "ibverbs-providers", "ibverbs-utils", "perftest"]
PROGRAMS = (
    "ip rdma tc ibv_devinfo ibv_rc_pingpong "
    "ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat ib_atomic_bw ib_atomic_lat"
).split()
# For drives of other machines only.
NVME_PACKAGE, NVME_PROGRAM = "nvme-cli", "nvme"
# Of the providers' drivers only those whose devices a kernel can make by itself.
PROVIDERS = ["rxe", "siw"]
LEVELS = 4


class Tools:
    """Files for the guest (`{path there: path here}`), and where their libraries are."""

    def __init__(self, files, folders):
        self.files = files
        self.folders = folders


def tools(cache, nvme):
    """Programs and providers, with the packages that hold their libraries unpacked beside them. `nvme` adds nvme-cli."""
    packages = _unpacked(cache, PACKAGES + [NVME_PACKAGE] * nvme)
    files = {}
    for program in PROGRAMS + [NVME_PROGRAM] * nvme:
        found = [f for tree in packages.values() for place in ("usr/bin", "usr/sbin", "bin", "sbin") if (f := tree / place / program).exists()]
        if not found:
            raise RigError(f"none of {', '.join(packages)} holds `{program}`")
        files[f"usr/bin/{program}"] = found[0].resolve()
    tree = packages["ibverbs-providers"]
    for provider in PROVIDERS:
        drivers = list(tree.glob(f"usr/lib/*/libibverbs/lib{provider}-rdmav*.so"))
        if len(drivers) != 1:
            raise RigError(f"package ibverbs-providers holds {len(drivers)} drivers `{provider}`")
        files[str(drivers[0].relative_to(tree))] = drivers[0]
        files[f"etc/libibverbs.d/{provider}.driver"] = tree / f"etc/libibverbs.d/{provider}.driver"
    level, known = list(packages), set(packages)
    for _ in range(LEVELS):
        folders = [f for tree in packages.values() for f in loaded_from(tree)]
        lacking = sorted({name for path in files.values() for name in _lacking(path, folders)})
        if not lacking:
            return Tools(files, folders)
        level = [name for name in _libraries_of(level) if name not in known and not known.add(name)]
        packages |= _unpacked(cache, level)
    raise RigError(f"none of {', '.join(packages)} holds {', '.join(lacking)}")


def _unpacked(cache, packages):
    """`{package: folder of its content}`."""
    versions = candidates(packages) if packages else {}
    fetched_together(cache, versions)
    return {name: unpacked(cache, name, version) for name, version in versions.items()}


def _lacking(path, folders):
    """Libraries that nothing here provides."""
    return needed_libraries(path, folders, missing_too=True)[1]


def _libraries_of(packages):
    """Packages of libraries that these depend on. The C library is this machine's, as for all other programs."""
    shown = run(["apt-cache", "depends", "--no-recommends", "--no-suggests", *packages])
    names = re.findall(r"^\s+(?:Pre)?Depends: (lib[^\s<>]+)", shown, re.MULTILINE)
    return [name for name in names if name != "libc6"]
