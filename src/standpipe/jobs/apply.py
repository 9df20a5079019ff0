"""Apply a pipeline's deterministic transforms to given images, as a model's server does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.contracts import Encoded
from standpipe.engine.watchdog.board import new_heartbeat
from standpipe.errors import DecodeError, PlanError, ReadError
from standpipe.jobs.applied_instances import applied_instances, given_instances, has_instances
from standpipe.pipeline.description import Description
from standpipe.plan.memory import READ_BYTES, SIDE_BYTES
from standpipe.source.targets import BOXES
from standpipe.spec import DECODED, KINDS, AnyArray, Decoding, UInt8Array
from standpipe.system.paths import absolute
from standpipe.transform import (
    IMAGE,
    BatchFunction,
    Function,
    Input,
    NativeKernel,
    field_of_view,
    fuse,
    is_scheduled,
    kinds_of,
    what_draws,
)
from standpipe.transform.decoders.channels import Undecodable, form_of
from standpipe.transform.decoders.foreign import decode_foreign, decode_input, encoded_size
from standpipe.transform.image import ImageTransform
from standpipe.transform.python.function import callable_name
from standpipe.transform.python.values import is_picture

KEY = (0, 0, 0, 0)  # seed, epoch, position, attempt: no transform uses random numbers


def apply(pipeline: Description, images: Sequence[Any] | Mapping[str, Sequence[Any]]) -> dict[str, AnyArray]:
    """Return the batch of ``images``. ``Pipeline.apply`` documents the arguments and errors.

    No transform is random, so fields are made one after another.
    """
    if not isinstance(images, Mapping):
        return _applied(pipeline, images, {} if has_instances(pipeline) else None)
    chosen = pipeline.decoding.pictures
    instances: Mapping[str, Sequence[Any]] | None = {} if has_instances(pipeline) else None
    if BOXES in images:
        pictures = {IMAGE.name, *chosen.fields}
        instances = {name: values for name, values in images.items() if name not in pictures}
        images = {name: values for name, values in images.items() if name in pictures}
    kinds = kinds_of(dict.fromkeys(images, Encoded()), chosen, whole=False)
    scales = dict(chosen.scale)
    grids = chosen.grids({*kinds, *scales})
    reference = min(kinds, key=lambda field: (field != IMAGE.name, field in scales))
    batch: dict[str, AnyArray] = {}
    for field, kind in kinds.items():
        if not kind.is_image:
            raise PlanError(f"apply() takes images, and {field!r} is a {kind.name}: leave it out")
        if field not in images:
            raise PlanError(f"apply() takes all images of a record, but {field!r} isn't given: add it")
        scale = scales.get(field, Fraction(1))
        own = [
            each.scaled(scale) if isinstance(each, ImageTransform) else each for each in pipeline.transforms
        ]
        for name, rows in _applied(
            replace(pipeline, transforms=tuple(own)),
            images[field],
            instances if field == reference else None,
            grids[field],
        ).items():
            plain = field if name == IMAGE.name else field_of_view(name, field, reference)
            batch[name if field == reference and name != IMAGE.name else plain] = rows
    return batch


def _applied(
    pipeline: Description,
    images: Sequence[Any],
    instances: Mapping[str, Sequence[Any]] | None,
    grid: int = 1,
) -> dict[str, AnyArray]:
    """Return the batch of images of one field, as that of ``image``.

    instances  values of the images' instances by field; None: it has no fields that come from instances
    grid       that of the field's input
    """
    if _is_image(images):
        raise PlanError("apply() takes a list of images. For one image, write apply([image])")
    if not isinstance(images, Iterable):
        raise PlanError(f"apply() takes a list of images, got {images!r:.80}")
    _check(pipeline)
    given = [_given(index, each, pipeline.decoding) for index, each in enumerate(images)]
    if not given:
        raise PlanError("apply() got no images")
    try:
        kernel = _kernel(pipeline, given, grid)
    except PlanError:  # perhaps as the size of the images matters, which only their pixels say
        given = [(_decoded(pipeline, index, *each), each[1]) for index, each in enumerate(given)]
        kernel = _kernel(pipeline, given, grid)
    batch: dict[str, AnyArray] = {
        name: np.empty((len(given), *spec.shape), spec.dtype) for name, spec in kernel.outputs.items()
    }
    program, decode = kernel.compile(pipeline.decoding), partial(decode_input, pipeline.decoding)
    maker = _native.RowMaker(_native.SideArena(SIDE_BYTES[1]), READ_BYTES, new_heartbeat(), decode)
    for index, (image, path) in enumerate(given):
        rows = kernel.rows({name: values[index] for name, values in batch.items()})
        into = [row.reshape(-1).view(np.uint8) for row in rows]
        has_bytes = image.ndim > 1 or image.size > 0
        wrong = maker.make(program, 0, image, *KEY, into) if has_bytes else "the image has no bytes"
        if wrong:
            raise DecodeError(wrong, place="transform", index=index, path=path)
    if instances is None:
        return batch
    sizes = [each.shape[:2] if each.ndim == 3 else encoded_size(each, pipeline.decoding) for each, _ in given]
    columns = given_instances(instances, len(given))
    return {**batch, **applied_instances(pipeline, kernel, np.array(sizes, np.int64), columns)}


def _check(pipeline: Description) -> None:
    """Raise ``PlanError`` unless a pipeline's transforms are native and deterministic."""
    for transform in pipeline.transforms:
        if is_scheduled(transform):
            raise PlanError(
                f"apply() has no epoch or step, but parameters of {transform!r} change by them. Give it one value "
                "instead of the Schedule or PerStep, such as schedule.at(epoch)"
            )
    names = [name for each in pipeline.transforms if (name := what_draws(each)) is not None]
    names += [repr(each.mixing) for each in pipeline.batch_functions if each.mixing is not None]
    if names:
        raise PlanError(
            f"apply() takes deterministic transforms, but {', '.join(names)} {'is' if len(names) == 1 else 'are'} "
            "random. Use the pipeline of your evaluation"
        )
    for each in (*pipeline.transforms, *pipeline.batch_functions):
        if isinstance(each, Function | BatchFunction):
            raise PlanError(
                f"apply() runs native transforms only, and {callable_name(each.fn)} is a Python function. Leave it "
                "out, and call it on the result"
            )


