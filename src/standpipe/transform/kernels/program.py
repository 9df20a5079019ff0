"""The program of a sample: the steps, native kernels and Python functions, that make one sample in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from standpipe.contracts import Encoded, Transform
from standpipe.errors import PlanError
from standpipe.spec import ArraySpec, Listed, Pictures
from standpipe.transform.image import (
    GeometricStep,
    GeometricTransform,
    ImageTransform,
    PixelTransform,
    Size,
    ValueTransform,
)
from standpipe.transform.kernels.fuse import channels_after, fuse
from standpipe.transform.kernels.heads import ANY_CANVAS, Input, NativeKernel
from standpipe.transform.kernels.views import Views
from standpipe.transform.kinds import IMAGE, MASK, FieldKind, Known, check_named, kinds_of
from standpipe.transform.python.function import Function
from standpipe.transform.python.left_behind import Left, Move, checked, left_behind, moves

Value = TypeVar("Value")
Channels = Callable[[str], int]  # returns the number of channels of a field's decoded images

NO_PICTURES = Pictures()  # that need to be named
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

    transforms  the transforms in pipeline order; empty: images are only decoded
    earlier     native transforms of earlier steps; they count for the keys of random numbers
    kernel      the kernel, if all its results have the same size; None: ``kernel_for`` makes one for a sample
    inputs      the pictures that it takes, the reference first, with their channels as far as they are known
    optional    further pictures that it takes where a sample has them
    decodes     names of the pictures that come encoded
    source_px   (height, width) of the reference before the step, in pixels; None if it isn't known
    any_size    the kernel whose results differ in size, if there is no other; None: transforms must know the size
    draws_size  True if results differ in size even for references of one size
    """

    transforms: tuple[Transform, ...]
    earlier: tuple[Transform, ...]
    kernel: NativeKernel | None
    inputs: tuple[Input, ...] = (Input(),)
    optional: tuple[Input, ...] = ()
    decodes: frozenset[str] = frozenset()
    source_px: Size | None = None
    any_size: NativeKernel | None = None
    draws_size: bool = False

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of the fields that the step is known to make."""
        return (self.reference,) if self.kernel is None else tuple(self.kernel.outputs)

    @property
    def reference(self) -> str:
        """The name of the image whose size counts."""
        return self.inputs[0].field

    def inputs_in(self, sample: Collection[str]) -> tuple[Input, ...]:
        """Return the pictures that the step takes of a sample with these fields, the reference first."""
        first, *others = self.inputs
        others += self.optional
        return (first, *(each for each in others if each.field in sample or each.field in self.decodes))

    def kernel_for(self, size_px: Size, inputs: tuple[Input, ...]) -> NativeKernel:
        """Return the kernel for these pictures, and for references of a size in pixels where there is no other.

        Its results differ in size where that is drawn.
        """
        if self.kernel is not None and self.kernel.inputs == inputs:
            return self.kernel
        size = size_px if self.kernel is None else self.source_px
        if self.draws_size:
            inputs = tuple(replace(each, canvas=ANY_CANVAS) for each in inputs)
        return fuse(self.transforms, size, earlier=self.earlier, inputs=inputs)

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
    fields: Mapping[str, ArraySpec | Listed | None] | None
    before_cache: int = 0
    suspects: tuple[Left, ...] = ()

    @property
    def is_native(self) -> bool:
        """True if no step is a Python function."""
        return not any(isinstance(step, FunctionStep) for step in self.steps)

    @property
    def moves_unknown(self) -> bool:
        """True if a step moves images, and only a sample shows which fields are beside them."""
        return self.fields is None and any(
            True for step in self.steps for _ in moves(step.transforms, {}, {})
        )

    @property
    def native(self) -> tuple[str, ...]:
        """The descriptions of the program's native steps, for ``explain()``."""
        return tuple(step.describe() for step in self.steps if isinstance(step, NativeStep))


