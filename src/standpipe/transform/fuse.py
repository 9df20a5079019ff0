"""Fuse adjacent native transforms into one kernel: decode, move and change pixels, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from standpipe import _native
from standpipe.contracts import Finish, Transform
from standpipe.errors import PlanError
from standpipe.spec import AnyArray, ArraySpec, DecodeMode, Decoding, Float32Array, Layout
from standpipe.transform.element import Normalize
from standpipe.transform.image import (
    GeometricTransform,
    ImageTransform,
    PixelTransform,
    RowForm,
    Size,
    ValueTransform,
)
from standpipe.transform.stages import Stage, followed_by


@dataclass(frozen=True, slots=True)
class ImageKernel:
    """The fused form of a pipeline's image transforms. Satisfies ``contracts.Kernel``.

    stages     the passes over the pixels; more than one only if a transform needs the whole result of another
    output     shape and dtype of one row of the slot
    layout     the order of its axes
    table      (3, 256): the number for each byte of each channel; None: bytes stay bytes
    normalize  True if the table is that of ``Normalize``
    """

    stages: tuple[Stage, ...]
    output: ArraySpec
    layout: Layout
    table: AnyArray | None = field(compare=False)
    normalize: bool

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the field that image transforms read: ``image``."""
        return ("image",)

    @property
    def outputs(self) -> Mapping[str, ArraySpec]:
        """Shape and dtype of the image in the slot."""
        return {"image": self.output}

    @property
    def size_px(self) -> tuple[int, int]:
        """The (height, width) of the slot's images, in pixels."""
        shape = self.output.shape
        return (shape[1], shape[2]) if self.layout is Layout.NCHW else (shape[0], shape[1])

    def compile(self, decoding: Decoding, simd: str | None = None) -> _native.Program:
        """Return the native form. ``simd`` names an instruction set; None: the widest that this machine runs."""
        return _native.Program(
            stages=[stage.compile() for stage in self.stages],
            format=self._row_format(),
            fast=decoding.mode is DecodeMode.FAST,
            max_pixels=decoding.limits.max_pixels,
            max_scans=decoding.limits.max_scans,
            allow_truncated=decoding.allow_truncated,
            simd=simd,
        )

    @property
    def finish(self) -> Finish | None:
        """The conversion of bytes to numbers, as a step of its own; None if bytes stay bytes."""
        return None if self.table is None else Finish("image", self.table, self.output, self.layout)

    def finished_by(self, finish: Finish | None) -> ImageKernel:
        """Return the kernel with another last step; without one it writes (H, W, 3) uint8."""
        if finish is not None:
            return replace(self, output=finish.output, layout=finish.layout, table=finish.table)
        spec = ArraySpec((*self.size_px, 3), np.dtype(np.uint8))
        return replace(self, output=spec, layout=Layout.NHWC, table=None)

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
        return " + ".join([*steps, f"write {self.layout.value} {self.output.dtype.name}"])


def split_at_cache(transforms: Sequence[Transform], after: int) -> tuple[list[Transform], list[Transform]]:
    """Split transforms at a cache that is written after the first ``after`` of them.

    ``Normalize``, ``ToDtype`` and ``ToLayout`` come after the cache, wherever they are written.
    """
    last = [transform for transform in transforms[:after] if isinstance(transform, ValueTransform)]
    before = [transform for transform in transforms[:after] if not isinstance(transform, ValueTransform)]
    return before, [*transforms[after:], *last]


def fuse(
    transforms: Sequence[Transform], source_px: Size | None, *, earlier: Sequence[Transform] = ()
) -> ImageKernel:
    """Make one kernel of ``transforms``.

    source_px  (height, width) if every image of the source has this size, else None
    earlier    transforms of kernels before this one, so that no two transforms use the same random numbers

    Raises ``PlanError`` if a transform is invalid or in a wrong place, or if images would differ in size.
    """
    stages: tuple[Stage, ...] = ()
    # The key of a transform's random numbers is its place among those of its kind. So adding or removing another
    # transform doesn't change them.
    drawn = Counter(each.draw_kind for each in earlier if isinstance(each, ImageTransform))
    size = source_px
    form, last = RowForm(), list[str]()
    if done := [type(each).__name__ for each in earlier if isinstance(each, ValueTransform)]:
        raise PlanError(
            f"native transforms can't follow a Python one that comes after {' and '.join(done)}; move them before it"
        )
    for transform in transforms:
        if not isinstance(transform, ImageTransform):
            raise PlanError(f"{transform!r} isn't a transform that standpipe knows{_hint(transform)}")
        transform.check()
        name = type(transform).__name__
        if isinstance(transform, ValueTransform):
            if name in last:
                raise PlanError(f"the pipeline has {name} twice; leave one out")
            form, last = transform.applied_to(form), [*last, name]
            continue
        if last:
            raise PlanError(f"{transform.describe()} must come before {' and '.join(last)}; move it there")
        assert isinstance(transform, GeometricTransform | PixelTransform)
        op = transform.draw_kind and transform.draw_kind << 16 | drawn[transform.draw_kind]
        stages = followed_by(stages, transform, op)
        drawn[transform.draw_kind] += 1
        size = transform.size_after(size)
    if size is None:
        raise PlanError(
            "the images' size isn't fixed at .batch: add RandomResizedCrop(size), CenterCrop(size) or "
            "Resize((height, width))"
        )
    return _with_output(stages, size, form)


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
    """Return the number for each byte of each channel without ``Normalize``, (3, 256) float32."""
    if scale:
        return Normalize((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)).table()
    return np.tile(np.arange(256, dtype=np.float32), (3, 1))


def _hint(transform: object) -> str:
    if isinstance(transform, list | tuple):
        return ": give transforms one by one, or .map(*transforms)"
    if isinstance(transform, type) and issubclass(transform, ImageTransform):
        return f": it is a class, write {transform.__name__}(…)"
    return ""
