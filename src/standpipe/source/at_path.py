"""Find out what kind of data is at a path, and which of its values are the image and the label."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.formats import HEAD_BYTES, SUFFIXES, format_of
from standpipe.source.annotations.coco import Coco
from standpipe.source.annotations.voc import PascalVoc
from standpipe.source.annotations.yolo import YoloLabels
from standpipe.source.files.filelist import FileList
from standpipe.source.files.folder import ImageFolder
from standpipe.source.shards.mds import MDS
from standpipe.source.shards.mds_index import IMAGES as MDS_IMAGES, read_mds_index
from standpipe.source.shards.names import shard_paths
from standpipe.source.shards.tar import TarShards
from standpipe.source.shards.tfrecords import TFRecords
from standpipe.source.tables.arrow import MAGIC, Arrow, image_columns
from standpipe.system.files import closing_descriptor, open_regular, read_regular
from standpipe.system.paths import path_text

AnySource: TypeAlias = (
    ImageFolder | FileList | TarShards | TFRecords | MDS | Arrow | Coco | YoloLabels | PascalVoc
)

TAR = re.compile(r"\.(tar(\.\w+)?|tgz|idx)$", re.IGNORECASE)  # compressed too: the error says what to do
TFRECORD = re.compile(r"\.tfrec(ords?)?\b(?!.*\.(idx|standpipe-index)$)", re.IGNORECASE)
UNNAMED = re.compile(r"-of-\d+$|^[^.]+$")  # a file of a folder that its bytes tell the kind of
PATTERN = re.compile(r"[*?{\[]")
MDS_SHARD = re.compile(rb'"format":\s*"mds"')
INDEX_BYTES = 1 << 16  # of index.json, in which the first shard is
LENGTH_BYTES, MASK = 12, 0xA282EAD8  # of a TFRecord's length with its CRC-32C, which is turned, plus the mask
SAVED_BYTES = 1 << 26  # the most of what save_to_disk wrote in JSON
SPLITS, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"
KINDS = {  # what a file is, and the ending of a pattern that names such files
    "tar shards": "*.tar",
    "TFRecord files": "*.tfrecord*",
    "Arrow files": "*.arrow",
}
TARS, RECORDS, ARROWS = KINDS


def source_at(path: str, fields: Mapping[str, str] | None = None, root: str | None = None) -> AnySource:
    """Return the source at a path: a folder, a file, or a pattern of files with braces, ``*``, ``?`` and ``[…]``.

    Names say what files are, and the first bytes of those that have no suffix. A missing path is an ``ImageFolder``,
    whose error says so.

    fields  the names that fields have in the data, such as ``{"image": "image/encoded"}``. Where they don't say it, the
            image is the only one, and the label the only integer named label.
    root    the folder from which the paths of COCO's file start; None: that of the file

    Raises ``PlanError`` for an image, a folder that has several kinds of data, a dict of data sets, and for data of
    which the image must be named.
    """
    given, file = dict(fields or {}), Path(path)
    if file.is_dir():
        return _in_folder(path, given)
    if TAR.search(path):
        return TarShards(path, fields=given or None)
    if not file.exists():
        return _of_kind(path, _matched(path), given) if PATTERN.search(path) else ImageFolder(path)
    suffix = file.suffix.lower()
    if suffix in SUFFIXES:
        raise PlanError(
            f"{path_text(path)} is one image; name a folder of class folders, or a text file that lists images"
        )
    if suffix == ".json":
        return Coco(file.parent if root is None else root, path)
    if suffix in (".yaml", ".yml"):
        return YoloLabels(path)
    kind = _kind(path) or _kind_of_bytes(path)
    return FileList(path) if kind is None else _of_kind(path, {kind: [path]}, given)


def _matched(path: str) -> dict[str, list[str]]:
    """Return the files that fit a pattern by kind; tar shards if there are none, whose error says so."""
    found = defaultdict[str, list[str]](list)
    with suppress(PlanError):
        for name in map(os.fsdecode, shard_paths(path)):
            if (kind := _kind(name) or _kind_of_bytes(name)) is not None:
                found[kind].append(name)
    return found or {TARS: []}


def _in_folder(path: str, given: dict[str, str]) -> AnySource:
    """Return the source in a folder."""
    found, folders, names = defaultdict[str, list[str]](list), list[str](), set[str]()
    has_images = False
    with os.scandir(path) as entries:
        for entry in entries:
            names.add(entry.name)
            if os.path.splitext(entry.name)[1].lower() in SUFFIXES:  # noqa: PTH122 (any bytes)
                has_images = True
            elif entry.is_dir():
                folders.append(entry.path)
            elif not entry.name.endswith(".idx") and (kind := _kind(entry.path)) is not None:
                found[kind].append(entry.path)
    if SPLITS in names:
        splits = _saved(path, SPLITS, "splits")
        raise PlanError(
            f"{path_text(path)} has the splits {', '.join(splits)} of a data set; name one of them, such as "
            f"{path_text(os.path.join(path, splits[0]))}"  # noqa: PTH118 (any bytes)
        )
    if {STATE, INFO} <= names:  # there may be Arrow files of a cache beside those of the data set
        names_of = (each["filename"] for each in _saved(path, STATE, "_data_files"))
        found[ARROWS] = [os.path.join(path, name) for name in names_of]  # noqa: PTH118
    with suppress(OSError):
        if MDS_SHARD.search(_head(os.path.join(path, "index.json"), INDEX_BYTES)):  # noqa: PTH118
            found["MDS shards"] = [path]
    if not found:
        is_voc = {"Annotations", "JPEGImages"} <= names
        return PascalVoc(path) if is_voc else ImageFolder(path)
    if has_images or any(map(_has_images, folders)):
        found["images"] = []
    return _of_kind(path, found, given, folder=True)


def _has_images(folder: str) -> bool:
    """Return True if a folder has a file with an image's suffix."""
    with suppress(OSError), os.scandir(folder) as entries:
        return any(os.path.splitext(entry.name)[1].lower() in SUFFIXES for entry in entries)  # noqa: PTH122
    return False