def sample_program(
    transforms: Sequence[Transform],
    fields: Mapping[str, ArraySpec | Encoded | Listed],
    cached: int = 0,
    *,
    whole: bool = True,
    channels: Channels = lambda _: 3,
    pictures: Pictures = NO_PICTURES,
    unmoved: Collection[str] = (),
    counts: Callable[[str], bool] = lambda _: True,
) -> SampleProgram:
    """Divide a pipeline's transforms into steps: native kernels and Python functions.

    fields    the source's fields, by name
    cached    number of transforms before a cache; 0 without a cache. A step has transforms from one side of the cache
              only. ``Normalize``, ``ToDtype`` and ``ToLayout`` directly before the cache run behind it
    whole     False: samples may have further fields
    channels  returns the number of channels of a field's decoded images
    pictures  the fields that are pictures, where their names don't say it
    unmoved   names of fields that stay as they are
    counts    says of a field's name whether it matters that the field fits the image

    Raises ``PlanError`` for a native transform that can't work at its place, a field that it leaves behind, or a field
    that stays encoded.
    """
    if whole:
        check_named(pictures, fields)
    kinds = kinds_of(fields, pictures, whole=whole, unmoved=unmoved)
    state = _Fields(fields, whole, kinds, {}, pictures, channels, unmoved)
    steps: list[Step] = []
    earlier: list[Transform] = []
    moved: list[Move] = []
    before = _before_cache(transforms, cached)
    front, back = _segments(transforms[:before]), _segments(transforms[before:])
    first = front if cached else back
    asked = {field for field, _ in pictures.named} | {IMAGE.name}
    if not any(isinstance(segment, Function) for segment in front + back):  # nothing takes encoded fields
        asked |= {*kinds}
    if not isinstance(next(iter(first), None), list) and any(map(state.is_encoded, state.taken((), asked))):
        first.insert(0, [])  # a native step without transforms, which decodes
    for segment in front + back:
        known = state.known if state.whole else {}
        moved += moves([segment] if isinstance(segment, Function) else segment, known, state.kinds)
        if isinstance(segment, Function):
            op = FUNCTION_OP + sum(isinstance(step, FunctionStep) for step in steps)
            steps.append(FunctionStep(segment, op))
            state = state.after_function(segment)
            continue
        step = _native_step(segment, tuple(earlier), state, state.taken(segment, asked))
        steps.append(step)
        state = state.after_native(step)
        earlier += segment
    if not state.whole:
        return SampleProgram(tuple(steps), None, len(front))
    suspects = checked(left_behind(moved, state.known), counts)
    left = {name: _not_encoded(name, spec) for name, spec in state.known.items()}
    return SampleProgram(tuple(steps), left, len(front), suspects)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a sample between two steps.

    known     their form
    whole     False: there may be further ones, and only encoded ones are known
    kinds     those that are pictures, the reference first
    channels  channels of images whose size isn't known, after a step
    pictures  what ``decode`` says of pictures
    decoded   returns the number of channels of a field's decoded images
    unmoved   names of fields that stay as they are
    """

    known: Known
    whole: bool
    kinds: Mapping[str, FieldKind]
    channels: Mapping[str, int]
    pictures: Pictures
    decoded: Channels
    unmoved: Collection[str]

    def is_encoded(self, field: str) -> bool:
        """Return True if a field is encoded."""
        return isinstance(self.known.get(field), Encoded)

    def taken(self, transforms: Sequence[Transform], asked: Collection[str]) -> list[str]:
        """Return the names of the pictures that a native step takes, the reference first.

        asked  names of pictures that are decoded even if no transform takes them
        """
        return [
            field
            for field, kind in self.kinds.items()
            if (bool(transforms) if kind.is_image else moves_kind(transforms, kind))
            or (field in asked and (kind.is_image or self.is_encoded(field)))
        ]

    def after_function(self, function: Function) -> _Fields:
        """Return the fields after a function, which decodes what it gets encoded."""
        changed = {*self.kinds} if function.field is None else {function.field}
        before = {
            field: kind
            for field, kind in self.kinds.items()
            if field not in changed or not self.is_encoded(field)
        }
        whole = self.whole if function.field is not None else function.spec is not None
        known = _after_function(function, self.known, whole=self.whole)
        kinds = kinds_of(known, self.pictures, whole=whole, unmoved=self.unmoved, before=before)
        return replace(self, known=known, whole=whole, kinds=kinds)

    def after_native(self, step: NativeStep) -> _Fields:
        """Return the fields after a native step."""
        kinds, known = self.kinds, self.known
        if not self.whole:
            known = {field: spec for field, spec in known.items() if field not in step.decodes}
        elif step.kernel is None:
            known = {**known, **dict.fromkeys(each.field for each in step.inputs)}
        else:
            known = with_outputs(known, step.kernel.reads, step.kernel.outputs)
            kinds = {field: kind for field, kind in kinds.items() if field in known}
        images = [each for each in step.inputs if each.kind.is_image]
        channels = {each.field: channels_after(step.transforms, each.channels) for each in images}
        return replace(self, known=known, kinds=kinds, channels={**self.channels, **channels})


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


def _after_function(function: Function, known: Known, *, whole: bool) -> Known:
    if function.field is None:
        return {} if function.spec is None else dict(_specs(function))
    if not whole:
        return {field: spec for field, spec in known.items() if field != function.field}
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
    transforms: Sequence[Transform], earlier: tuple[Transform, ...], fields: _Fields, names: Sequence[str]
) -> NativeStep:
    """Return the step of adjacent native transforms, which takes the pictures ``names``."""
    known = fields.known
    if not any(fields.kinds[name].is_image for name in names):
        raise PlanError(
            f"{transforms[0].describe()} needs the field 'image'; the fields are {', '.join(known)}"
        )
    grids = fields.pictures.grids({*names, MASK.name})
    inputs = tuple(_input(name, transforms, fields, grids[name]) for name in names)
    if fields.pictures.pairs is None and {"left", "right"}.issubset(names) and any(map(_mirrors, transforms)):
        raise PlanError(
            "a horizontal flip mirrors the fields 'left' and 'right': write decode(pairs=('left', 'right')) to swap "
            "them where it does, so that left stays left, or decode(pairs=()) if they aren't two eyes' pictures"
        )
    specs = {each: known.get(each.field) for each in inputs}
    sizes = {each: spec.shape[:2] for each, spec in specs.items() if isinstance(spec, ArraySpec)}
    first, source_px = inputs[0], None
    if first in sizes:
        source_px = (sizes[first][0], sizes[first][1])
    for each, size in sizes.items():
        if source_px is not None and any(
            side * first.grid != of_first * each.grid for side, of_first in zip(size, source_px, strict=True)
        ):
            raise PlanError(
                f"the field {each.field!r} has {size} pixels (height, width), but {first.field!r} {source_px}: all "
                "pictures of a record have one size, times their scale in decode(scale=…)"
            )
    may = not (fields.whole or MASK.name in (*names, *fields.unmoved)) and moves_kind(transforms, MASK)
    further = (Input(MASK.name, MASK, 1, grid=grids[MASK.name]),) if may else ()
    decodes = frozenset(filter(fields.is_encoded, names))
    step = NativeStep(tuple(transforms), earlier, None, inputs, further, decodes, source_px)
    try:
        return replace(step, kernel=fuse(transforms, source_px, earlier=earlier, inputs=inputs))
    except PlanError:  # the size depends on the image
        # Raises errors that don't depend on it.
        any_size = [replace(each, canvas=ANY_CANVAS) for each in inputs]
        kernel = fuse(transforms, source_px or ANY_PX, earlier=earlier, inputs=any_size)
        if any(isinstance(each, Views) for each in transforms):
            raise
    step = replace(step, draws_size=kernel.image.varies)
    try:
        return replace(step, any_size=fuse(transforms, None, earlier=earlier, inputs=any_size))
    except PlanError:
        return step


def _input(name: str, transforms: Sequence[Transform], fields: _Fields, grid: int) -> Input:
    """Return an input of a native step. Raises ``PlanError`` for an array that isn't of its kind."""
    kind, spec = fields.kinds[name], fields.known.get(name)
    twins = {a: b for pair in fields.pictures.pairs or () for a, b in (pair, pair[::-1])}
    number: int | None
    if isinstance(spec, ArraySpec | Listed):
        number = kind.bytes_of(spec) if isinstance(spec, ArraySpec) else None
    elif kind.dtypes is None:
        number = fields.channels.get(name) or fields.decoded(name)
    else:
        number = np.dtype(kind.dtypes[-1]).itemsize
    if number is None:
        first = next(each for each in transforms if kind.is_image or moves_kind([each], kind))
        raise PlanError(
            f"{first.describe()} can't take the field {name!r}, which is {spec}: give it {kind.form}, or an encoded "
            f"{kind.name}; convert it, or rename it if it isn't one"
        )
    return Input(name, kind, number, twins.get(name), grid)


