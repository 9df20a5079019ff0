"""Random sources of images, and what their records are: one in 33 is bad."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import standpipe as sp
from jpegs import Coding, encode
from model.rows import Broken, Missing
from photos import encoded, picture, write_list
from samples import Samples
from standpipe.spec import UInt8Array
from tars import shard

CLASSES = 8
BAD = 0.03  # of the records
FACTORS = [((h, v), (1, 1), (1, 1)) for h in (1, 2, 4) for v in (1, 2)]  # sampling of a JPEG's components
OF_ALL_SIZES = "folder", "list", "tar", "encoded", "pillow", "dicts", "stream"
OF_ONE_SIZE = "arrays", "npy", "fixed", "two", "dicts", "stream"
PYTHON = "encoded", "pillow", "dicts", "stream"
MASKED = "list", "tar", "encoded", "pillow", "dicts", "arrays", "npy", "two"


@dataclass(frozen=True)
class Contents:
    """A source and its records, each a dict of values by field.

    kind      a name in ``SOURCES``
    one_size  all images have one size
    """

    source: Any
    kind: str
    records: Sequence[Any]
    one_size: bool
    masks: bool

    @property
    def is_python(self) -> bool:
        return self.kind in PYTHON

    @property
    def streams(self) -> bool:
        return self.kind == "stream"


def contents(draw: random.Random, folder: Path, world: int, *, mixes: bool) -> Contents:
    """A random source, with files in ``folder``. ``mixes``: all fields are images and labels."""
    kind = draw.choice((*OF_ALL_SIZES, *OF_ONE_SIZE))
    one_size = kind not in OF_ALL_SIZES or (kind in OF_ONE_SIZE and draw.random() < 0.5)
    masks = not mixes and kind in MASKED and draw.random() < 0.35
    count = draw.randrange(8, 30) * (world if kind == "stream" else 1)
    records = made(draw, kind, count, one_size=one_size, masks=masks, more=kind in PYTHON and not mixes)
    return Contents(SOURCES[kind](draw, folder, records, world), kind, records, one_size, masks)


def made(draw: random.Random, kind: str, count: int, *, one_size: bool, masks: bool, more: bool) -> list[Any]:
    """The records of a source. ``more``: with numbers, tokens and a text."""
    sides = draw.randrange(8, 41), draw.randrange(8, 41)
    records: list[Any] = []
    for number in range(count):
        height, width = sides if one_size else (draw.randrange(8, 41), draw.randrange(8, 41))
        pixels = picture(draw.randrange(1 << 30), height, width)
        record: dict[str, Any] = {"image": pixels}
        if kind in ("folder", "list", "tar", "encoded"):
            record["image"] = file_of(draw, pixels, one_size=one_size or masks)
        elif kind == "pillow":
            record["image"] = Image.fromarray(pixels).convert(draw.choice(("RGB", "L", "P", "RGBA")))
        if masks:
            record["mask"] = np.random.default_rng(number).integers(0, 9, (height, width), np.uint8)
        record["label"] = number * CLASSES // count if kind == "folder" else draw.randrange(CLASSES)
        if more:
            record["x"] = np.random.default_rng(number).normal(size=3).astype(np.float32)
            record["tokens"] = np.arange(number, number + draw.randrange(1, 9))
            record["text"] = f"text {number}" if draw.random() > BAD else None
            if draw.random() < BAD:
                record[draw.choice(("x", "label"))] = None
        records.append(spoiled(draw, kind, record))
    return records


def spoiled(draw: random.Random, kind: str, record: dict[str, Any]) -> Any:
    """The record, or one time in 33 a bad one."""
    if draw.random() >= BAD or kind in ("arrays", "npy", "two", "fixed"):
        return record
    if kind in ("dicts", "stream", "pillow"):
        return Broken()
    file = record["image"]
    ways = [file[: len(file) * 2 // 3], file[:-30], b"no image", b""]
    if kind == "list":
        ways.append(Missing)
    return {**record, "image": draw.choice(ways)}


def file_of(draw: random.Random, pixels: UInt8Array, *, one_size: bool) -> bytes:
    """A picture as a file's bytes: one of many kinds."""
    file, image = io.BytesIO(), Image.fromarray(pixels)
    match draw.choice(("JPEG", "JPEG", "JPEG", "by hand", "grey", "PNG", "palette", "alpha", "WEBP", "EXIF")):
        case "JPEG":
            subsampling = draw.choice(("4:4:4", "4:2:2", "4:2:0"))
            progressive = draw.random() < 0.3
            image.save(
                file, "JPEG", quality=draw.randrange(40, 96), subsampling=subsampling, progressive=progressive
            )
        case "by hand":
            coding = Coding(
                factors=draw.choice(FACTORS), scans=draw.choice(("one", "separate", "progressive"))
            )
            return encode(pixels, coding)
        case "grey":
            image.convert("L").save(file, "JPEG")
        case "EXIF":
            exif = Image.Exif()
            exif[0x0112] = draw.choice((2, 3, 4) if one_size else range(1, 9))
            image.save(file, "JPEG", exif=exif)
        case "PNG":
            image.save(file, "PNG")
        case "palette":
            image.convert("P").save(file, "PNG")
        case "alpha":
            image.convert("RGBA").save(file, "PNG")
        case "WEBP":
            image.save(file, "WEBP", lossless=True)
    return file.getvalue()


