"""Images with annotation files in Pascal VOC's format."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal
from xml.parsers import expat

import numpy as np

from standpipe.errors import PlanError
from standpipe.source.annotations.listing import AnnotationSubject
from standpipe.source.annotations.paired import Format, PairedSource, Pairs, Parsed, images_in
from standpipe.source.annotations.table import Annotations
from standpipe.source.targets import BOXES, LABELS
from standpipe.spec import ArraySpec
from standpipe.system.files import read_regular
from standpipe.system.paths import AnyPath, absolute, path_text, reading

MOST_LIST_BYTES = 1 << 28
MOST_DEPTH = 32
SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True)
class PascalVoc(PairedSource):
    """Images with an XML file each, in the folders of Pascal VOC, for detection.

    The records are the images, sorted by name. Their fields are ``image``, encoded, and for the M objects of an image
    ``boxes`` (M, 4) float32, xyxy in pixels, ``labels`` (M,) int64, and ``difficult`` (M,) bool. Labels count the
    class names from 0, sorted. The format counts pixels from 1, and ``xmax`` is the last pixel of a box, so a box
    begins at ``xmin`` − 1 and ends at ``xmax``.

    All files are read once, into an index. Later runs use it while the images and the sizes and modification times
    of all XML files stay the same. The sizes of images are read as by ``YoloLabels``.

    No fault is silent. ``explain()`` counts by kind, and ``check_files`` names each with file and line: a file that
    isn't XML, whose image is no record then; an object without a name or a box; an empty box, or one that leads out of
    its image; an image without an XML file, and the other way round.

    Parameters
    ----------
    folder : path
        The folder with ``JPEGImages`` and ``Annotations``, such as ``VOC2012``.
    split : str, optional
        The name of a list in ``ImageSets/Main``, such as ``"train"``. Default: all images.
    labels : {"contiguous", "contiguous+1"}, default "contiguous"
        ``"contiguous+1"`` counts the class names from 1, for torchvision's detectors, whose 0 is the background.
    difficult : {"drop", "keep"}, default "drop"
        Whether objects with ``difficult`` 1 are instances.
    without_instances, invalid, index
        As for ``Coco``.

    Raises
    ------
    PlanError
        By ``plan()``, for folders without images or XML files, and a list that can't be read.

    Examples
    --------
    >>> import pathlib, shutil
    >>> for folder in ("VOC2012/JPEGImages", "VOC2012/Annotations"):
    ...     pathlib.Path(folder).mkdir(parents=True)
    >>> _ = shutil.copy("photos/cat/000.jpg", "VOC2012/JPEGImages/a.jpg")  # 96 × 72 pixels
    >>> box = "<xmin>1</xmin><ymin>3</ymin><xmax>48</xmax><ymax>72</ymax>"
    >>> content = f"<annotation><object><name>cat</name><bndbox>{box}</bndbox></object></annotation>"
    >>> _ = pathlib.Path("VOC2012/Annotations/a.xml").write_text(content)
    >>> source = sp.PascalVoc("VOC2012", index="VOC2012.index")
    >>> with sp.Pipeline(source).map(sp.Resize((36, 48))).batch(1).loader() as loader:
    ...     batch = next(iter(loader))
    >>> batch["boxes"].tolist(), batch["labels"].tolist(), source.open().classes
    ([[0.0, 1.0, 24.0, 36.0]], [0], ('cat',))
    """

    folder: AnyPath
    split: str | None = None
    difficult: Literal["drop", "keep"] = field(default="drop", kw_only=True)

    def subject(self) -> AnnotationSubject:
        """Return the images and XML files, as the subject of an index."""
        path = absolute(self.folder, field="PascalVoc's folder")
        base = os.path.join(path, b"")  # noqa: PTH118 (bytes)
        if not isinstance(self.split, str | None):
            raise PlanError(
                f"PascalVoc: split must be the name of a list in ImageSets/Main, got {self.split!r:.80}"
            )
        pairs = partial(_pairs, base, self.split)
        form = partial(VocFormat, keeps_difficult=self.difficult == "keep")
        return self.of_pairs("voc", (path, base), pairs, form)


def _pairs(base: bytes, split: str | None) -> Pairs:
    """List the images, and their XML files."""
    images = {name.rpartition(b".")[0]: name for name in images_in(base + b"JPEGImages")[0]}
    files = {
        name.rpartition(b".")[0] for name in images_in(base + b"Annotations")[1] if name.endswith(b".xml")
    }
    wanted = sorted(images)
    lone = sorted(files - {*images})
    if split is not None:
        path = absolute(base + b"ImageSets/Main/" + os.fsencode(split) + b".txt", field="PascalVoc's split")
        with reading(path):
            lines = read_regular(os.fsdecode(path), MOST_LIST_BYTES).splitlines()
        listed = {line.split()[0] for line in lines if line.split()}
        wanted, lone = sorted(listed & {*images}), sorted(listed - {*images})
    folder = base + b"Annotations/"
    return Pairs(
        [b"JPEGImages/" + images[stem] for stem in wanted],
        [folder + stem + b".xml" for stem in wanted],
        [folder + stem + b".xml" for stem in lone],
    )


class VocFormat(Format):
    """XML files of Pascal VOC."""

    needed = True

    def __init__(self, *, keeps_difficult: bool) -> None:
        self.values = {"difficult": ArraySpec((), np.dtype(np.bool_))}
        self._keeps_difficult = keeps_difficult
        self._numbers: dict[str, int] = {}

    def named(self, found: Annotations) -> Annotations:
        """Return the objects with labels that count the sorted class names; no names if no file has an object."""
        names = sorted(self._numbers)
        order = np.zeros(len(names), np.int64)
        order[[self._numbers[name] for name in names]] = np.arange(len(names))
        classes = tuple(path_text(name.encode("utf-8", "backslashreplace")) for name in names)
        return replace(found, labels=order[found.labels], classes=classes or None)

    def parse(self, content: bytes) -> Parsed:
        """Return the objects of an XML file."""
        found, objects = Parsed(), _Objects()
        try:
            objects.parse(content)
        except (expat.ExpatError, ValueError) as error:
            return Parsed(faults=[(0, f"file that isn't VOC's XML: {error}")])
        for line, values in objects.found:
            try:
                left, top, right, bottom = (float(values[f"bndbox/{side}"]) for side in SIDES)
                difficult = bool(int(values.get("difficult", "0")))
                name = values["name"].strip()
            except (KeyError, ValueError):
                found.faults.append((line, "object without a name or a box of four numbers"))
                continue
            if difficult and not self._keeps_difficult:
                continue
            found.lines.append(line)
            found.values[LABELS].append(self._numbers.setdefault(name, len(self._numbers)))
            found.values[BOXES].append((left - 1, top - 1, right, bottom))
            found.values["difficult"].append(difficult)
        return found


class _Objects:
    """The objects of an XML file: line, and texts by the path of their element below the object."""

    def __init__(self) -> None:
        self.found: list[tuple[int, dict[str, str]]] = []
        self._path: list[str] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._refuse

    def parse(self, content: bytes) -> None:
        """Read a file. Raises ``ExpatError`` if it isn't XML, and ``ValueError`` for XML of another kind."""
        self._parser.Parse(content, True)

    def _start(self, name: str, attributes: object) -> None:
        self._path.append(name)
        if len(self._path) > MOST_DEPTH:
            raise ValueError(f"its elements are nested more than {MOST_DEPTH} deep")
        if self._path[0] != "annotation":
            raise ValueError(f"its root is <{name:.80}>, not <annotation>")
        if self._path[1:] == ["object"]:
            self.found.append((self._parser.CurrentLineNumber, {}))

    def _end(self, name: str) -> None:
        self._path.pop()

    def _text(self, text: str) -> None:
        if self._path[1:2] == ["object"] and len(self._path) > 2:
            values, key = self.found[-1][1], "/".join(self._path[2:])
            values[key] = values.get(key, "") + text

    def _refuse(self, *declared: object) -> None:
        raise ValueError("it has a document type, which could define entities")
