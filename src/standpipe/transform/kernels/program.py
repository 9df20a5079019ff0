"""The program of a sample: the steps, native kernels and Python functions, that make one sample in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from standpipe.contracts import Encoded, Transform
from standpipe.errors import PlanError
from standpipe.spec import ArraySpec
from standpipe.transform.image import MASK, Size, ValueTransform
from standpipe.transform.kernels.fuse import channels_after, fuse, image_channels
from standpipe.transform.kernels.heads import NativeKernel
from standpipe.transform.kernels.mask import is_mask, moves_mask
from standpipe.transform.kernels.views import Views
from standpipe.transform.python.function import Function
from standpipe.transform.python.left_behind import Left, Move, checked, left_behind, moves

Value = TypeVar("Value")

ANY_PX = (16384, 16384)  # (height, width) of images that no transform finds too small or too large

# Parts of the keys of Python code's random numbers, besides the sample. Native transforms use ``draw_kind`` instead.
DATASET_OP = 0x50 << 16
FUNCTION_OP = 0x51 << 16
BATCH_OP = 0x52 << 16
SAMPLE_OP = 0x53 << 16  # global generators, such as NumPy's and torch's, seeded for each sample
EPOCH_OP = 0x54 << 16  # global generators, seeded for each epoch


@dataclass(frozen=True, slots=True, eq=False)
class NativeStep:
    """A step of adjacent native transforms, which run as one kernel.

    transforms  the transforms in pipeline order; empty: the image is only decoded
    earlier     native transforms of earlier steps; they count for the keys of random numbers
    kernel      the kernel, if all its results have the same size; None: ``kernel_for`` makes one for an image
    decodes     True if the step gets encoded images and decodes them
    channels    number of the images' channels, as far as it is known before the first image
    source_px   (height, width) of the images before the step, in pixels; None if it isn't known
    """

    transforms: tuple[Transform, ...]
    earlier: tuple[Transform, ...]
    kernel: NativeKernel | None
    decodes: bool
    channels: int = 3
    source_px: Size | None = None

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of the fields that the step is known to make."""
        return ("image",) if self.kernel is None else tuple(self.kernel.outputs)

    def kernel_for(self, size_px: Size, channels: int, *, masks: bool) -> NativeKernel:
        """Return the kernel for images of a size in pixels and so many channels, and of ``kernel`` where it is known.

        masks  True if the sample has a mask, which the kernel moves as well
        """
        if self.kernel is not None and self.kernel.moves_masks == masks and self.channels == channels:
            return self.kernel
        size = size_px if self.kernel is None else self.source_px
        return fuse(self.transforms, size, earlier=self.earlier, masks=masks, channels=channels)

    @property
    def moves_mask(self) -> bool:
        """True if the step moves the field ``mask``, where a sample has one, and decodes it before."""
        return moves_mask(self.transforms)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        decode = ["decode"] if self.decodes else []
        if self.kernel is not None:
            return " + ".join([*decode, self.kernel.describe()])
        return " + ".join([*decode, *(type(transform).__name__ for transform in self.transforms)])


@dataclass(frozen=True, slots=True, eq=False)
class FunctionStep:
    """A step that calls a Python function.

    op  number of the function in the key of its random numbers
    """

    function: Function
    op: int

    @property
    def transforms(self) -> tuple[Function]:
        """The function, as the transforms of a native step."""
        return (self.function,)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return self.function.describe()


Step = NativeStep | FunctionStep
Known = dict[str, ArraySpec | Encoded | None]  # None: the loader measures the field's shape when it starts


