"""Read images that have an annotation file each, as in YOLO's and Pascal VOC's formats."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any, Literal

import numpy as np

from standpipe import _native
from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.formats import is_image_name, orientation_of
from standpipe.source.annotations.listing import AnnotationSource, AnnotationSubject
from standpipe.source.annotations.table import BOX_AND_LABEL, Annotations, Faults, Instances
from standpipe.source.index.store import Progress
from standpipe.source.targets import BoxForm
from standpipe.spec import ArraySpec, Int64Array
from standpipe.system.files import open_regular, read_regular
from standpipe.system.paths import path_text

LabelNumbers = Literal["contiguous", "contiguous+1"]
MOST_BYTES = 16 << 20  # of an annotation file
MOST_PIXELS, MOST_SCANS = 1 << 62, 1 << 30  # sizes are only read here: limits count when an image is decoded
HEADER_BYTES = 1 << 16
FLAT = 4  # EXIF's orientations up to this one keep an image's height and width
THREADS, FILES_AT_ONCE = 16, 1 << 10  # threads wait for storage together


@dataclass(slots=True)
class Parsed:
    """The instances of one image, in an annotation file's order.

    lines    (m,) line of each instance in the file, from 1
    values   (m, …) values of the instances by name: boxes, labels, and those that the format has
    shapes   each instance's, as ``ShapeReader`` takes it, if the format has masks
    faults   (line, kind) of what couldn't be used; line 0: the whole file, and the kind may end with ``": "`` and more
    """

    lines: list[int] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    shapes: list[Any] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The images of a data set, and the annotation file of each.

    images   paths below the base folder, or absolute ones, sorted
    files    absolute paths; the file need not exist
    lone     absolute paths of annotation files without an image
    """

    images: list[bytes]
    files: list[bytes]
    lone: list[bytes]


class Format:
    """The format of the annotation files of one data set.

    form    the form of the boxes
    values  shape and dtype of each further value of an instance, by name
    needed  True if an image without an annotation file is a fault
    """

    form = BoxForm()
    values: Mapping[str, ArraySpec] = {}
    needed = False

    def parse(self, content: bytes) -> Parsed:
        """Return the instances that an annotation file has."""
        raise NotImplementedError

    def named(self, found: Annotations) -> Annotations:
        """Return the instances of all files with class names."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSource(AnnotationSource):
    """A description of images that have an annotation file each."""

    labels: LabelNumbers = "contiguous"

    def of_pairs(
        self,
        kind: str,
        paths: tuple[bytes, bytes],
        pairs: Callable[[], Pairs],
        form: Callable[[], Format],
        options: str = "",
    ) -> AnnotationSubject:
        """Return a subject, as ``made`` does."""
        read = partial(_read, path_text(paths[0]), paths[1], pairs, form, self.labels)
        return self.made(kind, paths, partial(_look, pairs), read, options=options)


def _look(pairs: Callable[[], Pairs], before: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Look at the images and files that there are now, and the sizes and times of the files."""
    return _seen(pairs())


def _read(
    name: str,
    base: bytes,
    list_pairs: Callable[[], Pairs],
    make_format: Callable[[], Format],
    labels: LabelNumbers,
    faults: Faults,
    on_progress: Progress | None,
) -> tuple[Annotations, dict[str, int]]:
    """Read all annotation files, and the headers of all images.

    name    the data set, for errors
    base    folder that the images' names start from
    labels  whether classes count from 0 or from 1
    """
    pairs, form = list_pairs(), make_format()
    images, files = pairs.images, pairs.files
    if not images:
        raise PlanError(f"{name} has no images; check the path and the files' suffixes")
    for path in pairs.lone:
        faults.add("annotation file without an image", path_text(path))
    seen, _ = _seen(pairs)
    columns = {**BOX_AND_LABEL, **form.values}
    instances, sizes, lines = Instances(form.form, columns), [], []
    has_file, is_usable = np.zeros(len(images), np.bool_), np.ones(len(images), np.bool_)
    with ThreadPoolExecutor(THREADS) as threads:
        for start in range(0, len(images), FILES_AT_ONCE):
            some = slice(start, start + FILES_AT_ONCE)
            sizes.append(image_sizes([os.path.join(base, image) for image in images[some]], faults))  # noqa: PTH118
            for number, content in enumerate(threads.map(_content, files[some]), start):
                parsed = _parsed(form, path_text(files[number]), content, faults)
                has_file[number] = content is not None
                is_usable[number] = all(line > 0 for line, _ in parsed.faults)
                lines.append(parsed.lines)
                values = {
                    name: np.array(parsed.values[name], spec.dtype).reshape(-1, *spec.shape)
                    for name, spec in columns.items()
                }
                instances.add(len(parsed.lines), values, shapes=parsed.shapes)
            if on_progress is not None:
                on_progress("images", len(lines), len(images))
    if not has_file.any():
        raise PlanError(
            f"{name} has {len(images):,} images and no annotation files: there is no {path_text(files[0])}"
        )
    known = np.concatenate(sizes)
    found = form.named(
        instances.take(
            Paths.pack(images),
            known,
            lambda image, instance: f"{path_text(files[image])}:{lines[image][instance]}",
        )
    )
    if labels == "contiguous+1":
        classes = None if found.classes is None else ("", *found.classes)
        found = replace(found, labels=found.labels + 1, classes=classes)
    return found.of_images(is_usable & (known[:, 0] > 0)), seen


