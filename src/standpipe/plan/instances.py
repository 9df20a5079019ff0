"""Plan the instances of a batch: their fields, what drops them, and what can't move them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from standpipe.batch.collate import Contents, Pad, Padded, Ragged, Shape
from standpipe.batch.instances import InstanceFields
from standpipe.batch.masks import MaskFields, MaskForm
from standpipe.contracts import HasInstances, HasMasks, OpenSource, PythonSource, Transform
from standpipe.errors import PlanError
from standpipe.pipeline.description import Description
from standpipe.plan.fields import picture_kinds
from standpipe.plan.parts import InstancePlan, SamplePlan
from standpipe.source.targets import BOXES, KEYPOINTS
from standpipe.spec import MASKS, SIZE, Listed, RaggedSpec
from standpipe.transform import BatchFunction, Function, NativeStep, field_of_view
from standpipe.transform.image import ImageTransform
from standpipe.transform.kernels.views import Repeat, Views, transforms_of
from standpipe.transform.pixels.compositions import CopyPaste
from standpipe.transform.pixels.detection import RandomIoUCrop
from standpipe.transform.pixels.geometry import RandomHorizontalFlip, RandomVerticalFlip
from standpipe.transform.pixels.instances import InstanceTransform, SanitizeBoundingBoxes
from standpipe.units import show_bytes

if TYPE_CHECKING:
    from standpipe.plan.plan import Plan


def ragged_fields(source: OpenSource) -> dict[str, RaggedSpec]:
    """Return the fields of a source that have values of instances."""
    return {name: spec for name, spec in source.fields.items() if isinstance(spec, RaggedSpec)}


def instance_plan(pipeline: Description, source: OpenSource, samples: SamplePlan) -> InstancePlan | None:
    """Return what happens to the instances of a source's records; None if it has none.

    Raises ``PlanError`` for transforms that leave them behind or can't be where they are.
    """
    columns = ragged_fields(source)
    filters = filters_of(pipeline.transforms, next(iter(picture_kinds(pipeline, source))))
    if not columns:
        if found := instance_transforms(pipeline.transforms):
            raise PlanError(
                f"{found[0].describe()} is for instances, and this source has none: leave it out, or use a source "
                "with boxes, such as Coco"
            )
        return None
    if not isinstance(source, HasInstances | PythonSource) or columns.get(BOXES) != RaggedSpec(
        (4,), np.dtype(np.float32)
    ):
        raise PlanError(
            f"the fields {', '.join(sorted(columns))} have values of instances: the source needs the attributes of "
            "contracts.HasInstances, and the field 'boxes', (M, 4) float32"
        )
    _check_functions(pipeline)
    crops = _of(pipeline.transforms, RandomIoUCrop)
    if crops and isinstance(source, PythonSource) and pipeline.cached is not None:
        raise PlanError(
            f"{crops[0].describe()} can't follow a cache of a dataset's samples, whose boxes are those of the stored "
            "images: leave out the cache"
        )
    steps = () if samples.program is None else samples.program.steps
    native = [step for step in steps if isinstance(step, NativeStep)]
    if not all(step.kernel or step.any_size for step in native) or (samples.kernel is None and not native):
        raise PlanError(
            "instances need images of one size: add Resize((height, width)), RandomResizedCrop(size) or "
            "CenterCrop(size)"
        )
    pairs: tuple[tuple[int, int], ...] | None = ()
    if KEYPOINTS in columns:
        own = pipeline.decoding.pictures.flip_pairs
        pairs = source.flip_pairs if own is None and isinstance(source, HasInstances) else own
        check_pairs(pairs, columns[KEYPOINTS].shape[0], pipeline.transforms)
    from_shapes = pipeline.masks is not None and pipeline.masks.boxes_from == "shape"
    return InstancePlan(filters=filters, pairs=pairs or (), boxes_from_shapes=from_shapes)


def instance_fields(
    pipeline: Description, source: OpenSource, samples: SamplePlan, rows: int, contents: Contents
) -> InstanceFields | None:
    """Return the fields of a batch of ``rows`` rows that come from instances; None without any."""
    how = pipeline.instances
    if pipeline.masks is not None and not _has_masks(source):
        raise PlanError(
            "batch(masks=…, mask_ratio=…, boxes_from='shape') needs instances with masks, and this source has none: "
            "give a source instance_masks=True, such as Coco, or leave them out"
        )
    if not _has_masks(source) and _of(pipeline.transforms, CopyPaste):
        raise PlanError(
            "CopyPaste needs objects with masks, and this source has none: give a source instance_masks=True, such as "
            "Coco, or leave it out"
        )
    if samples.instances is None:
        if how is not None:
            raise PlanError(f"batch(instances={how!r}): this source has no instances. Leave it out")
        return None
    room = 0
    if isinstance(how, Ragged) and how.max_values is not None:
        room = how.max_values
    elif isinstance(source, HasInstances):
        room = rows * max(_most_instances(source, samples), 1)
    elif not isinstance(how, Pad):
        raise PlanError(
            "the most instances of a batch aren't known before samples are made: give "
            "batch(instances=sp.Ragged(max_values=…)), or sp.Pad(length=…) for the most of a sample"
        )
    reference = next(iter(picture_kinds(pipeline, source)))
    prefixes = {image: field_of_view(image, "", reference) for image in samples.instances.filters}
    columns = ragged_fields(source)
    handed_over: tuple[str, ...] = ()
    if isinstance(source, PythonSource):
        handed_over = (*columns, SIZE, *((MASKS,) if _has_masks(source) else ()))
    form = InstanceFields(columns, prefixes, rows, room, how, handed_over)
    if not _has_masks(source) or any(
        contents.get(image) is None for image in prefixes
    ):  # None: measured later
        return form
    most = each = room if form.length is None else form.length
    if isinstance(source, HasInstances):
        most = min(most, _most_instances(source, samples))
        each = math.ceil(source.num_instances / source.num_records)
    asked, shown, listed = pipeline.masks or MaskForm(), dict[str, Shape | None](), 0
    for image in prefixes:
        spec = contents[image]
        shown[image] = spec.largest if isinstance(spec, Padded) else getattr(spec, "shape", None)
        listed += spec.nbytes if isinstance(spec, Listed) else 0
    head = next(head for kernel in samples.kernels for head in kernel.heads if head.field in prefixes)
    masks = MaskFields.planned(asked, most, head.axes, shown)
    each = 1 if asked.masks == "index" else each
    pixel_bytes = head.channels_after * head.output.dtype.itemsize * asked.mask_ratio**2
    return replace(form, masks=replace(masks, apart=listed * each * masks.dtype.itemsize // pixel_bytes))


def _most_instances(source: HasInstances, samples: SamplePlan) -> int:
    """Return the most instances of a row."""
    images = 1 if samples.composed is None else samples.composed.images
    return images * source.most_instances


def _has_masks(source: OpenSource) -> bool:
    return isinstance(source, HasMasks) and source.has_masks


def instance_lines(plan: Plan) -> list[str]:
    """Return the lines of ``explain()`` on the number of instances, their room in a batch, and which are dropped."""
    form, source, how = plan.batch.instances, plan.source, plan.samples.instances
    if form is None or how is None:
        return []
    each = sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in form.columns.values())
    known = ""
    if isinstance(source, HasInstances):
        average, most = source.num_instances / source.num_records, source.most_instances
        known = f"{average:.1f} a record on average, {show_bytes(average * each)}; {most:,} at most, "
        known += f"{show_bytes(most * each)}; "
    room = form.room if form.length is None else form.rows * form.length
    size = show_bytes(room * each * len(form.prefixes))
    drops = "SanitizeBoundingBoxes drops small ones" if any(how.filters.values()) else "empty boxes stay"
    drops += "; boxes are those around moved shapes" if how.boxes_from_shapes else ""
    many = "s" if len(how.pairs) > 1 else ""
    pairs = f"; {len(how.pairs)} pair{many} of keypoints swap where a row is mirrored" if how.pairs else ""
    return [
        f"instances: {', '.join(form.columns)}; {known}room for {room:,} in a batch, {size}",
        f"  {drops}{pairs}",
    ]


def instance_transforms(transforms: Sequence[Transform]) -> list[Any]:
    """Return the transforms that need instances, also those of views and groups."""
    return _of(transforms, InstanceTransform, RandomIoUCrop)


def filters_of(transforms: Sequence[Transform], reference: str) -> dict[str, SanitizeBoundingBoxes | None]:
    """Return what drops instances of each image that is made of the reference.

    Raises ``PlanError`` if it isn't at the end.
    """
    views = next((each for each in transforms if isinstance(each, Views)), None)
    if views is None:
        return {reference: _filter(transforms)}
    before = transforms[: transforms.index(views)]
    return {name: _filter([*before, *transforms_of(given)]) for name, given in views.views.items()}


def _filter(transforms: Sequence[Transform]) -> SanitizeBoundingBoxes | None:
    """Return what drops instances at the end. Raises ``PlanError`` if it isn't at the end."""
    found: SanitizeBoundingBoxes | None = None
    for each in transforms:
        if isinstance(each, SanitizeBoundingBoxes):
            if found is not None:
                raise PlanError("the pipeline has SanitizeBoundingBoxes twice; leave one out")
            found = each
        elif found is not None and isinstance(each, ImageTransform) and each.moves:
            raise PlanError(
                f"{found.describe()} comes before {each.describe()}, which moves boxes: put it behind all transforms "
                "that move pixels. Once is enough"
            )
    return found


