"""The checksum of rows: one number on every machine, whatever instructions take it.

By private names: it is in the files of a cache, and nobody but the store asks for it.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from standpipe import _native

# It is kept in files: another one would be another format.
GOLDEN = {
    b"": 0x7F255090,
    b"\0": 0x85745CBD,
    b"a": 0x03ACA2C1,
    b"123456789": 0xFB885050,
    bytes(range(32)): 0x7BA3ADBD,
    bytes(range(256)): 0x784F05B4,
    b"standpipe" * 1000 + b"!": 0xF0E8958D,
}

HERE = [way for way in ("table", "sse4.2", "armv8") if _native.checksum_by(way, b"") is not None]


def crc32c(state: int, content: bytes) -> int:
    """One bit after the other."""
    for byte in content:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state


def scattered(lane: int) -> int:
    """MurmurHash3's last steps."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        lane = (lane ^ lane >> shift) * factor & 0xFFFFFFFF
    return lane ^ lane >> 16


def described(content: bytes) -> int:
    """Return the checksum that ``native/system/checksum.h`` describes."""
    whole = len(content) // 32 * 32
    words = [content[at : at + 8] for at in range(0, whole, 8)]
    lanes = [crc32c(0xFFFFFFFF, b"".join(words[lane::4])) for lane in range(4)]
    state = crc32c(0xFFFFFFFF, b"".join(scattered(lane).to_bytes(4, "little") for lane in lanes))
    rest = content[whole:]
    state = crc32c(state, rest + bytes(-len(rest) % 8))
    return crc32c(state, len(content).to_bytes(8, "little")) ^ 0xFFFFFFFF


@pytest.mark.parametrize("content", GOLDEN, ids=len)
def test_it_never_changes(content: bytes) -> None:
    assert _native.checksum(content) == GOLDEN[content]


@pytest.mark.parametrize("way", HERE)
def test_every_way_takes_the_same(way: str) -> None:
    draw = random.Random(0)
    for length in [*range(100), 255, 256, 257, 1000]:
        content = draw.randbytes(length)
        assert _native.checksum_by(way, content) == described(content) == _native.checksum(content)


def test_neighbours_differ() -> None:
    """Bytes that are flipped, moved, cut off or added; all of them from each other, too."""
    content = random.Random(1).randbytes(100)
    others = [flipped(content, bit) for bit in range(800)]
    others += [content[8 * n :] + content[: 8 * n] for n in range(1, 12)]
    others += [content[:n] for n in range(100)] + [content + bytes(n) for n in range(1, 70)]
    assert len({_native.checksum(other) for other in [content, *others]}) == 1 + len(others)


def flipped(content: bytes, bit: int) -> bytes:
    return (int.from_bytes(content, "little") ^ 1 << bit).to_bytes(len(content), "little")


def test_words_that_changed_places() -> None:
    content = random.Random(2).randbytes(320)
    words = [content[at : at + 8] for at in range(0, 320, 8)]
    seen = {_native.checksum(content)}
    for one, other in itertools.combinations(range(40), 2):
        words[one], words[other] = words[other], words[one]
        seen.add(_native.checksum(b"".join(words)))
        words[one], words[other] = words[other], words[one]
    assert len(seen) == 1 + 40 * 39 // 2


def test_crc32c_is_everybodys() -> None:
    """The values are those of RFC 3720, appendix B.4, also in parts and for ranges."""
    assert _native.crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283
    assert _native.crc32c(np.zeros(32, np.uint8)) == 0x8A9136AA
    assert _native.crc32c(np.arange(32, dtype=np.uint8)) == 0x46DD794E
    content = np.frombuffer(random.Random(3).randbytes(7_000), np.uint8)
    for cut in (0, 1, 7, 8, 300, 3_072, 3_073):
        expected = crc32c(0xFFFFFFFF, content[cut:].tobytes()) ^ 0xFFFFFFFF
        assert _native.crc32c(content[cut:]) == expected
        first = _native.crc32c(content[:cut])
        assert _native.crc32c(content[cut:], first) == _native.crc32c(content)


def test_crc32c_of_ranges(tmp_path: Path) -> None:
    content = np.frombuffer(random.Random(4).randbytes(700_000), np.uint8)
    begins, sizes = np.array([0, 5, 200_000, 3, 700_000]), np.array([5, 600_000, 0, 9, 0])
    expected = [
        _native.crc32c(content[begin : begin + size]) for begin, size in zip(begins, sizes, strict=True)
    ]
    (tmp_path / "file").write_bytes(content.tobytes())
    with (tmp_path / "file").open("rb") as file:
        assert _native.crc32c_of(content, begins, sizes).tolist() == expected
        assert _native.crc32c_of_file(file.fileno(), begins, sizes).tolist() == expected
        with pytest.raises(EOFError, match="too soon"):
            _native.crc32c_of_file(file.fileno(), begins, sizes + 1)
    for begin, size in ((-1, 1), (0, -1), (1, 700_000)):
        with pytest.raises(ValueError, match="outside"):
            _native.crc32c_of(content, np.array([begin]), np.array([size]))
