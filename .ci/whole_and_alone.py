"""Compiles each kernel of a source file alone, and compares it with its part of the whole.

    whole_and_alone.py CUDA_FOLDER SOURCE ARCH

The functions that a kernel calls are compiled for each kernel anew; what comes out must not depend on which other kernels stand in
the same file. It did, with functions called through their addresses (kernels/include/warpbell/call.cuh): some lost instructions,
and with them their meaning. Numbers of instructions tell, without the padding behind the last function; the kernels' own are not
compared, as they load addresses from tables of the whole file.
"""

import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ENTRY = re.compile(r"(?:\.visible |\.weak )?\.entry (\w+)")
INSTRUCTION_BYTES, NOP = 16, 0x918  # since sm_70
PART = re.compile(r"(?m)^(?=(?:\.visible |\.weak )?\.(?:entry|func)\b)")


def instructions(code):
    """The number of instructions before the padding."""
    opcodes = [struct.unpack_from("<H", code, at)[0] & 0xFFF for at in range(0, len(code), INSTRUCTION_BYTES)]
    while opcodes and opcodes[-1] == NOP:
        opcodes.pop()
    return len(opcodes)


def functions(cubin):
    """Names of the functions in an ELF file, and how many instructions each has."""
    elf = cubin.read_bytes()
    table, entry_bytes, entries = struct.unpack_from("<Q", elf, 0x28)[0], *struct.unpack_from("<HH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry_bytes) for i in range(entries)]
    found = {}
    for _, kind, _, _, offset, size, link, _, _, symbol_bytes in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, symbol_bytes):
            name, info, _, index, value, length = struct.unpack_from("<IBBHQQ", elf, at)
            text = elf[names + name : elf.index(b"\0", names + name)].decode()
            if info & 15 == 2:  # STT_FUNC
                code = sections[index][4] + value
                found[text] = instructions(elf[code : code + length])
    return found


def main(cuda, source, arch):
    bin_folder = pathlib.Path(cuda, "bin")
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = pathlib.Path(folder, "a.ptx"), pathlib.Path(folder, "a.cubin")
        command = [bin_folder / "nvcc", "-std=c++17", "-O3", "-ptx", f"-arch=sm_{arch}", "-I", "kernels/include"]
        subprocess.run([*command, "-o", ptx, source], check=True)
        parts = PART.split(ptx.read_text())

        def compiled(kernel):
            keep = [p for p in parts if kernel is None or not (m := ENTRY.match(p)) or m.group(1) == kernel]
            ptx.write_text("".join(keep))
            subprocess.run([bin_folder / "ptxas", f"-arch=sm_{arch}", ptx, "-o", cubin], check=True)
            return functions(cubin)

        kernels = [m.group(1) for p in parts if (m := ENTRY.match(p))]
        whole = compiled(None)
        compared, different = 0, []
        for kernel in kernels:
            for name, count in compiled(kernel).items():
                if not name.startswith(f"${kernel}$"):
                    continue
                compared += 1
                if whole.get(name) != count:
                    different.append(f"{name}: {count} instructions alone, {whole.get(name)} in the whole file")
    if different or not compared:
        sys.exit("\n".join(different) or f"{source}: no function of a kernel found")
    print(f"{source}: {len(kernels)} kernels, {compared} functions: alone as in the whole")


main(*sys.argv[1:])
