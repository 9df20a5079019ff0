"""Read the ``index.json`` of a folder of MDS shards."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe.errors import PlanError
from standpipe.source.index.with_fields import is_field_name
from standpipe.source.shards.names import read_small
from standpipe.system.paths import path_text

MOST_BYTES = 256 << 20
MOST_VALUE_BYTES = 4096  # of an array that the index holds for each record
PARTS = ("names", "encodings", "sizes")  # of the columns, a list each
IMAGES, TEXT = ("jpeg", "png"), "str"
BITS = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
NUMBERS = {"int": "int64"} | {f"{kind}{n}": f"{kind}{n}" for kind, sizes in BITS.items() for n in sizes}
ARRAY = re.compile(r"ndarray:(\w+):(\d{1,9}(?:,\d{1,9}){0,15})")
UNPACKERS = {"zstd": "zstd -d", "gz": "gunzip -k", "bz2": "bunzip2 -k", "br": "brotli -d"}
STREAMING = (  # for snappy's blocks, which python -m snappy doesn't read
    'python -c "from streaming import StreamingDataset; data = StreamingDataset(local={!r}, batch_size=1); '
    '[data.prepare_shard(number) for number in range(data.num_shards)]"'
)


@dataclass(frozen=True, slots=True)
class MdsColumn:
    """A column of all records.

    size   bytes of each value; None if they differ
    dtype  that of numbers; None for bytes
    shape  of a value
    """

    name: str
    encoding: str
    size: int | None
    dtype: str | None
    shape: tuple[int, ...]

    @property
    def is_read(self) -> bool:
        """True for images, bytes, texts and numbers."""
        return self.dtype is not None or self.encoding in (*IMAGES, "bytes", TEXT)

    @property
    def is_shown(self) -> bool:
        """True if it is a field unless fields are named: not bytes, and no text whose name stands for another field."""
        return (
            self.is_read and self.encoding != "bytes" and (self.encoding != TEXT or is_field_name(self.name))
        )


@dataclass(frozen=True, slots=True)
class MdsShard:
    """A shard as ``index.json`` has it: its path, and its numbers of samples and bytes."""

    path: bytes
    samples: int
    size: int


def read_mds_index(folder: bytes) -> tuple[tuple[MdsColumn, ...], tuple[MdsShard, ...]]:
    """Return the columns of all records, and the shards.

    Raises ``PlanError`` if the file isn't such an index, or for shards that are compressed, outside of the folder or of
    differing columns.
    """
    import json  # imported here: with hashlib it takes a tenth of importing standpipe

    path = os.path.join(folder, b"index.json")  # noqa: PTH118 (pathlib has no bytes)
    text = read_small(path, MOST_BYTES, "an index of MDS shards")
    try:
        raw = json.loads(text or b"")
        if raw["version"] != 2 or not all(each["format"] == "mds" for each in raw["shards"]):
            raise PlanError(
                f"{path_text(path)} isn't an index of MDS shards of version 2; write them with MDSWriter"
            )
        listed = tuple(_shard(folder, each) for each in raw["shards"])
        columns = {
            tuple(_column(*parts) for parts in zip(*(each[f"column_{part}"] for part in PARTS), strict=True))
            for each in raw["shards"]
        }
    except PlanError:  # a ValueError too
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PlanError(f"{path_text(path)} isn't an index of MDS shards: {error!r}") from error
    if len(columns) != 1:
        raise PlanError(
            f"{path_text(path)} lists {'shards of differing columns' if columns else 'no shards'}; write all shards "
            "with the same columns"
        )
    return columns.pop(), listed


def _column(name: object, encoding: object, size: Any) -> MdsColumn:
    """Return a column. Raises ``ValueError`` for values of other types, and for a size that isn't the encoding's."""
    is_size = size is None or (type(size) is int and size > 0)
    if not isinstance(name, str) or not isinstance(encoding, str) or not is_size:
        raise ValueError(f"the column {name!r} has the encoding {encoding!r} and the size {size!r}")
    found = ARRAY.fullmatch(encoding)
    dtype = NUMBERS.get(found[1] if found else encoding)
    shape = tuple(map(int, found[2].split(","))) if found else ()
    value_bytes = int(np.prod([1, *shape], dtype=object)) * np.dtype(dtype).itemsize if dtype else size
    if value_bytes != size:
        raise ValueError(f"values of the column {name!r}, {encoding}, have {value_bytes} bytes, not {size}")
    is_kept = dtype is not None and 0 < (size or 0) <= MOST_VALUE_BYTES
    return MdsColumn(name, encoding, size, f"<{np.dtype(dtype).str[1:]}" if is_kept else None, shape)


def _shard(folder: bytes, raw: Mapping[str, Any]) -> MdsShard:
    """Return a shard. Raises ``PlanError`` if it is compressed, or not in the folder."""
    data, samples = raw["raw_data"], raw["samples"]
    name, size = os.fsencode(data["basename"]), data["bytes"]
    if type(samples) is not int or type(size) is not int or min(samples, size) < 0:
        raise ValueError(f"{samples!r} samples in {size!r} bytes")
    if not name or name.startswith(b"/") or b".." in name.split(b"/") or b"\0" in name:
        raise PlanError(
            f"{path_text(folder)}/index.json lists {path_text(name)!r}, which isn't in the folder; copy all there"
        )
    path = os.path.join(folder, name)  # noqa: PTH118 (pathlib has no bytes)
    if raw.get("compression") is not None and not os.path.lexists(path):
        kind = str(raw["compression"]).partition(":")[0]
        shards = path_text(os.path.join(os.path.dirname(path), b"*.%s" % kind.encode()))  # noqa: PTH118, PTH120
        unpack = f"{UNPACKERS[kind]} {shards}" if kind in UNPACKERS else STREAMING.format(path_text(folder))
        raise PlanError(
            f"{path_text(path)} is compressed with {kind}, and parts of a compressed shard can't be read alone. Unpack "
            f"all beside them: {unpack}"
        )
    return MdsShard(path, samples, size)
