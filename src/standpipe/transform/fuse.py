"""Adjacent transforms become one native kernel: decode, crop, resize, flip, normalise, write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np

from standpipe import _native
from standpipe.contracts import Finish, Transform
from standpipe.errors import PlanError
from standpipe.spec import AnyArray, DecodeMode, Decoding, Layout, Spec
from standpipe.transform.element import Normalize, ToDtype, ToLayout
from standpipe.transform.geometry import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from standpipe.transform.image import ImageTransform

Geometric = RandomResizedCrop | Resize | CenterCrop | RandomHorizontalFlip
Element = Normalize | ToDtype | ToLayout

# What the random draws of a transform are keyed by, beside the sample: its kind here, and its place among those
# of its kind. So a transform that draws nothing can come or go without changing another one's draws.
_DRAWS = {RandomResizedCrop: 1, RandomHorizontalFlip: 2}


@dataclass(frozen=True, slots=True)
class FusedStage:
    """One pass over an image's pixels: [random crop] → [resize] → [centred window] → [flips].

    ops  native ids of the draws of ``resize`` (when it is a RandomResizedCrop) and of ``flips``
    """

    resize: RandomResizedCrop | Resize | None = None
    resize_op: int = 0
    window: CenterCrop | None = None
    flips: tuple[tuple[int, RandomHorizontalFlip], ...] = ()

    def takes(self, transform: Geometric) -> bool:
        """Whether this pass can do ``transform`` after what it does already."""
        match transform:
            case RandomResizedCrop() | Resize():
                return self.resize is None and self.window is None and not self.flips
            case CenterCrop():
                return self.window is None and not self.flips
            case RandomHorizontalFlip():
                return True
            case unknown:
                assert_never(unknown)

    def compile(self) -> _native.Stage:
        """The native form."""
        stage = _native.Stage()
        match self.resize:
            case RandomResizedCrop() as crop:
                stage.crop(op=self.resize_op, scale=crop.scale, ratio=crop.ratio)
                height, width = crop.output_px
                stage.resize(height=height, width=width, filter=crop.interpolation)
            case Resize(size=int(size)) as resize:
                stage.resize_shorter(size=size, max_size=resize.max_size or 0, filter=resize.interpolation)
            case Resize() as resize:
                height, width = resize.output_px or (0, 0)
                stage.resize(height=height, width=width, filter=resize.interpolation)
            case None:
                pass
        if self.window is not None:
            height, width = self.window.output_px
            stage.window(height=height, width=width)
        for op, flip in self.flips:
            stage.mirror(op=op, p=flip.p)
        return stage


@dataclass(frozen=True, slots=True)
class ImageKernel:
    """The fused form of a pipeline's image transforms. Satisfies ``contracts.Kernel``.

    stages     passes over the pixels; more than one only where a transform needs the whole result of another
    output     shape and dtype of one row of the slot
    layout     the order of its axes
    table      (3, 256): what each channel's bytes become; None: they stay bytes
    normalize  whether that is by mean and deviation
    """

    stages: tuple[FusedStage, ...]
    output: Spec
    layout: Layout
    table: AnyArray | None = field(compare=False)
    normalize: bool

    @property
    def reads(self) -> tuple[str, ...]:
        """The image."""
        return ("image",)

    @property
    def outputs(self) -> Mapping[str, Spec]:
        """The image as the slot has it."""
        return {"image": self.output}

    @property
    def size_px(self) -> tuple[int, int]:
        """(height, width) of the slot's images, in pixels."""
        shape = self.output.shape
        return (shape[1], shape[2]) if self.layout is Layout.NCHW else (shape[0], shape[1])

    def compile(self, decoding: Decoding, simd: str | None = None) -> _native.Program:
        """The native form. ``simd`` names an instruction set instead of the widest that this machine runs."""
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
        """The last step, or None where bytes stay bytes."""
        return None if self.table is None else Finish("image", self.table, self.output, self.layout)

    def finished_by(self, finish: Finish | None) -> ImageKernel:
        """The kernel with another last step, or with none: then it writes (H, W, 3) uint8."""
        if finish is not None:
            return replace(self, output=finish.output, layout=finish.layout, table=finish.table)
        spec = Spec((*self.size_px, 3), np.dtype(np.uint8))
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
        """What follows decoding, in one line for ``explain()``."""
        steps = []
        for stage in self.stages:
            steps += [type(stage.resize).__name__] if stage.resize is not None else []
            steps += ["CenterCrop"] if stage.window is not None else []
            steps += ["flip"] * len(stage.flips)
        steps += ["normalise"] if self.normalize and self.table is not None else []
        return " + ".join([*steps, f"write {self.layout.value} {self.output.dtype.name}"])


def split_at_cache(transforms: Sequence[Transform], after: int) -> tuple[list[Transform], list[Transform]]:
    """Transforms in front of a cache that stands after so many, and behind it: those that make numbers of bytes, or
    order axes, come behind it wherever they were written.
    """
    last = [transform for transform in transforms[:after] if isinstance(transform, Element)]
    before = [transform for transform in transforms[:after] if not isinstance(transform, Element)]
    return before, [*transforms[after:], *last]


