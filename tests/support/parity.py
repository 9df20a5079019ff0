"""Damaged image files, and how what a loader makes of them differs from what Pillow does."""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

import standpipe as sp
from draws import Sample
from model.pictures import transformed
from reference import decoded, explain_difference, in_order, listed
from standpipe.spec import AnyArray

CROPS = 3  # of each file
SIZE_PX = (48, 64)
MOST_PIXELS = 1 << 22  # more are over the caps here, whatever Pillow would do
WHOLE = (sp.Resize(SIZE_PX),)  # the size of the files' pictures, unless damage changed it
CROP = (sp.RandomResizedCrop((24, 31), scale=(0.05, 1.0)), sp.RandomHorizontalFlip())
MARKERS = (0x01, 0x02, 0xC0, 0xC2, 0xC4, 0xD0, 0xD3, 0xD8, 0xD9, 0xDA, 0xDB, 0xDD, 0xE1, 0xFE, 0xFF)


def small_photos(photos: Callable[[int], Image.Image]) -> dict[str, bytes]:
    """20 kinds of image files by name. ``photos``: the n-th picture, RGB, small."""
    kinds: list[tuple[str, str, str, dict[str, object]]] = [
        ("JPEG 4:4:4", "RGB", "JPEG", {"subsampling": "4:4:4", "quality": 90}),
        ("JPEG 4:2:2", "RGB", "JPEG", {"subsampling": "4:2:2", "dpi": (72, 72), "comment": b"a photo"}),
        ("JPEG 4:2:0", "RGB", "JPEG", {"subsampling": "4:2:0", "quality": 60}),
        ("JPEG with restarts", "RGB", "JPEG", {"restart_marker_blocks": 3}),
        ("JPEG with restarts in rows", "RGB", "JPEG", {"restart_marker_rows": 1, "subsampling": "4:4:4"}),
        ("JPEG with optimized tables", "RGB", "JPEG", {"optimize": True}),
        ("JPEG with EXIF", "RGB", "JPEG", {"exif": _exif(), "icc_profile": bytes(range(200))}),
        ("JPEG, grey", "L", "JPEG", {}),
        ("JPEG, CMYK", "CMYK", "JPEG", {}),
        ("JPEG, progressive", "RGB", "JPEG", {"progressive": True}),
        ("JPEG, progressive 4:4:4", "RGB", "JPEG", {"progressive": True, "subsampling": "4:4:4"}),
        ("JPEG, two pictures", "RGB", "MPO", {"save_all": True, "append_images": [photos(1)]}),
        ("PNG", "RGB", "PNG", {}),
        ("PNG, transparent palette", "P", "PNG", {"transparency": bytes(range(200))}),
        ("PNG, transparent grey", "L", "PNG", {"transparency": 100}),
        ("PNG with alpha", "RGBA", "PNG", {"exif": _exif()}),
        ("WebP", "RGB", "WEBP", {"quality": 70, "exif": _exif()}),
        ("WebP, lossless with alpha", "RGBA", "WEBP", {"lossless": True}),
        ("GIF", "P", "GIF", {"transparency": 7}),
        ("GIF, animated", "P", "GIF", {"save_all": True, "append_images": [photos(1), photos(2)]}),
    ]
    files = {}
    for number, (name, mode, file_format, options) in enumerate(kinds):
        out = io.BytesIO()
        photos(number).convert(mode).save(out, file_format, **options)
        files[name] = out.getvalue()
    return files


def _exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x011A] = exif[0x011B] = 300.0
    exif[0x0128] = 2
    return exif


def _flip(data: bytearray, at: int, draw: random.Random) -> None:
    data[at] ^= 1 << draw.randrange(8)


def _flip_eight(data: bytearray, at: int, draw: random.Random) -> None:
    for _ in range(8):
        _flip(data, draw.randrange(len(data)), draw)


def _replace(data: bytearray, at: int, draw: random.Random) -> None:
    data[at] = draw.choice((0, 0xFF, draw.randrange(256)))


def _mark(data: bytearray, at: int, draw: random.Random) -> None:
    data[at : at + 2 * draw.randrange(2)] = bytes([0xFF, draw.choice(MARKERS)])


def _cut(data: bytearray, at: int, draw: random.Random) -> None:
    del data[at:]


def _delete(data: bytearray, at: int, draw: random.Random) -> None:
    del data[at : at + draw.choice((1, 3, 50, 1000))]