def as_folder(draw: random.Random, folder: Path, records: Sequence[Any], world: int) -> Any:
    for number, record in enumerate(records):
        path = folder / f"root/{record['label']}/{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(record["image"])
    return sp.ImageFolder(folder / "root")


def as_list(draw: random.Random, folder: Path, records: Sequence[Any], world: int) -> Any:
    files = {f"{number:03}.jpg": each["image"] for number, each in enumerate(records)}
    write_list(folder, {name: None if data is Missing else data for name, data in files.items()})
    labels = [f"{number:03}.jpg\t{each['label']}\n" for number, each in enumerate(records)]
    (folder / "list.txt").write_text("".join(labels))
    if "mask" not in records[0]:
        return sp.FileList(folder / "list.txt")
    for number, each in enumerate(records):
        (folder / f"{number:03}.png").write_bytes(encoded(each["mask"], "PNG"))
    (folder / "masks.txt").write_text("".join(f"{number:03}.png\n" for number in range(len(records))))
    return sp.FileList(folder / "list.txt", mask=folder / "masks.txt")


def as_shards(draw: random.Random, folder: Path, records: Sequence[Any], world: int) -> Any:
    cut = draw.randrange(1, len(records))
    for name, part in (("0", range(cut)), ("1", range(cut, len(records)))):
        members: list[tuple[str | bytes, bytes]] = []
        for number in part:
            record = records[number]
            members += [(f"{number:03}.cls", b"%d" % record["label"]), (f"{number:03}.jpg", record["image"])]
            if "mask" in record:
                members.append((f"{number:03}.mask.png", encoded(record["mask"], "PNG")))
        shard(folder / f"{name}.tar", members)
    fields = {"image": "jpg", "label": "cls", "mask": "mask.png"}
    if "mask" not in records[0]:
        del fields["mask"]
    return sp.TarShards(folder / "{0..1}.tar", fields=fields)


@dataclass(frozen=True)
class Given:
    """A record's values. Raises ``KeyError`` for a broken one."""

    records: Sequence[Any]

    def __call__(self, index: int) -> dict[str, Any]:
        record = self.records[index]
        if isinstance(record, Broken):
            raise KeyError(index)
        return dict(record)


def as_dataset(draw: random.Random, folder: Path, records: Sequence[Any], world: int) -> Any:
    encodes = next((isinstance(each["image"], bytes) for each in records if isinstance(each, dict)), False)
    return sp.MapSource(Samples(Given(records), len(records)), encoded="image" if encodes else None)


@dataclass(frozen=True)
class Stream:
    records: Sequence[Any]

    def __call__(self, rank: int, world_size: int, skip: int) -> Iterator[Any]:
        return map(Given(self.records), range(rank + skip * world_size, len(self.records), world_size))


def as_stream(draw: random.Random, folder: Path, records: Sequence[Any], world: int) -> Any:
    length = len(records) // world if world > 1 or draw.random() < 0.5 else None
    return sp.IterableSource(Stream(records), length=length)


def columns(records: Sequence[Any]) -> dict[str, Any]:
    return {name: np.stack([np.asarray(each[name]) for each in records]) for name in records[0]}


def as_arrays(draw: random.Random, folder: Path, records: Sequence[Any], world: int) -> Any:
    return sp.Arrays(**columns(records))


def as_npy(draw: random.Random, folder: Path, records: Sequence[Any], world: int) -> Any:
    for name, values in columns(records).items():
        np.save(folder / f"{name}.npy", values)
    return sp.Arrays(**{name: folder / f"{name}.npy" for name in records[0]})


def as_two(draw: random.Random, folder: Path, records: Sequence[Any], world: int) -> Any:
    cut = draw.randrange(1, len(records))
    return sp.Concat(sp.Arrays(**columns(records[:cut])), sp.Arrays(**columns(records[cut:])))


def as_fixed(draw: random.Random, folder: Path, records: Sequence[Any], world: int) -> Any:
    values = columns(records)
    axes: Any = draw.choice(("HWC", "CHW"))
    images = values["image"] if axes == "HWC" else values["image"].transpose(0, 3, 1, 2)
    made = np.zeros(len(records), [("label", "u1"), ("image", "u1", images.shape[1:])])
    made["label"], made["image"] = values["label"], images
    cut = draw.randrange(1, len(records))
    made[:cut].tofile(folder / "0.bin")
    made[cut:].tofile(folder / "1.bin")
    return sp.FixedRecords([folder / "0.bin", folder / "1.bin"], fields=made.dtype, image_axes=axes)


SOURCES: dict[str, Callable[[random.Random, Path, Sequence[Any], int], Any]] = {
    "folder": as_folder,
    "list": as_list,
    "tar": as_shards,
    "encoded": as_dataset,
    "pillow": as_dataset,
    "dicts": as_dataset,
    "stream": as_stream,
    "arrays": as_arrays,
    "npy": as_npy,
    "two": as_two,
    "fixed": as_fixed,
}