def _check_functions(pipeline: Description) -> None:
    """Raise ``PlanError`` for code and settings that would leave instances behind."""
    for each in (*pipeline.transforms, *pipeline.batch_functions):
        if isinstance(each, Function | BatchFunction):
            raise PlanError(
                f"{each.describe()} can't be in a pipeline with instances: workers would call it before boxes are "
                "moved. Use standpipe's transforms, or change the batch in your loop"
            )
        if isinstance(each, Views) and any(isinstance(given, Repeat) for given in each.views.values()):
            raise PlanError("Views with instances can't have Repeat: give each view a name of its own")


def check_pairs(
    pairs: Sequence[tuple[int, int]] | None, points: int, transforms: Sequence[Transform]
) -> None:
    """Raise ``PlanError`` if pairs of left and right keypoints are needed, or have other numbers than the points."""
    flips = _of(transforms, RandomHorizontalFlip, RandomVerticalFlip)
    if pairs is None and flips:
        raise PlanError(
            f"{flips[0].describe()} mirrors keypoints, and the source doesn't say which of them are left and right: "
            "write decode(flip_pairs=((1, 2), …)) with their numbers from 0, or decode(flip_pairs=()) if they have no "
            "sides"
        )
    if any(not 0 <= number < points for pair in pairs or () for number in pair):
        raise PlanError(f"decode(flip_pairs={pairs!r}): the keypoints have the numbers 0 to {points - 1}")


def _of(transforms: Sequence[Any], *kinds: type) -> list[Any]:
    """Return the transforms of some kinds, also those of views and groups."""
    found = [each for each in transforms if isinstance(each, kinds)]
    for each in transforms:
        parts = [*each.transforms()] if isinstance(each, Views) else getattr(each, "transforms", ())
        found += _of(parts, *kinds) if isinstance(parts, list | tuple) else []  # apply() asks before check()
    return found
