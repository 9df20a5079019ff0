"""Changes of bytes that a parser should survive, as a function of random numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence

MOST_BYTES = 1 << 16
TELLING = (0, 1, 2, 4, 0x20, 0x22, 0x2C, 0x30, 0x39, 0x7F, 0x80, 0xFE, 0xFF)


def mutated(content: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    """One to eight changes of ``content``.

    other  to take parts from
    words  that mean something to the parser
    """
    file = bytearray(content)
    for _ in range(draw.randint(1, draw.choice((2, 8)))):
        _once(file, other, words, draw)
    return bytes(file[:MOST_BYTES])


def _once(file: bytearray, other: bytes, words: Sequence[bytes], draw: random.Random) -> None:
    at = draw.randrange(len(file) + 1)
    stop = min(len(file), at + draw.randint(1, 16))
    match draw.randrange(9):
        case 0 if file:
            file[at % len(file)] ^= 1 << draw.randrange(8)
        case 1 if file:
            file[at % len(file)] = draw.choice((draw.choice(TELLING), draw.randrange(256)))
        case 2:
            del file[at:stop]
        case 3:
            file[at:at] = file[at:stop] * draw.choice((1, 2, 50))
        case 4:
            begin = draw.randrange(len(other) + 1)
            file[at:stop] = other[begin : begin + draw.randint(1, 64)]
        case 5:
            file[at:] = other[draw.randrange(len(other) + 1) :]
        case 6:
            del file[at:]
        case 7:
            _number(file, at, draw)
        case _:
            file[at : at if draw.random() < 0.5 else stop] = draw.choice(words) if words else b"\0"


def _number(file: bytearray, at: int, draw: random.Random) -> None:
    """Replace a number: decimal digits, or else two, four or eight bytes."""
    begin, end = at, at
    while begin > 0 and file[begin - 1 : begin].isdigit():
        begin -= 1
    while file[end : end + 1].isdigit():
        end += 1
    value = draw.choice(
        (0, 1, -1, 2, 255, 1 << 31, (1 << 63) - 1, 1 << 63, 1 << 64, draw.randrange(1 << 20), 10**30)
    )
    if end > begin:
        file[begin:end] = b"%d" % value
    else:
        size = draw.choice((2, 4, 8))
        file[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, draw.choice(("little", "big")))
