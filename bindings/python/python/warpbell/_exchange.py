"""Passes the unique id of a world to all ranks by the means of another library."""

import sys
from typing import Any, Callable, List, Optional, Tuple

from ._errors import InvalidError, UnsupportedError, WorldError
from ._native import unique_id


def _agree(rank: int, size: int, allgather: Callable[[Any], List[Any]]) -> Tuple[bytes, int, int]:
    """Returns the id of rank 0, this rank, and the number of ranks. All ranks fail if rank 0 cannot make an id."""
    mine: Any = None
    if rank == 0:
        try:
            mine = unique_id()
        except Exception as error:
            allgather(str(error))
            raise
    found = allgather(mine)
    if len(found) != size or not isinstance(found[0], (bytes, str)):
        raise WorldError(f"the exchange of rank {rank} of {size} returned {len(found)} values, and rank 0 gave {type(found[0]).__name__}")
    if isinstance(found[0], str):
        raise WorldError(f"rank 0 has made no unique id: {found[0]}")
    return found[0], rank, size


def over_torch(group: Optional[Any]) -> Tuple[bytes, int, int]:
    """Exchanges over a process group of ``torch.distributed``."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise InvalidError("torch.distributed has no process group; call torch.distributed.init_process_group first")
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise InvalidError("group: this process is no member of it; only members join the world")

    def allgather(value: Any) -> List[Any]:
        found: List[Any] = [None] * size
        dist.all_gather_object(found, value, group=group)
        return found

    return _agree(rank, size, allgather)


def over_mpi(comm: Any) -> Tuple[bytes, int, int]:
    """Exchanges over a communicator of mpi4py."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and not mpi.Is_initialized():
        raise UnsupportedError("MPI is not initialised; call mpi4py.MPI.Init first")
    return _agree(comm.Get_rank(), comm.Get_size(), comm.allgather)
