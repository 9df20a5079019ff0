"""Read the arrays of a large JSON file, item by item.

The standard library parses each item. It takes a third of ijson's time for a file of COCO's, and reads NaN, which
Python writes: then one box is a fault, and not the file.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any, BinaryIO

from standpipe.errors import PlanError
from standpipe.system.paths import path_text, reading

PIECE_BYTES = 1 << 20
MOST_ITEM_BYTES = 16 << 20  # the memory that parsing one takes is a few dozen times that
LONGEST_WORD = 16  # a value that a piece may cut, such as -Infinity or an escape in a string, is shorter
SPACE = re.compile(r"[ \t\n\r]*")


class JsonItems:
    """A JSON file with one object, of whose arrays the items are read one at a time, in the file's order."""

    def __init__(self, file: BinaryIO, path: bytes) -> None:
        self._file, self._path = file, path
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._parse = json.JSONDecoder().raw_decode
        self._text, self._at, self._before = "", 0, 0
        self._ended = False
        self._where = ""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield the key of each array, and each of its items; values that aren't arrays are skipped.

        Raises ``PlanError`` with the place if the file isn't JSON, or isn't one object.
        """
        if self._peek() != "{":
            raise self.wrong("it must be a JSON object")
        for key in self._parts("}"):
            if not isinstance(key, str) or self._peek() != ":":
                raise self.wrong("it isn't JSON: a key and a colon must be here")
            self._at += 1
            if self._peek() == "[":
                for number, item in enumerate(self._parts("]")):
                    self._where = f"item {number} of {key!r}, "
                    yield key, item
            else:
                self._value()
            self._where = ""
        if self._peek():
            raise self.wrong("it has more text after the end of its object")

    def wrong(self, reason: str) -> PlanError:
        """Return an error about the item that was read last, or the place where reading stopped."""
        return PlanError(f"{path_text(self._path)}: {self._where}at byte {self.byte:,}: {reason:.500}")

    @property
    def byte(self) -> int:
        """The place in the file that reading has reached."""
        return self._before + len(self._text[: self._at].encode())

    def _parts(self, end: str) -> Iterator[Any]:
        """Yield the items of an array, or the keys of an object, whose bracket comes next."""
        self._at += 1
        if self._peek() == end:
            self._at += 1
            return
        while True:
            yield self._value()
            found = self._peek()
            self._at += 1
            if found == end:
                return
            if found != ",":
                self._at -= 1
                raise self.wrong(
                    f"it isn't JSON: ',' or '{end}' must be here, not {found!r}" if found else CUT
                )

    def _peek(self) -> str:
        """Return the next character that isn't space; empty at the end."""
        while True:
            space = SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except JSONDecodeError as error:
                behind, rest = error.pos - self._at, len(self._text) - error.pos
                in_string = error.msg.startswith("Unterminated string")
                if (in_string or rest <= LONGEST_WORD) and self._more():
                    continue
                self._at += behind
                is_cut = self._ended and (in_string or rest == 0)
                raise self.wrong(CUT if is_cut else f"it isn't JSON: {error.msg}") from None
            except RecursionError:
                raise self.wrong("its values are nested too deeply") from None
            except ValueError as error:  # an integer of more than 4,300 digits
                raise self.wrong(f"it has a number that can't be read: {error}") from None
            if end == len(self._text) and self._more():
                continue  # a number may go on
            self._at = end
            return value

    def _more(self) -> bool:
        """Read more of the file behind what isn't parsed; return False at its end."""
        rest = self._text[self._at :]
        if len(rest) > MOST_ITEM_BYTES:
            raise self.wrong(f"one of its values has more than {MOST_ITEM_BYTES >> 20} MiB")
        with reading(self._path):
            piece = self._file.read(max(PIECE_BYTES, len(rest)))
        try:
            text = self._decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            raise self.wrong(f"it isn't text in UTF-8: {error.reason}") from None
        self._before += len(self._text[: self._at].encode())
        self._text, self._at, self._ended = rest + text, 0, not piece
        return bool(piece)


CUT = "it ends too soon; copy or write it again"
