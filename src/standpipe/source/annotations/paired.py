"""Read images that have an annotation file each, as in YOLO's and Pascal VOC's formats."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Literal

import numpy as np

from standpipe import _native
from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.formats import is_image_name
from standpipe.source.annotations.table import Annotations, Faults
from standpipe.source.index.store import Progress
from standpipe.spec import AnyArray
from standpipe.system.files import open_regular, read_regular
from standpipe.system.paths import path_text

LabelNumbers = Literal["contiguous", "contiguous+1"]
MOST_BYTES = 16 << 20  # of an annotation file
MOST_PIXELS, MOST_SCANS = 1 << 62, 1 << 30  # sizes are only read here: limits count when an image is decoded
HEADER_BYTES = 1 << 16
THREADS, FILES_AT_ONCE = 16, 1 << 10  # threads wait for storage together


@dataclass(slots=True)
class Parsed:
    """The instances of one image, in an annotation file's order.

    lines    (m,) line of each instance in the file, from 1
    labels   (m,) class numbers
    boxes    m tuples of 4 numbers: xyxy
    values   further values by name, m numbers or tuples of numbers each
    faults   (line, kind) of what couldn't be used; line 0: the whole file, and the kind may end with ``": "`` and more
    """

    lines: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    boxes: list[tuple[float, ...]] = field(default_factory=list)
    values: dict[str, list[Sequence[float]]] = field(default_factory=dict)
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

    names      class names by the numbers that ``parse`` gives
    fractions  True if boxes and keypoints are fractions of the image's sides
    values     dtype and shape of each further value of an instance, by name
    needed     True if an image without an annotation file is a fault
    pairs      numbers of left and right keypoints; None: they aren't known
    """

    pairs: tuple[tuple[int, int], ...] | None = None

    def __init__(
        self,
        names: list[str],
        *,
        fractions: bool,
        values: Mapping[str, tuple[str, tuple[int, ...]]],
        needed: bool,
    ) -> None:
        self.names, self.fractions, self.values, self.needed = names, fractions, values, needed

    def parse(self, content: bytes) -> Parsed:
        """Return the instances that an annotation file has."""
        raise NotImplementedError

    def classes(self) -> tuple[str, ...] | None:
        """Return the class names by number, after all files are parsed; None if classes have no names."""
        return tuple(self.names) or None

    def label_order(self) -> list[int]:
        """Return the number of each class, by the number that ``parse`` gave; empty if numbers stay."""
        return []


