"""Checks that a fat binary holds machine code for each GPU generation named, and PTX of the newest.

    python3 .ci/image_archs.py kernels.fatbin "80 90 100"
"""

import struct
import sys

MAGIC = 0xBA55ED50
PTX, MACHINE_CODE = 1, 2


def entries(data):
    """Kind and generation of each part."""
    at = 0
    while at < len(data):
        magic, _version, header, body = struct.unpack_from("<IHHQ", data, at)
        if magic != MAGIC:
            sys.exit(f"not a fat binary: magic {magic:#x} at {at}")
        at += header
        end = at + body
        while at < end:
            kind, _version, header, body = struct.unpack_from("<HHIQ", data, at)
            (arch,) = struct.unpack_from("<I", data, at + 28)
            yield kind, arch
            at += header + body


def main(path, wanted):
    with open(path, "rb") as f:
        found = set(entries(f.read()))
    wanted = [int(a) for a in wanted.split()]
    need = {(MACHINE_CODE, a) for a in wanted} | {(PTX, max(wanted))}
    if missing := need - found:
        sys.exit(f"{path}: missing {sorted(missing)}, found {sorted(found)} (1 is PTX, 2 machine code)")
    print(f"{path}: machine code for", *(f"sm_{a}" for a in wanted), f"and PTX of compute_{max(wanted)}")


main(*sys.argv[1:])
