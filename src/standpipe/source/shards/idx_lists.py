"""Read the index files that DALI's wds2idx and Megatron-Energon write beside a shard: how many samples it has."""

from __future__ import annotations

import os
import re

from standpipe.errors import PlanError
from standpipe.source.shards.names import read_small
from standpipe.source.shards.wids import ListedShard
from standpipe.system.paths import open_for_reading, path_text, reading

SUFFIX = b".idx"
ENERGON_SUFFIX = b".tar.idx"
MOST_BYTES = 1 << 30
OFFSET_BYTES = 8  # of Energon's, little-endian
VERSION = re.compile(rb"(v1\.[012]) (\d{1,18})")  # DALI's first line, with the number of samples
COMPONENT_WORDS = {b"v1.0": 3, b"v1.1": 3, b"v1.2": 4}  # extension, offset, size, name


def indexed_shards(paths: tuple[bytes, ...]) -> tuple[ListedShard, ...]:
    """Return the shards of index files: of ``a.idx`` and ``a.tar.idx`` it is ``a.tar``.

    Raises ``PlanError`` if a file isn't such an index, or if others than index files are named with them.
    """
    other = next((path for path in paths if not path.endswith(SUFFIX)), None)
    if other is not None:
        raise PlanError(
            f"TarShards: {path_text(other)} is named with .idx files; name shards, or only their indexes"
        )
    listed = tuple(_energon(path) if path.endswith(ENERGON_SUFFIX) else _dali(path) for path in paths)
    if len({shard.path for shard in listed}) < len(listed):
        raise PlanError("TarShards: two .idx files are of the same shard; name one of them")
    return tuple(sorted(listed, key=lambda shard: shard.path))


def _energon(path: bytes) -> ListedShard:
    """Read offsets of 8 bytes: of each sample's first header, and of the end of the last sample."""
    with open_for_reading(path) as file, reading(path):
        size = os.fstat(file.fileno()).st_size
        if size < 2 * OFFSET_BYTES or size % OFFSET_BYTES:
            raise PlanError(f"{path_text(path)} isn't an index of samples' offsets: it has {size:,} bytes")
        file.seek(size - OFFSET_BYTES)
        end = int.from_bytes(file.read(OFFSET_BYTES), "little")
    return ListedShard(path[: -len(SUFFIX)], size // OFFSET_BYTES - 1, None, end)


def _dali(path: bytes) -> ListedShard:
    """Read a line with the number of samples, and a line for each: extension, offset, size and name of each member."""
    lines = read_small(path, MOST_BYTES, "an index of DALI").splitlines()
    head = VERSION.fullmatch(lines[0]) if lines else None
    if head is None:
        raise PlanError(
            f"{path_text(path)} isn't an index of DALI: it doesn't begin with v1.2 and the number of samples"
        )
    version, samples = head[1], int(head[2])
    if samples != len(lines) - 1:
        raise PlanError(
            f"{path_text(path)} says that it has {samples:,} samples, but has {len(lines) - 1:,} lines"
        )
    words = lines[-1].split(b" ") if samples else []
    each = COMPONENT_WORDS[version]
    numbers = [word for at, word in enumerate(words) if at % each in (1, 2)]
    if len(words) % each or not all(re.fullmatch(rb"\d{1,18}", number) for number in numbers):
        raise PlanError(
            f"{path_text(path)}: the last line isn't the place of members: {path_text(lines[-1][:80])}"
        )
    ends = [int(offset) + int(size) for offset, size in zip(numbers[::2], numbers[1::2], strict=True)]
    return ListedShard(path[: -len(SUFFIX)] + b".tar", samples, None, max(ends, default=0))
