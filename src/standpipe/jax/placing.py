"""Choose the rows that a process makes, and put them into JAX arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax import sharding as shardings
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding

from standpipe import Plan, PlanError

PartitionSpec: Any = shardings.PartitionSpec  # JAX has no types for these two
make_array: Any = jax.make_array_from_process_local_data


@dataclass(frozen=True, slots=True)
class Placing:
    """The devices of a batch's arrays, and the part of a step's rows that this process makes.

    sharding          sharding of the batch of all processes; None: the default device
    rank, world_size  number of this process's part of the rows, from 0, and the number of such parts
    parts             number of equal parts into which a process's rows are divided among devices
    """

    sharding: Sharding | None
    rank: int
    world_size: int
    parts: int

    @classmethod
    def of(cls, sharding: Sharding | None) -> Placing:
        """Return the ``Placing`` of this process under a sharding. Raises ``PlanError`` for an unsuitable one.

        Processes whose devices get the same rows have the same rank.
        """
        if sharding is None:
            return cls(None, jax.process_index(), jax.process_count(), 1)
        if isinstance(sharding, SingleDeviceSharding):
            return cls(sharding, 0, 1, 1)
        if not isinstance(sharding, NamedSharding):
            raise PlanError(
                f"sharding must divide the rows, as NamedSharding(mesh, PartitionSpec('data')) does, or be one "
                f"device's, got {sharding!r}"
            )
        rows = _rows_of_processes(sharding)
        groups = sorted({tuple(sorted(each)) for each in rows.values()})
        mine = rows.get(jax.process_index())
        if mine is None:
            raise PlanError(f"sharding={sharding!r} has no device of this process")
        if sum(map(len, groups)) != len({part for group in groups for part in group}):
            raise PlanError(
                f"with sharding={sharding!r} some processes have only a part of their rows in common. Order the mesh's "
                "devices so that two processes have either the same rows or no common ones"
            )
        return cls(sharding, groups.index(tuple(sorted(mine))), len(groups), len(groups[0]))

    def check(self, plan: Plan) -> None:
        """Raise ``PlanError`` if the plan has batches whose rows can't be divided evenly into ``parts``."""
        if plan.steps.unit == "batches" and self.parts > 1:
            raise PlanError(
                "batch(budget=…) gives batches of different numbers of rows, which can't be divided evenly among "
                "devices. Use batch(batch_size)"
            )
        sizes = {plan.steps.batch}
        if plan.steps.last_batch.value == "partial":
            sizes.add(plan.rows_per_epoch % plan.steps.batch)
        for rows in sizes:
            if rows % self.parts:
                raise PlanError(
                    f"a batch of {rows} rows can't be divided evenly among {self.parts} parts of a process. "
                    f'Use a multiple of {self.parts} as batch_size, with last_batch="drop" or "pad"'
                )

    def array(self, rows: Any) -> Any:
        """Return the JAX array of the batch of all processes, from this process's rows.

        rows  (rows, …); nothing may change them later, because on the CPU JAX may use their memory
        """
        if not isinstance(self.sharding, NamedSharding):
            return jax.device_put(rows, self.sharding, may_alias=True)
        spec = PartitionSpec(*self.sharding.spec[: rows.ndim])
        return make_array(NamedSharding(self.sharding.mesh, spec), rows)


def _rows_of_processes(sharding: NamedSharding) -> dict[int, set[int]]:
    """Return for each process the parts of the rows on its devices, by process number.

    A part is given by its first row in a probe array of as many rows as the mesh has devices.
    """
    mesh, spec = sharding.mesh, sharding.spec
    device: Any
    axes = spec[0] if len(spec) else None
    by_rows = NamedSharding(mesh, PartitionSpec(axes))
    probe = (mesh.size,)  # long enough to be cut by any of the mesh's axes
    parts: dict[int, set[int]] = {}
    for device, (rows,) in by_rows.devices_indices_map(probe).items():
        parts.setdefault(device.process_index, set()).add(rows.start or 0)
    return parts
