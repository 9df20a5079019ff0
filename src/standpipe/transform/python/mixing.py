"""MixUp and CutMix: batch functions that mix images of a batch, and their labels accordingly."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from standpipe.contracts import Mix
from standpipe.errors import PlanError
from standpipe.spec import AnyArray, Float32Array, UInt8Array, set_plain
from standpipe.transform.image import is_number
from standpipe.units import is_count

SHARES = 1 << 16  # λ is a multiple of 1/65,536, so that a machine's rounding of logarithms doesn't change λ
CHANNELS = (1, 2, 3, 4)
MOST_MIXED_CLASSES = 1 << 31

Box = tuple[int, int, int, int]  # top, left, bottom, right in pixels


@dataclass(frozen=True, slots=True)
class _Mixing:
    """The base class of MixUp and CutMix, which mix each row of a batch with the row before it.

    The first row is mixed with the last one.
    """

    alpha: float
    num_classes: int
    image: str | tuple[str, ...] = "image"
    label: str = "label"

    def __post_init__(self) -> None:
        set_plain(self)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        if not is_number(self.alpha) or not self.alpha > 0:
            raise PlanError(f"{self!r}: alpha must be a number above 0")
        if not is_count(self.num_classes, 1, MOST_MIXED_CLASSES):
            raise PlanError(f"{self!r}: num_classes must be the number of classes, an integer from 1")
        for name in (*self.images, self.label):
            if not isinstance(name, str) or not name:
                raise PlanError(f"{self!r}: image and label must be names of fields")

    @property
    def images(self) -> tuple[str, ...]:
        """The names of the fields of images, which are mixed in the same way."""
        return self.image if isinstance(self.image, tuple) and self.image else (cast("str", self.image),)

    @property
    def note(self) -> str:
        """The remark that ``explain()`` shows: the pairs of samples depend on batch size and world size."""
        return (
            "it pairs rows of one rank's batch: with another world size or batch size, each sample is mixed with a "
            "different one; everything else of a sample stays the same"
        )

    def missing(self, names: Collection[str]) -> str:
        """Return what is wrong if fields of these names lack the images or the labels; else an empty text."""
        for parameter, name in (*(("image", name) for name in self.images), ("label", self.label)):
            if name not in names:
                kind = type(self).__name__
                return (
                    f"{kind} mixes the field {name!r}, but the fields are {', '.join(names)}. Name one of them, "
                    f"{kind}(…, {parameter}='…'), or leave {kind} out"
                )
        return ""

    def _images(self, batch: dict[str, Any]) -> list[AnyArray]:
        if missing := self.missing([name for name in batch if name not in ("index", "valid")]):
            raise TypeError(missing)
        for name in self.images:
            images = batch.get(name)
            if not isinstance(images, np.ndarray) or images.dtype not in (np.uint8, np.float16, np.float32):
                what = f"{images.dtype}" if isinstance(images, np.ndarray) else type(images).__name__
                raise TypeError(
                    f"the field {name!r} must be an array of uint8, float16 or float32, got {what}"
                )
        return [batch[name] for name in self.images]

    def check_labels(self, labels: Any) -> None:
        """Raise ``TypeError`` for labels of another shape or dtype, ``ValueError`` for one outside the classes.

        labels  (rows,) integers from 0 to num_classes − 1, or (rows, num_classes) class weights
        """
        if not isinstance(labels, np.ndarray) or labels.shape not in (
            labels.shape[:1],
            (len(labels), self.num_classes),
        ):
            raise TypeError(
                f"the field {self.label!r} must have one class or {self.num_classes} class weights per row"
            )
        if labels.ndim == 1:
            if labels.dtype.kind not in "iu":
                raise TypeError(
                    f"the field {self.label!r} must be integers, one class per row, got {labels.dtype}"
                )
            odd = (labels < 0) | (labels >= self.num_classes)
            if odd.any():
                first = labels[odd][0]
                raise ValueError(
                    f"the field {self.label!r} is {first}, but classes go from 0 to {self.num_classes - 1}"
                )

    def _labels(self, labels: Any, share: float) -> Float32Array:
        """Return share · label + (1 − share) · label of the row before, (rows, num_classes) float32."""
        self.check_labels(labels)
        if labels.ndim == 1:
            whole = np.zeros((len(labels), self.num_classes), np.float32)
            whole[np.arange(len(labels)), labels] = 1
            labels = whole
        others = np.roll(labels, 1, axis=0)
        mixed: Float32Array = others * np.float32(1 - share) + labels * np.float32(share)
        return mixed.astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True)
class MixUp(_Mixing):
    """Blend each image and label of a batch with those of the row before it: mixup, for ``map_batch``.

    The first row is blended with the last one. After Zhang et al., 2018, arXiv:1710.09412::

        λ ~ Beta(alpha, alpha)
        image  = λ · image + (1 − λ) · other image
        label  = λ · label + (1 − λ) · other label

    One λ applies to the whole batch. It is a multiple of 1/65,536, and depends on the seed, the epoch and the
    position of the batch's first row. With the same λ, float images are those of
    ``torchvision.transforms.v2.MixUp``, bit for bit.

    Images are changed in place: uint8 is rounded to the nearest integer, floats are computed as float32.
    Labels become (rows, num_classes) float32, which ``torch.nn.functional.cross_entropy`` takes. Other fields
    don't change.

    Parameters
    ----------
    alpha : float
        Both parameters of the beta distribution, above 0.
    num_classes : int
        Number of classes.
    image : str or tuple of str, default "image"
        Field of images: (rows, …) uint8, float16 or float32. Several fields are mixed in the same way.
    label : str, default "label"
        Field of labels: (rows,) integers, or (rows, num_classes) if they are mixed already.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters.
    TypeError, ValueError
        When called, if the batch has no such images or labels, or a label isn't from 0 to num_classes − 1.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(4)
    >>> with pipeline.map_batch(sp.MixUp(0.2, num_classes=2)).loader(executor="thread") as loader:
    ...     print(loader.peek()["label"].shape)
    (4, 2)
    """

    def __call__(self, batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return the batch with its images changed in place; the worker gives ``rng``."""
        found = self._images(batch)
        share = self.draw(rng, found[0].shape, found[0].dtype).share
        labels = self._labels(batch.get(self.label), share)
        for images in found:
            mix: Any = _mix_bytes if images.dtype == np.uint8 else _mix_floats
            for row, other in _pairs(images):
                mix(row, other, share)
        return {**batch, self.label: labels}

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Mix:
        """Choose at random how to mix a batch of images of this shape and dtype."""
        share = beta(self.alpha, rng)
        return Mix(self.images[0], self.label, self.num_classes, share, None, planar=False)


