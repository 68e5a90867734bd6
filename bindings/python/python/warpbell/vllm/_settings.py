"""Settings of a ``WarpbellSpec``, from ``kv_connector_extra_config``."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple

from .._errors import InvalidError
from ._keys import BLOCKS


class Settings(NamedTuple):
    """Devices and options, alike in the scheduler's process and in all workers."""

    #: Device of each worker, by its rank.
    devices: List[str]
    #: Bytes of each worker's store.
    nbytes: int
    #: Name of the store.
    store: str
    #: Folder of the key logs.
    index_folder: str
    #: Devices or files whose data may be destroyed.
    overwrite: List[str]
    #: Options of ``Volume.create``.
    volume: Dict[str, Any]
    #: Options of ``SegmentQueue``.
    queue: Dict[str, Any]

    def log_path(self, rank: int) -> str:
        """Returns the key log of a worker. Devices have different ones, and other options of a device have the same."""
        name, *options = re.split(r"(?<!\\),", self.devices[rank])
        # These choose a namespace or a file.
        place = [name, *(option for option in options if option.startswith(("nsid=", "file=")))]
        device = hashlib.sha256(",".join(place).encode()).hexdigest()[:16]
        return os.path.join(self.index_folder, f"{self.store}-{device}.keys")


def _devices(config: Any, given: Any) -> List[str]:
    parallel = config.parallel
    ranks, replicas = parallel.world_size, parallel.data_parallel_size
    if isinstance(given, str):
        needed = [name for name, count in (("{rank}", ranks), ("{dp}", replicas)) if count > 1 and name not in given]
        if needed:
            raise InvalidError(
                f"device `{given}`: {ranks} workers of {replicas} replicas each need a device of their own; put {' and '.join(needed)} into the name, or "
                "give a list"
            )
        return [given.replace("{rank}", str(rank)).replace("{dp}", str(parallel.data_parallel_index)) for rank in range(ranks)]
    if not (isinstance(given, (list, tuple)) and all(isinstance(device, str) for device in given)):
        raise InvalidError("kv_connector_extra_config has no `device`; give a device such as soft:/mnt/kv/{rank}.img, or a list with one for each worker")
    if len(given) != ranks * replicas or len(set(given)) != len(given):
        raise InvalidError(f"{len(set(given))} different devices for {ranks * replicas} workers; give one for each")
    first = parallel.data_parallel_index * ranks
    return list(given[first : first + ranks])


def settings_of(config: Any) -> Settings:
    """Reads the settings of an ``OffloadingConfig``."""
    extra: Mapping[str, Any] = config.extra_config
    size = extra.get("bytes_per_worker")
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise InvalidError(f"bytes_per_worker is {size!r}; give the bytes of each worker's store in kv_connector_extra_config")
    if config.canonical_layout:
        raise InvalidError("canonical_layout is set, and each worker stores its own pages as they are; remove it from kv_connector_extra_config")
    if config.cache.blocks_per_chunk > BLOCKS:
        raise InvalidError(f"{config.cache.blocks_per_chunk} blocks of a chunk; give at most {BLOCKS}")
    store = extra.get("store", "vllm")
    if not isinstance(store, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,40}", store):
        raise InvalidError(f"store is {store!r}; give 1 to 40 letters, digits, `.`, `_` and `-`")
    overwrite = extra.get("overwrite", [])
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Settings(
        devices=_devices(config, extra.get("device")),
        nbytes=size,
        store=store,
        index_folder=os.path.abspath(extra.get("index") or os.path.join(cache, "warpbell", "vllm")),
        overwrite=[overwrite] if isinstance(overwrite, str) else list(overwrite),
        volume=dict(extra.get("volume", {})),
        queue=dict(extra.get("queue", {})),
    )