def _repeat(data: bytearray, at: int, draw: random.Random) -> None:
    data[at:at] = data[at : at + draw.choice((1, 3, 50, 1000))]


def _swap(data: bytearray, at: int, draw: random.Random) -> None:
    size = draw.choice((16, 128, 512))
    first, second = sorted((at, draw.randrange(len(data))))
    size = min(size, second - first)
    data[first : first + size], data[second : second + size] = (
        data[second : second + size],
        data[first : first + size],
    )


CHANGES = {
    "a bit": _flip,
    "eight bits": _flip_eight,
    "a byte": _replace,
    "a marker": _mark,
    "a cut": _cut,
    "a gap": _delete,
    "a repetition": _repeat,
    "a swap": _swap,
}


def damaged(files: Mapping[str, bytes], count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """``count`` changed files, each with a name that says what it was and what was done to it."""
    names, changes = list(files), list(CHANGES)
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        name, change = names[number % len(names)], draw.choice(changes)
        data = bytearray(files[name])
        CHANGES[change](data, draw.randrange(len(data)), draw)
        yield f"{number}: {name}, {change}", bytes(data)


@dataclass(slots=True)
class Parity:
    """A comparison of loaders with Pillow. Each list has a line for every file of its kind."""

    files: int = 0
    refused: int = 0  # by both
    over_caps: int = 0
    only_we_refuse: list[str] = field(default_factory=list)
    only_pillow_refuses: list[str] = field(default_factory=list)
    several_verdicts: list[str] = field(default_factory=list)  # of one file's crops
    other_pixels: list[str] = field(default_factory=list)

    @property
    def differences(self) -> list[str]:
        """The lines of all differences."""
        return [
            *self.only_we_refuse,
            *self.only_pillow_refuses,
            *self.several_verdicts,
            *self.other_pixels,
        ]

    def add(self, files: Sequence[tuple[str, bytes]], folder: Path) -> None:
        """Compare the whole frame and crops of some files, which are written to ``folder``."""
        bytes_of = [data for _, data in files]
        (folder / "crops").mkdir(parents=True)
        source, repeated = listed(folder, bytes_of), listed(folder / "crops", bytes_of, times=CROPS)
        rows, reasons = delivered(in_order(source, *WHOLE))
        crop_rows, crop_reasons = delivered(in_order(repeated, *CROP))
        for number, (name, data) in enumerate(files):
            again = range(number, len(crop_rows), len(files))
            ours = [reasons.get(number), *(crop_reasons.get(position) for position in again)]
            if len({reason is None for reason in ours}) > 1:
                self.several_verdicts.append(f"{name}: {ours}")
            expected, says = _by_pillow(data)
            self.files += 1
            if says == "too large":
                self.over_caps += 1
            elif expected is None:
                self.refused += ours[0] is not None
                if ours[0] is None:
                    self.only_pillow_refuses.append(f"{name}: {says}")
            elif ours[0] is not None:
                self.only_we_refuse.append(f"{name}: {ours[0]}")
            else:
                self._compare(name, rows[number], transformed(expected, WHOLE, Sample()))
                for position in again:
                    crop = transformed(expected, CROP, Sample(position=position))
                    if crop_reasons.get(position) is None:
                        self._compare(name, crop_rows[position], crop)

    def _compare(self, name: str, ours: AnyArray, expected: AnyArray) -> None:
        if difference := explain_difference(ours, expected):
            self.other_pixels.append(f"{name}: {difference}")


def _by_pillow(data: bytes) -> tuple[Image.Image | None, str]:
    """The image in RGB, or None; and why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                if image.width * image.height > MOST_PIXELS:
                    return None, "too large"
            return decoded(data), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def delivered(pipeline: sp.Pipeline) -> tuple[list[AnyArray], dict[int, str]]:
    """The rows of an epoch, and for each position whose file was refused the reason."""
    lenient = pipeline.on_error(sp.Replace(at_most=1 << 20))
    lenient = lenient.decode(limits=sp.DecodeLimits(max_pixels=MOST_PIXELS))
    with lenient.loader(memory="512MiB", num_workers=1) as loader:
        rows = [image for batch in loader for image in batch["image"].copy()]
        return rows, {bad.position: bad.reason for bad in loader.bad_samples if bad.attempt == 0}