@dataclass(frozen=True, slots=True)
class CutMix(_Mixing):
    """Paste a random box of the row before it into each image of a batch: CutMix, for ``map_batch``.

    The first row gets a box of the last one. After Yun et al., 2019, arXiv:1905.04899::

        λ ~ Beta(alpha, alpha)
        box: centre uniform in the image; height and width √(1 − λ) of the image's, cut at the border
        λ = 1 − area of the box ÷ area of the image
        label  = λ · label + (1 − λ) · other label

    One λ and one box apply to the whole batch. They depend on the seed, the epoch and the position of the
    batch's first row.

    Images are changed in place. Labels become (rows, num_classes) float32, which
    ``torch.nn.functional.cross_entropy`` takes. Other fields don't change.

    Parameters
    ----------
    alpha : float
        Both parameters of the beta distribution, above 0.
    num_classes : int
        Number of classes.
    image : str or tuple of str, default "image"
        Field of images: four axes, uint8, float16 or float32. Several fields have one size, and are mixed in the same
        way.
    label : str, default "label"
        Field of labels: (rows,) integers, or (rows, num_classes) if they are mixed already.
    layout : str, optional
        ``"NCHW"`` or ``"NHWC"``. Default: the axis of size 1 to 4 is the channels'. If both could be, the
        layout is NHWC for uint8 and NCHW for floats.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters.
    TypeError, ValueError
        When called, if the batch has no such images or labels, or a label isn't from 0 to num_classes − 1.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(4)
    >>> with pipeline.map_batch(sp.CutMix(1.0, num_classes=2)).loader(executor="thread") as loader:
    ...     print(loader.peek()["label"].shape)
    (4, 2)
    """

    layout: Literal["NCHW", "NHWC"] | None = None

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        _Mixing.check(self)
        if self.layout not in (None, "NCHW", "NHWC"):
            raise PlanError(f"{self!r}: layout must be 'NCHW' or 'NHWC'")

    def __call__(self, batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return the batch with its images changed in place; the worker gives ``rng``."""
        found = self._images(batch)
        mix = self.draw(rng, found[0].shape, found[0].dtype)
        assert mix.box is not None
        top, left, bottom, right = mix.box
        labels = self._labels(batch.get(self.label), mix.share)
        by_pixel = [
            np.moveaxis(each, 1, 3) if self._layout(each.shape, each.dtype) == "NCHW" else each
            for each in found
        ]
        if len({each.shape[1:3] for each in by_pixel}) > 1:
            raise TypeError(f"CutMix needs images of one size, but those of {', '.join(self.images)} differ")
        for images in by_pixel:
            for row, other in _pairs(images[:, top:bottom, left:right]):
                row[...] = other
        return {**batch, self.label: labels}

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Mix:
        """Choose at random how to mix a batch of images of this shape and dtype.

        Raises ``TypeError`` for an array that isn't a batch of images.
        """
        planar = self._layout(shape, dtype) == "NCHW"
        height, width = shape[2:] if planar else shape[1:3]
        box = cut_box(height, width, beta(self.alpha, rng), rng)
        top, left, bottom, right = box
        share = 1 - (bottom - top) * (right - left) / (height * width)
        return Mix(self.images[0], self.label, self.num_classes, share, box, planar)

    def _layout(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> str:
        if len(shape) != 4:
            raise TypeError(f"images of {self.image!r} must have four axes, got {len(shape)}")
        if self.layout is not None:
            return self.layout
        first, last = (shape[axis] in CHANNELS for axis in (1, 3))
        if not (first or last):
            raise TypeError(
                f"the field {self.image!r} has the shape {shape}, and no axis looks like channels; pass layout='NCHW' "
                "or 'NHWC'"
            )
        return "NHWC" if last and (not first or dtype == np.uint8) else "NCHW"


def beta(alpha: float, rng: np.random.Generator) -> float:
    """Return a random number of the distribution Beta(alpha, alpha), rounded to a multiple of 1/65,536 in [0, 1].

    The number is x ÷ (x + y), where x and y are gamma distributed with shape ``alpha``. The code computes with
    logarithms, because x and y can be too small for a float if ``alpha`` is small.
    """
    apart = _log_gamma(alpha, rng) - _log_gamma(alpha, rng)
    share = 1 / (1 + math.exp(-abs(apart)))
    return round((share if apart > 0 else 1 - share) * SHARES) / SHARES


def cut_box(height: int, width: int, share: float, rng: np.random.Generator) -> Box:
    """Return a random box, (top, left, bottom, right) in pixels, cut at the image's border.

    height, width  size of the image in pixels
    share          fraction of the image, in [0, 1], that an uncut box leaves outside
    """
    side = math.sqrt(1 - share) / 2
    half_height, half_width = int(side * height), int(side * width)
    y, x = int(rng.random() * height), int(rng.random() * width)
    return (
        max(y - half_height, 0),
        max(x - half_width, 0),
        min(y + half_height, height),
        min(x + half_width, width),
    )


def _log_gamma(shape: float, rng: np.random.Generator) -> float:
    """Return the logarithm of a random number of the gamma distribution.

    shape  parameter of the distribution, above 0

    The method is that of Marsaglia and Tsang (2000). It uses only uniform random numbers, since every NumPy version
    gives the same ones.
    """
    third = shape + 1 - 1 / 3
    while True:
        radius = math.sqrt(-2 * math.log(1 - rng.random()))  # a normal number: Box and Muller (1958)
        normal = radius * math.cos(2 * math.pi * rng.random())
        cube = (1 + normal / math.sqrt(9 * third)) ** 3
        if cube > 0 and math.log(1 - rng.random()) < normal**2 / 2 + third * (1 - cube + math.log(cube)):
            return math.log(third * cube) + math.log(1 - rng.random()) / shape


def _pairs(images: AnyArray) -> Iterator[tuple[AnyArray, AnyArray]]:
    """Yield (row, row before it) from the last row to the first, whose partner is a copy of the last row.

    The caller may change the first of each pair in place: later pairs never contain a changed row.
    """
    last = images[-1].copy()
    for row in range(len(images) - 1, -1, -1):
        yield images[row], images[row - 1] if row else last


def _mix_bytes(row: UInt8Array, other: UInt8Array, share: float) -> None:
    """Set ``row`` in place to share · row + (1 − share) · other, rounded to the nearest byte."""
    own = np.uint32(share * SHARES)
    row[...] = (row * own + other * (np.uint32(SHARES) - own) + np.uint32(SHARES // 2)) >> np.uint32(16)


def _mix_floats(row: AnyArray, other: AnyArray, share: float) -> None:
    """Set ``row`` in place to share · row + (1 − share) · other, computed in float32."""
    mixed = np.multiply(other, np.float32(1 - share), dtype=np.float32)
    mixed += np.multiply(row, np.float32(share), dtype=np.float32)
    row[...] = mixed
