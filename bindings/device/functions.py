"""The list of the flat device functions, as warpbell_device.h declares them."""

import pathlib
import re
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).resolve().parent
HEADER = FOLDER / "warpbell_device.h"
# A type of the header, and its names elsewhere: LLVM's, Triton's and Numba's.
TYPES = {
    "uint32_t": ("i32", "uint32", "uint32"),
    "uint64_t": ("i64", "uint64", "uint64"),
    "float": ("float", "fp32", "float32"),
    "double": ("double", "fp64", "float64"),
}
LLVM, TRITON, NUMBA = range(3)
LEVELS = ("thread", "warp", "block")
FUNCTION = re.compile(r"WB_FLAT (\w+) (\w+)\(([^)]*)\);")


class Function(NamedTuple):
    """One function: the type of its result, its name, the types and names of its arguments, and which threads call it."""

    result: str
    name: str
    arguments: tuple  # of (type, name)
    level: str

    def types(self, language):
        """The types of the result and of the arguments, in a list."""
        return [TYPES[t][language] for t in (self.result, *(kind for kind, _ in self.arguments))]


def read(header=HEADER):
    """Returns all functions, in the order of the header."""
    functions = []
    for line in header.read_text().splitlines():
        if not line.startswith("WB_FLAT"):
            continue
        match = FUNCTION.fullmatch(line)
        if match is None:
            raise ValueError(f"{header}: not a function on one line: {line}")
        result, name, listed = match.groups()
        arguments = tuple(tuple(a.split()) for a in listed.split(", "))
        end = name.rsplit("_", 1)[1]
        functions.append(Function(result, name, arguments, end if end in LEVELS else "thread"))
    return functions
