"""Transforms that set an image's values, element type and axis order in the batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from standpipe.errors import PlanError
from standpipe.spec import KINDS, DtypeName, Float32Array, Layout
from standpipe.transform.image import RowForm, ValueTransform, is_number

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MOST_PLAUSIBLE = 10  # times 255: larger means and deviations are those of bytes

LayoutName = Literal["NCHW", "NHWC"]


@dataclass(frozen=True, slots=True)
class Normalize(ValueTransform):
    """Normalise each channel to (value ÷ 255 − mean) ÷ std, as float32 unless ``ToDtype`` says otherwise.

    It comes after every transform that moves or changes pixels. The result is computed in float32 once for
    each of the 256 values of a channel, so every machine gives the same bits.

    ``torchvision.transforms.v2.Normalize`` expects floats from 0 to 1. This one takes uint8 images and
    divides by 255 itself, so it replaces torchvision's ``ToDtype(torch.float32, scale=True)`` and
    ``Normalize`` together. The numbers are those of torchvision's ``to_tensor`` and ``normalize``, bit for
    bit.

    Parameters
    ----------
    mean : tuple of float, default ImageNet's (0.485, 0.456, 0.406)
        Mean of each channel, on the scale where 255 is 1: one number for all channels, or as many as images have.
    std : tuple of float, default ImageNet's (0.229, 0.224, 0.225)
        Standard deviation of each channel, on the same scale, above 0.

    Raises
    ------
    PlanError
        By ``plan()``, if ``mean`` or ``std`` isn't finite numbers of at most 10, one for each channel, if a deviation
        isn't above 0, or with ``ToDtype("uint8")``.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32), sp.Normalize()).batch(4)
    >>> with pipeline.loader() as loader:
    ...     image = loader.peek()["image"]
    >>> image.shape, str(image.dtype)
    ((4, 3, 32, 32), 'float32')
    """

    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def check(self) -> None:
        """Raise ``PlanError`` for an invalid ``mean`` or ``std``, or if a result isn't a finite float32."""
        for name, value in (("mean", self.mean), ("std", self.std)):
            if not _are_numbers(value):
                self.refuse(name, "one to four numbers, one for each channel")
        if not all(each > 0 for each in self.std):
            self.refuse("std", "deviations above 0")
        if 1 != len(self.mean) != len(self.std) != 1:
            self.refuse("std", "as many numbers as mean has, or one")
        with np.errstate(all="ignore"):
            fits = np.isfinite(self.table(max(len(self.mean), len(self.std)))).all()
        if not fits:
            raise PlanError(
                f"{self.describe()} gives values beyond float32. Give means and deviations on the scale where 255 is 1"
            )
        for name, value in (("mean", self.mean), ("std", self.std)):
            if max(map(abs, value)) > MOST_PLAUSIBLE:
                self.refuse(name, "on the scale where 255 is 1. Divide numbers for bytes by 255")

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form`` with ``table`` set to the normalised values."""
        return replace(form, table=self.table(form.channels))

    def table(self, channels: int = 3) -> Float32Array:
        """Return the normalised value of each byte of each channel, (channels, 256) float32."""
        # Every operation rounds to float32, in torchvision's order.
        values = np.arange(256, dtype=np.float32) / np.float32(255)
        mean, std = (np.asarray(each, np.float32)[:, None] for each in (self.mean, self.std))
        return np.broadcast_to((values - mean) / std, (channels, 256)).copy()


@dataclass(frozen=True, slots=True)
class ToDtype(ValueTransform):
    """Set the element type of images in the batch.

    It comes after every transform that moves or changes pixels, before or after ``Normalize``. Images of
    floats have the axes NCHW by default; ``ToLayout`` sets another order.

    ``torchvision.transforms.v2.ToDtype`` takes a ``torch.dtype``, or a dict of these. This one takes a name,
    and changes only the field ``image``. ``scale`` has the same meaning and the same default.

    Parameters
    ----------
    dtype : str
        ``"uint8"``, ``"float16"`` or ``"float32"``.
    scale : bool, default False
        True: floats are value ÷ 255, from 0 to 1. False: they are from 0 to 255. With ``Normalize``, which
        divides by 255 itself, it has no effect.

    Raises
    ------
    PlanError
        By ``plan()``, for another dtype, or for ``"uint8"`` with ``Normalize``.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> pipeline = photos.map(sp.CenterCrop(32), sp.ToDtype("float16", scale=True)).batch(4)
    >>> with pipeline.loader() as loader:
    ...     print(loader.peek()["image"].dtype)
    float16
    """

    dtype: DtypeName
    scale: bool = False

    def check(self) -> None:
        """Raise ``PlanError`` for an unknown ``dtype``, or a ``scale`` that isn't a bool."""
        self.check_choice("dtype", get_args(DtypeName))
        self.check_flag("scale")

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form`` with ``dtype`` and ``scale`` set to those of this transform."""
        return replace(form, dtype=self.dtype, scale=self.scale)


@dataclass(frozen=True, slots=True)
class ToLayout(ValueTransform):
    """Set the order of axes of images in the batch.

    It comes after every transform that moves or changes pixels.

    Parameters
    ----------
    layout : str
        ``"NCHW"`` (the default for floats) or ``"NHWC"`` (the default for uint8).

    Raises
    ------
    PlanError
        By ``plan()``, for another layout.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32), sp.ToLayout("NCHW")).batch(4)
    >>> with pipeline.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 3, 32, 32)
    """

    layout: LayoutName

    def check(self) -> None:
        """Raise ``PlanError`` for an unknown layout."""
        self.check_choice("layout", get_args(LayoutName))

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form`` with ``layout`` set to that of this transform."""
        return replace(form, layout=Layout(self.layout))


def _are_numbers(value: object) -> bool:
    return isinstance(value, tuple) and 1 <= len(value) <= max(KINDS) and all(map(is_number, value))
