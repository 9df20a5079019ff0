"""Examine a folder or list of images: read headers, count files, and report what costs time or memory."""

from __future__ import annotations

import io
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

import standpipe as sp
from standpipe.doctor.facts import Host
from standpipe.doctor.finding import Finding, Severity, by_severity
from standpipe.reports import FileFinding
from standpipe.units import several, show_bytes

SAMPLED = 256  # images whose headers are read
COUNTED = 100_000  # records whose folders are counted, evenly
CROP_PX = 224  # of the usual training task, from an image whose short side is 256
SHORT_PX = 256
LARGE_RATIO = 4.0  # times the pixels that the usual task can use
MANY_FILES = 100_000  # of one folder
SMALL_BYTES = 32 << 10
PROGRESSIVE = 0.2  # share of the images
OTHER_FORMATS_SHARE = 0.2  # of the images
LIMITS = 1.25  # a rate is a limit if the other is so many times as high
SHOWN = 4  # bad files
BATCH_BYTES = 64 * 3 * CROP_PX * CROP_PX * 4  # the usual batch of float32
PREFETCH_FACTOR = 2  # torch's prefetch_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The facts in the header of an image file.

    format  its name in Pillow
    """

    width_px: int
    height_px: int
    bytes: int
    format: str
    progressive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Measured rates in images per second, and the time that reads take.

    reads    rate of reading alone
    decode   rate of decoding alone, from memory, by ``workers`` threads
    both     rate of reading and decoding
    waited   fraction of the reads that waited for storage, from 0 to 1
    failed   number of reads that failed
    """

    reads: float
    decode: float
    both: float
    workers: int
    p50_s: float
    p99_s: float
    waited: float
    failed: int = 0
    decoder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """A folder or list.

    images          number of images
    pictures        headers of a sample of the images
    unreadable      number of images in this sample whose header can't be read
    largest_folder  (the folder with most files, their approximate number)
    cpus            number of CPUs of the machine, also those that this process may not use
    bad             files that a loader would refuse; None: there were too many to decode all
    """

    path: str
    images: int
    pictures: tuple[Picture, ...]
    unreadable: int
    largest_folder: tuple[str, int]
    speeds: Speeds
    cpus: int
    bad: tuple[FileFinding, ...] | None = None

    @property
    def bytes(self) -> int:
        """Mean bytes of an image."""
        return sum(each.bytes for each in self.pictures) // max(len(self.pictures), 1)

    @property
    def short_px(self) -> float:
        """The shorter side of an image, in the median."""
        return median([min(each.width_px, each.height_px) for each in self.pictures] or [0])

    @property
    def surplus(self) -> float:
        """Median pixels of an image ÷ the pixels of one with a shorter side of 256 px."""
        return (self.short_px / SHORT_PX) ** 2

    def share(self, what: Sequence[bool]) -> float:
        """Return the fraction of the images for which ``what`` is True."""
        return sum(what) / len(self.pictures) if self.pictures else 0.0

    @property
    def progressive(self) -> float:
        """Fraction of the images that are progressive JPEGs, from 0 to 1."""
        return self.share([each.progressive for each in self.pictures])

    @property
    def formats(self) -> dict[str, float]:
        """Fraction of the images in each format, the most frequent first."""
        counts = Counter(each.format for each in self.pictures)
        return {name: count / len(self.pictures) for name, count in counts.most_common()}


