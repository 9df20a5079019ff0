"""Keep the answers of filter functions, in files in the user's cache folder.

A file has a bit for each record, in blocks of 256, each with a digest of its own. So damaged blocks and those of
another question are recognised, and all whole blocks of an unfinished file count.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import OpenSource, PythonSource
from standpipe.errors import PlanError
from standpipe.identity.code import Unreadable, digest_of
from standpipe.order import Chosen, numbers_of
from standpipe.pipeline.content_filter import ByContent
from standpipe.pipeline.description import Description
from standpipe.spec import PIXEL_CONTRACT, Decoding
from standpipe.system.claims import cache_folder, is_believed
from standpipe.system.files import closing_descriptor, open_regular
from standpipe.transform import decoder_version

BLOCK = 256  # records
BLOCK_BYTES = BLOCK // 8
DIGEST_BYTES = 8
BLOCKS_AT_ONCE = 1 << 10  # of a pass over a file: pieces of 2^18 marks, as orders take them


@dataclass(frozen=True, slots=True)
class Question:
    """A filter function, and the records for which its answers are needed.

    pipeline     the pipeline before the filter
    condition    the filter
    text         description of the filter, in one phrase
    source       text that identifies the source's records
    num_records  number of records
    """

    pipeline: Description
    condition: ByContent
    text: str
    source: str
    num_records: int

    @property
    def header(self) -> bytes:
        """The first 32 bytes of a file of answers: a digest of all that the answers depend on."""
        from hashlib import blake2b

        facts = (
            self.source,
            [selection.describe() for selection in self.pipeline.selections],
            self.text,
            self.pipeline.decoding.describe(),
            repr(self.pipeline.limits),
            PIXEL_CONTRACT,
            decoder_version(),
        )
        key = blake2b(repr(facts).encode(), digest_size=16).digest()
        return b"pskept1\n" + key + self.num_records.to_bytes(8, "little")

    @property
    def path(self) -> bytes:
        """The path of the answers."""
        return cache_folder() + b"/filters/" + self.header[8:24].hex().encode()

    @property
    def blocks(self) -> int:
        """The number of blocks of all answers."""
        return -(-self.num_records // BLOCK)


class Unscanned(PlanError):
    """A plan needs a filter's answers, and the function hasn't been called for all records."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(
            f"{question.text}: the function wasn't run on the {question.num_records:,} records yet. "
            "loader() runs it, and so does pipeline.run_filters()"
        )


def chosen(pipeline: Description, number: int, source: OpenSource, num_records: int) -> Chosen:
    """Return the records that the filter at selection ``number`` leaves of ``num_records``.

    Raises ``Unscanned`` where there are no answers, ``PlanError`` where nothing is left.
    """
    condition = pipeline.selections[number]
    assert isinstance(condition, ByContent)
    how = pipeline.decoding
    before = Description(
        pipeline.source,
        selections=pipeline.selections[:number],
        decoding=Decoding(how.mode, how.limits, how.allow_truncated),
    )
    question = Question(before, condition, condition.describe(), _identity(source), num_records)
    with _answers(question) as file:
        if file is None:
            raise Unscanned(question)
        found = numbers_of(_marks(file, question), num_records)
    if len(found) == 0:
        raise PlanError(f"{question.text} selects none of {num_records:,} records")
    return Chosen(found, question.text)


def is_answered(question: Question) -> bool:
    """Return True if all answers are in the cache folder, undamaged."""
    with _answers(question) as file:
        return file is not None


@contextlib.contextmanager
def _answers(question: Question) -> Iterator[int | None]:
    """Open the file with all answers; None if there is none, or it is damaged or unfinished."""
    try:
        file = open_regular(question.path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    with closing_descriptor(file):
        yield file if _is_whole(file, question) else None


def _is_whole(file: int, question: Question) -> bool:
    """Return True if a file is trusted and has all answers."""
    if not is_believed(question.path):
        return False
    return whole_blocks(file, question) == question.blocks


def whole_blocks(file: int, question: Question) -> int:
    """Return the number of undamaged blocks at the beginning of a file; 0 for another question's file."""
    if os.pread(file, len(question.header), 0) != question.header:
        return 0
    number = 0
    for bits, digests in _blocks(file, question):
        for block, digest in zip(bits, digests, strict=True):
            if digest_of_block(question.header, number, block.tobytes()) != digest.tobytes():
                return number
            number += 1
    return number


def digest_of_block(header: bytes, number: int, bits: bytes) -> bytes:
    """Return the digest that follows a block's bits."""
    from hashlib import blake2b

    return blake2b(header + number.to_bytes(8, "little") + bits, digest_size=DIGEST_BYTES).digest()


def _marks(file: int, question: Question) -> Iterator[NDArray[np.bool_]]:
    """Yield a mask of the records that the filter keeps, in pieces of 2^18 records."""
    left = question.num_records
    for bits, _ in _blocks(file, question):
        marks = np.unpackbits(bits, bitorder="little").view(np.bool_)[:left]
        left -= len(marks)
        yield marks


def _blocks(file: int, question: Question) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Yield the blocks of a file in pieces: their bits, (blocks, 32), and their digests, (blocks, 8), as
    uint8.
    """
    size = BLOCK_BYTES + DIGEST_BYTES
    for first in range(0, question.blocks, BLOCKS_AT_ONCE):
        number = min(BLOCKS_AT_ONCE, question.blocks - first)
        data = os.pread(file, number * size, len(question.header) + first * size)
        rows = np.frombuffer(data[: len(data) // size * size], np.uint8).reshape(-1, size)
        yield rows[:, :BLOCK_BYTES], rows[:, BLOCK_BYTES:]
        if len(rows) < number:
            return


def _identity(source: OpenSource) -> str:
    """Return a text that identifies a source's records. A Python dataset's digest has only its class and
    length.
    """
    if not isinstance(source, PythonSource) or isinstance(getattr(source.dataset, "_fingerprint", None), str):
        return source.digest
    try:
        return f"{source.digest} {digest_of(source.dataset)}"
    except Unreadable as error:
        raise PlanError(
            "filter(…): standpipe can't identify the dataset, so it can't keep a filter's answers: "
            f"{error}. Give the dataset an attribute _fingerprint, a string that changes with its content"
        ) from error
