"""Split the lines of a list into packed paths and labels, without a Python object per line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from penstock.contracts import Paths
from penstock.errors import PlanError
from penstock.source._listing import is_image_name, smallest_integers
from penstock.source._paths import shown
from penstock.source._sort import WORD_BYTES, sort_keys
from penstock.spec import Int64Array, UInt8Array

LONGEST_LINE_BYTES = (1 << 16) - 1  # so that a path's length fits 16 bits
TAB, LF, CR, SPACE, MINUS, ZERO = b"\t\n\r -0"
DIGITS_OF_INT64 = 19


class LabelKind(IntEnum):
    """What the label of one line is; all lines of a list have the same."""

    ABSENT = 0
    NUMBER = 1
    NAME = 2


KIND_SHOWN = {
    LabelKind.ABSENT: "no label",
    LabelKind.NUMBER: "an integer label",
    LabelKind.NAME: "a class name",
}


@dataclass(frozen=True, slots=True)
class Spans:
    """n pieces of a chunk's bytes: piece i is ``text[starts[i]:stops[i]]``.

    text     (m,) uint8: the chunk, and 8 bytes more so that it can be read in words
    starts   (n,) int64
    stops    (n,) int64
    numbers  (n,) int64: the lines they are in, counted from 1 at the file's start
    """

    text: UInt8Array
    starts: Int64Array
    stops: Int64Array
    numbers: Int64Array

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> bytes:
        return self.text[self.starts[row] : self.stops[row]].tobytes()

    def where(self, rows: NDArray[np.bool_]) -> Spans:
        """The pieces for which ``rows`` (n,) is true."""
        return Spans(self.text, self.starts[rows], self.stops[rows], self.numbers[rows])

    def last(self, byte: int) -> Int64Array:
        """(n,) int64: where in the text the last ``byte`` of each piece is, or -1."""
        places = np.append(-1, np.flatnonzero(self.text == byte))
        found = places[np.searchsorted(places, self.stops) - 1]
        return np.where(found >= self.starts, found, -1)

    def stripped(self) -> Spans:
        """The pieces without spaces and tabs at their ends; one of nothing else becomes empty."""
        if not np.any(_is_blank(self.text[self.stops - 1]) | _is_blank(self.text[self.starts])):
            return self
        solid = np.append(-1, np.flatnonzero(~_is_blank(self.text)))
        stops = np.maximum(solid[np.searchsorted(solid, self.stops) - 1] + 1, self.starts)
        starts = np.minimum(solid[np.searchsorted(solid, self.starts)], stops)
        return Spans(self.text, starts, stops, self.numbers)


class Lines:
    """Takes a list chunk by chunk and packs its records.

    name    the list's name in messages
    labels  whether lines may hold labels
    """

    def __init__(self, *, name: str, labels: bool) -> None:
        self._name = name
        self._may_have_labels = labels
        self._num_lines = 0
        self._blob = bytearray()
        self._lengths: list[NDArray[np.integer]] = []
        self._labels: list[NDArray[np.integer]] = []
        self._first_kind: LabelKind | None = None
        self._first_line = 0
        self._code_of: dict[bytes, int] = {}

    def add(self, chunk: bytes) -> None:
        """Take the next whole lines. Raises ``PlanError`` with file and line."""
        lines = self._split(chunk)
        solid = lines.stripped()
        has_record = solid.stops > solid.starts
        if not np.any(has_record):
            return
        lines, solid = lines.where(has_record), solid.where(has_record)
        if self._may_have_labels:
            self._add_labelled(lines, solid)
        else:
            self._add_paths(lines)

    def finish(self) -> tuple[Paths, NDArray[np.integer] | None, tuple[str, ...] | None]:
        """The packed paths, their labels (n,) if they have any, and the class names if those are names."""
        ends = np.cumsum(np.concatenate([np.empty(0, np.int64), *self._lengths]), dtype=np.int64)
        paths = Paths(np.frombuffer(self._blob, np.uint8), ends)
        if not self._labels:
            return paths, None, None
        labels = np.concatenate(self._labels)
        if self._first_kind is not LabelKind.NAME:
            return paths, smallest_integers(labels), None
        names = sorted(self._code_of)
        sorted_place = np.empty(len(names), np.int64)
        sorted_place[[self._code_of[name] for name in names]] = np.arange(len(names))
        return paths, smallest_integers(sorted_place)[labels], tuple(map(shown, names))

    def _split(self, chunk: bytes) -> Spans:
        """Cut a chunk into lines without their ends."""
        text = np.frombuffer(chunk + bytes(WORD_BYTES), np.uint8)
        stops = np.flatnonzero(text == LF)
        starts = np.append(0, stops[:-1] + 1)
        numbers = self._num_lines + 1 + np.arange(len(stops))
        self._num_lines += len(stops)
        if b"\0" in chunk:
            line = np.searchsorted(stops, chunk.index(b"\0"))
            self._fail(
                int(numbers[line]), "holds a NUL byte; save the list as plain text, in UTF-8 if it is UTF-16"
            )
        ends_with_cr = (text[stops - 1] == CR) & (stops > starts)
        if chunk.count(CR) > np.count_nonzero(ends_with_cr):
            returns = np.flatnonzero(text == CR)
            line_of = np.searchsorted(stops, returns)
            self._refuse(
                numbers[line_of],
                returns < stops[line_of] - 1,
                "holds a CR, which on old Macs ended a line; convert the line ends to LF, as tr '\\r' '\\n' does",
            )
        too_long = stops - starts > LONGEST_LINE_BYTES
        self._refuse(
            numbers, too_long, f"is longer than {LONGEST_LINE_BYTES:,} bytes; is it a list of paths?"
        )
        return Spans(text, starts, stops - ends_with_cr, numbers)

    def _add_labelled(self, lines: Spans, solid: Spans) -> None:
        """Take lines that may hold labels; ``solid`` are the same lines stripped."""
        text, numbers = lines.text, lines.numbers
        tab, space = lines.last(TAB), Spans(text, lines.starts, solid.stops, numbers).last(SPACE)
        cut = np.where(tab >= 0, tab, space)
        has_label = cut >= 0
        labels = Spans(text, cut + 1, lines.stops, numbers).where(has_label).stripped()
        self._refuse(labels.numbers, labels.stops == labels.starts, "has no label after its tab")
        path_stops = np.where(has_label, cut, solid.stops)
        by_space = Spans(text, lines.starts, path_stops, numbers).stripped()
        paths = Spans(text, lines.starts, np.where(tab >= 0, tab, by_space.stops), numbers)
        self._refuse(numbers, paths.stops == paths.starts, "has no path before its label")

        values, is_integer, is_too_large = _integers(labels)
        kinds = np.zeros(len(lines), np.int8)
        kinds[has_label] = np.where(is_integer, LabelKind.NUMBER, LabelKind.NAME)
        self._check_kinds(kinds, numbers)
        self._refuse(labels.numbers, is_too_large, "has a label outside int64")
        self._add_paths(paths)
        match self._first_kind:
            case LabelKind.NUMBER:
                self._labels.append(smallest_integers(values))
            case LabelKind.NAME:
                self._labels.append(smallest_integers(self._codes(labels)))

    def _check_kinds(self, kinds: NDArray[np.int8], numbers: Int64Array) -> None:
        if self._first_kind is None:
            self._first_kind = LabelKind(int(kinds[0]))
            self._first_line = int(numbers[0])
        differs = kinds != self._first_kind
        if not np.any(differs):
            return
        kind = LabelKind(int(kinds[np.argmax(differs)]))
        advice = "all labels must be integers, or none"
        if LabelKind.ABSENT in (kind, self._first_kind):
            advice = "give each line a label, after a tab, or pass labels=False if all lines are only paths"
        first = f"line {self._first_line} has {KIND_SHOWN[self._first_kind]}"
        self._refuse(numbers, differs, f"has {KIND_SHOWN[kind]}, but {first}; {advice}")

    def _codes(self, names: Spans) -> Int64Array:
        """(n,) int64: a number for each name, counted up as new names come."""
        starts, text = names.starts, names.text
        order, first = sort_keys(text, starts, names.stops - starts, np.zeros(len(names), np.int64))
        is_first = first == np.arange(len(names))
        codes_of_distinct = [self._code(names, int(row)) for row in order[is_first]]
        codes = np.empty(len(names), np.int64)
        codes[order] = np.array(codes_of_distinct)[np.cumsum(is_first) - 1]
        return codes

    def _code(self, names: Spans, row: int) -> int:
        name = names[row]
        if name not in self._code_of and is_image_name(name):
            self._fail(
                int(names.numbers[row]),
                f"has the label '{shown(name)}', which looks like a file; put a tab between path and "
                "label, or pass labels=False if all lines are only paths",
            )
        return self._code_of.setdefault(name, len(self._code_of))

    def _add_paths(self, paths: Spans) -> None:
        lengths = paths.stops - paths.starts
        gaps = paths.starts - np.append(0, paths.stops[:-1])
        is_path = np.repeat(np.tile([False, True], len(paths)), np.column_stack([gaps, lengths]).ravel())
        self._blob += paths.text[: len(is_path)][is_path].data
        self._lengths.append(lengths.astype(np.uint16))

    def _refuse(self, numbers: Int64Array, is_wrong: NDArray[np.bool_], reason: str) -> None:
        if np.any(is_wrong):
            self._fail(int(numbers[np.argmax(is_wrong)]), reason)

    def _fail(self, line: int, reason: str) -> NoReturn:
        raise PlanError(f"{self._name}:{line}: the line {reason}")


def _is_blank(text: UInt8Array) -> NDArray[np.bool_]:
    is_blank: NDArray[np.bool_] = (text == SPACE) | (text == TAB)
    return is_blank


def _integers(labels: Spans) -> tuple[Int64Array, NDArray[np.bool_], NDArray[np.bool_]]:
    """Read decimal numbers: values (n,) int64, which are integers, and which of those don't fit int64."""
    text, stops = labels.text, labels.stops
    is_negative = text[labels.starts] == MINUS
    starts = labels.starts + is_negative
    lengths = stops - starts
    is_integer = (lengths > 0) & (text[stops - 1] - ZERO < 10)
    magnitude = np.zeros(len(labels), np.uint64)
    num_places = int(lengths.max()) if np.any(is_integer) else 0
    for place in range(min(num_places, DIGITS_OF_INT64)):
        digit = text[np.maximum(stops - 1 - place, 0)] - ZERO  # below "0" it wraps around to above 9
        is_inside = place < lengths
        is_integer &= ~is_inside | (digit < 10)
        magnitude += np.where(is_inside & is_integer, digit, 0).astype(np.uint64) * np.uint64(10**place)
    is_too_large = is_integer & (magnitude > np.uint64(2**63 - 1) + is_negative.astype(np.uint64))
    for row in np.flatnonzero(is_integer & (lengths > DIGITS_OF_INT64)):
        head = text[starts[row] : stops[row] - DIGITS_OF_INT64]
        is_integer[row] = np.all(head - ZERO < 10)
        is_too_large[row] |= np.any(head != ZERO)
    values = magnitude.view(np.int64)
    return np.where(is_negative, -values, values), is_integer, is_integer & is_too_large