def _parsed(form: Format, file: str, content: bytes | str | None, faults: Faults) -> Parsed:
    """Return the instances of an annotation file, and note its faults; a text says why it can't be read."""
    parsed = Parsed()
    if isinstance(content, bytes):
        parsed = form.parse(content)
    elif isinstance(content, str):
        parsed.faults.append((0, f"annotation file that can't be read: {content}"))
    elif form.needed:
        parsed.faults.append((0, "image without an annotation file"))
    for line, fault in parsed.faults:
        kind, colon, detail = fault.partition(": ")
        faults.add(kind, f"{file}:{line}" if line else f"{file}{colon}{detail}")
    return parsed


def image_sizes(
    paths: Sequence[bytes], faults: Faults, ranges: Iterable[Sequence[int]] = repeat((0, -1))
) -> Int64Array:
    """Return the height and width of each image in pixels, (n, 2), from its header; 0 if it can't be read.

    An image is as its EXIF turns it, as labelling tools show it.

    ranges  offset and length of each image in its file; default: whole files
    """
    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(lambda path, part: _image_size(path, *part), paths, ranges))
    for each in found:
        if isinstance(each, str):
            faults.add("image whose size can't be read", each)
    return np.array([(0, 0) if isinstance(each, str) else each for each in found], np.int64).reshape(-1, 2)


def _image_size(path: bytes, offset: int, length: int) -> tuple[int, int] | str:
    try:
        with open(path, "rb", opener=open_regular) as file:
            size = os.fstat(file.fileno()).st_size - offset if length < 0 else length
            file.seek(offset)
            data = file.read(min(HEADER_BYTES, size))
            height, width, wrong = _jpeg_size(data)
            if wrong.startswith("truncated"):
                height, width, wrong = _jpeg_size(data + file.read(max(0, size - len(data))))
            if wrong == "foreign":
                from PIL import ContainerIO, Image

                with Image.open(ContainerIO.ContainerIO(file, offset, size)) as opened:
                    height, width, wrong = opened.height, opened.width, ""
                    if opened.format != "TIFF" and orientation_of(opened) > FLAT:
                        height, width = width, height
    except Exception as error:  # Pillow raises errors of many classes for damaged files
        wrong = f"{type(error).__name__}: {error}"
    place = "" if length < 0 else f" at byte {offset:,}"
    return f"{path_text(path)}{place}: {wrong}" if wrong else (height, width)


def _jpeg_size(data: bytes) -> tuple[int, int, str]:
    return _native.jpeg_size(np.frombuffer(data, np.uint8), MOST_PIXELS, MOST_SCANS, True)


def _content(path: bytes) -> bytes | str | None:
    """Return the content of an annotation file; None if there is none, or a text why it can't be read."""
    try:
        return read_regular(os.fsdecode(path), MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error.strerror)


def _seen(pairs: Pairs) -> tuple[dict[str, int], int]:
    """Return what is seen of images and annotation files, and the latest modification time of the latter."""
    from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

    state, newest_ns = blake2b(digest_size=7), 0
    for image, file in zip(pairs.images, pairs.files, strict=True):
        try:
            info = os.stat(file)  # noqa: PTH116 (bytes)
            size, mtime_ns = info.st_size, info.st_mtime_ns
        except OSError:
            size, mtime_ns = -1, 0
        newest_ns = max(newest_ns, mtime_ns)
        state.update(b"%s\0%s\0%d %d\n" % (image, file, size, mtime_ns))
    state.update(b"\0".join(pairs.lone))
    return {"state": int.from_bytes(state.digest(), "little"), "images": len(pairs.images)}, newest_ns


def images_in(folder: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the names of images in a folder and in all folders below, and those of other files; all sorted.

    Raises ``PlanError`` if a folder can't be listed.
    """
    images: list[bytes] = []
    others: list[bytes] = []

    def refuse(error: OSError) -> None:
        raise PlanError(
            f"can't read the folder {path_text(error.filename)}: {error.strerror}; check the path"
        )

    for path, _, names in os.walk(folder, onerror=refuse):
        below = path[len(folder) :].lstrip(b"/")
        below += b"/" if below else b""
        for name in names:
            (images if is_image_name(name) else others).append(below + name)
    return sorted(images), sorted(others)
