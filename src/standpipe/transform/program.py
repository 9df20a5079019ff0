"""The program of a sample: a pipeline's native and Python transforms as steps, in the order of writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from standpipe.contracts import Encoded, Transform
from standpipe.errors import PlanError
from standpipe.spec import ArraySpec
from standpipe.transform.function import Function
from standpipe.transform.fuse import ImageKernel, fuse
from standpipe.transform.image import ImageTransform, ValueTransform

# Parts of the keys of Python code's random numbers, besides the sample. Native transforms have others: ``draw_kind``.
DATASET_OP = 0x50 << 16
FUNCTION_OP = 0x51 << 16
BATCH_OP = 0x52 << 16
SAMPLE_OP = 0x53 << 16  # the global generators, per sample
EPOCH_OP = 0x54 << 16  # the global generators, per epoch

# Fields of these names have coordinates in the image.
IN_PLACES = ("mask", "masks", "boxes", "bboxes", "keypoints")


@dataclass(frozen=True, slots=True, eq=False)
class NativeStep:
    """Adjacent native transforms as one kernel.

    transforms  in the order of writing; empty: the image is only decoded
    earlier     the native transforms of earlier steps, so that no two use the same random numbers
    kernel      the kernel if the result's size is the same for every image, else None
    decodes     True if images come encoded
    """

    transforms: tuple[Transform, ...]
    earlier: tuple[Transform, ...]
    kernel: ImageKernel | None
    decodes: bool

    def for_size(self, height: int, width: int) -> ImageKernel:
        """Return the kernel for images of this size in pixels."""
        return self.kernel or fuse(self.transforms, (height, width), earlier=self.earlier)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        decode = ["decode"] if self.decodes else []
        if self.kernel is not None:
            return " + ".join([*decode, self.kernel.describe()])
        return " + ".join([*decode, *(type(transform).__name__ for transform in self.transforms)])


@dataclass(frozen=True, slots=True, eq=False)
class FunctionStep:
    """A Python function as a step.

    op  part of the key of its random numbers
    """

    function: Function
    op: int

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return self.function.describe()


Step = NativeStep | FunctionStep
Known = dict[str, ArraySpec | Encoded | None]  # None: a field whose shape is measured


@dataclass(frozen=True, slots=True, eq=False)
class SampleProgram:
    """The steps that make a sample, and the fields that result.

    steps         the steps in order
    fields        the resulting fields, by name; None for a field that is measured on a sample. None as a whole: the
                  names are measured too
    before_cache  the number of steps before a cache; 0 without one
    """

    steps: tuple[Step, ...]
    fields: Mapping[str, ArraySpec | None] | None
    before_cache: int = 0

    @property
    def is_native(self) -> bool:
        """True if no step is a Python function."""
        return not any(isinstance(step, FunctionStep) for step in self.steps)

    @property
    def native(self) -> tuple[str, ...]:
        """The descriptions of its native steps."""
        return tuple(step.describe() for step in self.steps if isinstance(step, NativeStep))


def sample_program(
    transforms: Sequence[Transform], fields: Mapping[str, ArraySpec | Encoded] | None, cached: int = 0
) -> SampleProgram:
    """Divide a pipeline's transforms into steps: native kernels and Python functions.

    fields  the source's fields; None if only its samples show them
    cached  the number of transforms before a cache; 0 without one. No step goes across the cache. ``Normalize``,
            ``ToDtype`` and ``ToLayout`` directly before it are moved behind it

    Raises ``PlanError`` for native transforms that can't be applied at their place.
    """
    known: Known | None = None if fields is None else dict(fields)
    steps: list[Step] = []
    earlier: list[Transform] = []
    before = _before_cache(transforms, cached)
    front, back = _segments(transforms[:before]), _segments(transforms[before:])
    first = front if cached else back
    if known is not None and isinstance(known.get("image"), Encoded) and not _starts_native(first):
        first.insert(0, [])  # a native step without transforms, which decodes
    for segment in front + back:
        if isinstance(segment, Function):
            op = FUNCTION_OP + sum(isinstance(step, FunctionStep) for step in steps)
            steps.append(FunctionStep(segment, op))
            known = _after_function(segment, known)
            continue
        step, known = _native_step(segment, tuple(earlier), known)
        steps.append(step)
        earlier += segment
    left = None
    if known is not None:
        left = {name: _not_encoded(name, spec) for name, spec in known.items()}
    return SampleProgram(tuple(steps), left, len(front))


def check_moved(transforms: Iterable[Transform], fields: Iterable[str]) -> None:
    """Raise ``PlanError`` for a transform that moves the image's pixels, but not a field of coordinates in it."""
    names = set(fields)
    about_places = [name for name in IN_PLACES if name in names]
    for transform in transforms:
        moves = transform.moves if isinstance(transform, ImageTransform) else ()
        left = [name for name in about_places if name not in moves]
        if moves and left:
            raise PlanError(
                f"{transform.describe()} moves the image's pixels but not the field {left[0]!r}, which would no longer "
                "fit the image: give .map() a Python transform of the whole sample that moves both, such as one of "
                f"albumentations, or rename {left[0]!r} if it has no coordinates in the image"
            )


def _before_cache(transforms: Sequence[Transform], cached: int) -> int:
    """Return the number of transforms whose result a cache stores, of those before it."""
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
    transforms: Sequence[Transform], earlier: tuple[Transform, ...], known: Known | None
) -> tuple[NativeStep, Known | None]:
    source_px = None
    decodes = known is not None and isinstance(known.get("image"), Encoded)
    if known is not None:
        check_moved(transforms, known)
        image = known.get("image")
        if "image" not in known:
            raise PlanError(
                f"{transforms[0].describe()} needs the field 'image'; the fields are {', '.join(known)}"
            )
        if isinstance(image, ArraySpec):
            if len(image.shape) != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
                raise PlanError(f"the field 'image' is {image}, but image transforms take (H, W, 3) uint8")
            source_px = (image.shape[0], image.shape[1])
    # Any size shows the errors that don't depend on the size.
    fuse(transforms, source_px or (64, 64), earlier=earlier)
    try:
        kernel = fuse(transforms, source_px, earlier=earlier)
    except PlanError:  # the size depends on the image
        return NativeStep(tuple(transforms), earlier, None, decodes), known and {**known, "image": None}
    return NativeStep(tuple(transforms), earlier, kernel, decodes), known and {**known, **kernel.outputs}


def _not_encoded(name: str, spec: ArraySpec | Encoded | None) -> ArraySpec | None:
    if isinstance(spec, Encoded):
        raise PlanError(f"the field {name!r} is an {spec} that no transform decodes")
    return spec
