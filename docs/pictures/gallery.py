"""Draw docs/images/gallery.webp, every image transform on synthesised photos:  python docs/pictures/gallery.py"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

import standpipe as sp

OUT = Path(__file__).parents[1] / "images" / "gallery.webp"
PHOTOS = (8, 5)  # of those that ``standpipe synth`` makes, one in each class folder
SIDE, TEXT, GAP, COLUMNS = 128, 18, 8, 6  # pixels, but the columns
BOXES = (  # around the photos' objects: left, top, right, bottom as percentages of their sides
    *((34, 14, 85, 82), (21, 0, 95, 94), (0, 37, 96, 82), (20, 26, 67, 62), (31, 0, 83, 82)),
    *((26, 0, 96, 96), (31, 6, 87, 90), (18, 24, 85, 61), (35, 20, 75, 74)),
)
COLOUR = "yellow"  # of boxes
NOT_DRAWN = {
    "ClampBoundingBoxes",
    "Grayscale",
    "SanitizeBoundingBoxes",
    "Normalize",
    "ToDtype",
    "ToLayout",
    "Views",
}  # boxes, how numbers are written, and other transforms

WHOLE = (sp.Resize((SIDE, SIDE)),)
CALLS: dict[str, tuple[Any, ...]] = {
    "Resize": WHOLE,
    "CenterCrop": (sp.CenterCrop(SIDE),),
    "RandomResizedCrop": (sp.RandomResizedCrop(SIDE),),
    "RandomCrop": (sp.Resize((160, 160)), sp.RandomCrop(SIDE)),
    "PadImage": (sp.Resize((96, 96)), sp.PadImage(16, padding_mode="reflect")),
    "RandomResize": (sp.RandomResize(64, 256), sp.RandomCrop(SIDE, pad_if_needed=True)),
    "RandomShortestSize": (sp.RandomShortestSize((64, 128, 256)), sp.FixedSizeCrop(SIDE)),
    "ScaleJitter": (sp.ScaleJitter((SIDE, SIDE)), sp.FixedSizeCrop(SIDE)),
    "RandomIoUCrop": (sp.RandomIoUCrop(), *WHOLE),
    "LetterBox": (sp.LetterBox(SIDE),),
    "Mosaic": (sp.LetterBox(SIDE // 2, pad=False), sp.Mosaic(SIDE // 2)),
    "MixUpInstances": (*WHOLE, sp.MixUpInstances()),
    "CutMixInstances": (
        *WHOLE,
        sp.RandomAffine(0, translate=(0.4, 0.4), scale=(0.6, 0.8), fill=114),
        sp.CutMixInstances(partners="batch"),
    ),
    "CopyPaste": (*WHOLE, sp.CopyPaste()),
    "FixedSizeCrop": (sp.Resize((96, 160)), sp.FixedSizeCrop(SIDE, fill=114)),
    "RandomZoomOut": (sp.RandomZoomOut((123, 117, 104), p=1), *WHOLE),
    "RandomPhotometricDistort": (*WHOLE, sp.RandomPhotometricDistort()),
    "RandomSizeCrop": (*WHOLE, sp.RandomSizeCrop(64, 96), sp.FixedSizeCrop(SIDE)),
    "RandomRotation": (*WHOLE, sp.RandomRotation(45)),
    "RandomAffine": (*WHOLE, sp.RandomAffine(20, translate=(0.2, 0.2), scale=(0.7, 1.2), shear=20)),
    "RandomPerspective": (*WHOLE, sp.RandomPerspective(p=1)),
    "RandomErasing": (*WHOLE, sp.RandomErasing(p=1)),
    "RandomHorizontalFlip": (*WHOLE, sp.RandomHorizontalFlip(p=1)),
    "RandomVerticalFlip": (*WHOLE, sp.RandomVerticalFlip(p=1)),
    "ColorJitter": (*WHOLE, sp.ColorJitter(0.4, 0.4, 0.4, 0.2)),
    "RandomHSV": (*WHOLE, sp.RandomHSV(0.1, 0.9, 0.5)),
    "RandomGrayscale": (*WHOLE, sp.RandomGrayscale(p=1)),
    "RandomInvert": (*WHOLE, sp.RandomInvert(p=1)),
    "RandomPosterize": (*WHOLE, sp.RandomPosterize(2, p=1)),
    "RandomSolarize": (*WHOLE, sp.RandomSolarize(128, p=1)),
    "RandomAutocontrast": (*WHOLE, sp.RandomAutocontrast(p=1)),
    "RandomEqualize": (*WHOLE, sp.RandomEqualize(p=1)),
    "RandomAdjustSharpness": (*WHOLE, sp.RandomAdjustSharpness(8, p=1)),
    "GaussianBlur": (*WHOLE, sp.GaussianBlur(13, sigma=(2.0, 2.0))),
    "PillowGaussianBlur": (*WHOLE, sp.PillowGaussianBlur(3)),
    "RandAugment": (*WHOLE, sp.RandAugment(2, 15)),
    "TrivialAugmentWide": (*WHOLE, sp.TrivialAugmentWide()),
    "AutoAugment": (*WHOLE, sp.AutoAugment()),
    "AugMix": (*WHOLE, sp.AugMix(severity=10, alpha=10)),
    "TimmRandAugment": (*WHOLE, sp.TimmRandAugment(magnitude=9, p=1)),
    "ThreeAugment": (*WHOLE, sp.ThreeAugment()),
    "RandomApply": (*WHOLE, sp.RandomApply([sp.GaussianBlur(5), sp.RandomInvert(p=1)], p=1)),
    "RandomChoice": (*WHOLE, sp.RandomChoice([sp.RandomGrayscale(p=1), sp.RandomSolarize(64, p=1)])),
    "RandomOrder": (*WHOLE, sp.RandomOrder([sp.RandomPosterize(3, p=1), sp.RandomEqualize(p=1)])),
}


def main() -> None:
    shown = {name for name in sp.__all__ if sp_transform(name)} - NOT_DRAWN
    if missing := sorted(shown - CALLS.keys()):
        raise SystemExit(f"CALLS lacks {', '.join(missing)}: add an example of each")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "standpipe", "synth", folder, "--images", str(max(PHOTOS) + 1)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        cells = [
            (name, drawn(source(Path(folder)), calls)) for name, calls in {"before": WHOLE, **CALLS}.items()
        ]
    sheet(cells).save(OUT, quality=75, method=6)


def sp_transform(name: str) -> bool:
    """Return True if this name of standpipe is a transform of images."""
    return hasattr(getattr(sp, name), "draw_kind")


def source(folder: Path) -> sp.Coco:
    """Return the photos with their boxes."""
    images, annotations = [], []
    for number, path in enumerate(sorted(folder.rglob("*.jpg"))):
        with Image.open(path) as photo:
            width, height = photo.size
        name = str(path.relative_to(folder))
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        left, top, right, bottom = (
            part * side / 100 for part, side in zip(BOXES[number], (width, height) * 2, strict=True)
        )
        corners = [left, top, right, top, right, bottom, left, bottom]
        place = {"bbox": [left, top, right - left, bottom - top], "segmentation": [corners]}
        annotations.append({"id": number, "image_id": number, "category_id": 1, **place})
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "object"}]}
    (folder / "boxes.json").write_text(json.dumps(content))
    return sp.Coco(folder, folder / "boxes.json", masks=True)


def drawn(photos: sp.Coco, transforms: tuple[Any, ...]) -> list[Image.Image]:
    """Return what the transforms make of the photos and their boxes."""
    pipeline = sp.Pipeline(photos).map(*transforms).batch(max(PHOTOS) + 1)
    with pipeline.loader(memory="256MiB", num_workers=1) as loader:
        batch = loader.peek()
    made = [Image.fromarray(batch["image"][photo]) for photo in PHOTOS]
    for photo, image in zip(PHOTOS, made, strict=True):
        for left, top, right, bottom in batch["boxes"][batch["batch_index"] == photo]:
            ImageDraw.Draw(image).rectangle((left, top, right - 1, bottom - 1), outline=COLOUR)
    return made


def sheet(cells: list[tuple[str, list[Image.Image]]]) -> Image.Image:
    """Return one picture with a name above the photos of each cell."""
    font = ImageFont.load_default(11)
    width, height = SIDE + GAP, TEXT + len(PHOTOS) * SIDE + GAP
    rows = -(-len(cells) // COLUMNS)
    made = Image.new("RGB", (COLUMNS * width + GAP, rows * height), "white")
    draw = ImageDraw.Draw(made)
    for number, (name, photos) in enumerate(cells):
        x, y = GAP + number % COLUMNS * width, number // COLUMNS * height
        draw.text((x, y + 2), name, fill="black", font=font)
        for below, photo in enumerate(photos):
            made.paste(photo, (x, y + TEXT + below * SIDE))
    return made


if __name__ == "__main__":
    main()