def look_at_pairs(pairs: Callable[[], Pairs], before: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Look at the images and files that there are now, and the sizes and times of the files."""
    return _seen(pairs())


def read_pairs(
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
    if not pairs.images:
        raise PlanError(f"{name} has no images; check the path and the files' suffixes")
    for path in pairs.lone:
        faults.add("annotation file without an image", path_text(path))
    seen, _ = _seen(pairs)
    table = _Table(form, pairs, faults)
    for done in table.read(base):
        if on_progress is not None:
            on_progress("images", done, len(pairs.images))
    if not table.found:
        raise PlanError(
            f"{name} has {len(pairs.images):,} images and no annotation files: there is no {path_text(pairs.files[0])}"
        )
    found = table.annotations()
    if labels == "contiguous+1":
        classes = None if found.classes is None else ("", *found.classes)
        found = replace(found, labels=found.labels + 1, classes=classes)
    return found, seen


class _Table:
    """The instances of all images so far. ``found``: the number of annotation files that there were."""

    def __init__(self, form: Format, pairs: Pairs, faults: Faults) -> None:
        self._form, self._pairs, self._faults = form, pairs, faults
        self._sizes: list[tuple[int, int]] = []
        self._kept: list[int] = []
        self._rows, self._lines, self._labels, self._boxes = array("q"), array("q"), array("q"), array("d")
        self._values = {name: array("f") for name in form.values}
        self.found = 0

    def read(self, base: bytes) -> Iterator[int]:
        """Read all files; yield the number of images so far, now and then."""
        images, files = self._pairs.images, self._pairs.files
        with ThreadPoolExecutor(THREADS) as threads:
            for start in range(0, len(images), FILES_AT_ONCE):
                some = slice(start, start + FILES_AT_ONCE)
                sizes = image_sizes([os.path.join(base, image) for image in images[some]])  # noqa: PTH118
                contents = threads.map(_content, files[some])
                for number, (size, content) in enumerate(zip(sizes, contents, strict=True), start):
                    self._add(number, size, content)
                yield min(start + FILES_AT_ONCE, len(images))

    def _add(self, number: int, size: tuple[int, int] | str, content: bytes | str | None) -> None:
        """Add an image: its height and width, and its annotation file; a text says why one can't be read."""
        image, file = path_text(self._pairs.images[number]), path_text(self._pairs.files[number])
        self.found += content is not None
        parsed = Parsed()
        if isinstance(content, bytes):
            parsed = self._form.parse(content)
        elif isinstance(content, str):
            parsed.faults.append((0, f"annotation file that can't be read: {content}"))
        elif self._form.needed:
            parsed.faults.append((0, "image without an annotation file"))
        for line, fault in parsed.faults:
            kind, colon, detail = fault.partition(": ")
            self._faults.add(kind, f"{file}:{line}" if line else f"{file}{colon}{detail}")
        if isinstance(size, str):
            self._faults.add("image whose size can't be read", f"{image}: {size}")
        if isinstance(size, str) or any(line == 0 for line, _ in parsed.faults):
            return
        self._rows.extend([len(self._kept)] * len(parsed.lines))
        self._lines.extend(parsed.lines)
        self._labels.extend(parsed.labels)
        for box in parsed.boxes:
            self._boxes.extend(box)
        for name, values in parsed.values.items():
            for value in values:
                self._values[name].extend(value)
        self._sizes.append(size)
        self._kept.append(number)

    def annotations(self) -> Annotations:
        """Return all images that can be used, with their instances."""
        form, files, kept = self._form, self._pairs.files, self._kept
        rows, lines = (np.frombuffer(numbers, np.int64) for numbers in (self._rows, self._lines))
        sizes = np.array(self._sizes, np.int64).reshape(-1, 2)
        boxes = np.frombuffer(self._boxes, np.float64).reshape(-1, 4)
        sides = sizes[rows][:, ::-1] if form.fractions else np.ones((len(rows), 2), np.int64)
        values: dict[str, AnyArray] = {}
        for name, (dtype, shape) in form.values.items():
            values[name] = np.frombuffer(self._values[name], np.float32).reshape(-1, *shape).astype(dtype)
        if "keypoints" in values:
            points = values["keypoints"] * np.insert(sides.astype(np.float32), 2, 1, axis=1)[:, None]  # type: ignore[operator]
            values["keypoints"] = points
        order = np.array(form.label_order(), np.int64)
        labels = np.frombuffer(self._labels, np.int64)
        return Annotations(
            paths=Paths.pack([self._pairs.images[number] for number in kept]),
            sizes=sizes,
            rows=rows,
            boxes=boxes * np.concatenate([sides, sides], axis=1),
            labels=order[labels] if len(order) else labels,
            values=values,
            columns={},
            classes=form.classes(),
            pairs=form.pairs,
            place=lambda i: f"{path_text(files[kept[rows[i]]])}:{lines[i]}",
        )


def image_sizes(
    paths: Sequence[bytes], ranges: Iterable[Sequence[int]] = repeat((0, -1))
) -> list[tuple[int, int] | str]:
    """Return the height and width of each image in pixels, from its header; or why they can't be read.

    ranges  offset and length of each image in its file; default: whole files
    """
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(lambda path, part: _image_size(path, *part), paths, ranges))


def _image_size(path: bytes, offset: int, length: int) -> tuple[int, int] | str:
    try:
        with open(path, "rb", opener=open_regular) as file:
            size = os.fstat(file.fileno()).st_size - offset if length < 0 else length
            file.seek(offset)
            data = file.read(min(HEADER_BYTES, size))
            height, width, wrong = _jpeg_size(data)
            if wrong.startswith("truncated"):
                height, width, wrong = _jpeg_size(data + file.read(max(0, size - len(data))))
            if wrong != "foreign":
                return wrong or (height, width)
            from PIL import ContainerIO, Image

            with Image.open(ContainerIO.ContainerIO(file, offset, size)) as opened:
                return opened.height, opened.width
    except Exception as error:  # Pillow raises errors of many classes for damaged files
        return f"{type(error).__name__}: {error}"


def _jpeg_size(data: bytes) -> tuple[int, int, str]:
    return _native.jpeg_size(np.frombuffer(data, np.uint8), MOST_PIXELS, MOST_SCANS, False)


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
