"""Fuse adjacent native transforms into one kernel, which decodes images, applies them, and writes the slot's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.spec import AnyArray, ArraySpec, Float32Array, Layout
from standpipe.transform.image import (
    GeometricTransform,
    ImageTransform,
    PixelTransform,
    RowForm,
    RowTransform,
    Size,
    ValueTransform,
)
from standpipe.transform.kernels.heads import Head, Input, NativeKernel, salt_of
from standpipe.transform.kernels.stages import Stage, followed_by, with_ops
from standpipe.transform.kernels.views import Views, number_of_views, transforms_of
from standpipe.transform.pixels.element import Normalize
from standpipe.transform.pixels.geometry import RandomResize
from standpipe.transform.pixels.instances import InstanceTransform

# What the error for images of different sizes also says, where a batch can have such images.
AS_THEY_ARE = (
    '. Or deliver them in a list, .batch(…, collate={"image": list}), or padded, '
    'collate={"image": sp.Pad(max_shape=(height, width, 3))}'
)


def split_at_cache(transforms: Sequence[Transform], after: int) -> tuple[list[Transform], list[Transform]]:
    """Split transforms into those before and those behind a cache, whose place is after the first ``after``.

    ``Normalize``, ``ToDtype`` and ``ToLayout`` always run behind the cache, so they move to the end.
    """
    last = [transform for transform in transforms[:after] if isinstance(transform, ValueTransform)]
    before = [transform for transform in transforms[:after] if not isinstance(transform, ValueTransform)]
    return before, [*transforms[after:], *last]


def fuse(
    transforms: Sequence[Transform],
    source_px: Size | None,
    *,
    earlier: Sequence[Transform] = (),
    inputs: Sequence[Input] = (Input(),),
) -> NativeKernel:
    """Fuse ``transforms`` into one kernel.

    source_px  (height, width) in pixels if every reference has this size before the transforms, else None
    earlier    native transforms that run before this kernel; they count for the keys of random numbers, so that no
               two transforms use the same numbers
    inputs     the pictures that the kernel makes, with their channels before the transforms; first the reference

    Raises ``PlanError`` if a transform is invalid or in a wrong place, or if images would differ in size.
    """
    views = next((each for each in transforms if isinstance(each, Views)), None)
    if views is None:
        heads = _heads(transforms, source_px, earlier, inputs, instead=AS_THEY_ARE)
    else:
        heads = _views(views, transforms, source_px, earlier, inputs)
    kernel = NativeKernel(tuple(heads))
    for head in kernel.heads:
        twin = kernel.twin_of(head)
        if head.input.twin is not None and (twin is None or kernel.heads[twin].output != head.output):
            raise PlanError(
                f"decode(pairs=…): {head.input.field!r} and {head.input.twin!r} swap where rows are mirrored, so both "
                "must be pictures of the same kind, with the same number of channels"
            )
    return kernel


def _views(
    views: Views,
    transforms: Sequence[Transform],
    source_px: Size | None,
    earlier: Sequence[Transform],
    inputs: Sequence[Input],
) -> list[Head]:
    """Fuse the transforms of each view with those before ``Views``, which all views share."""
    place = transforms.index(views)
    before, after = transforms[:place], transforms[place + 1 :]
    if after:
        raise PlanError(
            f"Views must be the last native transform: put {type(after[0]).__name__} into the list of each view"
        )
    views.check()
    if drawn := [each for each in before if isinstance(each, ImageTransform) and each.is_random]:
        raise PlanError(
            f"{drawn[0].describe()} can't come before Views, as it is random: put it into the list of each view"
        )
    made: dict[str, list[Head]] = {each.field: [] for each in inputs}
    for name, given in views.views.items():
        number = number_of_views(given)
        try:
            heads = _heads([*before, *transforms_of(given)], source_px, earlier, inputs)
        except PlanError as error:
            raise PlanError(f"Views, {name}: {error}") from error
        places = [None] if number is None else range(number)
        salts = [(place, salt_of(name, place or 0)) for place in places]
        for head in heads:
            field = name if head is heads[0] else field_of_view(name, head.field, heads[0].field)
            if field != name and field in views.views:
                raise PlanError(
                    f"Views: the field {head.field!r} of the view {name!r} becomes {field!r}, which is a view as well; "
                    "give that view another name"
                )
            made[head.field] += [replace(head, field=field, place=place, salt=salt) for place, salt in salts]
    return [head for heads in made.values() for head in heads]


def field_of_view(view: str, field: str, reference: str = "image") -> str:
    """Return the name of a further field's view, such as ``"a_mask"``; a view named as the reference leaves it."""
    return field if view == reference else f"{view}_{field}"


def _heads(
    transforms: Sequence[Transform],
    source_px: Size | None,
    earlier: Sequence[Transform],
    inputs: Sequence[Input],
    *,
    instead: str = "",
) -> list[Head]:
    """Return a head for each input, by the same transforms; ``fuse`` and ``_fused`` document the rest."""
    heads: list[Head] = []
    for each in inputs:
        scale = Fraction(each.grid, inputs[0].grid)
        size = None if source_px is None else (int(source_px[0] * scale), int(source_px[1] * scale))
        try:
            own = [part.scaled(scale) if isinstance(part, ImageTransform) else part for part in transforms]
            heads.append(_fused(own, size, earlier, each, instead=instead))
        except PlanError as error:
            if not heads:
                raise
            raise PlanError(f"{each.field}: {error}") from error
    return heads


