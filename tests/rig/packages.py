"""Distribution packages, unpacked beside the sources and never installed: a stock kernel, its sources, busybox."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path


# Where packages of a suite that this machine's apt does not have come from.
DEBIAN = "http://deb.debian.org/debian"


class RigError(Exception):
    """Something that the rig needs is missing or failed; the text says what and how to get it."""


def run(command, **options):
    """Runs a command whose failure ends the rig, with its output in the error."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise RigError(f"`{' '.join(map(str, command))}` failed ({done.returncode}):\n{done.stdout[-4000:]}")
    return done.stdout


def need(program, package):
    """The path of a program that has to be on this machine."""
    # Debian keeps some in folders that are not on an ordinary user's path.
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if not found:
        raise RigError(f"no `{program}` on this machine; install it (apt-get install {package})")
    return found


class Suite:
    """One of Debian's suites, read with an apt configuration of its own: the machine's stays as it is."""

    def __init__(self, cache, name):
        if not re.fullmatch(r"[a-z][a-z0-9/-]*", name):
            raise RigError(f"`{name}` is no name of a suite")
        keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
        if not keyring.exists():
            raise RigError(f"no {keyring}, which suite {name} is signed with; install it (apt-get install debian-archive-keyring)")
        folder = cache / "apt" / digest(name, DEBIAN)
        for part in ("sources", "lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        source = f"Types: deb\nURIs: {DEBIAN}\nSuites: {name}\nComponents: main\nSigned-By: {keyring}\n"
        (folder / "sources/rig.sources").write_text(source)
        # Only what is different; proxies and the like are as apt has them on this machine.
        settings = {
            "Dir::Etc::SourceList": "/dev/null",
            "Dir::Etc::SourceParts": folder / "sources",
            "Dir::State::Lists": folder / "lists",
            "Dir::Cache": folder / "cache",
        }
        (folder / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
        self.environment = dict(os.environ, APT_CONFIG=str(folder / "apt.conf"))
        run(["apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any"], env=self.environment)


def digest(*parts):
    """A short key of what something was made from."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part if isinstance(part, bytes) else str(part).encode())
        total.update(b"\0")
    return total.hexdigest()[:12]


def candidate(package, suite=None):
    """The version that apt would take, or None."""
    command = ["apt-cache", "policy", package]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=suite and suite.environment).stdout
    for line in shown.splitlines():
        if line.strip().startswith("Candidate:"):
            version = line.split(":", 1)[1].strip()
            return None if version == "(none)" else version
    return None


def first_known(names):
    """The first of these packages that apt knows."""
    for name in names:
        version = candidate(name)
        if version:
            return name, version
    raise RigError(f"apt knows none of {', '.join(names)}; run `apt-get update`, or add a Debian suite that has one")


def dependency(package, prefix):
    """What a meta-package stands for: its dependency whose name begins so."""
    shown = run(["apt-cache", "depends", "--no-recommends", "--no-suggests", package])
    for line in shown.splitlines():
        kind, _, name = line.strip().partition(": ")
        if kind == "Depends" and name.startswith(prefix):
            return name
    raise RigError(f"package {package} depends on nothing named {prefix}*")


def made(folder, make):
    """A folder that `make(path)` fills: complete under its name, or not there at all."""
    folder = Path(folder)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        make(work)
        work.chmod(0o755)
        try:
            work.rename(folder)
        except OSError:
            # Another run was quicker.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def fetched(cache, package, version, suite=None):
    """The path of a package's file, downloaded as apt is configured on this machine, or from a suite."""

    def download(folder):
        run(["apt-get", "download", "-q", f"{package}={version}"], cwd=folder, env=suite and suite.environment)

    folder = made(_folder(cache, "packages", package, version), download)
    files = list(folder.glob("*.deb"))
    if len(files) != 1:
        raise RigError(f"{folder} holds {len(files)} package files instead of one; delete the folder")
    return files[0]


def candidates(packages):
    """`{package: version}` of those that apt would take, asked for at once."""
    shown = run(["apt-cache", "policy", *packages])
    found = re.findall(r"^(\S+):\n(?:  .*\n)*?  Candidate: (\S+)$", shown, re.MULTILINE)
    versions = {name: version for name, version in found if version != "(none)"}
    for name in packages:
        if name not in versions:
            raise RigError(f"apt knows no package {name}; run `apt-get update`, or add a Debian suite that has it")
    return versions


def fetched_together(cache, versions):
    """Downloads those of these packages (`{package: version}`) that are not here yet, all in one go."""
    wanted = {name: version for name, version in versions.items() if not _folder(cache, "packages", name, version).is_dir()}
    if not wanted:
        return
    (cache / "packages").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".together.", dir=cache / "packages") as folder:
        run(["apt-get", "download", "-q", *(f"{name}={version}" for name, version in wanted.items())], cwd=folder)
        for name, version in wanted.items():
            files = list(Path(folder).glob(f"{name}_*.deb"))
            if len(files) != 1:
                raise RigError(f"apt-get fetched {len(files)} files of package {name} {version} instead of one")
            made(_folder(cache, "packages", name, version), lambda own: shutil.move(files[0], own))


def _folder(cache, kind, package, version):
    name = f"{package}_{version}".replace(":", "%").replace("/", "_")
    return cache / kind / name


def unpacked(cache, package, version):
    """The folder of a package's content."""
    folder = _folder(cache, "unpacked", package, version)
    return made(folder, lambda out: run(["dpkg-deb", "-x", fetched(cache, package, version), out]))


def busybox(cache):
    """A busybox that needs no libraries: this machine's, or the package's."""
    here = shutil.which("busybox")
    if here and b"interpreter" not in _file_kind(here):
        return Path(here)
    name, version = first_known(["busybox-static"])
    folder = unpacked(cache, name, version)
    for path in ("usr/bin/busybox", "bin/busybox"):
        if (folder / path).is_file():
            return folder / path
    raise RigError(f"package {name} {version} holds no busybox")


def _file_kind(path):
    """b"interpreter" for a dynamic executable."""
    with open(path, "rb") as file:
        head = file.read(4096)
    return b"interpreter" if b"/ld-linux" in head else b""


def threads():
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))