def fuse(
    transforms: Sequence[Transform], source_px: tuple[int, int] | None, *, earlier: Sequence[Transform] = ()
) -> ImageKernel:
    """Make one kernel of ``transforms``.

    source_px  (height, width) when every image of the source has this size, else None
    earlier    transforms of other kernels that come before, so that no two draws have one key

    Raises ``PlanError`` when a transform can't work, stands in a wrong place, or leaves the size open.
    """
    stages = [FusedStage()]
    drawn = {kind: sum(type(transform) is kind for transform in earlier) for kind in _DRAWS}
    fixed = source_px is not None
    size = source_px or (0, 0)
    element: dict[type, Element] = {}
    if done := [type(transform).__name__ for transform in earlier if isinstance(transform, Element)]:
        raise PlanError(
            f"native transforms after a Python one that comes after {' and '.join(done)}; put them before"
        )
    for transform in transforms:
        match transform:
            case RandomResizedCrop() | Resize() | CenterCrop() | RandomHorizontalFlip():
                transform.check()
                if element:
                    raise PlanError(f"{transform.describe()} comes after {_names(element)}; put it before")
                if not stages[-1].takes(transform):
                    stages.append(FusedStage())
                stages[-1] = _extended(stages[-1], transform, drawn)
                fixed, size = _size_after(transform, fixed, size)
            case Normalize() | ToDtype() | ToLayout():
                transform.check()
                if type(transform) in element:
                    raise PlanError(f"two {type(transform).__name__} in one pipeline; leave one out")
                element[type(transform)] = transform
            case _:
                raise PlanError(f"{transform!r} is no transform that standpipe knows{_hint(transform)}")
    if not fixed:
        raise PlanError(
            "the images' size isn't fixed at .batch: add RandomResizedCrop(size), CenterCrop(size) or "
            "Resize((height, width))"
        )
    return _with_output(tuple(stages), size, element)


def _extended(stage: FusedStage, transform: Geometric, drawn: dict[type, int]) -> FusedStage:
    op = 0
    if type(transform) in drawn:
        op = _DRAWS[type(transform)] << 16 | drawn[type(transform)]
        drawn[type(transform)] += 1
    match transform:
        case RandomResizedCrop() | Resize():
            return replace(stage, resize=transform, resize_op=op)
        case CenterCrop():
            return replace(stage, window=transform)
        case RandomHorizontalFlip():
            return replace(stage, flips=(*stage.flips, (op, transform)))
        case unknown:
            assert_never(unknown)


def _size_after(transform: Geometric, fixed: bool, size: tuple[int, int]) -> tuple[bool, tuple[int, int]]:
    """Whether the size is the same for every image after ``transform``, and which it is."""
    match transform:
        case RandomResizedCrop() | CenterCrop():
            return True, transform.output_px
        case Resize(size=int()):
            return (True, resized_px(transform, size)) if fixed else (False, size)
        case Resize():
            return True, transform.output_px or size
        case RandomHorizontalFlip():
            return fixed, size
        case unknown:
            assert_never(unknown)


def resized_px(resize: Resize, size: tuple[int, int]) -> tuple[int, int]:
    """(height, width) after a Resize by its shorter side; torchvision's rule, which truncates."""
    assert isinstance(resize.size, int)
    height, width = size
    shorter, longer = min(size), max(size)
    new_short, new_long = resize.size, int(resize.size * longer / shorter)
    if resize.max_size is not None and new_long > resize.max_size:
        new_short, new_long = max(int(resize.max_size * new_short / new_long), 1), resize.max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def _with_output(
    stages: tuple[FusedStage, ...], size: tuple[int, int], element: Mapping[type, Element]
) -> ImageKernel:
    normalize = element.get(Normalize)
    to_dtype = element.get(ToDtype)
    to_layout = element.get(ToLayout)
    assert normalize is None or isinstance(normalize, Normalize)
    dtype = np.dtype(
        to_dtype.dtype if isinstance(to_dtype, ToDtype) else "uint8" if normalize is None else "float32"
    )
    if normalize is not None and dtype == np.uint8:
        raise PlanError("Normalize gives floats: leave out ToDtype('uint8'), or leave out Normalize")
    default = Layout.NHWC if dtype == np.uint8 else Layout.NCHW
    layout = Layout(to_layout.layout) if isinstance(to_layout, ToLayout) else default
    shape = (3, *size) if layout is Layout.NCHW else (*size, 3)
    table: AnyArray | None = None
    if dtype != np.uint8:
        table = (normalize or Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))).table().astype(dtype)
    return ImageKernel(stages, Spec(shape, dtype), layout, table, normalize is not None)


def _hint(transform: object) -> str:
    if isinstance(transform, list | tuple):
        return ": give transforms one by one, or .map(*transforms)"
    if isinstance(transform, type) and issubclass(transform, ImageTransform):
        return f": it is a class, write {transform.__name__}(…)"
    return ""


def _names(element: Mapping[type, object]) -> str:
    return " and ".join(kind.__name__ for kind in element)
