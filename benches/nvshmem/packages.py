"""Brings NVSHMEM and NCCL from their wheels into a folder, and compiles a program with each version."""

import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile
import zipfile

import fatbin
from child import Failure, succeed

HERE = pathlib.Path(__file__).resolve().parent
#: Time limits in seconds: of a download, and of a program's compilation.
DOWNLOAD_LIMIT, COMPILE_LIMIT = 1800, 900


class Package:
    """A library of NVIDIA that has a wheel."""

    def __init__(self, name, libraries, link, source):
        self.name = name
        #: Files of `lib` that a program needs, without their versions.
        self.libraries = libraries
        #: Options of the linker.
        self.link = link
        #: Program that is compiled with it.
        self.source = source

    def folder(self, root, version):
        return root / f"{self.name}-{version}"

    def versions(self, root):
        """Returns the versions of which `root` has headers and libraries, in ascending order."""
        found = [path.name[len(self.name) + 1 :] for path in root.glob(f"{self.name}-*") if (path / "include").is_dir()]
        return sorted(found, key=order)

    def program(self, root, version):
        return root / "bin" / f"{self.name}-{version}"


NVSHMEM = Package(
    "nvshmem",
    ("libnvshmem_host.so", "libnvshmem_device.a", "nvshmem_bootstrap_uid.so"),
    ("-lnvshmem_host", "-lnvshmem_device"),
    "nvshmem.cu",
)
NCCL = Package("nccl", ("libnccl.so",), ("-lnccl",), "nccl.cu")
PACKAGES = (NVSHMEM, NCCL)


def order(version):
    return [int(part) if part.isdigit() else 0 for part in version.split(".")]


def fetch(root, wanted, cuda, wheels, generation):
    """Brings headers and libraries of `wanted`, a list of packages and versions, to `root`."""
    for package, version in wanted:
        with tempfile.TemporaryDirectory() as folder:
            name = f"nvidia-{package.name}-cu{cuda}=={version}"
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder, name]
            if wheels:
                command += ["--no-index", "--find-links", wheels]
            succeed(command, DOWNLOAD_LIMIT, f"the download of {name}")
            (wheel,) = pathlib.Path(folder).glob("*.whl")
            unpack(package, wheel, package.folder(root, version), generation)


def unpack(package, wheel, to, generation):
    """Unpacks what programs need from a wheel, and makes the names that linker and loader look for."""
    if to.exists():
        shutil.rmtree(to)
    whole = kept = 0
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            folder, name = wanted(package, info.filename)
            if not name:
                continue
            path = to / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = bytearray(archive.read(info))
            whole += len(data)
            if generation and folder == "lib":
                kept -= fatbin.keep_generation(data, generation)
            path.write_bytes(data)
            plain = name[: name.index(".so") + 3] if ".so" in name else name
            if plain != name:
                (to / "lib" / plain).symlink_to(name)
    missing = [name for name in package.libraries if not (to / "lib" / name).exists()]
    if missing:
        raise Failure(f"{wheel.name} has no {', '.join(missing)}: choose another version")
    zeroed = f", {(whole + kept) / 1e6:.1f} MB without the code of other generations than sm_{generation}" if generation else ""
    print(f"{to}: {whole / 1e6:.1f} MB{zeroed}")


def wanted(package, member):
    """Returns folder and path of a wheel's member in the package's folder, or two empty strings for what no program needs."""
    prefix = f"nvidia/{package.name}/"
    if member.endswith("/") or not member.startswith(prefix):
        return ("licenses", member.rsplit("/", 1)[1]) if "/licenses/" in member and not member.endswith("/") else ("", "")
    folder, _, name = member[len(prefix) :].partition("/")
    if folder == "include":
        return folder, name
    return (folder, name) if folder == "lib" and name.startswith(package.libraries) else ("", "")


def build(root, nvcc, generation, options):
    """Compiles the program of each version that `root` has, side by side."""
    found = [(package, version) for package in PACKAGES for version in package.versions(root)]
    if not found:
        raise Failure(f"{root} has no folder `nvshmem-VERSION` or `nccl-VERSION`: run `compare.py fetch {root}` first")
    (root / "bin").mkdir(exist_ok=True)

    def compiled(of):
        package, version = of
        folder, out = package.folder(root, version).resolve(), package.program(root, version)
        command = [nvcc, "-std=c++17", "-O3", "-rdc=true", f"-gencode=arch=compute_{generation},code=sm_{generation}"]
        command += ["-I", folder / "include", "-L", folder / "lib", "-o", out, HERE / package.source, *package.link]
        # The program finds its libraries where they are, also when the whole folder moves.
        command += ["-Xlinker", f"-rpath,$ORIGIN/../{folder.name}/lib", *options]
        succeed(command, COMPILE_LIMIT, f"the compilation of {out}")
        return out

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for out in pool.map(compiled, found):
            print(f"{out}: {os.path.getsize(out) / 1e6:.1f} MB")
