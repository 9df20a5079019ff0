"""The source of images in tar shards, which are read in place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from standpipe import _native
from standpipe.contracts import OpenSource
from standpipe.errors import PlanError, StandpipeError
from standpipe.source.annotations.listing import AnnotationListing
from standpipe.source.index.file import HEADERS, REPEATED
from standpipe.source.index.listing import SKIPPED, Listing
from standpipe.source.index.store import Subject
from standpipe.source.index.with_fields import shown_call
from standpipe.source.shards.fields import checked_fields, checked_members
from standpipe.source.shards.listing import ShardListing, shard_index
from standpipe.source.shards.names import check_shards, shard_paths, shards_text
from standpipe.source.shards.tar_subject import UNMARKED, TarSubject
from standpipe.source.targets import BoxForm, BoxFormat, Invalid
from standpipe.spec import Store
from standpipe.system.logs import logger
from standpipe.system.paths import AnyPath, absolute, open_for_reading, path_text
from standpipe.system.urls import checked_store

ROWS_AT_ONCE = 1 << 12
LISTS = (b".json", b".idx")  # endings of what other programs write beside shards


@dataclass(frozen=True, slots=True)
class TarShards:
    """Images in uncompressed tar files, named as in WebDataset, which are read where they are.

    Members of a shard that follow one another and have the same path up to the first dot of their base names
    are a record: ``0001.jpg`` and ``0001.cls``. The rest of the name, in lower case, is the extension. The
    fields are ``image``, an encoded image, and, if the first record has a ``.cls``, ``label``, () int64.
    If the first record has several images of other extensions, such as ``0001.left.jpg`` and ``0001.right.jpg``,
    each is a field instead: ``left`` and ``right``. Columns that ``build_index`` added are further fields.

    Records are sorted by shard, and in a shard by their place. Any record can be read alone, so shuffles,
    splits, weights, ranks and resuming work as for a folder of files. The digest covers the members' names,
    places, sizes and labels, but not the paths of the shards, so a data set may be moved.

    All headers are read once, into an index. Later runs use the index while the sizes and modification times
    of all shards are the same.

    No record is dropped silently:

    - ``explain()`` counts members that aren't read, by extension, and groups without an image.
      ``standpipe scan`` names the groups, and records whose key the shard has twice.
    - A shard that ends too soon, or isn't a tar file, is a ``PlanError`` with shard, member and byte. If it ends
      behind a whole member, only without the zeros at the end of a tar file, it is read; a warning in the log, and
      ``explain()``, name it.
    - Compressed shards, sparse members and archives in several volumes are refused.
    - A member that may be a pickle (.pth, .pt, .pkl, .pickle, .npy with objects) is refused, unless ``fields=``
      leaves it out.

    Parameters
    ----------
    shards : path or sequence of paths
        Shards, such as ``"train-{000..146}.tar"``: with ranges and choices in braces, and ``*``, ``?`` and
        ``[…]`` as in a shell. They are sorted by name. Or URLs, such as ``"s3://bucket/train-{000..146}.tar"``, which
        may have braces: they need an index on this machine.
    fields : mapping of str to str, optional
        The extensions of each field, such as ``{"image": "jpg;png", "label": "cls", "mask": "seg.png"}``.
        Each record must have one member for each field, and other members are left out. At least one field must
        be an image, and ``label`` is an integer as text. A function gets the bytes of a field of another kind, (n,)
        uint8, such as a text or an array: ``.map(fn, field="text")``. Default: ``image`` with the suffixes of all
        supported formats, or several images, and ``label``.
    index : path, optional
        Path of the shards' index file. Default: beside the shards if it exists there, else in the user's cache
        folder, or in memory for a few small shards.
    instances : str, optional
        The extension of JSON members with the boxes of each record's image, such as ``"json"``. They are read into the
        index, with the images' sizes. A member has an object with ``boxes`` and ``labels``, a value of each for every
        instance, and in the same way perhaps ``keypoints``, (K, 3) each, and further lists of one number for each
        instance, such as ``area`` and ``iscrowd``. Or it has COCO's
        ``{"annotations": [{"bbox": …, "category_id": …}, …]}``, or that list alone. Other values are left out; the
        first record with instances says which ones all records have. Labels are int64; boxes, keypoints,
        ``area``, ``score`` and ``scores`` float32; other numbers float64.
    box_format : {"xyxy", "xywh", "cxcywh"}, optional
        The four numbers of a box. Default: ``"xywh"`` for boxes named ``bbox``, as COCO has them, and ``"xyxy"`` for
        ``boxes``.
    normalized : bool, default False
        True: boxes, keypoints and polygons are fractions of the image's sides. False: they are in pixels.
    invalid : {"clip", "drop", "error"}, default "clip"
        The treatment of a box that is empty or isn't finite, or leads out of its image by more than a pixel, as for
        ``Coco``: ``explain()`` counts them, and ``check_files`` names each.
    instance_masks : bool, default False
        Whether instances have masks, as for ``Coco``: the object has ``segmentation``, a list with one for each
        instance.
    store : Store, optional
        Where the shards of URLs are. Default: as the environment and the provider's profiles say.

    Raises
    ------
    PlanError
        By ``plan()``, for missing, empty or damaged shards, a record that lacks a field, a JSON member of another form,
        and the cases above.

    Examples
    --------
    >>> import tarfile
    >>> with tarfile.open("photos-000.tar", "w") as tar:
    ...     tar.add("photos")
    >>> plan = sp.Pipeline(sp.TarShards("photos-*.tar")).map(sp.CenterCrop(32)).batch(8).plan()
    >>> plan.source.num_records, sorted(plan.source.fields)
    (24, ['image'])
    """

    shards: AnyPath | Sequence[AnyPath]
    fields: Mapping[str, str] | None = None
    index: AnyPath | None = None
    instances: str | None = field(default=None, kw_only=True)
    box_format: BoxFormat | None = field(default=None, kw_only=True)
    normalized: bool = field(default=False, kw_only=True)
    invalid: Invalid = field(default="clip", kw_only=True)
    instance_masks: bool = field(default=False, kw_only=True)
    store: Store | None = field(default=None, kw_only=True)

    def open(self) -> OpenSource:
        """Find the shards' index, or read all headers and build one.

        Raises ``PlanError``

        - if there are no shards, or one is missing, empty, compressed, cut or damaged,
        - if no member is an image, or a record lacks a field or has it twice,
        - if columns were added to the index, and the shards have other records now.
        """
        return TarListing.open(self.subject())

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return shown_call(self, shards_text(self.shards))

    def subject(self) -> TarSubject:
        """Return the shards, as the subject of an index."""
        index = None if self.index is None else absolute(self.index, field="TarShards' index")
        check_shards(self.shards, "TarShards")
        name, fields = shards_text(self.shards).strip("'"), checked_fields(self.fields)
        members = checked_members(self.instances, fields)
        form = BoxForm(self.box_format, self.normalized, self.invalid, self.instance_masks).check("TarShards")
        paths = shard_paths(self.shards)
        store = checked_store(self.store, paths, call="TarShards")
        if lists := [path for path in paths if path.endswith(LISTS)]:
            raise PlanError(
                f"TarShards: {path_text(lists[0])} only lists shards or their members; name the shards, such as "
                "'train-{000..146}.tar'"
            )
        return TarSubject(paths, name, index, fields, members=members, form=form, store=store)


class TarListing(ShardListing):
    """An ``OpenSource`` of the records of tar shards, in a packed index."""

    __slots__ = ()

    @classmethod
    def open(cls, subject: Subject) -> Self:
        """Find or build the index of shards. A warning in the log names the first shard that may be cut."""
        opened = cls.of(subject, shard_index(subject))
        for unmarked in opened._unmarked():
            logger().warning(
                "%s; copy it again unless its writer leaves the mark out, as records behind the cut are missing",
                unmarked,
            )
        return opened

    @property
    def index_note(self) -> str:
        """The index's location and size, and what isn't read or may be cut, for ``explain()``."""
        seen = self.index.facts.seen
        parts: list[str] = [ShardListing.index_note.fget(self)]  # type: ignore[attr-defined]
        for name in seen:
            if name.startswith(UNMARKED):
                first = name.removeprefix(UNMARKED)
                parts.append(f"shards without an end mark, which may be cut: {seen[name]:,}, first {first}")
        if n := seen.get(SKIPPED):
            parts.append(f"groups without an image: {n:,}")
        if n := seen.get(REPEATED):
            parts.append(f"keys that come again in their shard: {n:,}")
        return "; ".join(parts)

    def skipped(self) -> Iterator[str]:
        """Yield the shard and a member of each group without an image, and the first shard that may be cut."""
        folder = path_text(self.subject.base)
        for name in Listing.skipped(self):
            yield f"{name} (no image of this key, below {folder})"
        yield from self._unmarked()
        yield from AnnotationListing.skipped(self)

    def _unmarked(self) -> Iterator[str]:
        """Yield the first shard that may be cut, and how many others there are."""
        folder = path_text(self.subject.base)
        for name, count in self.index.facts.seen.items():
            if name.startswith(UNMARKED):
                more = f", as {count - 1:,} other shards" if count > 1 else ""
                yield f"{folder}{name.removeprefix(UNMARKED)} (ends without an end mark{more}, so it may be cut)"

    def repeated(self) -> Iterator[tuple[int, int]]:
        """Yield each record whose key an earlier record of its shard has, and that record."""
        index, count = self.index, self.index.facts.seen.get(REPEATED, 0)
        for start in range(0, count, ROWS_AT_ONCE):
            rows = index.part(REPEATED, "<i8", (2,), start, min(start + ROWS_AT_ONCE, count))
            if rows.min() < 0 or rows.max() >= self.num_records:
                with index.told():
                    raise ValueError("a repeated key is of no record")
            yield from ((int(later), int(first)) for later, first in rows)

    def name(self, index: int) -> str:
        """Return the record's shard and the name of its image there, printable."""
        at = np.array([index], np.int64)
        path = self.paths(at)[0]
        if self.store is not None:
            return ShardListing.name(self, index)
        try:
            offset, _ = self._ranges(self.index.facts.encoded[0], at)
            begin = int(offset[0]) - _native.TAR_BLOCK_BYTES * int(self.index.rows(HEADERS, "<u2", (), at)[0])
            with open_for_reading(path) as file:
                size = os.fstat(file.fileno()).st_size
                members, fault = _native.tar_members(file.fileno(), size, max(begin, 0), 1)
        except (StandpipeError, OSError):  # the shard is gone, and reading the record says so
            return path_text(path)
        # Where another shard has its place, another member begins.
        if members and members[0][1] != int(offset[0]):
            return path_text(path)
        member = members[0][4] if members else fault[2] if fault else b""
        return f"{path_text(path)}: {path_text(member)}" if member else path_text(path)
