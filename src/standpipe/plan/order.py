"""Make the order of a run from a pipeline and its opened source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial

import numpy as np

from standpipe.batch.collate import budget_notes, padding_multiple
from standpipe.contracts import OpenSource, Order, PythonSource, StreamSource
from standpipe.errors import PlanError
from standpipe.order import (
    MAX_POSITIONS,
    MAX_ROWS,
    AnyOrder,
    AspectGroups,
    BlockShuffled,
    Budget,
    BudgetOrder,
    Chain,
    Given,
    Mixed,
    OfColumns,
    Repeated,
    Selected,
    Selection,
    Sequential,
    Shuffled,
    Steps,
    Streamed,
    Table,
    check_column,
    whole_number,
)
from standpipe.pipeline.content_filter import ByContent
from standpipe.pipeline.description import Description
from standpipe.pipeline.mix import Mixture, OpenMixture
from standpipe.plan.filter_results import chosen
from standpipe.spec import PIXEL_CONTRACT, SIDES, AnyArray, Int64Array, Labels, LastBatch, Raise
from standpipe.transform import Function

READ_AT_ONCE = 1 << 18  # records of a column
SPREAD = 4  # records that may be read for one that is wanted


def planned_order(pipeline: Description, source: OpenSource) -> AnyOrder:
    """Return the order of a run: ``order_of``, or whole batches of it within a length budget."""
    if pipeline.batch_sampler:
        return _given(pipeline, source)
    if isinstance(source, StreamSource):
        return _of_stream(pipeline, source)
    how = pipeline.budget or pipeline.groups
    if how is None or isinstance(source, OpenMixture):
        return order_of(pipeline, source)
    return _batches(pipeline, how, source)


def _given(pipeline: Description, source: OpenSource) -> Given:
    """Return an order of batches that the caller gives.

    Raises ``PlanError`` for settings that also choose records.
    """
    asked = {
        "a stream": isinstance(source, StreamSource),
        "a mixture": isinstance(source, OpenMixture),
        "selections": bool(pipeline.selections),
        "shuffle()": pipeline.shuffled,
        "repeat_each()": pipeline.repeats != 1,
        "shard()": pipeline.world_size > 1,
        "last_batch=": pipeline.last_batch is not None,
        "a fraction of bad rows in on_error(Replace(…))": isinstance(
            getattr(pipeline.bad, "at_most", 0), float
        ),
    }
    if what := _named(asked):
        raise PlanError(
            f"batch(batch_sampler=True) can't be combined with {what}: the caller names the records of "
            "each batch"
        )
    assert pipeline.batch_rows is not None
    return Given(whole_number("batch_size", pipeline.batch_rows, low=1, high=MAX_ROWS))


def _of_stream(pipeline: Description, source: StreamSource) -> Order:
    """Return a stream's own order. Raises ``PlanError`` for settings that choose another order."""
    asked = {
        "selections": bool(pipeline.selections),
        "shuffle()": pipeline.shuffled,
        "repeat_each()": pipeline.repeats != 1,
        "batch(budget=…)": pipeline.budget is not None,
        "batch(group_by=…)": pipeline.groups is not None,
    }
    if what := _named(asked):
        raise PlanError(
            f"a stream has its own order, so it can't be combined with {what}. Do that inside the "
            "factory, or give a dataset with dataset[index] as MapSource(dataset)"
        )
    if source.length is None:
        return Streamed(MAX_POSITIONS, known=False)
    return Streamed(source.length * pipeline.world_size, known=True)


def _named(asked: Mapping[str, bool]) -> str:
    """Return the names whose value is True, joined by commas."""
    return ", ".join(name for name, is_asked in asked.items() if is_asked)