def _saved(folder: str, name: str, key: str) -> list[Any]:
    """Return a list in a JSON file that ``save_to_disk`` wrote."""
    try:
        facts = json.loads(read_regular(os.path.join(folder, name), SAVED_BYTES))  # noqa: PTH118 (any bytes)
        found: list[Any] = facts[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{path_text(folder)}: can't read {name}: {error!r}; save the data set again"
        ) from error
    if facts.get("_indices_files") or facts.get("_indices_data_files"):
        raise PlanError(
            f"{path_text(folder)} has an order of its own, as datasets before 2.0 saved it; write it again, with "
            "dataset.flatten_indices().save_to_disk(…)"
        )
    return found


def _kind(path: str) -> str | None:
    """Return what a file's name says that it is, or what its bytes say if the name has no suffix; None for others."""
    name = os.path.basename(path)  # noqa: PTH119 (any bytes)
    if TFRECORD.search(name):
        return RECORDS
    if TAR.search(name):
        return TARS
    if name.endswith(".arrow"):
        return ARROWS
    return _kind_of_bytes(path) if UNNAMED.search(name) else None


def _kind_of_bytes(path: str) -> str | None:
    """Return what a file's first bytes say that it is: a TFRecord file, or an Arrow file; None for others."""
    head = b""
    with suppress(OSError):
        head = _head(path, LENGTH_BYTES)
    crc = _native.crc32c(np.frombuffer(head[:8], np.uint8))
    masked = ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF
    if len(head) == LENGTH_BYTES and head[8:] == masked.to_bytes(4, "little"):
        return RECORDS
    return ARROWS if head.startswith(MAGIC) else None


def _head(path: str, size: int, offset: int = 0) -> bytes:
    """Return up to ``size`` bytes of a regular file, from byte ``offset`` on."""
    with closing_descriptor(open_regular(path)) as file:
        return os.pread(file, size, offset)


