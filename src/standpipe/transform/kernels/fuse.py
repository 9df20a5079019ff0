"""Fuse adjacent native transforms into one kernel, which decodes images, applies them, and writes the slot's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from standpipe import _native
from standpipe.contracts import Finish, Transform
from standpipe.errors import PlanError
from standpipe.spec import AnyArray, ArraySpec, DecodeMode, Decoding, Float32Array, Layout
from standpipe.transform.image import (
    MASK,
    GeometricTransform,
    ImageTransform,
    PixelTransform,
    RowForm,
    RowTransform,
    Size,
    ValueTransform,
)
from standpipe.transform.kernels.heads import Head, HeadsKernel, salt_of
from standpipe.transform.kernels.mask import MaskKernel, mask_kernel
from standpipe.transform.kernels.native import only_libjpeg
from standpipe.transform.kernels.stages import Stage, followed_by, with_ops
from standpipe.transform.kernels.views import Views, number_of_views, transforms_of
from standpipe.transform.pixels.element import Normalize
from standpipe.transform.pixels.geometry import RandomResize

# What the error for images of different sizes also says, where a batch can have such images.
AS_THEY_ARE = (
    '. Or deliver them in a list, .batch(…, collate={"image": list}), or padded, '
    'collate={"image": sp.Pad(max_shape=(height, width, 3))}'
)


@dataclass(frozen=True, slots=True)
class ImageKernel:
    """Adjacent image transforms, fused into one kernel.

    stages     passes over the pixels, in order
    output     shape and dtype of the image in one row of the slot
    layout     order of that image's axes
    table      (3, 256) float: the number written for each channel's byte values 0 to 255; None: bytes are written
    normalize  True if ``Normalize`` made ``table``
    erases     the transform that changes the finished image, with its part of the key of random numbers; or None
    mask       the kernel of the images' masks; None without masks
    """

    stages: tuple[Stage, ...]
    output: ArraySpec
    layout: Layout
    table: AnyArray | None = field(compare=False)
    normalize: bool
    erases: tuple[RowTransform, int] | None = None
    mask: MaskKernel | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields that image transforms read: ``image``, and ``mask`` if there is one."""
        return tuple(self.outputs)

    @property
    def outputs(self) -> Mapping[str, ArraySpec]:
        """The shape and dtype of ``image``, and of ``mask`` if there is one, in one row of the slot, by name."""
        return {"image": self.output} if self.mask is None else {"image": self.output, MASK: self.mask.output}

    @property
    def size_px(self) -> tuple[int, int]:
        """The (height, width) of the slot's images, in pixels."""
        shape = self.output.shape
        return (shape[1], shape[2]) if self.layout is Layout.NCHW else (shape[0], shape[1])

    def compile(self, decoding: Decoding, simd: str | None = None) -> _native.Program:
        """Return the kernel as a native program.

        decoding  how JPEGs are decoded, and their limits
        simd      instruction set to use; None: the widest that this machine runs
        """
        return _native.Program(
            stages=[stage.compile() for stage in self.stages],
            format=self._row_format(),
            fast=decoding.mode is DecodeMode.FAST,
            max_pixels=decoding.limits.max_pixels,
            max_scans=decoding.limits.max_scans,
            allow_truncated=decoding.allow_truncated,
            only_libjpeg=only_libjpeg(),
            simd=simd,
            upright=decoding.upright,
            erasing=None
            if self.erases is None
            else self.erases[0].erasing(self.erases[1], self.output.dtype),
        )

    @property
    def finish(self) -> Finish | None:
        """The last step alone: the conversion of bytes to floats and the layout.

        None if bytes are written, or if something follows that a device doesn't do.
        """
        return (
            None
            if self.table is None or self.erases is not None
            else Finish("image", self.table, self.output, self.layout)
        )

    def finished_by(self, finish: Finish | None) -> ImageKernel:
        """Return the kernel with ``finish`` as its last step; for None, the kernel writes (H, W, 3) uint8."""
        if finish is not None:
            return replace(self, output=finish.output, layout=finish.layout, table=finish.table)
        spec = ArraySpec((*self.size_px, 3), np.dtype(np.uint8))
        return replace(self, output=spec, layout=Layout.NHWC, table=None)

    def places(self, offsets: Mapping[str, int]) -> list[tuple[int, int]]:
        """Return the first byte of the first row in the slot, and the bytes from row to row, in a list of one.

        offsets  first byte of each field in the slot
        """
        return [(offsets["image"], self.output.row_bytes)]

    def rows(self, out: Mapping[str, AnyArray]) -> list[AnyArray]:
        """Return the field ``image`` of ``out``, one row of each output field by name, in a list of one."""
        return [out["image"]]

    def _row_format(self) -> _native.RowFormat:
        height, width = self.size_px
        planar = self.layout is Layout.NCHW
        if self.table is None:
            return _native.RowFormat.uint8(height, width, planar)
        if self.table.dtype == np.float32:
            return _native.RowFormat.float32(height, width, planar, self.table.view(np.float32))
        return _native.RowFormat.float16(height, width, planar, self.table.view(np.uint16))

    def describe(self) -> str:
        """Return one line for ``explain()`` about the steps after decoding."""
        steps = [name for stage in self.stages for name in stage.names]
        steps += ["Normalize"] if self.normalize and self.table is not None else []
        steps += [] if self.erases is None else [type(self.erases[0]).__name__]
        mask = [] if self.mask is None else ["move the mask, nearest pixels"]
        return " + ".join([*steps, *mask, f"write {self.layout.value} {self.output.dtype.name}"])


