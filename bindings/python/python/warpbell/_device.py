"""The flat device functions for kernels of other compilers: files of the package, and their list."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Any, Dict, List, Tuple, Union

from ._errors import InvalidError, NotFoundError, UnsupportedError

#: Folder of the files. A wheel that was built without nvcc has none.
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "device")
#: Ends of file names, by form.
_ENDS = {"cubin": ".cubin", "bitcode": ".bc"}
#: A type of C, and its names in Triton and Numba.
TYPES = {
    "uint32_t": ("uint32", "uint32"),
    "uint64_t": ("uint64", "uint64"),
    "float": ("fp32", "float32"),
    "double": ("fp64", "float64"),
}
#: Signal operations and comparisons, as arguments of calls of worlds.
SIGNAL_SET, SIGNAL_ADD = 9, 10
CMP_EQ, CMP_NE, CMP_GT, CMP_LE, CMP_LT, CMP_GE = range(6)
_FILE = re.compile(r"libwarpbell_device_sm_(\d+)(\.\w+)")


def _arch_of(arch: Any) -> int:
    """Returns the number of a generation of GPUs: of ``90``, ``"sm_90"``, ``"sm_90a"``, ``(9, 0)``, or of an engine's GPU."""
    if isinstance(arch, int):
        return arch
    if isinstance(arch, tuple) and len(arch) == 2:
        return int(10 * arch[0] + arch[1])
    if isinstance(arch, str):
        found = re.fullmatch(r"(?:sm_|compute_)?(\d+)[af]?", arch)
        if found:
            return int(found[1])
    elif hasattr(arch, "info"):
        gpu = arch.info()["gpu"]
        if gpu is None:
            raise UnsupportedError("the engine runs on CPU threads; device functions of other compilers are for GPUs")
        return _arch_of(tuple(gpu["compute"]))
    raise InvalidError(f"{arch!r} is no generation of GPUs; give one as 90, as 'sm_90', or as an engine on a GPU")


def get_device_library(form: str, arch: Any) -> str:
    """Returns the path of the flat device functions for a generation of GPUs: ``"cubin"`` to link, or ``"bitcode"`` for Triton.

    ``arch`` is a number such as ``90``, text such as ``"sm_90"``, or an engine on a GPU. Code of an older generation is taken where it
    runs: a cubin of the same major number, or any older bitcode.
    """
    if form not in _ENDS:
        raise InvalidError(f"`{form}` is no form of device functions; use cubin or bitcode")
    wanted = _arch_of(arch)
    names = os.listdir(FOLDER) if os.path.isdir(FOLDER) else []
    files = [(int(found[1]), found[0]) for found in map(_FILE.fullmatch, names) if found and found[2] == _ENDS[form]]
    usable = [(n, name) for n, name in files if n <= wanted and (form == "bitcode" or n // 10 == wanted // 10)]
    if usable:
        return os.path.join(FOLDER, max(usable)[1])
    if files:
        listed = ", ".join(f"sm_{n}" for n, _ in sorted(files))
        raise UnsupportedError(f"no {form} of this package runs on sm_{wanted}; it has {listed}: build it with WARPBELL_CUDA_ARCHS={wanted}")
    needs = "nvcc" if form == "cubin" else "nvcc and clang 17 or newer"
    raise UnsupportedError(f"this package was built without {form} of the device functions; build it on a machine with {needs}")


@functools.lru_cache(maxsize=None)
def _functions() -> Dict[str, Dict[str, Any]]:
    path = os.path.join(FOLDER, "libwarpbell_device.json")
    if not os.path.exists(path):
        raise UnsupportedError("this package was built without device functions for other compilers; build it on a machine with nvcc")
    with open(path, encoding="utf-8") as file:
        return {one["name"]: one for one in json.load(file)}


def device_functions() -> List[str]:
    """Returns the names of the flat device functions."""
    return list(_functions())


def signature(name: str, language: int) -> Tuple[str, List[str]]:
    """Returns the types of a function's result and of its arguments, in the names of Triton (0) or Numba (1)."""
    found = _functions().get(name)
    if found is None:
        raise NotFoundError(f"there is no device function `{name}`; docs/device-functions.md has the list")
    return TYPES[found["result"]][language], [TYPES[kind][language] for kind, _ in found["arguments"]]


Arch = Union[int, str, Tuple[int, int], Any]