def _of_kind(
    path: str, found: Mapping[str, list[str]], given: dict[str, str], *, folder: bool = False
) -> AnySource:
    """Return the source of files of one kind. Raises ``PlanError`` for several."""
    if len(found) > 1:
        pattern = next((each for kind, each in KINDS.items() if kind in found), "*")
        raise PlanError(
            f"{path_text(path)} has {' and '.join(found)}; name files of one kind by a pattern such as '{pattern}', or "
            "move the others to a folder of their own"
        )
    kind, files = next(iter(found.items()))
    taken: str | list[str] = sorted(files) if folder else path
    match kind:
        case "tar shards":
            return TarShards(taken, fields=given or None)
        case "Arrow files":
            return _arrow(taken, files[0], given)
        case "TFRecord files":
            return TFRecords(taken, named=_features(path, sorted(files)[0], given))
        case _:
            return MDS(path, named=_columns(path, given))


def _usual(names: Sequence[str], usual: str) -> str | None:
    """Return ``usual`` if it is among the names, else the only name; None for none or several."""
    return usual if usual in names else names[0] if len(names) == 1 else None


def _arrow(files: str | list[str], first: str, given: dict[str, str]) -> Arrow:
    """Return Arrow files; their image is the only column that Hugging Face's metadata call one, unless it is given."""
    if given.keys() - {"image"}:
        raise PlanError(
            "columns of Arrow files are fields of their own names, except the image: give only image=COLUMN"
        )
    try:
        image = given.get("image") or _usual(image_columns(os.fsencode(first)), "image") or "image"
    except ImportError as error:
        raise PlanError("Arrow files are read by pyarrow, which is missing: pip install pyarrow") from error
    return Arrow(files, image)


def _columns(folder: str, given: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the fields of MDS shards: ``image`` for the only column of images, and others under their own names."""
    columns = [
        each for each in read_mds_index(os.fsencode(folder))[0] if each.is_read and each.encoding != "bytes"
    ]
    image = _usual([each.name for each in columns if each.encoding in MDS_IMAGES], "image")
    renamed = {name: field for field, name in (({"image": image} if image else {}) | given).items()}
    names = dict.fromkeys([*(each.name for each in columns), *renamed])
    return tuple((renamed.get(name, name), name) for name in names)


def _features(path: str, first: str, given: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the image and the label of TFRecord files by the first record, and what is given."""
    features = {os.fsdecode(name): kind for name, kind in _record(first).features}
    images = [name for name, kind in features.items() if kind == "bytes" and _is_image(first, name)]
    ends = [name for name in features if name.split("/")[-1] == "label"]
    labels = [name for name in ends if _record(first, name).kind(0) == ("integers", 1)]
    usual = {"image": _usual(images, "image/encoded"), "label": _usual(labels, "image/class/label")}
    fields = {field: name for field, name in usual.items() if name is not None} | given
    if features and "image" not in fields:
        known = ", ".join(f"{path_text(name)!r} ({kind})" for name, kind in sorted(features.items()))
        found = "several features begin" if images else "no feature begins"
        raise PlanError(
            f"{path_text(path)}: {found} like an image. Name it, as in --field image=NAME; the first record has {known}"
        )
    return tuple(fields.items())


def _record(path: str, *names: str) -> _native.ExampleRecords:
    """Read the first record of a TFRecord file, and the features ``names``. Opening the source names its faults."""
    records = _native.ExampleRecords(list(names))
    with closing_descriptor(open_regular(path)) as file:
        records.begin(file, os.fstat(file).st_size)
        records.take(1)
    return records


def _is_image(path: str, name: str) -> bool:
    """Return True if a feature of the first record is one byte string that begins like an image."""
    records = _record(path, name)
    if records.fault is not None:
        return False
    size = min(HEAD_BYTES, int(records.lengths(0)[0]))
    return format_of(_head(path, size, int(records.offsets(0)[0]))) is not None
