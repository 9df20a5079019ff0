"""The transform place: what happens to a sample, and how adjacent transforms become one native kernel."""

from penstock.transform.element import Normalize, ToDtype, ToLayout
from penstock.transform.fuse import ImageKernel, fuse
from penstock.transform.geometry import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from penstock.transform.native import decoder_version, simd_paths

__all__ = [
    "CenterCrop",
    "ImageKernel",
    "Normalize",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToDtype",
    "ToLayout",
    "decoder_version",
    "fuse",
    "simd_paths",
]
