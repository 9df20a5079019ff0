"""A mixture of pipelines, as a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

from standpipe.contracts import Encoded, OpenSource, Records
from standpipe.errors import PlanError
from standpipe.order import MAX_POSITIONS, whole_number
from standpipe.pipeline.pipeline import Pipeline
from standpipe.pipeline.records import Ordered
from standpipe.source import OpenConcat, OpenDatasets, open_concat
from standpipe.spec import AnyArray, ArraySpec, Int64Array

FIELD = "source"
# What a component decides itself. All else is said once, of the mixture.
OF_COMPONENTS = frozenset(each.name for each in fields(Ordered))
WRITTEN_BY = {
    "transforms": "map",
    "batch_size": "batch",
    "budget": "batch",
    "collate": "batch",
    "last_batch": "batch",
    "rank": "shard",
    "world_size": "shard",
    "decode_mode": "decode",
    "gpu": "decode",
    "allow_truncated": "decode",
    "limits": "decode",
    "bad": "on_error",
    "finite": "check_finite",
    "labels": "check_labels",
}


class Mixture:
    """Records of several pipelines, in given shares: ``Pipeline(Mixture({a: 0.7, b: 0.3}))``.

    components  pipelines and their weights, as a mapping or as pairs: two or more. A pipeline says source,
                selection, ``shuffle`` and ``repeat``; what follows (``map``, ``batch``, …) is written after the
                mixture. Weights are from 0 on, not all 0; only their ratios count, to 1/65,536
    stopping    when an epoch ends: ``"first"``, when one component was seen whole; ``"last"``, when each was, so
                others begin again, in their next epoch's order; or a number of samples
    names       of the components, for ``reweigh``; default: what their sources are. An opened mixture has them as
                ``plan.source.component_names``

    Each 256 positions have the shares to within one or two, at random places; over an epoch they are exact to
    within one. A component gives its records in its own order, one after another across all epochs of the
    mixture: where an epoch of the mixture ends, the next one goes on. So any position is computed alone, and
    a mixture is resumed and cut among ranks like any order. ``Pipeline(mix, seed=…)`` keys the places, and
    all random draws.

    Sources must fit each other as those of ``Concat``, and ``index`` in a batch is numbered as there: the
    records of the second component's source follow those of the first. A batch has a field more, ``source``,
    () int64, the component's number: ``index - plan.source.begins[source]`` is the record's number in the
    component's source. A record that comes again has random draws of its own.
    """

    __slots__ = ("components", "names", "stopping", "weights")

    def __init__(
        self,
        components: Mapping[Pipeline, float] | Iterable[tuple[Pipeline, float]],
        *,
        stopping: Literal["first", "last"] | int = "first",
        names: Sequence[str] | None = None,
    ) -> None:
        pairs = list(components.items() if isinstance(components, Mapping) else components)
        self.components = tuple(pipeline for pipeline, _ in pairs)
        self.weights = tuple(weight for _, weight in pairs)
        self.stopping = stopping
        self.names = None if names is None else tuple(names)

    def open(self) -> OpenSource:
        """Open the sources.

        Raises ``PlanError`` when they don't fit each other, and for what a component must not say.
        """
        for pipeline in self.components:
            _check_component(pipeline)
        if self.stopping not in ("first", "last"):
            whole_number(
                "Mixture(stopping=…), beside 'first' and 'last',", self.stopping, low=1, high=MAX_POSITIONS
            )
        concat = open_concat(tuple(pipeline.source for pipeline in self.components), asked_by="Mixture")
        names = self.names or tuple(pipeline.source.describe() for pipeline in self.components)
        if len(names) != len(self.components) or not all(isinstance(name, str) for name in names):
            raise PlanError(
                f"Mixture(names={list(names)!r}): one name for each of {len(self.components)} components"
            )
        if FIELD in concat.fields or (isinstance(concat, OpenDatasets) and FIELD in concat.names):
            raise PlanError(
                f"Mixture: a source has a field {FIELD!r}, which a mixture adds: rename it; mixtures of mixtures can "
                "be written as one"
            )
        if isinstance(concat, OpenDatasets):
            return OpenDatasetMixture(self, concat, names)
        return OpenMixture(self, concat, names)

    def describe(self) -> str:
        """One line for ``explain()``."""
        each = ", ".join(
            f"{_described(pipeline)}: {weight!r}"
            for pipeline, weight in zip(self.components, self.weights, strict=True)
        )
        return f"Mixture({{{each}}}, stopping={self.stopping!r})"


@dataclass(frozen=True, eq=False)
class OpenMixture:
    """The opened sources of a mixture: an ``OpenSource`` with a field more, ``source``, () int64.

    concat           the records of all of them
    component_names  in their order
    """

    mix: Mixture
    concat: OpenConcat
    component_names: tuple[str, ...]

    @property
    def num_records(self) -> int:
        """Number of records of all components' sources."""
        return self.concat.num_records

    @property
    def begins(self) -> Int64Array:
        """(components + 1,) int64: the number of each component's first record, and how many there are."""
        return self.concat.begins

    @property
    def fields(self) -> Mapping[str, ArraySpec | Encoded]:
        """The fields of the sources, and ``source``."""
        return {**self.concat.fields, FIELD: ArraySpec((), np.dtype(np.int64))}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that all sources have."""
        return self.concat.columns

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """A column of the records [start, stop)."""
        return self.concat.column(name, start, stop)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The class names, which all sources share."""
        return self.concat.classes

    @property
    def digest(self) -> str:
        """A digest of the sources' digests, in order."""
        return self.concat.digest

    @property
    def index_bytes(self) -> int:
        """Bytes of all sources' indexes."""
        return self.concat.index_bytes

    @property
    def index_note(self) -> str:
        """The places of the sources' indexes, for ``explain()``."""
        return self.concat.index_note

    @property
    def descriptors(self) -> int:
        """Files that the sources hold open."""
        return self.concat.descriptors

    @property
    def record_bytes(self) -> int:
        """Bytes of the largest record that a source reads."""
        return self.concat.record_bytes

    def locate(self, indices: Int64Array) -> Records:
        """Return where the records are, and the component of each."""
        records = self.concat.locate(indices)
        component = np.searchsorted(self.begins, indices, side="right") - 1
        return replace(records, plain={**records.plain, FIELD: component})

    def name(self, index: int) -> str | None:
        """Return the name that the record's source gives it."""
        return self.concat.name(index)


