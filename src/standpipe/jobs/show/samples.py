"""The samples that ``Pipeline.show`` draws, as pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from standpipe.batch.collate import Ragged
from standpipe.contracts import HasInstances, Transform
from standpipe.errors import PlanError
from standpipe.jobs.fill_cache import loader_of
from standpipe.jobs.show.overlay import Overlay, class_name, overlay_of
from standpipe.jobs.show.pixels import painted, pictures_of
from standpipe.jobs.show.sheet import LEAST_CELL_PX, Cell, Row, Sheet, check_area, draw_sheet
from standpipe.loader.loader import Loader
from standpipe.pipeline.description import Description
from standpipe.plan.fields import picture_kinds
from standpipe.plan.instances import ragged_fields
from standpipe.plan.options import LoaderOptions, checked_source
from standpipe.spec import UInt8Array
from standpipe.transform.image import ImageTransform
from standpipe.transform.kernels.fuse import field_of_view
from standpipe.transform.kernels.program import moves_kind
from standpipe.transform.kernels.views import Repeat, Views, number_of_views, transforms_of
from standpipe.transform.kinds import IMAGE, MASK, FieldKind
from standpipe.transform.pixels.window import PadImage
from standpipe.transform.python.function import callable_name

MOST_SAMPLES = 1000
OPTIONS = LoaderOptions(executor="inline", num_workers=1, prefetch=1, autotune=False, check_generators=False)

BLANK = Cell(np.full((1, 1, 3), 255, np.uint8))  # instead of a picture

Sample = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """The first samples of an epoch.

    kinds     kinds of the pictures, the reference first
    samples   values of fields by name
    captions  label and name of each sample
    overlays  the instances of each sample by image; empty without any
    """

    kinds: Mapping[str, FieldKind]
    samples: list[Sample]
    captions: list[tuple[str, str]]
    overlays: list[dict[str, Overlay]]

    def cells(self, pictures: Sequence[UInt8Array], image: str) -> list[Cell]:
        """Return each sample's picture, with the instances of one image."""
        return [
            Cell(each, by_image.get(image)) for each, by_image in zip(pictures, self.overlays, strict=True)
        ]