def _fused(
    transforms: Sequence[Transform],
    source_px: Size | None,
    earlier: Sequence[Transform],
    given: Input,
    *,
    instead: str = "",
) -> Head:
    """Fuse transforms of a picture into one head; ``fuse`` documents the rest.

    Where it isn't an image, the head moves its pixels as the transforms move those of images, and changes no value.

    instead  what the error for images of different sizes also says
    """
    stages: tuple[Stage, ...] = ()
    size = source_px
    form, last = RowForm(given.channels), list[str]()
    erases: tuple[RowTransform, int] | None = None
    if done := [type(each).__name__ for each in earlier if isinstance(each, ValueTransform)]:
        raise PlanError(
            f"native transforms can't follow a Python one that comes after {' and '.join(done)}; move them before it"
        )
    for transform, op in with_ops(transforms, earlier):
        if not isinstance(transform, ImageTransform):
            shown = transform.__name__ if isinstance(transform, type) else repr(transform)
            raise PlanError(f"{shown} isn't a transform that standpipe knows: {_hint(transform)}")
        transform.check()
        name = type(transform).__name__
        if isinstance(transform, Views):
            raise PlanError("Views can't be in a view; give each view a name in one Views")
        if given.kind.is_image:
            form = replace(form, channels=transform.channels_after(form.channels))
        elif isinstance(transform, ValueTransform):
            continue
        if isinstance(transform, ValueTransform):
            if name in last:
                raise PlanError(f"the pipeline has {name} twice; leave one out")
            if isinstance(transform, RowTransform):
                erases = (transform, op)
            elif erases is not None and isinstance(transform, Normalize):
                raise PlanError(f"{erases[0].describe()} must come after Normalize; move it behind it")
            form, last = transform.applied_to(form), [*last, name]
            continue
        if last and not isinstance(transform, InstanceTransform):
            raise PlanError(f"{transform.describe()} must come before {' and '.join(last)}; move it there")
        moving = transform.for_kind(given.kind)
        if isinstance(moving, GeometricTransform | PixelTransform):  # others only check the channels
            stages = followed_by(stages, moving, op, size)
        size = transform.size_after(size)
    varies = size is None and given.canvas is not None
    if varies:
        size = _largest(given, form)
    if size is None:
        random = any(isinstance(each, RandomResize) for each in transforms)
        raise PlanError(
            "the images' size isn't fixed at .batch: add RandomResizedCrop(size), CenterCrop(size) or "
            + ("RandomCrop(size) after RandomResize" if random else f"Resize((height, width)){instead}")
        )
    if not given.kind.is_image:
        output = ArraySpec(size, np.dtype(f"u{given.channels}"))
        return Head(given, stages, output, field=given.field, varies=varies)
    head = _with_output(given, stages, size, form)
    if erases is not None:
        erases[0].erasing(erases[1], head.output.dtype)
    return replace(head, erases=erases, varies=varies)


def _largest(given: Input, form: RowForm) -> Size:
    """Return the (height, width) of an input's canvas. Raises ``PlanError`` if it has other channels or axes."""
    assert given.canvas is not None
    shape, _ = given.canvas
    if not shape:
        return 0, 0
    if not given.kind.is_image:
        return shape[0], shape[1]
    _, layout = _format(form)
    channels, size = (shape[:1], shape[1:]) if layout is Layout.NCHW else (shape[2:], shape[:2])
    if channels != (form.channels,) or len(shape) != 3:
        raise PlanError(
            f"{shape} isn't the shape of {given.field!r} in {layout.value} with {form.channels} channels"
        )
    return size[0], size[1]


def _format(form: RowForm) -> tuple[np.dtype[np.generic], Layout]:
    dtype = np.dtype(form.dtype or ("uint8" if form.table is None else "float32"))
    return dtype, form.layout or (Layout.NHWC if dtype == np.uint8 else Layout.NCHW)


def _with_output(given: Input, stages: tuple[Stage, ...], size: Size, form: RowForm) -> Head:
    normalize = form.table is not None
    dtype, layout = _format(form)
    if normalize and dtype == np.uint8:
        raise PlanError("Normalize gives floats: leave out ToDtype('uint8'), or leave out Normalize")
    shape = (form.channels, *size) if layout is Layout.NCHW else (*size, form.channels)
    table: AnyArray | None = None
    if dtype != np.uint8:
        floats = _unnormalized(form) if form.table is None else form.table
        table = floats.astype(dtype)
    return Head(given, stages, ArraySpec(shape, dtype), layout, table, normalize, field=given.field)


def _unnormalized(form: RowForm) -> Float32Array:
    """Return the float for each channel's byte values 0 to 255 without ``Normalize``, (channels, 256) float32."""
    if form.scale:
        return Normalize((0.0,), (1.0,)).table(form.channels)
    return np.tile(np.arange(256, dtype=np.float32), (form.channels, 1))


def channels_after(transforms: Sequence[Transform], channels: int) -> int:
    """Return the images' number of channels after native transforms."""
    for transform in transforms:
        if isinstance(transform, ImageTransform):
            channels = transform.channels_after(channels)
    return channels


def _hint(transform: object) -> str:
    if hasattr(transform, "__iter__") and not isinstance(transform, str):
        return "give transforms one by one, or .map(*transforms)"
    if isinstance(transform, type):
        return f"it is a class, write {transform.__name__}(…)"
    return "give transforms of standpipe or torchvision, or functions"
