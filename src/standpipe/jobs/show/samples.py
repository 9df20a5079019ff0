"""The samples that ``Pipeline.show`` draws, as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.jobs.fill_cache import filled
from standpipe.jobs.filter_scan import planned
from standpipe.jobs.show.pixels import painted, pictures_of
from standpipe.jobs.show.sheet import Row, Sheet, drawn
from standpipe.loader.loader import Loader
from standpipe.pipeline.pipeline import Pipeline
from standpipe.plan.options import LoaderOptions
from standpipe.spec import UInt8Array
from standpipe.transform.function import callable_name
from standpipe.transform.image import MASK
from standpipe.transform.mask import moves_mask
from standpipe.transform.views import Views
from standpipe.transform.window import PadImage

MOST_SAMPLES = 1000
OPTIONS = LoaderOptions(executor="inline", num_workers=1, prefetch=1, autotune=False, probe=False)

Sample = dict[str, Any]


def show(pipeline: Pipeline, n: int, steps: bool, epoch: int) -> Sheet:
    """Return the sheet of an epoch's first samples. ``Pipeline.show`` documents the arguments and errors."""
    for name, value, least in (("n", n, 1), ("epoch", epoch, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise PlanError(f"show({name}={value!r}): {name} must be an integer of at least {least}")
    if n > MOST_SAMPLES:
        raise PlanError(f"show(n={n}): a sheet has at most {MOST_SAMPLES} samples")
    # It shows what the transforms do now, on this machine, and keeps no rows.
    pipeline = replace(pipeline, cached=None, gpu=None)
    return _shown_steps(pipeline, n, epoch) if steps else _shown(pipeline, n, epoch)


def _shown(pipeline: Pipeline, n: int, epoch: int) -> Sheet:
    samples, captions = _samples(pipeline if _is_batched(pipeline) else _alone(pipeline, n), n, epoch)
    titles: list[str] = []
    columns: list[list[UInt8Array]] = []
    for name in _image_fields(pipeline, samples[0]):
        pictures = pictures_of([sample[name] for sample in samples], name, pipeline.transforms)
        number = len(pictures[0])
        titles += [name] if number == 1 else [f"{name} {place}" for place in range(number)]
        columns += [[each[place] for each in pictures] for place in range(number)]
    if MASK in samples[0]:
        titles += [MASK]
        columns += [[painted(image, sample[MASK]) for image, sample in zip(columns[0], samples, strict=True)]]
    return _sheet(titles, columns, captions)


def _shown_steps(pipeline: Pipeline, n: int, epoch: int) -> Sheet:
    """Return a sheet with a column for the source's images and one for each transform."""
    transforms = pipeline.transforms
    if any(isinstance(each, Views) for each in transforms):
        raise PlanError(
            "show(steps=True) can't draw the steps of Views. Leave steps out, or show a pipeline that has one view's "
            "transforms"
        )
    samples, captions = _samples(_alone(pipeline, n, ()), n, epoch)
    columns: list[list[UInt8Array]] = []
    for number in range(len(transforms) + 1):
        first = transforms[:number]
        if number:
            samples, _ = _samples(_alone(pipeline, n, first), n, epoch)
        _image_fields(pipeline, samples[0])
        images = [each[0] for each in pictures_of([sample["image"] for sample in samples], "image", first)]
        if MASK in samples[0]:
            images = [painted(image, sample[MASK]) for image, sample in zip(images, samples, strict=True)]
        columns.append(images)
    return _sheet(["source", *(_name(each) for each in transforms)], columns, captions)


def _is_batched(pipeline: Pipeline) -> bool:
    """Return True if a loader of the pipeline has batches without being told their records."""
    return (pipeline.batch_size is not None or pipeline.budget is not None) and not pipeline.batch_sampler


def _alone(pipeline: Pipeline, n: int, transforms: Sequence[Transform] | None = None) -> Pipeline:
    """Return the pipeline in batches of ``n``, whose images may differ in size.

    transforms  instead of all transforms: the first ones, without functions of batches
    """
    if transforms is None:
        later = any(not each.collates for each in pipeline.batch_functions)
        return pipeline.batch(n, last_batch="pad", collate_fn=None if later else _lists)
    if moves_mask(pipeline.transforms) and not moves_mask(transforms):
        transforms = (PadImage(0), *transforms)  # it decodes masks, and moves nothing
    first = replace(pipeline, transforms=tuple(transforms), batch_functions=(), finite=None, labels=())
    return first.batch(n, last_batch="pad", collate_fn=_lists)


def _lists(samples: list[Sample]) -> dict[str, list[Any]]:
    return {name: [sample[name] for sample in samples] for name in samples[0]}


def _samples(pipeline: Pipeline, n: int, epoch: int) -> tuple[list[Sample], list[str]]:
    """Return the first ``n`` samples of an epoch, or fewer if it has fewer, and the caption of each."""
    samples: list[Sample] = []
    captions: list[str] = []
    with Loader(filled(planned(pipeline, OPTIONS))) as loader:
        loader.set_epoch(epoch)
        for given in loader:
            batch = cast("Mapping[str, Any]", given)
            for row in range(len(batch["index"])):
                if len(samples) == n or ("valid" in batch and not batch["valid"][row]):
                    break
                samples.append({name: np.array(values[row]) for name, values in batch.items()})
                captions.append(_caption(loader, samples[-1]))
            del batch, given  # the slot is for the next
            if len(samples) == n:
                break
    if not samples:
        raise PlanError("show() found no samples: this epoch of the pipeline has none")
    return samples, captions


def _caption(loader: Loader, sample: Sample) -> str:
    """Return a sample's class, if it is a number, and the name of its record."""
    classes, label = loader.plan.classes, sample.get("label")
    index = int(sample["index"])
    parts = [loader.plan.source.name(index) or f"record {index}"]
    if label is not None and label.shape == () and label.dtype.kind in "iu":
        known = classes is not None and 0 <= int(label) < len(classes)
        parts.insert(0, classes[int(label)] if classes is not None and known else f"label {label}")
    return "   ".join(parts)


def _image_fields(pipeline: Pipeline, sample: Sample) -> list[str]:
    """Return the names of the fields to draw. Raises ``PlanError`` if the samples don't have them."""
    views = next((each for each in pipeline.transforms if isinstance(each, Views)), None)
    names = ["image"] if views is None else list(views.writes)
    for name in names:
        if name not in sample:
            raise PlanError(
                f"show() draws the field {name!r}, but the samples have the fields {', '.join(sample)}. Name the "
                "field of images so"
            )
    return names


def _name(transform: Transform) -> str:
    fn = getattr(transform, "fn", None)
    return type(transform).__name__ if fn is None else callable_name(fn)


def _sheet(titles: list[str], columns: list[list[UInt8Array]], captions: list[str]) -> Sheet:
    rows = zip(*columns, strict=True)
    return drawn(titles, [Row(list(cells), text) for cells, text in zip(rows, captions, strict=True)])