def show(pipeline: Description, n: int, steps: bool, epoch: int | Sequence[int]) -> Sheet:
    """Return the sheet of an epoch's first samples. ``Pipeline.show`` documents the arguments and errors."""
    epochs: list[int] = list(epoch) if isinstance(epoch, Sequence) else [epoch]
    if not epochs:
        raise PlanError(f"show(epoch={epoch!r}) draws no epoch: give at least one")
    for name, value, least in (("n", n, 1), *(("epoch", each, 0) for each in epochs)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise PlanError(f"show({name}={value!r}): {name} must be an integer of at least {least}")
    if n > MOST_SAMPLES:
        raise PlanError(f"show(n={n}): a sheet has at most {MOST_SAMPLES} samples")
    if steps and len(epochs) > 1:
        raise PlanError(f"show(steps=True) draws one epoch, got epoch={epoch!r}: give one integer")
    check_area(len(epochs) * LEAST_CELL_PX**2)
    # It shows what the transforms do now, on this machine, and keeps no rows.
    pipeline = replace(pipeline, cached=None)
    if pipeline.instances is None and ragged_fields(checked_source(pipeline.source, "show").open()):
        pipeline = replace(pipeline, instances=Ragged())
    if pipeline.masks is not None:
        pipeline = replace(pipeline, masks=replace(pipeline.masks, masks="index", mask_ratio=1))
    return _shown_steps(pipeline, n, epochs[0]) if steps else _shown(pipeline, n, epochs)


def _shown(pipeline: Description, n: int, epochs: list[int]) -> Sheet:
    """Return a sheet with a column for each field of images, or for each of these and epoch."""
    has_batches = pipeline.batch_rows is not None or pipeline.budget is not None
    batched = pipeline if has_batches and not pipeline.batch_sampler else _alone(pipeline, n)
    titles: list[str] = []
    columns: list[list[Cell]] = []
    captions: list[tuple[str, str]] = []
    for found in _samples(batched, n, epochs):
        if captions and found.captions != captions:
            raise PlanError(
                f"show(epoch={epochs!r:.40}) draws the same samples in several epochs, but this pipeline has others in "
                "each: leave shuffle() out, or give one epoch"
            )
        captions = found.captions
        names, cells = _fields(pipeline, found)
        if len(epochs) > 1:
            number = epochs[len(columns) // len(names)]
            names = [f"epoch {number}" if len(names) == 1 else f"epoch {number}, {name}" for name in names]
        titles += names
        columns += cells
    return _sheet(titles, columns, captions)


def _fields(pipeline: Description, found: Shown) -> tuple[list[str], list[list[Cell]]]:
    """Return the name of each picture that a sample has, and these pictures of all samples."""
    titles: list[str] = []
    columns: list[list[Cell]] = []
    samples = found.samples
    views = next((each for each in pipeline.transforms if isinstance(each, Views)), None)
    kinds = {**found.kinds, IMAGE.name: IMAGE}  # functions may have renamed fields
    images = (field for field, kind in kinds.items() if kind.is_image and (views or field in samples[0]))
    reference = next(images, IMAGE.name)
    for view in [reference] if views is None else views.views:
        first: list[list[UInt8Array]] = []
        for field, kind in {reference: IMAGE, **kinds}.items():
            name = view if field == reference else field_of_view(view, field, reference)
            if field == reference or name in samples[0]:
                values = _values(samples, name)
                if kind is MASK:
                    pictures = _painted(first, values)
                else:
                    pictures = pictures_of(values, name, pipeline.transforms if kind.is_image else (), view)
                first = first or pictures
                number = len(pictures[0])
                titles += [name] if number == 1 else [f"{name} {place}" for place in range(number)]
                columns += [found.cells([each[place] for each in pictures], name) for place in range(number)]
    return titles, columns


def _painted(pictures: list[list[UInt8Array]], masks: list[Any]) -> list[list[UInt8Array]]:
    """Return the pictures of each sample with its masks over them: one, or as many as it has views."""
    return [painted(images, values) for images, values in zip(pictures, masks, strict=True)]


def _shown_steps(pipeline: Description, n: int, epoch: int) -> Sheet:
    """Return a sheet with a column for the source's images and one for each transform."""
    transforms = pipeline.transforms
    if any(isinstance(each, Views) for each in transforms):
        return _shown_view_steps(pipeline, n, epoch)
    stored = next(_samples(_alone(pipeline, n, ()), n, [epoch]))
    last, first = len(transforms), next(iter(stored.kinds))
    columns = [
        _step(pipeline, n, epoch, transforms[:number], first, is_last=number == last)
        for number in range(last + 1)
    ]
    images = [[each[0] for each in column] or [BLANK] * len(stored.captions) for column in columns]
    return _sheet(["source", *(_name(each) for each in transforms)], images, stored.captions)


def _step(
    pipeline: Description,
    n: int,
    epoch: int,
    transforms: Sequence[Transform],
    field: str,
    *,
    is_last: bool = True,
) -> list[list[Cell]]:
    """Return the pictures of each sample after the first transforms: one, or those of a field's views.

    is_last  False: return an empty list if no kernel makes these images, as in a view whose images differ in
             size
    """
    try:
        found = next(_samples(_alone(pipeline, n, transforms), n, [epoch]))
    except PlanError:
        if is_last:
            raise
        return []
    pictures = pictures_of(_values(found.samples, field), field, transforms)
    mask = field_of_view(field, MASK.name, next(iter(found.kinds)))
    if mask in found.samples[0]:
        pictures = _painted(pictures, _values(found.samples, mask))
    return [
        [Cell(each, by_image.get(field)) for each in row]
        for row, by_image in zip(pictures, found.overlays, strict=True)
    ]


def _shown_view_steps(pipeline: Description, n: int, epoch: int) -> Sheet:
    """Return a sheet of steps with a row for each view of each sample."""
    transforms = pipeline.transforms
    place = next(number for number, each in enumerate(transforms) if isinstance(each, Views))
    before, after = transforms[:place], transforms[place + 1 :]
    views = cast("Views", transforms[place]).views
    stored = next(_samples(_alone(pipeline, n, ()), n, [epoch]))
    first_kind = next(iter(stored.kinds))
    common = [_step(pipeline, n, epoch, before[:number], first_kind) for number in range(place + 1)]
    most = max(len(transforms_of(given)) for given in views.values())
    rows: list[list[Row]] = [[] for _ in stored.captions]
    for name, given in views.items():
        columns: list[list[list[Cell]]] = []
        for number in range(1, len(transforms_of(given)) + 1):
            first: Any = transforms_of(given)[:number]
            view = Views(**{name: replace(given, transforms=first) if isinstance(given, Repeat) else first})
            is_last = number == len(transforms_of(given))
            columns.append(_step(pipeline, n, epoch, (*before, view), name, is_last=is_last))
        columns += [[]] * (most - len(columns))
        for number in range(1, len(after) + 1):
            columns.append(_step(pipeline, n, epoch, transforms[: place + 1 + number], name))
        for sample, (label, record) in enumerate(stored.captions):
            for number in range(number_of_views(given) or 1):
                cells = [column[sample][0] for column in common]
                cells += [column[sample][number] if column else BLANK for column in columns]
                titled = name if number_of_views(given) is None else f"{name} {number}"
                rows[sample].append(Row(cells, f"{label}   {titled}" if label else titled, record))
    names = [
        {_name(given[number]) for given in map(transforms_of, views.values()) if number < len(given)}
        for number in range(most)
    ]
    steps = [each.pop() if len(each) == 1 else f"step {number}" for number, each in enumerate(names, 1)]
    titles = ["source", *map(_name, before), *steps, *map(_name, after)]
    return draw_sheet(titles, [row for group in rows for row in group])


def _alone(pipeline: Description, n: int, transforms: Sequence[Transform] | None = None) -> Description:
    """Return the pipeline in batches of ``n``, whose images may differ in size.

    transforms  instead of all transforms: the first ones, without functions of batches
    """
    if transforms is None:
        later = any(not each.collates for each in pipeline.batch_functions)
        return pipeline.batch(n, last_batch="pad") if later else _listed(pipeline, n)
    if len(transforms) < len(pipeline.transforms):  # later functions may drop what doesn't fit the image
        pipeline = replace(pipeline, delivered=frozenset())
        if any(isinstance(each, ImageTransform) for each in pipeline.transforms) and not moves_kind(
            transforms, IMAGE
        ):
            transforms = (PadImage(0), *transforms)  # it decodes all pictures, and moves nothing
    first = replace(pipeline, transforms=tuple(transforms), batch_functions=(), finite=None, labels=())
    return _listed(first, n)


def _listed(pipeline: Description, n: int) -> Description:
    """Return the pipeline in batches of ``n``, with pictures in lists."""
    if (instances := pipeline.instances) is None:
        return pipeline.batch(n, last_batch="pad", collate_fn=_lists)
    if isinstance(instances, Ragged) and instances.max_values is not None:
        instances = Ragged(n * instances.max_values)
    source = pipeline.source.open()
    reference, *others = picture_kinds(pipeline, source)
    fields = [reference, *(name for name in others if name in source.fields)]
    views = next((tuple(each.views) for each in pipeline.transforms if isinstance(each, Views)), (reference,))
    names = [
        view if name == reference else field_of_view(view, name, reference)
        for view in views
        for name in fields
    ]
    collate = dict.fromkeys(names, list)
    batched = pipeline.batch(n, last_batch="pad", collate=collate, instances=instances)
    return replace(batched, masks=pipeline.masks)


def _lists(samples: list[Sample]) -> dict[str, list[Any]]:
    return {name: [sample[name] for sample in samples] for name in samples[0]}


def _samples(pipeline: Description, n: int, epochs: Sequence[int]) -> Iterator[Shown]:
    """Yield the first ``n`` samples of each epoch, or fewer if it has fewer."""
    with loader_of(pipeline, OPTIONS) as loader:
        source, form = loader.plan.source, loader.plan.batch.instances
        bones = source.skeleton if isinstance(source, HasInstances) else ()
        for epoch in epochs:
            found = Shown(picture_kinds(pipeline, source), [], [], [])
            loader.set_epoch(epoch)
            for given in loader:
                batch = cast("Mapping[str, Any]", given)
                batch = batch if form is None else form.by_row(batch)
                for row in range(len(batch["index"])):
                    if len(found.samples) == n or ("valid" in batch and not batch["valid"][row]):
                        break
                    sample = {name: np.array(values[row]) for name, values in batch.items()}
                    prefixes = {} if form is None else form.prefixes
                    found.samples.append(sample)
                    found.captions.append(_caption(loader, sample))
                    found.overlays.append(
                        {
                            image: overlay_of(sample, prefix, source.classes, bones)
                            for image, prefix in prefixes.items()
                        }
                    )
                del batch, given  # the slot is for the next
                if len(found.samples) == n:
                    break
            if not found.samples:
                raise PlanError("show() found no samples: this epoch of the pipeline has none")
            yield found


def _caption(loader: Loader, sample: Sample) -> tuple[str, str]:
    """Return a sample's class, if it is a number, and the name of its record."""
    classes, label = loader.plan.classes, sample.get("label")
    index = int(sample["index"])
    name = loader.plan.source.name(index) or f"record {index}"
    if label is None or label.shape != () or label.dtype.kind not in "iu":
        return "", name
    known = class_name(int(label), classes)
    return f"label {known}" if known == str(label) else known, name


def _values(samples: list[Sample], name: str) -> list[Any]:
    """Return the values of a field. Raises ``PlanError`` if samples don't have it."""
    if name not in samples[0]:
        raise PlanError(
            f"show() draws the field {name!r}, but the samples have the fields {', '.join(samples[0])}. Name the "
            "field of images so"
        )
    return [sample[name] for sample in samples]


def _name(transform: object) -> str:
    fn = getattr(transform, "fn", None)
    return type(transform).__name__ if fn is None else callable_name(fn)


def _sheet(titles: list[str], columns: list[list[Cell]], captions: list[tuple[str, str]]) -> Sheet:
    rows = zip(*columns, strict=True)
    return draw_sheet(titles, [Row(cells, *text) for cells, text in zip(rows, captions, strict=True)])