@dataclass(frozen=True, slots=True, eq=False)
class SampleProgram:
    """The steps that make a sample, and the fields of the finished sample.

    steps         the steps in order
    fields        shape and dtype of each field, by name; None for a field whose shape the loader measures on one
                  sample. None instead of a dict: the loader finds the names that way too
    before_cache  number of steps that run before the cache; 0 without a cache
    suspects      fields of the image's size that aren't moved with it, as far as the fields are known
    """

    steps: tuple[Step, ...]
    fields: Mapping[str, ArraySpec | None] | None
    before_cache: int = 0
    suspects: tuple[Left, ...] = ()

    @property
    def is_native(self) -> bool:
        """True if no step is a Python function."""
        return not any(isinstance(step, FunctionStep) for step in self.steps)

    @property
    def moves_unknown(self) -> bool:
        """True if a step moves images, and only a sample shows which fields are beside them."""
        return self.fields is None and any(True for step in self.steps for _ in moves(step.transforms, {}))

    @property
    def native(self) -> tuple[str, ...]:
        """The descriptions of the program's native steps, for ``explain()``."""
        return tuple(step.describe() for step in self.steps if isinstance(step, NativeStep))


def sample_program(
    transforms: Sequence[Transform],
    fields: Mapping[str, ArraySpec | Encoded] | None,
    cached: int = 0,
    *,
    encoded: bool = False,
    channels: int = 3,
    counts: Callable[[str], bool] = lambda _: True,
) -> SampleProgram:
    """Divide a pipeline's transforms into steps: native kernels and Python functions.

    fields   the source's fields, by name; None if the source doesn't declare them
    cached   number of transforms before a cache; 0 without a cache. A step has transforms from one side of the cache
             only. ``Normalize``, ``ToDtype`` and ``ToLayout`` directly before the cache run behind it
    encoded  True if the field ``image`` is encoded, although ``fields`` may not say so
    channels  number of the channels of decoded images
    counts   says of a field's name whether it matters that the field fits the image

    Raises ``PlanError`` for a native transform that can't work at its place, a field that it leaves behind, or a field
    that stays encoded.
    """
    known: Known | None = None if fields is None else dict(fields)
    steps: list[Step] = []
    earlier: list[Transform] = []
    moved: list[Move] = []
    before = _before_cache(transforms, cached)
    front, back = _segments(transforms[:before]), _segments(transforms[before:])
    first = front if cached else back
    encoded = encoded or (known is not None and isinstance(known.get("image"), Encoded))
    if encoded and not _starts_native(first):
        first.insert(0, [])  # a native step without transforms, which decodes
    for segment in front + back:
        moved += moves([segment] if isinstance(segment, Function) else segment, known or {})
        if isinstance(segment, Function):
            op = FUNCTION_OP + sum(isinstance(step, FunctionStep) for step in steps)
            steps.append(FunctionStep(segment, op))
            known = _after_function(segment, known)
            continue
        step, known = _native_step(segment, tuple(earlier), known, channels, decodes=encoded and not steps)
        steps.append(step)
        channels = channels_after(
            segment, step.channels
        )  # a function may change it, and declares its result then
        earlier += segment
    if known is None:
        return SampleProgram(tuple(steps), None, len(front))
    suspects = checked(left_behind(moved, known), counts)
    left = {name: _not_encoded(name, spec) for name, spec in known.items()}
    return SampleProgram(tuple(steps), left, len(front), suspects)


def _before_cache(transforms: Sequence[Transform], cached: int) -> int:
    """Return ``cached`` less the ValueTransforms directly before the cache, which run behind the cache."""
    while cached and isinstance(transforms[cached - 1], ValueTransform):
        cached -= 1
    return cached


def _segments(transforms: Sequence[Transform]) -> list[Function | list[Transform]]:
    segments: list[Function | list[Transform]] = []
    for transform in transforms:
        if isinstance(transform, Function):
            segments.append(transform)
        elif segments and isinstance(segments[-1], list):
            segments[-1].append(transform)
        else:
            segments.append([transform])
    return segments


def _starts_native(segments: Sequence[Function | list[Transform]]) -> bool:
    return bool(segments) and isinstance(segments[0], list)


