"""Memory of a GPU for calls that order their work themselves."""

from __future__ import annotations

from typing import Any, Dict, Tuple


class GpuMemory:
    """Contiguous memory of a GPU, with its owner.

    A call that gets a tensor of torch begins behind torch's current stream. With this it begins on the stream that it was told, at once.
    """

    def __init__(self, owner: Any, address: int, shape: Tuple[int, ...]) -> None:
        self._owner, self._address, self._shape = owner, address, shape

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return {"shape": self._shape, "typestr": "|u1", "data": (self._address, False), "strides": None, "version": 2}
