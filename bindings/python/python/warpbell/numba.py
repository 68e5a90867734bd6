"""The flat device functions in kernels of Numba: ``load = warpbell.numba.function("wbd_array_load_u32")``.

``SIGNAL_SET`` to ``CMP_GE`` are arguments of calls of worlds.
"""

from __future__ import annotations

from typing import Any, Optional

from numba import cuda  # type: ignore[import-untyped]

from . import _device
from ._device import CMP_EQ, CMP_GE, CMP_GT, CMP_LE, CMP_LT, CMP_NE, SIGNAL_ADD, SIGNAL_SET

__all__ = ["CMP_EQ", "CMP_GE", "CMP_GT", "CMP_LE", "CMP_LT", "CMP_NE", "SIGNAL_ADD", "SIGNAL_SET", "function"]


def function(name: str, arch: Optional[_device.Arch] = None) -> Any:
    """Declares a device function for kernels, which call it like one of their own.

    ``arch`` is the generation of GPUs, by default that of Numba's current device. Arguments have the types of
    ``docs/device-functions.md``; the first one is the address of a view (``DeviceView.address``).
    """
    result, arguments = _device.signature(name, 1)
    if arch is None:
        arch = tuple(cuda.get_current_device().compute_capability)
    link = _device.get_device_library("cubin", arch)
    return cuda.declare_device(name, f"{result}({', '.join(arguments)})", link=link, abi="c")