def _after_function(function: Function, known: Known | None) -> Known | None:
    if function.field is None:
        return None if function.spec is None else dict(_specs(function))
    if known is None:
        return None
    if function.field not in known:
        raise PlanError(
            f"{function.describe()}: there is no field {function.field!r}; the fields are {', '.join(known)}"
        )
    spec = function.spec
    assert spec is None or isinstance(spec, ArraySpec)
    return {**known, function.field: spec}


def _specs(function: Function) -> Mapping[str, ArraySpec]:
    assert isinstance(function.spec, Mapping)
    for name, spec in function.spec.items():
        if not isinstance(name, str) or not isinstance(spec, ArraySpec):
            raise PlanError(
                f"{function.describe()}: spec must have an ArraySpec for each field's name, got {name!r}: {spec!r}"
            )
    return function.spec


def _native_step(
    transforms: Sequence[Transform],
    earlier: tuple[Transform, ...],
    known: Known | None,
    channels: int,
    *,
    decodes: bool,
) -> tuple[NativeStep, Known | None]:
    source_px = None
    masks = False
    if known is not None:
        _check_mask(transforms, known)
        masks = MASK in known and moves_mask(transforms)
        image = known.get("image")
        if "image" not in known:
            raise PlanError(
                f"{transforms[0].describe()} needs the field 'image'; the fields are {', '.join(known)}"
            )
        if isinstance(image, ArraySpec):
            channels = image_channels(image)
            source_px = (image.shape[0], image.shape[1])
            mask = known[MASK] if masks else None
            if isinstance(mask, ArraySpec) and mask.shape != source_px:
                raise PlanError(
                    f"masks are (H, W) = {mask.shape}, but their images {source_px}; a mask has its image's size"
                )
    try:
        kernel = fuse(transforms, source_px, earlier=earlier, masks=masks, channels=channels)
    except PlanError:  # the size depends on the image
        # Raises errors that don't depend on it.
        fuse(transforms, source_px or ANY_PX, earlier=earlier, channels=channels)
        if any(isinstance(each, Views) for each in transforms):
            raise
        open_fields = dict.fromkeys(("image", MASK) if masks else ("image",))
        step = NativeStep(tuple(transforms), earlier, None, decodes, channels)
        return step, known and {**known, **open_fields}
    step = NativeStep(tuple(transforms), earlier, kernel, decodes, channels, source_px)
    return step, known and with_outputs(known, kernel.reads, kernel.outputs)


def _check_mask(transforms: Sequence[Transform], known: Known) -> None:
    """Raise ``PlanError`` for a mask that native transforms would move and can't."""
    if MASK not in known or not moves_mask(transforms):
        return
    if not is_mask(spec := known[MASK]):
        first = next(each for each in transforms if moves_mask([each]))
        raise PlanError(
            f"{first.describe()} can't move the field 'mask', which is {spec}: a mask is an encoded image of one "
            "channel, or class numbers (H, W) uint8; convert it, or rename it if it isn't one"
        )


def with_outputs(
    sample: Mapping[str, Value], reads: Sequence[str], outputs: Mapping[str, Value]
) -> dict[str, Value]:
    """Return a sample, or the form of its fields, after a kernel has made ``outputs`` of the fields ``reads``.

    Raises ``PlanError`` if a view has the name of another field.
    """
    if taken := [name for name in outputs if name in sample and name not in reads]:
        raise PlanError(f"Views: the sample has a field {taken[0]!r} already; give the view another name")
    others = {name: value for name, value in sample.items() if name not in reads or name in outputs}
    return {**others, **outputs} if "image" in outputs else {**outputs, **others}


def _not_encoded(name: str, spec: ArraySpec | Encoded | None) -> ArraySpec | None:
    if isinstance(spec, Encoded):
        raise PlanError(
            f"the field {name!r} is an {spec} that no transform decodes; decode its bytes, (n,) uint8, with a function "
            f"of yours, map(fn, field={name!r}), or leave the field out"
        )
    return spec
