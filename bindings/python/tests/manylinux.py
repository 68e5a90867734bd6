"""Checks that a wheel runs with a version of glibc: ``manylinux.py WHEEL 2_28``. Needs auditwheel and ``nm``.

``auditwheel`` compares the versions of symbols with the name of the wheel. A symbol without a version that is nowhere defined passes it, and
fails on machines whose glibc lacks it. So those are looked for, too.
"""

import pathlib
import subprocess
import sys
import tempfile
import zipfile


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def unversioned(library):
    """Returns the undefined symbols that must be there, have no version, and are not Python's."""
    found = set()
    for line in output("nm", "--dynamic", "--undefined-only", str(library)).splitlines():
        kind, name = line.split()[-2:]
        if kind == "U" and "@" not in name and not name.startswith(("Py", "_Py")):
            found.add(name)
    return found


def main(wheel, version):
    tag = f"manylinux_{version}_x86_64"
    if tag not in pathlib.Path(wheel).name:
        sys.exit(f"{wheel} is not named {tag}")
    shown = " ".join(output(sys.executable, "-m", "auditwheel", "show", wheel).split())
    if f'is consistent with the following platform tag: "{tag}"' not in shown:
        sys.exit(f"{wheel} is not consistent with {tag}:\n{shown}")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            libraries = [archive.extract(name, folder) for name in archive.namelist() if name.endswith(".so")]
        wrong = {pathlib.Path(library).name: sorted(unversioned(library)) for library in libraries}
    if not libraries or any(wrong.values()):
        sys.exit(f"symbols that glibc {version.replace('_', '.')} need not have: {wrong}")
    print(f"runs with glibc {version.replace('_', '.')} and newer: {tag}")


main(*sys.argv[1:])
