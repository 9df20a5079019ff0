"""A source that mixes the records of several pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

from standpipe.contracts import OpenSource, Records
from standpipe.contracts.source import FieldSpec
from standpipe.errors import PlanError
from standpipe.order import MAX_POSITIONS, whole_number
from standpipe.pipeline.description import Description
from standpipe.pipeline.records import Ordered
from standpipe.source import JoinedDataset, OpenConcat, OpenDatasets, open_concat, turns_photos
from standpipe.spec import ArraySpec, Int64Array, plain

FIELD = "source"
# Settings of a component. All others are written once, after the mixture.
OF_COMPONENTS = frozenset(each.name for each in fields(Ordered))
WRITTEN_BY = {
    "transforms": "map",
    "unmoved": "map",
    "batch_rows": "batch",
    "budget": "batch",
    "collate": "batch",
    "last_batch": "batch",
    "rank": "shard",
    "world_size": "shard",
    "decoding": "decode",
    "bad": "on_error",
    "finite": "check_finite",
    "labels": "check_labels",
}


class Mixture:
    """A source that mixes the records of several pipelines by weight.

    A component gives its records in its own order, one after another across all epochs of the mixture:
    each epoch of the mixture continues where the last one ended. Of each 256 positions, a component
    gets its fraction to within one or two, at random places; of an epoch, to within one. Each position
    is computed independently, so a mixture resumes and is divided among ranks like any order.
    ``Pipeline(mix, seed=…)`` determines the places and all random numbers.

    The sources must fit each other like those of ``Concat``: the same fields, shapes, dtypes and
    classes. ``index`` in a batch is numbered as in ``Concat``: the records of the second component's
    source follow those of the first. A batch has a further field ``source``, (batch_size,) int64: the
    component's number. ``index - plan.source.begins[source]`` is the record's number in the component's
    source. A record that is repeated gets different random numbers each time.

    Parameters
    ----------
    components : mapping of Pipeline to float, or iterable of pairs of these
        Two or more pipelines and their weights. A component describes its source, selections,
        ``shuffle`` or ``sample``, and ``repeat_each``; ``map``, ``batch`` and later steps are written
        after the mixture. Weights are at least 0 and not all 0; only their ratios count, to 1/65,536.
    stopping : {"first", "last"} or int, default "first"
        The end of an epoch. ``"first"``: when one component was seen completely. ``"last"``: when each
        was; the others begin again, in their next epoch's order. An int: after that many samples.
    names : sequence of str, optional
        Names of the components, for ``Loader.reweigh``. Default: made from their sources.
        ``plan.source.component_names`` has them.

    Raises
    ------
    PlanError
        By ``plan()``, if sources don't fit each other, or if a component has steps that belong after
        the mixture.

    Examples
    --------
    >>> zeros, ones = sp.Pipeline(sp.Arrays(x=np.zeros(300))), sp.Pipeline(sp.Arrays(x=np.ones(300)))
    >>> mixture = sp.Mixture({zeros: 0.75, ones: 0.25}, names=["zeros", "ones"])
    >>> with sp.Pipeline(mixture, seed=7).batch(400).loader() as loader:
    ...     print(np.bincount(loader.peek()["source"]))
    [300 100]
    """

    __slots__ = ("components", "names", "stopping", "weights")

    def __init__(
        self,
        components: Mapping[Description, float] | Iterable[tuple[Description, float]],
        *,
        stopping: Literal["first", "last"] | int = "first",
        names: Sequence[str] | None = None,
    ) -> None:
        pairs = list(components.items() if isinstance(components, Mapping) else components)
        if wrong := [each for each in pairs if not isinstance(each, tuple | list) or len(each) != 2]:
            raise PlanError(
                f"Mixture takes pipelines with their weights, got {wrong[0]!r} without one. Write "
                "sp.Mixture({first: 0.7, second: 0.3})"
            )
        self.components = tuple(pipeline for pipeline, _ in pairs)
        self.weights = tuple(plain(weight) for _, weight in pairs)
        self.stopping = plain(stopping)
        self.names = None if names is None else tuple(names)

    @property
    def upright(self) -> bool:
        """True if photos of all components are turned as EXIF says."""
        return all(turns_photos(pipeline.source) for pipeline in self.components)

    def open(self) -> OpenSource:
        """Open the sources.

        Raises ``PlanError`` if they don't fit each other, or if a component has steps that belong after the
        mixture.
        """
        for pipeline in self.components:
            _check_component(pipeline)
        if self.stopping not in ("first", "last"):
            whole_number(
                "Mixture: stopping, if it isn't 'first' or 'last',", self.stopping, low=1, high=MAX_POSITIONS
            )
        concat = open_concat(tuple(pipeline.source for pipeline in self.components), asked_by="Mixture")
        names = self.names or tuple(pipeline.source.describe() for pipeline in self.components)
        if len(names) != len(self.components) or not all(isinstance(name, str) for name in names):
            raise PlanError(
                f"Mixture: names must be {len(self.components)} texts, one for each component, got "
                f"{list(names)!r}"
            )
        if FIELD in concat.fields or (isinstance(concat, OpenDatasets) and FIELD in concat.names):
            raise PlanError(
                f"Mixture: a source has a field {FIELD!r}, and a mixture adds a field of this name. "
                "Rename the source's field, or write a mixture of mixtures as one mixture"
            )
        if isinstance(concat, OpenDatasets):
            return OpenDatasetMixture(concat.parts, self, names)
        return OpenMixture(concat.parts, self, names)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        each = ", ".join(
            f"{_described(pipeline)}: {weight!r}"
            for pipeline, weight in zip(self.components, self.weights, strict=True)
        )
        return f"Mixture({{{each}}}, stopping={self.stopping!r})"


@dataclass(frozen=True, eq=False)
class OpenMixture(OpenConcat):
    """The opened sources of a mixture: an ``OpenSource`` with a further field, ``source``, () int64.

    component_names  in the order of the components
    """

    mix: Mixture
    component_names: tuple[str, ...]

    @property
    def fields(self) -> Mapping[str, FieldSpec]:
        """The fields of the sources, and ``source``."""
        return {**super().fields, FIELD: ArraySpec((), np.dtype(np.int64))}

    def locate(self, indices: Int64Array) -> Records:
        """Return the records' locations, and the number of each record's component in ``source``."""
        records = super().locate(indices)
        component = np.searchsorted(self.begins, indices, side="right") - 1
        return replace(records, plain={**records.plain, FIELD: component})


@dataclass(frozen=True, eq=False)
class OpenDatasetMixture(OpenMixture, OpenDatasets):
    """A mixture of Python datasets: satisfies ``contracts.PythonSource`` too."""

    @property
    def dataset(self) -> JoinedDataset:
        """The datasets as one."""
        return self.joined(taken=FIELD)

    @property
    def declared(self) -> Mapping[str, ArraySpec] | None:
        """The declared shapes and dtypes of samples, with ``source``; None if there are none."""
        declared = super().declared
        return None if declared is None else {**declared, FIELD: ArraySpec((), np.dtype(np.int64))}


def _check_component(pipeline: object) -> None:
    if not isinstance(pipeline, Description):
        raise PlanError(f"Mixture takes pipelines, got {pipeline!r}. Write Pipeline(source)")
    plain = type(pipeline)(pipeline.source)
    for each in fields(Description):
        if each.name not in OF_COMPONENTS and getattr(pipeline, each.name) != getattr(plain, each.name):
            method = WRITTEN_BY.get(each.name, each.name)
            raise PlanError(
                f"Mixture: the component {_described(pipeline)} has a .{method}(…). Write it after the mixture: "
                f"Pipeline(Mixture(…)).{method}(…)"
            )


def _described(pipeline: object) -> str:
    return pipeline.source.describe() if isinstance(pipeline, Description) else repr(pipeline)
