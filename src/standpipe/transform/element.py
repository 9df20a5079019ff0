"""Convert each pixel's value and reorder axes, as the last step into the slot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from standpipe.errors import PlanError
from standpipe.spec import Float32Array, Layout
from standpipe.transform.image import DtypeName, RowForm, ValueTransform, is_number

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

LayoutName = Literal["NCHW", "NHWC"]


@dataclass(frozen=True, slots=True)
class Normalize(ValueTransform):
    """(value ÷ 255 − mean) ÷ std per channel, as float32 unless ``ToDtype`` says otherwise.

    mean, std  three numbers each, R, G, B, on the scale where 255 is 1; default: ImageNet's

    Computed in float32 once for each of the 256 values of a channel, so that every machine gives the same
    bits.
    """

    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def check(self) -> None:
        """Raise ``PlanError`` for anything but three means and three positive deviations."""
        for name, value in (("mean", self.mean), ("std", self.std)):
            if not _are_three_numbers(value):
                raise PlanError(f"Normalize({name}={value!r}): three numbers, for R, G and B")
        if not all(each > 0 for each in self.std):
            raise PlanError(f"Normalize(std={self.std!r}): deviations are above 0")
        with np.errstate(all="ignore"):
            fits = np.isfinite(self.table()).all()
        if not fits:
            raise PlanError(
                f"{self.describe()} gives values beyond float32: means and deviations are on the scale where 255 is 1"
            )

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form`` with the table."""
        return replace(form, table=self.table())

    def table(self) -> Float32Array:
        """(3, 256) float32: what each channel's byte becomes. Every operation rounds to float32, in this order."""
        values = np.arange(256, dtype=np.float32) / np.float32(255)
        mean = np.asarray(self.mean, np.float32)[:, None]
        std = np.asarray(self.std, np.float32)[:, None]
        return (values - mean) / std


@dataclass(frozen=True, slots=True)
class ToDtype(ValueTransform):
    """The element type of the slot.

    dtype  ``"uint8"``, ``"float16"`` or ``"float32"``
    scale  whether floats are value ÷ 255, from 0 to 1, as torchvision's ``v2.ToDtype`` has it. False (default): they
           are from 0 to 255. With ``Normalize``, which divides by 255 itself, it means nothing
    """

    dtype: DtypeName
    scale: bool = False

    def check(self) -> None:
        """Raise ``PlanError`` for another type."""
        if self.dtype not in ("uint8", "float16", "float32"):
            raise PlanError(f"ToDtype({self.dtype!r}): one of 'uint8', 'float16', 'float32'")
        if not isinstance(self.scale, bool):
            raise PlanError(f"ToDtype(scale={self.scale!r}): True or False")

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form`` with the element type."""
        return replace(form, dtype=self.dtype, scale=self.scale)


@dataclass(frozen=True, slots=True)
class ToLayout(ValueTransform):
    """The order of axes in the slot: ``"NCHW"`` (default of floats) or ``"NHWC"`` (default of uint8)."""

    layout: LayoutName

    def check(self) -> None:
        """Raise ``PlanError`` for another layout."""
        if self.layout not in (each.value for each in Layout):
            raise PlanError(f"ToLayout({self.layout!r}): 'NCHW' or 'NHWC'")

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form`` with the order of axes."""
        return replace(form, layout=Layout(self.layout))


def _are_three_numbers(value: tuple[float, float, float]) -> bool:
    try:
        shape = np.shape(value)
    except ValueError:  # ragged
        return False
    return shape == (3,) and all(is_number(each) for each in value)
