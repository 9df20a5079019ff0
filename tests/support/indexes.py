"""Index files with changed contents and valid checksums, such as anybody who may write a file can make."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from standpipe import _native
from standpipe.source.index.file import (
    PREAMBLE,
    Section,
    preamble,
    read_index,
)  # only a program writes such a file


def index_of_facts(facts: bytes) -> bytes:
    """The content of an index that has only facts, with the right checksum."""
    return preamble(PREAMBLE.size + len(facts), PREAMBLE.size, facts) + facts


def change_section(index: Path, name: str, change: Callable[[bytearray], None]) -> None:
    """Let a section of an index file hold other data of the same size."""
    opened = read_index(os.fsencode(index))
    data = bytearray(b"".join(block.tobytes() for block in opened.blocks(name)))
    change(data)
    index.write_bytes(with_data(index.read_bytes(), opened.facts.sections[name], bytes(data)))


def with_data(content: bytes, section: Section, data: bytes) -> bytes:
    """An index file's content with other data in a section."""
    blocks = _native.sealed(np.frombuffer(data, np.uint8), int(section.key, 16), 0).tobytes()
    return content[: section.begin] + blocks + content[section.begin + len(blocks) :]
