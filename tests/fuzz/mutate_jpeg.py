"""Changes of a JPEG that a decoder should survive, as a function of random numbers."""

from __future__ import annotations

import random
from typing import NamedTuple

MOST_BYTES = 1 << 20
START = b"\xff\xd8"
SOF0, SOF2, DHT, SOS, DQT, DRI = 0xC0, 0xC2, 0xC4, 0xDA, 0xDB, 0xDD
FRAMES = {*range(0xC0, 0xD0)} - {DHT, 0xC8, 0xCC}
CODES = (
    SOF0,
    0xC1,
    SOF2,
    0xC3,
    DHT,
    0xC9,
    0xCA,
    0xCC,
    0xD0,
    0xD8,
    0xD9,
    SOS,
    DQT,
    0xDC,
    DRI,
    0xE0,
    0xE2,
    0xEE,
    0xFE,
    1,
)
TELLING = (0, 1, 2, 4, 0x11, 0x22, 0x41, 0x7F, 0x80, 0xD9, 0xFE, 0xFF)


class Segment(NamedTuple):
    """A marker with its length and payload."""

    begin: int  # of its 0xff
    payload: int
    end: int
    code: int


def mutated_jpeg(content: bytes, other: bytes, draw: random.Random) -> bytes:
    """One to eight changes of bits and bytes anywhere, or of what markers say; ``other``: to take parts from."""
    file = bytearray(content)
    for _ in range(draw.randint(1, draw.choice((2, 8)))):
        if not file:
            file[:] = other
        segments = _segments(file)
        scan = next((each.end for each in segments if each.code == SOS), 0)
        # Most changes to coded bytes still give a picture, most others an error soon: so the former are preferred.
        first = scan if scan < len(file) and draw.randrange(8) else 0
        if segments and draw.random() < 0.5:
            _change_segment(file, segments, draw)
        elif file:
            _change_bytes(file, first, other, draw)
    return bytes(file[:MOST_BYTES])


def _segments(file: bytearray) -> list[Segment]:
    """Find them behind the start of the image, and between coded bytes."""
    found, at = [], 2
    while 0 <= (at := file.find(b"\xff", at)) <= len(file) - 4:
        code = file[at + 1]
        if code < 0xC0 or code == 0xFF or 0xD0 <= code <= 0xD9:
            at += 1
            continue
        length = max(int.from_bytes(file[at + 2 : at + 4], "big"), 2)
        end = min(at + 2 + length, len(file))
        found.append(Segment(at, min(at + 4, end), end, code))
        at = end
    return found


def _any_byte(draw: random.Random) -> int:
    return draw.choice((draw.choice(TELLING), draw.randrange(256)))


def _set(file: bytearray, at: int, byte: int) -> None:
    if at < len(file):
        file[at] = byte


def _change_bytes(file: bytearray, first: int, other: bytes, draw: random.Random) -> None:
    at, to = draw.randrange(first, len(file)), draw.randrange(first, len(file))
    stop = min(at + draw.randint(1, 256), len(file))
    match draw.randrange(9):
        case 0 | 1:
            file[at] ^= 1 << draw.randrange(8)
        case 2 | 3:
            file[at] = _any_byte(draw)
        case 4:
            del file[at:]
        case 5:
            del file[at:stop]
        case 6:
            file[to:to] = file[at:stop]
        case 7:
            file[at:stop] = bytes([_any_byte(draw)]) * (stop - at)
        case _:
            file[at:] = other[draw.randrange(len(other) + 1) :]
    if draw.randrange(4) == 0:
        file += b"\xff\xd9"  # an end marker: no check of the whole file


def _change_segment(file: bytearray, segments: list[Segment], draw: random.Random) -> None:
    segment = draw.choice(segments)
    match draw.randrange(24):
        case 0:
            _set(file, segment.begin + 2 + draw.randrange(2), _any_byte(draw))  # length
        case 1 | 2:
            swapped = segment.code in FRAMES and draw.random() < 0.5
            frame = SOF2 if segment.code == SOF0 else SOF0
            _set(file, segment.begin + 1, frame if swapped else draw.choice(CODES))
        case 3:
            del file[segment.begin : segment.end]
        case 4 | 5:
            _repeat(file, segments, segment, draw)
        case 6:
            file[segment.begin : segment.begin] = bytes((0xFF, DRI, 0, 4, 0, _any_byte(draw)))
        case _:
            if segment.payload < segment.end:
                _change_payload(file, segment, draw)


def _repeat(file: bytearray, segments: list[Segment], segment: Segment, draw: random.Random) -> None:
    """Repeat a segment, or a scan with its coded bytes, now and then very often."""
    end = segment.end
    if segment.code == SOS and draw.random() < 0.5:
        end = next((each.begin for each in segments if each.begin >= end), len(file))
    part = file[segment.begin : end]
    times = 1 if draw.randrange(4) else draw.randint(1, 120)
    file[end:end] = part * min(times, MOST_BYTES // len(part))


def _change_payload(file: bytearray, segment: Segment, draw: random.Random) -> None:
    at, length = segment.payload, segment.end - segment.payload
    where, byte = at + draw.randrange(length), _any_byte(draw)
    table = draw.randrange(2) << 4 | draw.randrange(5)  # class or precision, and number
    if segment.code == DHT:
        # Class and number, counts of codes by length, symbols.
        match draw.randrange(8):
            case 0:
                where, byte = at, table
            case 1:
                pass
            case 2 | 3:
                _lengthen_code(file, at + 1 + draw.randrange(15))
                return
            case _:
                where = at + 17 + draw.randrange(max(length - 17, 1))
    elif segment.code == DQT and draw.randrange(16) == 0:
        where, byte = at, table
    elif segment.code == DRI:
        where, byte = at + draw.randrange(2), draw.choice((draw.randrange(5), byte))
    elif segment.code == SOS:
        # Components, identity and tables of each, spectral range and bit position.
        tail = at + max(length - 3, 0)
        where, byte = draw.choice(
            (
                (tail, draw.randrange(65)),
                (tail + 1, draw.randrange(65)),
                (tail + 2, draw.randrange(4) << 4 | draw.randrange(4)),
                (where, draw.choice((draw.randrange(5), byte))),
            )
        )
    elif segment.code in FRAMES:
        # Precision, height, width, number of components; identity, sampling factors and quantiser of each.
        component = at + 6 + 3 * draw.randrange(max((length - 6) // 3, 1))
        factors = draw.randint(1, 4) << 4 | draw.randint(1, 4)
        where, byte = draw.choice(
            (
                (at + 1 + draw.randrange(4), byte),
                (at + 2 + 2 * draw.randrange(2), draw.randrange(256)),  # sizes below 256
                (at + draw.randrange(6), byte),
                (component + 1, factors),
                (component + 1, factors),
                (component + 2 * draw.randrange(2), byte),
            )
        )
    _set(file, where, byte)


def _lengthen_code(file: bytearray, count: int) -> None:
    """Make one code of a Huffman table longer, so that the table stays whole."""
    if count + 1 < len(file) and file[count] > 0 and file[count + 1] < 255:
        file[count] -= 1
        file[count + 1] += 1
