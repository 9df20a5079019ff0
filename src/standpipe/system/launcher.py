"""Find this process's data rank, from the launcher's environment variables or the caller's arguments."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import Protocol

from standpipe.errors import PlanError

# Variables by launcher, the innermost first: torchrun inside srun sets its own, and srun's then count nodes.
# SLURM's are those of a step, which srun starts: a batch script by itself is one process, whatever its job asks for.
LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE"),
    ("SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


class DeviceMesh(Protocol):
    """The methods of ``torch.distributed.device_mesh.DeviceMesh`` that this module calls."""

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of the mesh's dimensions; None if they have no names."""

    def size(self, mesh_dim: int | None = None) -> int:
        """Return the number of processes along the dimension with this number; None: in the whole mesh."""

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Return this process's position along a dimension, from 0. ``mesh_dim`` is its number or name."""


def data_rank(
    rank: int | None,
    world_size: int | None,
    *,
    replicate: int,
    mesh: DeviceMesh | None,
    dims: Sequence[str],
) -> tuple[int, int]:
    """Return (rank, world_size) among the data ranks. ``Pipeline.shard`` documents the arguments.

    Raises ``PlanError`` for contradictory arguments or environment variables.
    """
    if mesh is not None:
        if rank is not None or world_size is not None or replicate != 1:
            raise PlanError(
                "shard(mesh=…) takes the ranks from the mesh: leave out rank, world_size and replicate"
            )
        return _of_mesh(mesh, dims)
    if (rank is None) != (world_size is None):
        raise PlanError(
            f"shard(rank={rank!r}, world_size={world_size!r}): give both, or neither to take them from the launcher"
        )
    if rank is None or world_size is None:
        rank, world_size = of_launcher(os.environ)
    try:
        size = operator.index(replicate)
    except TypeError:
        size = 0
    if size < 1 or isinstance(replicate, bool):
        raise PlanError(
            f"shard(replicate={replicate!r}): replicate, the number of ranks that get the same rows, must be at least 1"
        )
    if size == 1:
        return rank, world_size
    if world_size % size:
        raise PlanError(f"shard(replicate={size}): the world size, {world_size}, must be a multiple of it")
    return rank // size, world_size // size


def of_launcher(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return (rank, world_size) from a launcher's variables; (0, 1) without any.

    Raises ``PlanError`` if they are invalid.
    """
    for launcher, rank_name, world_name in LAUNCHERS:
        rank, world_size = environment.get(rank_name), environment.get(world_name)
        if rank is None and world_size is None:
            continue
        if rank is None or world_size is None:
            if launcher == "SLURM":
                continue
            missing = rank_name if rank is None else world_name
            raise PlanError(
                f"{launcher}'s {missing} isn't set: start with {launcher}, or use .shard(rank, world_size)"
            )
        if not (rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size)):
            raise PlanError(
                f"{rank_name}={rank!r} and {world_name}={world_size!r} aren't a valid rank and world size. Correct "
                "them, or use .shard(rank, world_size)"
            )
        return int(rank), int(world_size)
    return 0, 1


# Variables for the processes of one machine. MPI's own names are for launchers that set no LOCAL_RANK.
LOCAL = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)


def of_machine(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return (rank, world_size) among a launcher's processes on this machine; (0, 1) if unknown."""
    for rank_name, world_name in LOCAL:
        rank, world_size = environment.get(rank_name, ""), environment.get(world_name, "")
        if rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size):
            return int(rank), int(world_size)
    return 0, 1


def _of_mesh(mesh: DeviceMesh, dims: Sequence[str]) -> tuple[int, int]:
    names = mesh.mesh_dim_names or ()
    if isinstance(dims, str) or not dims or not set(dims) <= set(names) or len(set(dims)) < len(dims):
        raise PlanError(
            f"shard(mesh=…, dims={dims!r}): dims must be different names of the mesh's dimensions, which are {names!r}"
        )
    rank, world_size = 0, 1
    for name in dims:
        size = mesh.size(names.index(name))
        rank, world_size = rank * size + mesh.get_local_rank(name), world_size * size
    return rank, world_size
