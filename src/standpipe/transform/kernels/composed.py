"""Kernels of rows that are made of several images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from standpipe import _native
from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.spec import Decoding
from standpipe.transform.image import ImageTransform, Size, ValueTransform
from standpipe.transform.kernels.fuse import fuse
from standpipe.transform.kernels.heads import ANY_CANVAS, Input, NativeKernel
from standpipe.transform.kernels.stages import with_ops
from standpipe.transform.pixels.compositions import (
    ComposingTransform,
    CopyPaste,
    CutMixInstances,
    Mosaic,
    Partners,
    Recent,
)

Pastes = CopyPaste | CutMixInstances

FIXES = "put RandomAffine(…, size=…), RandomResizedCrop(size) or Resize((height, width))"


@dataclass(frozen=True, slots=True)
class Level:
    """A composition, and what follows it up to the next one.

    op      the composition's part of the key of random numbers
    kernel  of the transforms behind it
    """

    composition: ComposingTransform
    op: int
    kernel: NativeKernel


@dataclass(frozen=True, slots=True)
class ComposedKernel:
    """Makes rows in two steps: frames, each of one record, and then rows of several frames.

    frames   of the transforms in front of all compositions: it makes (H, W, 3) uint8
    most_px  the largest (height, width) of a frame
    levels   compositions one after another
    """

    frames: NativeKernel
    most_px: Size
    levels: tuple[Level, ...]

    @property
    def last(self) -> NativeKernel:
        """The kernel that writes the slot."""
        return self.levels[-1].kernel

    @property
    def frame_bytes(self) -> int:
        """The bytes of a frame of the largest size, with what kernels may read behind it."""
        return 3 * prod(self.most_px) + _native.SLACK

    @property
    def bytes_of_row(self) -> int:
        """The bytes of the frames that are made for a row."""
        return self.frame_bytes * (1 + self.partners.count("any"))

    @property
    def partners(self) -> tuple[Partners, ...]:
        """Return where each frame of a row is from, without the first, which is its own."""
        found: tuple[Partners, ...] = ()
        for level in self.levels:
            found += (level.composition.partners, *found) * (level.composition.pictures - 1)
        return found

    @property
    def paste(self) -> tuple[int, Pastes] | None:
        """The composition that pastes parts of images, and the number of levels in front of it; None without one."""
        compositions = [level.composition for level in self.levels]
        found = ((place, each) for place, each in enumerate(compositions) if isinstance(each, Pastes))
        return next(found, None)

    @property
    def images(self) -> int:
        """The most images whose instances a row has. What is pasted mirrored is of one more for each."""
        mirrors = self.paste is not None and self.paste[1].pictures == 1
        return (1 + len(self.partners)) * (2 if mirrors else 1)

    @property
    def window(self) -> int:
        """The number of earlier rows whose frames stay in memory."""
        used = [level.composition.partners for level in self.levels if level.composition.p > 0]
        return max((each.rows for each in used if isinstance(each, Recent)), default=0)

    def describe(self) -> str:
        """Return one line for ``explain()`` about the steps of images and of rows."""
        each = 1 + len(self.partners)
        return f"images: decode + {self.frames.describe()}; rows of up to {each} images each: {self.last.describe()}"

    @property
    def notes(self) -> list[str]:
        """Return the remarks that ``explain()`` shows: which images of other rows the rows are made of."""
        notes = []
        if self.window:
            notes.append(
                f"images of the last {self.window} rows of this rank stay in memory: with another world size, each "
                "sample gets other partners; everything else of it stays the same"
            )
        if "batch" in self.partners:
            notes.append(
                "partners are rows of the batch: with another world size or batch size, they are others"
            )
        if number := self.partners.count("any"):
            notes.append(f"up to {number} images of any records are decoded for each row besides its own")
        return notes

    def memory_bytes(self, decoding: Decoding) -> int:
        """Return the bytes that a thread has for pictures between frames and rows."""
        composer = self.compile(decoding)[1]
        return composer.memory_bytes(*self.most_px)

    def compile(
        self, decoding: Decoding, simd: str | None = None, last: NativeKernel | None = None
    ) -> tuple[_native.Program, _native.Composer, _native.Program]:
        """Return the native forms: of the frames, of the rows, and of the last kernel.

        last  the kernel that writes the slot, where that isn't ``self.last``
        """
        kernels = [*(level.kernel for level in self.levels[:-1]), last or self.last]
        levels = [
            (level.composition.composition(level.op), kernel.compile(decoding, simd))
            for level, kernel in zip(self.levels, kernels, strict=True)
        ]
        return self.frames.compile(decoding, simd), _native.Composer(levels), levels[-1][1]


def has_compositions(transforms: Sequence[Transform]) -> bool:
    """Return True if a transform puts several images together."""
    return any(isinstance(each, ComposingTransform) for each in transforms)


def composed_kernel(transforms: Sequence[Transform], source_px: Size | None, given: Input) -> ComposedKernel:
    """Return the kernel of transforms with at least one composition.

    source_px  (height, width) in pixels if every image has this size before the transforms, else None
    given      the image

    Raises ``PlanError`` for transforms that can't work where they are.
    """
    places = [place for place, each in enumerate(transforms) if isinstance(each, ComposingTransform)]
    first = transforms[: places[0]]
    name = type(transforms[places[0]]).__name__
    frames, most = fuse(first, source_px, inputs=[replace(given, canvas=ANY_CANVAS)]), source_px
    for each in first:
        if isinstance(each, ValueTransform):
            raise PlanError(f"{each.describe()} must come after {name}; move it behind all compositions")
        most = each.most_after(most) if isinstance(each, ImageTransform) else most
    if most is None:
        raise PlanError(
            f"{name} keeps images in memory, so their size needs a limit: put LetterBox(size, pad=False) or "
            "Resize((height, width)) before it"
        )
    if frames.views or frames.image.channels_after != 3:
        raise PlanError(
            f"{name} takes images of 3 channels, and no views: leave it out, or the transform before it"
        )
    size = None if frames.image.varies else frames.image.size_px
    frames = NativeKernel((replace(frames.image, varies=True),))
    numbered = list(with_ops(transforms, ()))
    levels = []
    if sum(isinstance(each, Pastes) for each in transforms) > 1:
        raise PlanError("CopyPaste and CutMixInstances can't be used twice, or together: leave one out")
    for place, stop in zip(places, [*places[1:], len(transforms)], strict=True):
        composition, op = numbered[place]
        assert isinstance(composition, ComposingTransform)
        composition.check()
        behind = transforms[place + 1 : stop]
        if size is None and not isinstance(composition, Mosaic):
            raise PlanError(f"{composition.describe()} takes images of one size: {FIXES} before it")
        size = after = composition.size_after(size)
        for each in behind:
            after = each.size_after(after) if isinstance(each, ImageTransform) else after
        if after is None:
            raise PlanError(f"images behind {composition.describe()} have no fixed size: {FIXES} behind it")
        kernel = fuse(behind, size, earlier=transforms[: place + 1], inputs=[Input(given.field)])
        if kernel.views:
            raise PlanError(f"Views can't follow {composition.describe()}: leave them out")
        levels.append(Level(composition, op, kernel))
        size = kernel.image.size_px
    return ComposedKernel(frames, most, tuple(levels))
