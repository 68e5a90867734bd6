"""The guest's root file system as cpio archives: a cached base, and an overlay with the programs under test."""

import gzip
import os
import re
import shutil
import subprocess
from pathlib import Path

from kernels import content
from packages import RigError, busybox, digest, need, run

HERE = Path(__file__).resolve().parent

APPLETS = (
    "sh mount umount ls cat echo sleep insmod rmmod lsmod poweroff ln mkdir grep sed head tail dmesg basename dirname readlink "
    "cut tr wc date kill seq test free dd stty env rm cp mv sort uname true false printf cmp sync find ping timeout chmod nc blockdev"
).split()

# stat(2): kinds of a file.
FOLDER, FILE, LINK, CHARACTER = 0o040000, 0o100000, 0o120000, 0o020000


class Archive:
    """A cpio archive in the format that the kernel reads (its Documentation: initramfs buffer format, `070701`). Written here
    because device nodes then need no rights on this machine."""

    def __init__(self):
        self.parts = []
        self.folders = {""}
        self.count = 0

    def _entry(self, name, mode, data=b"", device=(0, 0)):
        self.count += 1
        encoded = name.encode() + b"\0"
        fields = (self.count, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        head = b"070701" + b"".join(b"%08X" % f for f in fields) + encoded
        self.parts.append(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    def folder(self, path):
        path = path.strip("/")
        if path in self.folders:
            return
        if "/" in path:
            self.folder(path.rsplit("/", 1)[0])
        self.folders.add(path)
        self._entry(path, FOLDER | 0o755)

    def _inside(self, path):
        path = path.strip("/")
        if "/" in path:
            self.folder(path.rsplit("/", 1)[0])
        return path

    def file(self, path, data, mode=0o755):
        self._entry(self._inside(path), FILE | mode, data)

    def link(self, path, target):
        self._entry(self._inside(path), LINK | 0o777, target.encode())

    def character_device(self, path, major, minor):
        self._entry(self._inside(path), CHARACTER | 0o600, device=(major, minor))

    def finish(self):
        self._entry("TRAILER!!!", 0)
        return b"".join(self.parts)


def base(cache, kernel):
    """The path of the compressed base: busybox, modules, `/init`."""
    box, init = busybox(cache), (HERE / "init").read_bytes()
    path = cache / f"base-{digest(kernel.key, box.read_bytes(), init, APPLETS)}.cpio.gz"
    if not path.exists():
        archive = Archive()
        for folder in ("dev", "proc", "sys", "tmp", "etc", "root", "run"):
            archive.folder(folder)
        archive.character_device("dev/console", 5, 1)
        archive.file("bin/busybox", box.read_bytes())
        for applet in APPLETS:
            archive.link(f"bin/{applet}", "busybox")
        for i, module in enumerate(kernel.modules):
            name = re.sub(r"\.ko.*", ".ko", Path(module).name)
            archive.file(f"modules/{i:02}-{name}", content(module), 0o644)
        archive.file("init", init)
        part = path.with_suffix(".part")
        part.write_bytes(gzip.compress(archive.finish(), 6))
        part.rename(path)
    return path


def overlay(cache, files, folders=()):
    """An uncompressed archive of files (`{path in the guest: path here}`), programs stripped and with the libraries they need, which
    are taken from these folders first."""
    archive, libraries = Archive(), {}
    for inside, here in files.items():
        here = Path(here)
        archive.file(inside, stripped(cache, here) if is_program(here) else here.read_bytes())
        if is_program(here):
            libraries.update(needed_libraries(here, folders))
    # What a program that ends a thread early loads by name (pthread_exit, pthread_cancel).
    for runtime in ("/lib/x86_64-linux-gnu/libgcc_s.so.1", "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1"):
        if folders and Path(runtime).exists():
            libraries.setdefault(runtime, runtime)
            break
    for inside, here in sorted(libraries.items()):
        archive.file(inside, Path(here).resolve().read_bytes())
    return archive.finish()


def is_program(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def stripped(cache, path):
    """A program without what only a debugger needs, which is most of it: it would fill the guest's memory."""
    state = path.stat()
    copy = cache / "stripped" / digest(path.resolve(), state.st_mtime_ns, state.st_size)
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        part = copy.with_suffix(".part")
        run([need("strip", "binutils"), "--strip-debug", "-o", part, path])
        part.rename(copy)
    return copy.read_bytes()


def loaded_from(tree):
    """The folders of an unpacked package in which the loader would look."""
    return [folder for place in ("usr/lib", "lib") for folder in Path(tree).glob(f"{place}/*-linux-gnu*")]


def needed_libraries(program, folders=(), missing_too=False):
    """`{path in the guest: path here}` of the shared libraries and the loader that a program asks for, from these folders of
    unpacked packages before this machine's; with `missing_too` also the names of those that are nowhere."""
    if not shutil.which("ldd"):
        raise RigError("no `ldd` on this machine; install it (apt-get install libc-bin)")
    environment = dict(os.environ, LD_LIBRARY_PATH=":".join(map(str, folders)))
    command = ["ldd", program]
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, env=environment).stdout
    missing = re.findall(r"^\s+(\S+) => not found", shown, re.MULTILINE)
    if missing and not missing_too:
        raise RigError(f"{program} lacks a library on this machine:\n{shown}")
    paths = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", shown, re.MULTILINE)
    found = {_inside(path, folders): path for path in paths}
    return (found, missing) if missing_too else found


def _inside(path, folders):
    """Where a library belongs: one of an unpacked package where the package has it, one of this machine where it is here."""
    for folder in folders:
        if Path(path).parent == folder:
            # .../PACKAGE/usr/lib/TRIPLET or .../PACKAGE/lib/TRIPLET
            return "/usr/lib/" + f"{folder.name}/{Path(path).name}"
    return path
