"""MixUp and CutMix: images of a batch mixed with one another, and their labels with them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from standpipe.contracts import Mix
from standpipe.errors import PlanError
from standpipe.spec import AnyArray, Float32Array, UInt8Array
from standpipe.transform.image import is_number

SHARES = 1 << 16  # a weight is a multiple of one of these: no machine's logarithm shows in it
CHANNELS = (1, 3, 4)

Box = tuple[int, int, int, int]  # top, left, bottom, right in pixels


@dataclass(frozen=True, slots=True)
class _Mixing:
    """A function of whole batches that mixes each row with the one before it, the first with the last."""

    alpha: float
    num_classes: int
    image: str = "image"
    label: str = "label"

    def check(self) -> None:
        """Raise ``PlanError`` for what can't be."""
        if not is_number(self.alpha) or not self.alpha > 0:
            raise PlanError(f"{self!r}: alpha is a number above 0")
        if (
            not isinstance(self.num_classes, int)
            or isinstance(self.num_classes, bool)
            or self.num_classes < 1
        ):
            raise PlanError(f"{self!r}: num_classes is how many there are, an integer from 1")
        for name in (self.image, self.label):
            if not isinstance(name, str) or not name:
                raise PlanError(f"{self!r}: image and label are names of fields")

    @property
    def note(self) -> str:
        """The remark for ``explain()``: rows of one rank's batch are paired."""
        return (
            "it pairs rows of one rank's batch: with another world size or batch size a sample is mixed with another "
            "one, which holds for nothing else of a sample"
        )

    def _images(self, batch: dict[str, Any]) -> AnyArray:
        images = batch.get(self.image)
        if not isinstance(images, np.ndarray) or images.dtype not in (np.uint8, np.float16, np.float32):
            what = f"{images.dtype}" if isinstance(images, np.ndarray) else type(images).__name__
            raise TypeError(f"{self.image!r} is {what}, and no array of uint8, float16 or float32")
        return images

    def check_labels(self, labels: Any) -> None:
        """Raise ``TypeError`` or ``ValueError`` for invalid labels.

        labels  (rows,) integers, or (rows, classes) of labels that are mixed already
        """
        if not isinstance(labels, np.ndarray) or labels.shape not in (
            labels.shape[:1],
            (len(labels), self.num_classes),
        ):
            raise TypeError(f"{self.label!r} holds neither a class nor {self.num_classes} shares a row")
        if labels.ndim == 1:
            if labels.dtype.kind not in "iu":
                raise TypeError(f"{self.label!r} is {labels.dtype}; a class is an integer")
            odd = (labels < 0) | (labels >= self.num_classes)
            if odd.any():
                first = labels[odd][0]
                raise ValueError(
                    f"{self.label!r} is {first}, and classes go from 0 to {self.num_classes - 1}"
                )

    def _labels(self, labels: Any, share: float) -> Float32Array:
        """(rows, classes) float32, each row a mixture of its own label and that of the row before."""
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
    """Each image becomes a weighted mean of itself and the one before it in the batch; the first, and the last.

    alpha        both parameters of the beta distribution that the share of the image itself is drawn from, above 0
    num_classes  how many classes there are
    image        name of the field of images: (rows, …) uint8, float16 or float32
    label        name of the field of labels: (rows,) integers, or (rows, classes) where they are mixed already

    For ``Pipeline.map_batch``. mixup (Zhang et al., 2018, arXiv:1710.09412)::

        λ ~ Beta(alpha, alpha)
        image  = λ · image + (1 − λ) · other image
        label  = λ · label + (1 − λ) · other label

    with one λ a batch, an integer of 1/65536, drawn by the position of the batch's first row. Images are
    mixed where they lie: uint8 is rounded to the nearest, floats are computed as float32. Labels become
    (rows, classes) float32, which ``torch.nn.functional.cross_entropy`` takes. Other fields stay.
    """

    def __call__(self, batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """The batch, changed in place; ``rng`` is given by the worker that calls it."""
        images = self._images(batch)
        share = self.draw(rng, images.shape, images.dtype).share
        labels = self._labels(batch.get(self.label), share)
        mix: Any = _mix_bytes if images.dtype == np.uint8 else _mix_floats
        for row, other in _pairs(images):
            mix(row, other, share)
        return {**batch, self.label: labels}

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Mix:
        """Choose at random how to mix a batch of images of this shape and dtype."""
        share = beta(self.alpha, rng)
        return Mix(self.image, self.label, self.num_classes, share, None, planar=False)


@dataclass(frozen=True, slots=True)
class CutMix(_Mixing):
    """A box of each image comes from the one before it in the batch; of the first, from the last.

    alpha        both parameters of the beta distribution that the share of the image itself is drawn from, above 0
    num_classes  how many classes there are
    image        name of the field of images: four axes, uint8, float16 or float32
    label        name of the field of labels: (rows,) integers, or (rows, classes) where they are mixed already
    layout       ``"NCHW"`` or ``"NHWC"``; default: where 1, 3 or 4 channels are, and if that may be both, NHWC for
                 uint8

    For ``Pipeline.map_batch``. CutMix (Yun et al., 2019, arXiv:1905.04899)::

        λ ~ Beta(alpha, alpha)
        centre of the box ~ anywhere in the image, its height and width √(1 − λ) of the image's, cut at the border
        λ = 1 − area of the box ÷ area of the image
        label  = λ · label + (1 − λ) · other label

    with one λ and one box a batch, drawn by the position of the batch's first row. Images are changed where
    they lie. Labels become (rows, classes) float32, which ``torch.nn.functional.cross_entropy`` takes. Other
    fields stay.
    """

    layout: Literal["NCHW", "NHWC"] | None = None

    def check(self) -> None:
        """Raise ``PlanError`` for what can't be."""
        _Mixing.check(self)
        if self.layout not in (None, "NCHW", "NHWC"):
            raise PlanError(f"{self!r}: layout is 'NCHW' or 'NHWC'")

    def __call__(self, batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """The batch, changed in place; ``rng`` is given by the worker that calls it."""
        images = self._images(batch)
        mix = self.draw(rng, images.shape, images.dtype)
        assert mix.box is not None
        top, left, bottom, right = mix.box
        labels = self._labels(batch.get(self.label), mix.share)
        rows_first = np.moveaxis(images, 1, 3) if mix.planar else images
        for row, other in _pairs(rows_first[:, top:bottom, left:right]):
            row[...] = other
        return {**batch, self.label: labels}

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Mix:
        """Choose at random how to mix a batch of images of this shape and dtype. Raises ``TypeError`` for
        other arrays.
        """
        planar = self._layout(shape, dtype) == "NCHW"
        height, width = shape[2:] if planar else shape[1:3]
        box = cut_box(height, width, beta(self.alpha, rng), rng)
        top, left, bottom, right = box
        share = 1 - (bottom - top) * (right - left) / (height * width)
        return Mix(self.image, self.label, self.num_classes, share, box, planar)

    def _layout(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> str:
        if len(shape) != 4:
            raise TypeError(f"{self.image!r} has {len(shape)} axes; images of a batch have four")
        if self.layout is not None:
            return self.layout
        first, last = (shape[axis] in CHANNELS for axis in (1, 3))
        if not (first or last):
            raise TypeError(
                f"{self.image!r} is {shape}: say where its channels are, by layout='NCHW' or 'NHWC'"
            )
        return "NHWC" if last and (not first or dtype == np.uint8) else "NCHW"


def beta(alpha: float, rng: np.random.Generator) -> float:
    """Return a random number of the beta distribution with both parameters ``alpha``, a multiple of 1/65536
    in [0, 1].

    It is x ÷ (x + y) for two numbers of the gamma distribution, computed by logarithms, which no small
    ``alpha`` makes 0.
    """
    apart = _log_gamma(alpha, rng) - _log_gamma(alpha, rng)
    share = 1 / (1 + math.exp(-abs(apart)))
    return round((share if apart > 0 else 1 - share) * SHARES) / SHARES


def cut_box(height: int, width: int, share: float, rng: np.random.Generator) -> Box:
    """Return the box of the other image, when a fraction ``share`` of the image is to stay before the border
    cuts it.
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
    """Return the logarithm of a random number of the gamma distribution: Marsaglia and Tsang (2000), any
    shape above 0.

    It uses uniform numbers alone, which are the same with every NumPy.
    """
    third = shape + 1 - 1 / 3
    while True:
        radius = math.sqrt(-2 * math.log(1 - rng.random()))  # a normal number: Box and Muller (1958)
        normal = radius * math.cos(2 * math.pi * rng.random())
        cube = (1 + normal / math.sqrt(9 * third)) ** 3
        if cube > 0 and math.log(1 - rng.random()) < normal**2 / 2 + third * (1 - cube + math.log(cube)):
            return math.log(third * cube) + math.log(1 - rng.random()) / shape


def _pairs(images: AnyArray) -> Iterator[tuple[AnyArray, AnyArray]]:
    """Yield each row and the one before, as it was before any was changed."""
    last = images[-1].copy()
    for row in range(len(images) - 1, -1, -1):
        yield images[row], images[row - 1] if row else last


def _mix_bytes(row: UInt8Array, other: UInt8Array, share: float) -> None:
    """``row`` becomes the mean, rounded to the nearest byte."""
    own = np.uint32(share * SHARES)
    row[...] = (row * own + other * (np.uint32(SHARES) - own) + np.uint32(SHARES // 2)) >> np.uint32(16)


def _mix_floats(row: AnyArray, other: AnyArray, share: float) -> None:
    """``row`` becomes the mean, in float32."""
    mixed = np.multiply(other, np.float32(1 - share), dtype=np.float32)
    mixed += np.multiply(row, np.float32(share), dtype=np.float32)
    row[...] = mixed
