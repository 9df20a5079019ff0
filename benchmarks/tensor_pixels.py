"""Measure how far torchvision's pixels of tensors are from those of Pillow images.

Each operation of torchvision gets each photo twice: as a Pillow image and as a uint8 tensor. Resizes and crops take the
whole photo; the others take it at 224 × 224. The differences are in levels of 255, over all values of all photos.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import parser, report
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from torchvision_cpu import torchvision

V2 = torchvision.transforms.v2
F = V2.functional
FILTERS = {"bilinear": V2.InterpolationMode.BILINEAR, "bicubic": V2.InterpolationMode.BICUBIC}
NEAREST = V2.InterpolationMode.NEAREST
SIZE_PX = [224, 224]

Operation = Callable[[Any], Any]


def resizes(image: Image.Image) -> dict[str, Operation]:
    """The operations on the whole photo. The crop is one of RandomResizedCrop's."""
    box = V2.RandomResizedCrop(224).make_params([F.pil_to_tensor(image)])
    crop = partial(F.resized_crop, **box, size=SIZE_PX)
    made: dict[str, Operation] = {}
    for name, how in FILTERS.items():
        made[f"Resize(256), {name}"] = partial(F.resize, size=256, interpolation=how)
        made[f"RandomResizedCrop(224), {name}"] = partial(crop, interpolation=how)
    made["Resize(256), nearest"] = partial(F.resize, size=256, interpolation=NEAREST)
    return made


OTHERS: dict[str, Operation] = {
    "brightness 1.37": lambda given: F.adjust_brightness(given, 1.37),
    "contrast 1.37": lambda given: F.adjust_contrast(given, 1.37),
    "saturation 1.37": lambda given: F.adjust_saturation(given, 1.37),
    "hue 0.07": lambda given: F.adjust_hue(given, 0.07),
    "grey": lambda given: F.rgb_to_grayscale(given, 3),
    "autocontrast": F.autocontrast,
    "sharpness 1.9": lambda given: F.adjust_sharpness(given, 1.9),
    "rotation by 13.7°, nearest": lambda given: F.rotate(given, 13.7),
    "rotation by 13.7°, bilinear": lambda given: F.rotate(given, 13.7, FILTERS["bilinear"]),
}


def levels(operation: Operation, image: Image.Image) -> Any:
    """The absolute differences of all values."""
    as_pillow, as_tensor = F.pil_to_tensor(operation(image)), operation(F.pil_to_tensor(image))
    return np.abs(as_pillow.numpy().astype(np.int16) - as_tensor.numpy())


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument("--photos", type=int, default=100, metavar="N", help="photos (default: 100)")
    args = arguments.parse_args()
    torchvision.torch.manual_seed(0)
    paths = sorted(path for path in Path(args.path).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    counts: dict[str, Any] = defaultdict(lambda: np.zeros(256, np.int64))
    for path in paths[: args.photos]:
        with Image.open(path) as file:
            image = file.convert("RGB")
        small = image.resize((SIZE_PX[1], SIZE_PX[0]))
        for operations, given in ((resizes(image), image), (OTHERS, small)):
            for name, operation in operations.items():
                counts[name] += np.bincount(levels(operation, given).ravel(), minlength=256)
    rows = [
        (
            name,
            int(np.flatnonzero(found)[-1]),
            f"{found @ np.arange(256) / found.sum():.3f}",
            f"{100 * found[1:].sum() / found.sum():.2f}%",
            f"{100 * found[2:].sum() / found.sum():.4f}%",
        )
        for name, found in counts.items()
    ]
    report(
        args,
        ("operation", "most levels", "mean levels", "differ", "by more than 1"),
        rows,
        f"{len(paths[: args.photos])} photos",
        packages=("torch", "torchvision", "pillow"),
    )


if __name__ == "__main__":
    main()
