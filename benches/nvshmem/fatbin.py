"""Removes machine code of other GPU generations from libraries, in place.

Each file keeps its size, and all headers stay valid: only payloads and debugging sections become zeros, which compress to nothing. CUDA
loads the payload of the GPU's own generation and never reads the others.
"""

import struct

#: First bytes of a fat binary: magic number, version 1, 16 bytes of header.
MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
#: Magic number, version, and header's bytes of a fat binary; the bytes of its entries.
FATBIN = struct.Struct("<IHHQ")
#: Kind, version, header's bytes and payload's bytes of an entry.
ENTRY = struct.Struct("<HHIQ")
#: Place of the generation (90 for sm_90) in an entry's header.
GENERATION = 28
#: Least bytes of an entry's header.
LEAST_HEADER = 64
#: Kinds of entries with PTX and with machine code.
PTX, MACHINE_CODE = 1, 2
#: Section of code before its link. CUDA reads its headers alone where the linked code has the GPU's generation.
RELOCATABLE = "__nv_relfatbin"


def entries(data):
    """Yields place of the payload, bytes of the payload, kind and generation of every entry of every fat binary in `data`.

    Bytes that only look like a fat binary are skipped: entries have to fill it exactly.
    """
    first = data.find(MAGIC)
    while 0 <= first <= len(data) - FATBIN.size:
        _, _, header, size = FATBIN.unpack_from(data, first)
        found = walk(data, first + header, first + header + size)
        yield from found
        first = data.find(MAGIC, first + (header + size if found else len(MAGIC)))


def walk(data, at, end):
    """Returns the entries from `at` to `end`, or nothing if they do not end there."""
    found = []
    if end > len(data):
        return []
    while at < end:
        if at + LEAST_HEADER > end:
            return []
        kind, _, header, size = ENTRY.unpack_from(data, at)
        if kind not in (PTX, MACHINE_CODE) or header < LEAST_HEADER or at + header + size > end:
            return []
        (generation,) = struct.unpack_from("<I", data, at + GENERATION)
        found.append((at + header, size, kind, generation))
        at += header + size
    return found


def sections(data):
    """Returns the name, the place and the bytes of each section of an ELF file; nothing for other files."""
    if data[:5] != b"\x7fELF\x02":
        return []
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, table + size * i) for i in range(count)]
    text = headers[names][4]
    return [(bytes(data[text + name : data.index(0, text + name)]).decode(), place, length) for name, _, _, _, place, length in headers]


def keep_generation(data, generation):
    """Zeros what a GPU of `generation` does not load in the bytearray `data`. Returns the zeroed bytes."""
    zeroed = 0

    def zero(place, size):
        nonlocal zeroed
        data[place : place + size] = bytes(size)
        zeroed += size

    named = sections(data)
    linked = any(name == ".nv_fatbin" for name, _, _ in named)
    relocatable = [(place, place + size) for name, place, size in named if linked and name == RELOCATABLE]
    for place, size, kind, of in list(entries(data)):
        within = any(first <= place < last for first, last in relocatable)
        if within or kind != MACHINE_CODE or of != generation:
            zero(place, size)
    for name, place, size in named:
        if name.startswith(".debug_"):
            zero(place, size)
    return zeroed
