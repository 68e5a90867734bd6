"""The flat device functions in kernels of Triton.

    load = warpbell.triton.function("wbd_array_load_f32_warp")

    @triton.jit
    def kernel(view, ...):
        value = load(view, index, mask)

    kernel[grid](view.address, ..., extern_libs=warpbell.triton.libraries())

``SIGNAL_SET`` to ``CMP_GE`` are arguments of calls of worlds.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from triton.language import core  # type: ignore[import-untyped]

from . import _device
from ._errors import InvalidError

__all__ = ["CMP_EQ", "CMP_GE", "CMP_GT", "CMP_LE", "CMP_LT", "CMP_NE", "SIGNAL_ADD", "SIGNAL_SET", "function", "libraries"]

SIGNAL_SET, SIGNAL_ADD = core.constexpr(_device.SIGNAL_SET), core.constexpr(_device.SIGNAL_ADD)
CMP_EQ, CMP_NE, CMP_GT = core.constexpr(_device.CMP_EQ), core.constexpr(_device.CMP_NE), core.constexpr(_device.CMP_GT)
CMP_LE, CMP_LT, CMP_GE = core.constexpr(_device.CMP_LE), core.constexpr(_device.CMP_LT), core.constexpr(_device.CMP_GE)


def function(name: str) -> Any:
    """Returns a device function for kernels, which call it with tensors or scalars. They are converted to the types of the function.

    The first argument is the address of a view (``DeviceView.address``). ``_warp`` functions take tensors of at least 32 elements for each
    warp, and a mask in place of ``wanted``; ``_block`` functions take scalars.
    """
    result, arguments = _device.signature(name, 0)
    kinds = tuple(core.dtype(kind) for kind in arguments)
    symbols = {kinds: (name, core.dtype(result))}

    def call(*given: Any, _semantic: Any = None) -> Any:
        if len(given) != len(kinds):
            raise InvalidError(f"{name}: {len(given)} arguments, and it takes {len(kinds)}")
        converted = [_semantic.cast(_semantic.to_tensor(one), kind) for one, kind in zip(given, kinds)]
        return core.extern_elementwise("warpbell", "", converted, symbols, is_pure=False, _semantic=_semantic)

    call.__name__ = call.__qualname__ = name
    return core.extern(call)


def libraries(arch: Optional[_device.Arch] = None) -> Dict[str, str]:
    """Returns the option ``extern_libs`` of a launch: the bitcode for a generation of GPUs, by default that of Triton's device."""
    if arch is None:
        from triton.runtime import driver  # type: ignore[import-untyped]

        arch = int(driver.active.get_current_target().arch)
    return {"warpbell": _device.get_device_library("bitcode", arch)}