@dataclass(frozen=True, eq=False)
class OpenDatasetMixture(OpenMixture):
    """A mixture of datasets in Python: satisfies ``contracts.PythonSource`` too."""

    concat: OpenDatasets

    @property
    def dataset(self) -> object:
        """All datasets as one."""
        return self.concat.joined(taken=FIELD)

    @property
    def names(self) -> tuple[str, ...]:
        """Fields of a sample that is a tuple."""
        return self.concat.names

    @property
    def shares_lists(self) -> bool:
        """True if all datasets ask for it."""
        return self.concat.shares_lists

    @property
    def declared(self) -> Mapping[str, ArraySpec] | None:
        """Declared shapes and dtypes of samples, and ``source``."""
        declared = self.concat.declared
        return None if declared is None else {**declared, FIELD: ArraySpec((), np.dtype(np.int64))}


def _check_component(pipeline: object) -> None:
    if not isinstance(pipeline, Pipeline):
        raise PlanError(f"Mixture takes pipelines, not {pipeline!r}; write Pipeline(source)")
    plain = Pipeline(pipeline.source)
    for each in fields(Pipeline):
        if each.name not in OF_COMPONENTS and getattr(pipeline, each.name) != getattr(plain, each.name):
            method = WRITTEN_BY.get(each.name, each.name)
            raise PlanError(
                f"Mixture: the component {_described(pipeline)} has a .{method}(…): write it after the mixture, as in "
                f"Pipeline(Mixture(…)).{method}(…)"
            )


def _described(pipeline: object) -> str:
    return pipeline.source.describe() if isinstance(pipeline, Pipeline) else repr(pipeline)