def _is_image(value: object) -> bool:
    """Return True for one image instead of several, in a form that ``_given`` takes."""
    if isinstance(value, np.ndarray):
        return value.ndim == 3
    one = isinstance(value, str | bytes | bytearray | memoryview | os.PathLike)
    return one or hasattr(value, "read") or is_picture(value)


def _given(index: int, image: Any, decoding: Decoding) -> tuple[UInt8Array, str | None]:
    """Return an image as pixels, (H, W, C) uint8, or as encoded bytes, (n,) uint8; and its path, if it has one."""
    if isinstance(image, str | os.PathLike):
        path = os.fsdecode(image)
        absolute(path, field=f"apply(): input {index}")  # an address is refused
        try:
            with open(path, "rb") as file:  # noqa: PTH123 (any bytes)
                data = file.read()
        except OSError as error:
            raise ReadError(error.strerror or str(error), place="read", index=index, path=path) from None
        return np.frombuffer(data, np.uint8), path
    if hasattr(image, "read"):
        image = image.read()
    elif is_picture(image):
        image = _with_place(lambda: np.asarray(form_of(decoding)(image)), index, None)
        image = image[..., None] if image.ndim == 2 else image
    if isinstance(image, bytes | bytearray | memoryview):
        return np.frombuffer(image, np.uint8), None
    if (
        isinstance(image, np.ndarray)
        and image.dtype == np.uint8
        and image.ndim == 3
        and image.shape[2] in KINDS
    ):
        return np.ascontiguousarray(image), None
    got = f"{image.dtype} of shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
    raise PlanError(
        f"apply() takes paths, files, encoded bytes, Pillow images and arrays (H, W, C) uint8 with 1 to 4 channels, "
        f"but input {index} is {got}"
    )


def _kernel(pipeline: Description, given: Sequence[tuple[UInt8Array, str | None]], grid: int) -> NativeKernel:
    sizes = {(each.shape[0], each.shape[1]) if each.ndim == 3 else None for each, _ in given}
    kinds = {each.shape[2] if each.ndim == 3 else DECODED[pipeline.decoding.channels] for each, _ in given}
    channels = kinds.pop()
    if kinds or channels is None:
        raise PlanError(
            "apply() takes images of one number of channels at a time; decode(channels='RGB') converts all"
        )
    size = next(iter(sizes)) if len(sizes) == 1 else None
    return fuse(pipeline.transforms, size, inputs=[Input(channels=channels, grid=grid)])


def _decoded(pipeline: Description, index: int, image: UInt8Array, path: str | None) -> UInt8Array:
    """Return an image as pixels, (H, W, C) uint8: Pillow's, which ``decode("exact")`` has too."""
    if image.ndim == 3:
        return image
    return _with_place(lambda: decode_foreign(image, pipeline.decoding, lambda *_: "").pixels, index, path)


def _with_place(decode: Callable[[], UInt8Array], index: int, path: str | None) -> UInt8Array:
    """Return an image's pixels. Raise ``DecodeError`` with its place if it has none of bytes."""
    try:
        return decode()
    except Undecodable as error:
        raise DecodeError(str(error), place="transform", index=index, path=path) from None