def order_of(pipeline: Description, source: OpenSource) -> Order:
    """Return the order that the pipeline describes for the records of its opened source."""
    if isinstance(source, OpenMixture):
        return _mixed(pipeline, source)
    selected = _select(pipeline, source)
    num_records = selected.num_records
    # Checks the seed too, which keys draws in any order.
    shuffled = Shuffled(num_records, pipeline.seed)
    order: Order = shuffled if pipeline.shuffled else Sequential(num_records)
    if pipeline.sampling is not None:
        order = pipeline.sampling.order(selected, pipeline.seed)
    elif pipeline.shuffled and pipeline.block is not None:
        order = BlockShuffled(num_records, pipeline.seed, pipeline.block, pipeline.window)
    if not selected.is_source:
        order = Selected(order, selected.chain)
    times = whole_number("repeat_each", pipeline.repeats, low=1, high=MAX_POSITIONS // num_records)
    return order if times == 1 else Repeated(order, times)


def _mixed(pipeline: Description, source: OpenMixture) -> Mixed:
    """Return the order of a mixture, made from its components' orders."""
    planned = pipeline.budget or pipeline.groups
    if pipeline.selections or pipeline.shuffled or pipeline.repeats != 1 or planned is not None:
        raise PlanError(
            "a mixture has its own order. Write .take(), .filter(), .shuffle(), .repeat_each() and the "
            "like on its components, and .batch(rows) on the mixture. To give the mixture a seed, write "
            "Pipeline(Mixture(…), seed=…)"
        )
    mix = source.mix
    seed = Shuffled(1, pipeline.seed).seed  # checked
    orders = tuple(order_of(each, part) for each, part in zip(mix.components, source.parts, strict=True))
    return Mixed.over(orders, source.begins[:-1], mix.weights, mix.stopping, seed)


def _batches(pipeline: Description, how: Budget | AspectGroups, source: OpenSource) -> BudgetOrder:
    """Return the batches within the pipeline's length budget, or of records of one group."""
    if isinstance(how, AspectGroups):
        named, by = "batch(group_by=…)", "shape"
        if not {*SIDES}.issubset(source.columns):
            raise PlanError(
                f"batch(group_by={how.by!r}): the source doesn't know the sizes of its images, as Coco, YoloLabels and "
                "PascalVoc do, or one with the columns 'height' and 'width'"
            )
    else:
        named, by = "batch(budget=…)", "length"
        _check_lengths(how, source)
    if pipeline.shuffled and pipeline.block is not None:
        raise PlanError(f"{named} orders records by {by}, and shuffle(block=…) by place. Use one of them")
    if pipeline.sampling is not None:
        raise PlanError(
            f"{named} needs each record once, and {pipeline.sampling.describe()} samples with replacement. Use one of "
            "them"
        )
    selected = _select(pipeline, source)
    times = whole_number("repeat_each", pipeline.repeats, low=1, high=MAX_POSITIONS // selected.num_records)
    chain = replace(selected.chain, times=times)
    seed = Shuffled(selected.num_records, pipeline.seed).seed  # checked: it keys draws in any order
    shuffle = seed if pipeline.shuffled else None
    if isinstance(how, AspectGroups):
        return BudgetOrder.grouped(how, selected.read, chain, seed=shuffle)
    lengths = partial(selected.read, how.length_column)
    return BudgetOrder.of(how, lengths, chain, seed=shuffle, multiple=_multiple(pipeline, how))


def _check_lengths(budget: Budget, source: OpenSource) -> None:
    if budget.length_column not in source.columns:
        raise PlanError(
            f"batch(length_column={budget.length_column!r}): the source has no such column. Its columns "
            "are " + (", ".join(source.columns) or "none")
        )
    if source.column(budget.length_column, 0, 1).dtype.kind not in "iu":
        raise PlanError(
            f"batch(length_column={budget.length_column!r}): lengths must be integers, and this column "
            "has others"
        )


def _multiple(pipeline: Description, budget: Budget) -> int:
    """Return the integer to a multiple of which a batch within ``budget`` pads its records."""
    return 1 if budget.packing else padding_multiple(pipeline.collate)


def within_budget(pipeline: Description) -> list[str]:
    """Return the lines for ``explain()`` on what a length budget limits; none without a budget."""
    if (budget := pipeline.budget) is None:
        return []
    notes = budget_notes(pipeline.collate, budget.length_column, packing=budget.packing)
    own = any(function.mixing is None for function in pipeline.batch_functions)
    return [*notes, *(["not within the budget: what functions of the batch pad"] if own else [])]


def steps_of(pipeline: Description, source: OpenSource, order: AnyOrder) -> Steps:
    """Return how an order is divided into steps. Raises ``PlanError`` for what isn't possible."""
    last_batch = pipeline.last_batch or (
        LastBatch.DROP if pipeline.shuffled or isinstance(order, Mixed) else LastBatch.PAD
    )
    if isinstance(source, StreamSource):
        last_batch = _stream_tail(pipeline, source)
    elif isinstance(order, Given):
        last_batch = LastBatch.DROP
    return Steps(
        num_positions=order.num_positions,
        batch=1
        if isinstance(order, BudgetOrder | Given) or pipeline.batch_rows is None
        else pipeline.batch_rows,
        rank=pipeline.rank,
        world_size=pipeline.world_size,
        last_batch=last_batch,
        unit="batches" if isinstance(order, BudgetOrder | Given) else "rows",
    )


def _stream_tail(pipeline: Description, source: StreamSource) -> LastBatch:
    """Return what happens at a stream's end. Raises ``PlanError`` for what a stream can't do."""
    source.of_rank(pipeline.rank, pipeline.world_size)
    if not isinstance(pipeline.bad, Raise):
        raise PlanError(
            "on_error(Replace(…)) can't replace a stream's samples, as no other samples are known. "
            "Leave bad samples out in the factory, or give a dataset with dataset[index] as "
            "MapSource(dataset)"
        )
    default = LastBatch.PARTIAL if pipeline.world_size == 1 else LastBatch.DROP
    if pipeline.last_batch is LastBatch.PAD:
        raise PlanError(
            "a stream can't be padded with its first samples, as they aren't kept. Use "
            'last_batch="partial" or "drop"'
        )
    return pipeline.last_batch or default


def labels_to_check(
    pipeline: Description, source: OpenSource
) -> tuple[tuple[Labels, ...], tuple[Labels, ...]]:
    """Return two parts of ``pipeline.labels``: those in a column of the source, and those known only from
    samples.
    """
    told = tuple(labels for labels in pipeline.labels if _is_told(pipeline, source, labels.field))
    # A dataset's columns are what is known of its samples, which may hold something else.
    sure = () if isinstance(source, PythonSource) else told
    return told, tuple(labels for labels in pipeline.labels if labels not in sure)


def _is_told(pipeline: Description, source: OpenSource, name: str) -> bool:
    functions = [each for each in pipeline.transforms if isinstance(each, Function)]
    return name in source.columns and not any(each.field in (None, name) for each in functions)


def check_labels(pipeline: Description, source: OpenSource, told: Iterable[Labels]) -> None:
    """Check the columns of labels of all selected records. Raises ``PlanError`` for an invalid label."""
    parts = [(pipeline, source)]
    if isinstance(source, OpenMixture):
        parts = list(zip(source.mix.components, source.parts, strict=True))
    for labels in told:
        for part, of_part in parts:
            check_column(_select(part, of_part), labels)


def order_bytes(order: object) -> int:
    """Return the bytes of memory of an order's tables and arrays."""
    return sum({id(part): part.nbytes for part in _parts(order)}.values())


def _parts(part: object) -> Iterator[Table | AnyArray]:
    """Yield all tables and arrays that an order uses."""
    if isinstance(part, Table | np.ndarray):
        yield part
    elif isinstance(part, tuple):
        for each in part:
            yield from _parts(each)
    elif is_dataclass(part):
        for each in fields(part):
            yield from _parts(getattr(part, each.name))


def once_each(pipeline: Description) -> bool:
    """Return True if an epoch has every selected record once, times ``repeat_each``."""
    return pipeline.sampling is None and not isinstance(pipeline.source, Mixture)


def order_recipe(pipeline: Description) -> dict[str, str | int]:
    """Return what determines the record at each position, besides the source."""
    if pipeline.batch_sampler:
        return {"order": "given", "seed": pipeline.seed}
    if isinstance(pipeline.source, Mixture):
        mix = pipeline.source
        each = "; ".join(_in_short(order_recipe(component)) for component in mix.components)
        return {
            "order": f"mix({list(mix.weights)}, stopping={mix.stopping!r}) of {each}",
            "seed": pipeline.seed,
        }
    order = "shuffled" if pipeline.shuffled else "sequential"
    if pipeline.sampling is not None:
        order += f"({pipeline.sampling.describe()})"
    elif pipeline.shuffled and pipeline.block is not None:
        order += f"(block={pipeline.block}, window={pipeline.window})"
    return {
        "selection": "; ".join(selection.describe() for selection in pipeline.selections),
        "order": order,
        "repeat_each": pipeline.repeats,
        "seed": pipeline.seed,
    }


def whole_recipe(pipeline: Description, source: OpenSource) -> dict[str, str | int]:
    """Return what determines the content of a stream of samples, whatever the rank and the speed.

    The batch size counts only where it decides which samples are batched together.
    """
    recipe: dict[str, str | int] = {
        "source": source.digest,
        "rows": source.num_records,
        **order_recipe(pipeline),
        "transforms": "; ".join(
            [transform.describe() for transform in pipeline.transforms]
            + [function.describe() for function in pipeline.batch_functions]
        ),
        "decode": pipeline.decoding.describe(),
        "limits": repr(pipeline.limits),
        "pixel_contract": PIXEL_CONTRACT,
    }
    if (budget := pipeline.budget) is not None:
        multiple = _multiple(pipeline, budget)
        rounded = f", to_multiple_of={multiple}" if multiple > 1 else ""
        recipe["batches"] = budget.describe() + rounded
    if pipeline.groups is not None:
        recipe["batches"] = pipeline.groups.describe()
    return recipe


def _in_short(recipe: dict[str, str | int]) -> str:
    """Return an order's recipe in one phrase."""
    return " ".join(f"{name}={value}" for name, value in recipe.items() if value not in ("", 0)).join("()")


@dataclass(frozen=True, slots=True)
class _Records:
    """The records that a chain of selections leaves; ``order.Columns`` of them."""

    source: OpenSource
    chain: Chain
    _tables: dict[str, Table] = field(default_factory=dict)

    @property
    def num_records(self) -> int:
        return self.chain.count

    @property
    def names(self) -> tuple[str, ...]:
        return self.source.columns

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self.source.classes

    def then(self, described: Selection | OfColumns) -> _Records:
        """Return the records after one more selection."""
        selection = described.over(self) if isinstance(described, OfColumns) else described
        chain = replace(self.chain, selections=(*self.chain.selections, selection))
        return replace(self, chain=chain)

    def read(self, name: str, start: int, stop: int) -> AnyArray:
        """Return a column of the selected records [start, stop)."""
        if self.is_source or start == stop:
            return self.source.column(name, start, stop)
        records = self.numbers(start, stop)
        lowest, highest = int(records.min()), int(records.max())
        if highest - lowest < SPREAD * len(records):
            return self.source.column(name, lowest, highest + 1)[records - lowest]
        return self._anywhere(name, records)

    @property
    def is_source(self) -> bool:
        return not self.chain.selections

    @property
    def source_records(self) -> int:
        return self.source.num_records

    @property
    def source_digest(self) -> str:
        return self.source.digest

    def numbers(self, start: int, stop: int) -> Int64Array:
        """Return the source's numbers of the selected records [start, stop)."""
        return self.chain.records(np.arange(start, stop))

    def name(self, number: int) -> str | None:
        return self.source.name(number)

    def _anywhere(self, name: str, records: Int64Array) -> AnyArray:
        """Return a column of records that are far apart, from a table of the whole column, which is made
        once.
        """
        dtype = self.source.column(name, 0, 0).dtype
        as_words = np.dtype(np.float64 if dtype.kind in "fc" else np.int64)
        if name not in self._tables:
            total = self.source.num_records
            self._tables[name] = Table.from_chunks(
                self.source.column(name, at, min(at + READ_AT_ONCE, total)).astype(as_words).view(np.int64)
                for at in range(0, total, READ_AT_ONCE)
            )
        return self._tables[name].at(records).view(as_words).astype(dtype)


def _select(pipeline: Description, source: OpenSource) -> _Records:
    records = _Records(source, Chain(source.num_records))
    for number, described in enumerate(pipeline.selections):
        if isinstance(described, ByContent):
            described = chosen(pipeline, number, source, records.num_records)
        records = records.then(described)
    return records