NativeKernel = ImageKernel | HeadsKernel


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
    masks: bool = False,
) -> NativeKernel:
    """Fuse ``transforms`` into one kernel.

    source_px  (height, width) in pixels if every image has this size before the transforms, else None
    earlier    native transforms that run before this kernel; they count for the keys of random numbers, so that no
               two transforms use the same numbers
    masks      True if images have masks, which the kernel moves as well

    Raises ``PlanError`` if a transform is invalid or in a wrong place, or if images would differ in size.
    """
    views = next((each for each in transforms if isinstance(each, Views)), None)
    if views is None:
        kernel = _fused(transforms, source_px, earlier, instead=AS_THEY_ARE)
        return replace(kernel, mask=mask_kernel(transforms, source_px, earlier=earlier)) if masks else kernel
    place = transforms.index(views)
    if after := transforms[place + 1 :]:
        raise PlanError(
            f"Views must be the last native transform: put {type(after[0]).__name__} into the list of each view"
        )
    return _views(views, transforms[:place], source_px, earlier)


def _views(
    views: Views, before: Sequence[Transform], source_px: Size | None, earlier: Sequence[Transform]
) -> HeadsKernel:
    """Fuse the transforms of each view with those before ``Views``, which all views share."""
    views.check()
    if drawn := [each for each in before if isinstance(each, ImageTransform) and each.is_random]:
        raise PlanError(
            f"{drawn[0].describe()} can't come before Views, as it is random: put it into the list of each view"
        )
    heads = []
    for name, given in views.views.items():
        number = number_of_views(given)
        try:
            kernel = _fused([*before, *transforms_of(given)], source_px, earlier)
        except PlanError as error:
            raise PlanError(f"Views, {name}: {error}") from error
        heads += [
            Head(name, kernel, None if number is None else place, salt_of(name, place))
            for place in range(number or 1)
        ]
    return HeadsKernel(tuple(heads))


def _fused(
    transforms: Sequence[Transform],
    source_px: Size | None,
    earlier: Sequence[Transform],
    *,
    instead: str = "",
) -> ImageKernel:
    """Fuse transforms with one result into one kernel; ``fuse`` documents the rest.

    instead  what the error for images of different sizes also says
    """
    stages: tuple[Stage, ...] = ()
    size = source_px
    form, last = RowForm(), list[str]()
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
        if isinstance(transform, ValueTransform):
            if name in last:
                raise PlanError(f"the pipeline has {name} twice; leave one out")
            if isinstance(transform, RowTransform):
                erases = (transform, op)
            elif erases is not None and isinstance(transform, Normalize):
                raise PlanError(f"{erases[0].describe()} must come after Normalize; move it behind it")
            form, last = transform.applied_to(form), [*last, name]
            continue
        if last:
            raise PlanError(f"{transform.describe()} must come before {' and '.join(last)}; move it there")
        assert isinstance(transform, GeometricTransform | PixelTransform)
        stages = followed_by(stages, transform, op, size)
        size = transform.size_after(size)
    if size is None:
        random = any(isinstance(each, RandomResize) for each in transforms)
        raise PlanError(
            "the images' size isn't fixed at .batch: add RandomResizedCrop(size), CenterCrop(size) or "
            + ("RandomCrop(size) after RandomResize" if random else f"Resize((height, width)){instead}")
        )
    kernel = _with_output(stages, size, form)
    if erases is not None:
        erases[0].erasing(erases[1], kernel.output.dtype)
    return replace(kernel, erases=erases)


def _with_output(stages: tuple[Stage, ...], size: Size, form: RowForm) -> ImageKernel:
    normalize = form.table is not None
    dtype = np.dtype(form.dtype or ("float32" if normalize else "uint8"))
    if normalize and dtype == np.uint8:
        raise PlanError("Normalize gives floats: leave out ToDtype('uint8'), or leave out Normalize")
    layout = form.layout or (Layout.NHWC if dtype == np.uint8 else Layout.NCHW)
    shape = (3, *size) if layout is Layout.NCHW else (*size, 3)
    table: AnyArray | None = None
    if dtype != np.uint8:
        floats = _unnormalized(form.scale) if form.table is None else form.table
        table = floats.astype(dtype)
    return ImageKernel(stages, ArraySpec(shape, dtype), layout, table, normalize)


def _unnormalized(scale: bool) -> Float32Array:
    """Return the float for each channel's byte values 0 to 255 without ``Normalize``, (3, 256) float32.

    scale  True: value ÷ 255, from 0 to 1; False: from 0 to 255
    """
    if scale:
        return Normalize((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)).table()
    return np.tile(np.arange(256, dtype=np.float32), (3, 1))


def _hint(transform: object) -> str:
    if hasattr(transform, "__iter__") and not isinstance(transform, str):
        return "give transforms one by one, or .map(*transforms)"
    if isinstance(transform, type):
        return f"it is a class, write {transform.__name__}(…)"
    return "give transforms of standpipe or torchvision, or functions"
