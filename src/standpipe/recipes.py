"""Recipes of known training programs, as plain lists of transforms that you may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from standpipe.transform.image import ImageTransform
from standpipe.transform.pixels.color import RandomHSV
from standpipe.transform.pixels.compositions import MixUpInstances, Mosaic, Partners, Recent
from standpipe.transform.pixels.detection import LetterBox
from standpipe.transform.pixels.element import ToLayout
from standpipe.transform.pixels.geometry import RandomHorizontalFlip, RandomVerticalFlip
from standpipe.transform.pixels.instances import SanitizeBoundingBoxes
from standpipe.transform.pixels.warps import RandomAffine

def yolo(size=640,*,mosaic=1.0,mixup=0.0,degrees=0.0,translate=0.1,scale=0.5,shear=0.0,perspective=0.0,hsv_h=0.015,hsv_s=0.7,hsv_v=0.4,flipud=0.0,fliplr=0.5,partners=Recent()):
    return [LetterBox(size,pad=False),Mosaic(size,p=mosaic,partners=partners),RandomAffine(degrees,translate=(translate,translate),scale=(1-scale,1+scale),shear=(-shear,shear,-shear,shear),interpolation="bilinear",fill=114,pixels="opencv",size=size,perspective=perspective),MixUpInstances(p=mixup,partners=partners),RandomHSV(hsv_h,hsv_s,hsv_v),RandomVerticalFlip(flipud),RandomHorizontalFlip(fliplr),SanitizeBoundingBoxes(min_size=2,min_visibility=.1),ToLayout("NCHW")]
