"""Compares the PTX of each ordered access with the one that is recorded.

    ptx_snapshot.py NVCC           fails where they differ
    ptx_snapshot.py NVCC --write   records them

tests/device/order_ptx.cu has a kernel for each access that kernels/include/warpbell/order.cuh lists. tests/device/order_ptx.txt has a line for
each kernel: its name, and its instructions that touch memory.
"""

import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path("tests/device/order_ptx.cu")
SNAPSHOT = SOURCE.with_suffix(".txt")
KERNEL = re.compile(r"\.entry (\w+)\(.*?\)\s*\{(.*?)\n\}", re.DOTALL)
# What loads a kernel's parameters is no access of the kernel.
ACCESS = re.compile(r"^\s*(?:\{\s*)?((?:ld|st|atom|red|fence|membar|mbarrier|cp)\.(?!param)[\w.:]+)", re.MULTILINE)


def lines(nvcc):
    with tempfile.TemporaryDirectory() as folder:
        ptx = pathlib.Path(folder, "a.ptx")
        command = [nvcc, "-std=c++17", "-O3", "-ptx", "-arch=compute_90", "-I", "kernels/include", "-o", ptx, SOURCE]
        subprocess.run(command, check=True)
        kernels = KERNEL.findall(ptx.read_text())
    return sorted(f"{name}: {' '.join(ACCESS.findall(body)) or 'none'}\n" for name, body in kernels)


def main(nvcc, option=None):
    now = lines(nvcc)
    if option == "--write":
        SNAPSHOT.write_text("".join(now))
    recorded = SNAPSHOT.read_text().splitlines(keepends=True)
    different = list(difflib.unified_diff(recorded, now, f"{SNAPSHOT}", "compiled now", n=0))
    if different or not now:
        sys.exit(f"{''.join(different)}{len(now)} accesses compiled, {len(recorded)} recorded. If the change is meant: {__file__} {nvcc} --write")
    print(f"{SNAPSHOT}: the PTX of {len(now)} accesses is as recorded")


main(*sys.argv[1:])