def look_at(path: str, plan: sp.Plan, speeds: Speeds, seconds: float) -> Data:
    """Read some of the headers, count files by folder, and decode all files if that takes ``seconds`` at most."""
    images = plan.source.num_records
    pictures = []
    unreadable = 0
    for path_of, offset, length in _files(plan, SAMPLED):
        picture = _picture(path_of, offset, length)
        if picture is None:
            unreadable += 1
        else:
            pictures.append(picture)
    counted = min(images, COUNTED)
    # Many records of one shard are one file.
    whole = (path_of for path_of, _, length in _files(plan, COUNTED) if length < 0)
    folders = Counter(map(os.path.dirname, whole))
    folder, files = folders.most_common(1)[0] if folders else (b"", 0)
    bad = None
    if images <= max(SAMPLED, speeds.decode * seconds):
        checked = sp.check_files(plan.pipeline.source, duplicates=False)
        bad = tuple(each for each in checked.findings() if each.level == "bad")
    return Data(
        path=path,
        images=images,
        pictures=tuple(pictures),
        unreadable=unreadable,
        largest_folder=(os.fsdecode(folder), files * images // max(counted, 1)),
        speeds=speeds,
        cpus=os.cpu_count() or 1,
        bad=bad,
    )


def _files(plan: sp.Plan, most: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield path, offset and length of at most a number of records, taken evenly from the source."""
    images = plan.source.num_records
    chosen = np.unique(np.linspace(0, images - 1, min(images, most)).astype(np.int64))
    for files in plan.source.locate(chosen).files.values():
        places = zip(files.offset.tolist(), files.length.tolist(), strict=True)
        yield from ((files.paths[row], *place) for row, place in enumerate(places))


def _picture(path: bytes, offset: int, length: int) -> Picture | None:
    """Return what an image's header says; None if it can't be read. A length of -1 means a whole file."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (bytes)
            size = os.fstat(file.fileno()).st_size
            if length >= 0:
                file.seek(offset)
                size = length
            with Image.open(file if length < 0 else io.BytesIO(file.read(length))) as image:
                return Picture(
                    width_px=image.width,
                    height_px=image.height,
                    bytes=size,
                    format=image.format or "?",
                    progressive=bool(image.info.get("progressive")),
                )
    except Exception:  # Pillow's plugins raise whatever they like for bytes that are no image
        return None


def judge_data(host: Host, data: Data) -> list[Finding]:
    """Return the findings on what costs time or memory, the most severe first."""
    judges = (_unreadable, _large, _progressive, _other_formats, _slow_storage, _full_folder, _shm, _quota)
    return by_severity([finding for judge in judges for finding in judge(host, data)])


def _unreadable(host: Host, data: Data) -> Iterator[Finding]:
    failed = data.speeds.failed
    if data.bad is None:
        looked, count = len(data.pictures) + data.unreadable, data.unreadable
        seen = f"of {several(looked, 'image')} looked at, {count} {_have(count)} no header that Pillow knows"
    else:
        looked, count = data.images, len(data.bad)
        names = ["/".join((each.path or "").split("/")[-2:]) + f": {each.kind}" for each in data.bad[:SHOWN]]
        more = ", …" if count > SHOWN else ""
        seen = f"of {several(looked, 'image')}, {count} can't be decoded: {', '.join(names)}{more}"
    if not count and not failed:
        return
    at_most = max(1, math.ceil(1000 * count / max(looked, 1))) / 1000
    yield Finding(
        code="bad-files",
        severity=Severity.PROBLEM,
        title="there are files that are no images, or can't be read",
        where=data.path,
        evidence=(
            *((seen,) if count else ()),
            *((f"{several(failed, 'read')} failed",) if failed else ()),
        ),
        numbers={"looked": looked, "bad": count, "failed": failed},
        fix="standpipe scan PATH --output bad.jsonl finds all of them; then repair or drop them",
        standpipe=f'pipeline.exclude("bad.jsonl"), or .on_error(sp.Replace(at_most={at_most:g}))',
    )


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _large(host: Host, data: Data) -> Iterator[Finding]:
    if data.surplus < LARGE_RATIO:
        return
    yield Finding(
        code="images-large",
        severity=Severity.WARNING,
        title=f"images have {data.surplus:.0f} times the pixels that the usual crop can use",
        where=data.path,
        evidence=(
            f"the shorter side is {data.short_px:,.0f} px in the median, {show_bytes(data.bytes)} a file; "
            f"for crops of {CROP_PX} px, {SHORT_PX} px will do",
            f"decoding takes {data.speeds.workers / max(data.speeds.decode, 1e-9) * 1e3:.1f} ms of a CPU an image",
        ),
        numbers={"short_px": data.short_px, "surplus": round(data.surplus, 2), "bytes": data.bytes},
        fix=f"resize the images once, to a shorter side of {SHORT_PX} to 320 px, and train on those",
        standpipe='decode("fast") decodes at a half, a quarter or an eighth; .cache(...) keeps what was made',
    )


def _progressive(host: Host, data: Data) -> Iterator[Finding]:
    if data.progressive < PROGRESSIVE:
        return
    yield Finding(
        code="jpegs-progressive",
        severity=Severity.WARNING,
        title=f"{data.progressive:.0%} of the images are progressive JPEGs",
        where=data.path,
        evidence=("they are decoded whole, whatever the crop, and in several passes",),
        numbers={"share": round(data.progressive, 3)},
        fix="jpegtran -copy none file.jpg > new.jpg makes them baseline, without any loss",
        standpipe=".cache(...) keeps what was decoded; whole frames take turns in large_image_memory=",
    )


def _other_formats(host: Host, data: Data) -> Iterator[Finding]:
    others = {name: share for name, share in data.formats.items() if name != "JPEG"}
    if sum(others.values()) < OTHER_FORMATS_SHARE:
        return
    named = ", ".join(f"{name} {share:.0%}" for name, share in others.items())
    yield Finding(
        code="not-jpeg",
        severity=Severity.NOTE,
        title=f"{sum(others.values()):.0%} of the images aren't JPEGs",
        where=data.path,
        evidence=(f"{named}; such files are decoded whole, under Python's lock in part",),
        numbers={name: round(share, 3) for name, share in others.items()},
        fix="store photos as JPEGs of quality 90 and more, where a model needs no more",
        standpipe="JPEGs are decoded natively, and only what the crop needs",
    )


def _slow_storage(host: Host, data: Data) -> Iterator[Finding]:
    speeds = data.speeds
    if speeds.reads * LIMITS > speeds.decode or speeds.waited < 0.5:
        return
    small = data.bytes < SMALL_BYTES
    yield Finding(
        code="small-files" if small else "storage-slow",
        severity=Severity.WARNING,
        title="the price of small files limits the rate" if small else "storage limits the rate",
        where=data.path,
        evidence=(
            f"reads alone give {speeds.reads:,.0f} images/s, {show_bytes(speeds.reads * data.bytes)}/s; "
            f"decoding alone {speeds.decode:,.0f} images/s",
            f"a read takes {1e3 * speeds.p50_s:.2g} ms, 1 in 100 {1e3 * speeds.p99_s:.2g} ms; "
            f"{speeds.waited:.0%} waited for storage; a file has {show_bytes(data.bytes)}",
        ),
        numbers={
            "reads": speeds.reads,
            "decode": speeds.decode,
            "waited": speeds.waited,
            "bytes": data.bytes,
        },
        fix="copy the data to a local disk, or pack it in large files that are read in sequence",
        standpipe="reads run ahead of decoding, many at once; .cache(sp.Cache(..., disk=...)) keeps files locally",
    )


def _full_folder(host: Host, data: Data) -> Iterator[Finding]:
    folder, files = data.largest_folder
    if files < MANY_FILES:
        return
    yield Finding(
        code="folder-full",
        severity=Severity.NOTE,
        title=f"one folder has about {files:,} files",
        where=data.path,
        evidence=(f"{folder or '.'}; listing it is slow on network storage, at every start of every job",),
        numbers={"folder": folder, "files": files},
        fix="spread the files over subfolders, or keep a list of them",
        standpipe="standpipe index PATH lists it once; later starts look rows up in the index",
    )


def _shm(host: Host, data: Data) -> Iterator[Finding]:
    need = host.cores * PREFETCH_FACTOR * BATCH_BYTES
    if host.shm_free >= need:
        return
    yield Finding(
        code="shm-small",
        severity=Severity.WARNING,
        title=f"/dev/shm has {show_bytes(host.shm_free)} free",
        where=data.path,
        evidence=(
            f"a torch DataLoader with {several(host.cores, 'worker')} and batches of 64 crops puts up to "
            f"{show_bytes(need)} there",
        ),
        numbers={"free_bytes": host.shm_free, "need_bytes": need},
        fix="in a container: docker run --shm-size=8g, or --ipc=host",
        standpipe="batches are in memory of standpipe's own; the size of /dev/shm doesn't matter",
    )


def _quota(host: Host, data: Data) -> Iterator[Finding]:
    if host.cores >= data.cpus:
        return
    yield Finding(
        code="cpu-quota",
        severity=Severity.NOTE,
        title=f"this process may use {host.cores} of {several(data.cpus, 'CPU')}",
        where=data.path,
        evidence=("by affinity or a container's quota, of which os.cpu_count() knows nothing",),
        numbers={"cores": host.cores, "cpus": data.cpus},
        fix=f"num_workers={host.cores} at most, whatever os.cpu_count() says",
        standpipe='num_workers="auto" counts so',
    )


def data_facts(host: Host, data: Data) -> dict[str, Any]:
    """Return the facts as plain values, for JSON."""
    speeds = data.speeds
    return {
        "path": data.path,
        "images": data.images,
        "image_bytes": data.bytes,
        "short_px": data.short_px,
        "surplus": round(data.surplus, 2),
        "formats": {name: round(share, 3) for name, share in data.formats.items()},
        "progressive": round(data.progressive, 3),
        "largest_folder": {"path": data.largest_folder[0], "files": data.largest_folder[1]},
        "read_images_per_s": round(speeds.reads, 1),
        "read_p50_ms": round(1e3 * speeds.p50_s, 4),
        "read_p99_ms": round(1e3 * speeds.p99_s, 4),
        "read_waited_share": round(speeds.waited, 4),
        "decoder": speeds.decoder,
        "decode_images_per_s": round(speeds.decode, 1),
        "images_per_s": round(speeds.both, 1),
        "epoch_s": round(data.images / speeds.both, 1) if speeds.both else None,
        "workers": speeds.workers,
        "cpus": host.cores,
        "machine_cpus": data.cpus,
        "memory_bytes": host.memory,
        "memory_free_bytes": host.memory_free,
        "shm_free_bytes": host.shm_free,
    }
