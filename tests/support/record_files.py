"""TFRecord files and MDS shards for tests, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from photos import age
from standpipe import _native

Value = bytes | list[bytes] | Sequence[int] | Sequence[float]


def masked(data: bytes) -> bytes:
    """The checksum of TFRecord files."""
    crc = _native.crc32c(np.frombuffer(data, np.uint8), 0)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def framed(record: bytes) -> bytes:
    length = len(record).to_bytes(8, "little")
    return length + masked(length) + record + masked(record)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(number: int, data: bytes) -> bytes:
    """A field of a protobuf message with bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value: Value, *, packed: bool = True) -> bytes:
    """A tf.train.Feature: of bytes, of integers or of floats, by the type of the first value."""
    values = [value] if isinstance(value, bytes) else value
    if all(isinstance(each, bytes) for each in values):
        return message(1, b"".join(message(1, each) for each in values))
    if all(isinstance(each, int) for each in values):
        if packed:
            return message(3, message(1, b"".join(map(varint, values))))
        return message(3, b"".join(varint(1 << 3) + varint(each) for each in values))
    floats = [np.float32(each).tobytes() for each in values]
    if packed:
        return message(2, message(1, b"".join(floats)))
    return message(2, b"".join(varint(1 << 3 | 5) + each for each in floats))


def example(features: Mapping[str, Value], *, packed: bool = True) -> bytes:
    """A tf.train.Example."""
    entries = (
        message(1, message(1, name.encode()) + message(2, feature(value, packed=packed)))
        for name, value in features.items()
    )
    return message(1, b"".join(entries))


def tfrecord(path: Path, records: Sequence[bytes]) -> Path:
    path.write_bytes(b"".join(map(framed, records)))
    age(path)
    return path


def encoded_value(encoding: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    dtype = encoding.split(":")[1] if ":" in encoding else {"int": "int64"}.get(encoding, encoding)
    return np.asarray(value, dtype).tobytes()


def column_size(encoding: str) -> int | None:
    if encoding.startswith("ndarray:"):
        return len(encoded_value(encoding, np.zeros([int(n) for n in encoding.split(":")[2].split(",")])))
    return None if encoding in ("jpeg", "png", "bytes", "str", "pil") else len(encoded_value(encoding, 0))


def mds_shard(columns: Mapping[str, str], samples: Sequence[Mapping[str, Any]]) -> bytes:
    """A shard as MDSWriter makes it, with its configuration between offsets and samples."""
    made, config = [], json.dumps({"columns": columns}).encode()
    for sample in samples:
        values = {name: encoded_value(columns[name], sample[name]) for name in sorted(columns)}
        sizes = [len(data) for name, data in values.items() if column_size(columns[name]) is None]
        made.append(np.array(sizes, "<u4").tobytes() + b"".join(values.values()))
    begin = 4 * (len(samples) + 2) + len(config)
    offsets = np.cumsum([begin, *map(len, made)]).astype("<u4")
    return len(samples).to_bytes(4, "little") + offsets.tobytes() + config + b"".join(made)


def mds(
    folder: Path, columns: Mapping[str, str], samples: Sequence[Mapping[str, Any]], per_shard: int = 1 << 30
) -> Path:
    """A folder of MDS shards."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    names = sorted(columns)
    for number, start in enumerate(range(0, len(samples), per_shard)):
        part = samples[start : start + per_shard]
        path = folder / f"shard.{number:05}.mds"
        path.write_bytes(mds_shard(columns, part))
        age(path)
        listed.append(
            {
                "version": 2,
                "format": "mds",
                "compression": None,
                "hashes": [],
                "size_limit": None,
                "column_names": names,
                "column_encodings": [columns[name] for name in names],
                "column_sizes": [column_size(columns[name]) for name in names],
                "samples": len(part),
                "raw_data": {"basename": path.name, "bytes": path.stat().st_size, "hashes": {}},
                "zip_data": None,
            }
        )
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": listed}))
    return folder