def _mirrors(transform: Transform) -> bool:
    """Return True for a transform that may mirror pictures left to right."""
    if isinstance(transform, Views):
        return any(map(_mirrors, transform.transforms()))
    if isinstance(transform, PixelTransform):
        return any(map(_mirrors, transform.geometric))
    return isinstance(transform, GeometricTransform) and transform.step is GeometricStep.FLIP


def moves_kind(transforms: Iterable[Transform], kind: FieldKind) -> bool:
    """Return True if one of the transforms moves pictures of a kind."""
    return any(isinstance(each, ImageTransform) and kind.name in each.moves for each in transforms)


def with_outputs(
    sample: Mapping[str, Value], reads: Sequence[str], outputs: Mapping[str, Value]
) -> dict[str, Value]:
    """Return a sample, or the form of its fields, after a kernel has made ``outputs`` of the fields ``reads``.

    Raises ``PlanError`` if a view has the name of another field.
    """
    if taken := [name for name in outputs if name in sample and name not in reads]:
        raise PlanError(f"Views: the sample has a field {taken[0]!r} already; give the view another name")
    others = {name: value for name, value in sample.items() if name not in reads or name in outputs}
    return {**others, **outputs} if reads[0] in outputs else {**outputs, **others}


def _not_encoded(name: str, spec: ArraySpec | Encoded | Listed | None) -> ArraySpec | Listed | None:
    if isinstance(spec, Encoded):
        raise PlanError(
            f"the field {name!r} is an {spec} that no transform decodes; decode its bytes, (n,) uint8, with a function "
            f"of yours, map(fn, field={name!r}), or leave the field out"
        )
    return spec
