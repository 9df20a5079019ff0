"""Shards whose records have values with names: which of them is which field."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.formats import HEAD_BYTES, format_of
from standpipe.source.index.file import Facts, read_fully
from standpipe.source.index.with_fields import ADDED
from standpipe.source.index.writer import IndexWriter
from standpipe.source.shards.subject import ShardPart, ShardReader, ShardSubject
from standpipe.spec import NAMES, AnyArray, Int64Array, UInt8Array
from standpipe.system.paths import AnyPath, path_text

Named: TypeAlias = tuple[tuple[str, str], ...]  # each field, and the name of its values in a record

NOT_IMAGE = "not an image: "  # in an index's counts, before a byte field of another kind


def check_fields(call: str, named: Named, such: str, texts: Sequence[str]) -> None:
    """Raise ``PlanError`` for names that fields can't have, values that aren't names, and texts of other fields."""
    for field, name in named:
        if not field.isidentifier() or field in ADDED or not isinstance(name, str):
            raise PlanError(
                f"{call}({field}={name!r:.80}): a field is an identifier other than {', '.join(ADDED)}, and the name "
                f"of its values is text, such as {such}"
            )
    fields = [field for field, _ in named if field not in NAMES]
    if wrong := [each for each in texts if each not in fields]:
        raise PlanError(
            f"{call}: {wrong[0]!r:.80} can't be a text; a text is a field that is named, other than image and label"
        )


def named_text(named: Named, index: AnyPath | None) -> str:
    """Return fields, and the path of an index, as the end of a call's arguments, for ``describe()``."""
    fields = "".join(f", {field}={name!r}" for field, name in named)
    return fields if index is None else f"{fields}, index='{path_text(index)}'"


@dataclass(frozen=True, slots=True)
class NamedSubject(ShardSubject):
    """A ``Subject`` of shards whose records have values with names. ``texts``: the fields that are texts."""

    named: Named
    texts: tuple[str, ...]

    def not_images(self, facts: Facts) -> set[str]:
        """Return the names of byte fields that didn't look like an image in the first record."""
        return {name for name in facts.encoded if NOT_IMAGE + name in facts.seen}


class NamedReader(ShardReader):
    """Reads records whose values have names.

    images  fields that are images whatever their bytes are; others are if they begin like one in the first record
    """

    def __init__(
        self, writer: IndexWriter, subject: NamedSubject, images: AbstractSet[str] = frozenset()
    ) -> None:
        super().__init__(writer)
        self._name, self._texts, self._known = subject.name, subject.texts, images | {"image"}
        self._images: list[str] | None = None
        self._others: list[str] = []

    def part(
        self,
        file: int,
        ranges: Mapping[str, tuple[Int64Array, Int64Array]],
        numbers: Mapping[str, AnyArray],
        sums: NDArray[np.uint32],
    ) -> ShardPart:
        """Return records of an open shard; ``sums``: CRCs for the digest, or ``rows`` zeros.

        The first ones say which byte fields are images. Raises ``PlanError`` if none is, and for a label that isn't one
        integer, and texts that are numbers.
        """
        texts = {name: _strings(file, *ranges[name]) for name in self._texts if name in ranges}
        ranges = {name: place for name, place in ranges.items() if name not in texts}
        if self._images is None and len(sums):
            self._images = [
                name for name, place in ranges.items() if name in self._known or _is_image(file, place)
            ]
            self._others = [name for name in ranges if name not in self._images]
            self._check(numbers)
        images = sorted(self._images or ranges, key=lambda name: name != "image")
        ordered = {name: ranges[name] for name in (*images, *self._others)}
        names: UInt8Array = sums.view(np.uint8)
        return ShardPart(ordered, numbers, names, np.full(len(sums), sums.itemsize), texts)

    def _check(self, numbers: Mapping[str, AnyArray]) -> None:
        if not self._images:
            found = ", ".join(self._others) or "no bytes"
            raise PlanError(
                f"{self._name} has no images: its first record has {found}, which isn't an image of a supported "
                "format. Name the values that are images, such as image='jpg'"
            )
        label = numbers.get("label", np.empty(0, np.int64))
        if (
            "label" in self._images + self._others
            or label.ndim != 1
            or not np.can_cast(label.dtype, np.int64)
        ):
            kind = f"{label.dtype} of shape {label.shape[1:]}" if "label" in numbers else "bytes"
            raise PlanError(
                f"{self._name}: a label is one integer, but the field 'label' is {kind}; give it another name, such as "
                "target=…"
            )
        if wrong := [name for name in self._texts if name in numbers]:
            raise PlanError(
                f"{self._name}: the field {wrong[0]!r} has numbers, so it can't be a text; leave it out of texts="
            )

    def check(self, image_bytes: int) -> None:
        """Raise ``PlanError`` for shards without records, or with empty images alone."""
        if self.rows == 0 or image_bytes == 0:
            raise PlanError(
                f"{self._name} has no records{' with an image that has any bytes' if self.rows else ''}; write it again"
            )

    def finish(self, facts: Facts) -> Facts:
        """Add which byte fields aren't images."""
        return replace(facts, seen={**facts.seen, **{NOT_IMAGE + name: 1 for name in self._others}})


def _strings(file: int, offsets: Int64Array, lengths: Int64Array) -> Paths:
    """Read parts of a file."""
    places = zip(lengths.tolist(), offsets.tolist(), strict=True)
    return Paths.pack([read_fully(file, length, offset) for length, offset in places])


def _is_image(file: int, place: tuple[Int64Array, Int64Array]) -> bool:
    """Return True if the first record's bytes begin like an image."""
    offset, length = (int(values[0]) for values in place)
    return format_of(os.pread(file, min(HEAD_BYTES, length), offset)) is not None
