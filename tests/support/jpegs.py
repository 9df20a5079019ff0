"""Images that tests need: JPEGs of every kind that Pillow reads, odd ones among them.

Pillow writes few of the samplings, colour codings and scan orders that decoders meet, so ``encode`` is a small
JPEG encoder of its own: Huffman codes that are all of one length, no optimisation, any sampling factors.
"""

from __future__ import annotations

import base64
import functools
import io
import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from standpipe.spec import UInt8Array

BLOCK = 8
# Coefficients from low to high frequency: diagonal by diagonal, down and up in turn.
ZIGZAG = sorted(range(64), key=lambda i: (i // 8 + i % 8, i // 8 if (i // 8 + i % 8) % 2 else i % 8))
AC_SYMBOLS = [0x00, 0xF0] + [run << 4 | size for run in range(16) for size in range(1, 11)]
DC_SYMBOLS = list(range(12))


@dataclass(frozen=True, kw_only=True)
class Coding:
    """The settings with which ``encode`` writes an image.

    factors   (horizontal, vertical) sampling factors of each component
    scans     ``"one"``: baseline; ``"separate"``: one scan per component; ``"progressive"``: DC, then AC per
              component; ``"dc only"``: of these the first, as in a file whose sender stopped
    restart   MCUs between restart markers; 0: none
    adobe     the transform that an Adobe marker states: 0 as is, 1 YCbCr, 2 YCCK; None: no marker
    ids       component identifiers; default 1, 2, …
    step      quantisation of every coefficient
    """

    factors: tuple[tuple[int, int], ...] = ((1, 1), (1, 1), (1, 1))
    scans: str = "one"
    restart: int = 0
    adobe: int | None = None
    ids: bytes = b"\1\2\3\4"
    step: int = 24


class Bits:
    """Entropy-coded bits, with their stuffing."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def put(self, value: int, count: int) -> None:
        if count:
            self.parts.append(f"{value:0{count}b}")

    def take(self) -> bytes:
        """Everything so far, filled up with ones to whole bytes."""
        text = "".join(self.parts)
        self.parts.clear()
        text += "1" * (-len(text) % 8)
        return int("0" + text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")

    def put_number(self, value: int) -> None:
        """The bits after a symbol that states their count."""
        size = abs(value).bit_length()
        self.put(value if value >= 0 else value + (1 << size) - 1, size)


def encode(samples: UInt8Array, coding: Coding) -> bytes:
    """A JPEG of (H, W, components) ``samples``, which are in the file's own colour coding (YCbCr, say)."""
    height, width, num = samples.shape
    most_h, most_v = max(h for h, _ in coding.factors), max(v for _, v in coding.factors)
    across, down = -(-width // (BLOCK * most_h)), -(-height // (BLOCK * most_v))
    blocks = [
        _blocks(samples[..., c], h, v, most_h, most_v, across, down, coding.step)
        for c, (h, v) in enumerate(coding.factors)
    ]
    # Blocks of each component in a scan of its own: without those that only fill up the last MCU.
    own = [(-(-height * v // (BLOCK * most_v)), -(-width * h // (BLOCK * most_h))) for h, v in coding.factors]
    out = [b"\xff\xd8"]
    if coding.adobe is not None:
        out.append(_segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, coding.adobe)))
    out.append(_segment(0xDB, bytes([0]) + bytes([coding.step]) * 64))
    frame = b"".join(bytes([coding.ids[c], h << 4 | v, 0]) for c, (h, v) in enumerate(coding.factors))
    start = 0xC2 if coding.scans in ("progressive", "dc only") else 0xC0
    out.append(_segment(start, struct.pack(">BHHB", 8, height, width, num) + frame))
    out.append(_table(0x00, 4, DC_SYMBOLS) + _table(0x10, 8, AC_SYMBOLS))
    if coding.restart:
        out.append(_segment(0xDD, struct.pack(">H", coding.restart)))
    together = list(range(num))
    alone = [[c] for c in together]
    match coding.scans:
        case "one":
            scans = [(together, 0, 63)]
        case "separate":
            scans = [(group, 0, 63) for group in alone]
        case "progressive":
            scans = [(together, 0, 0)] + [(group, 1, 63) for group in alone]
        case _:
            scans = [(together, 0, 0)]
    for group, first, last in scans:
        out.append(_scan_header(coding, group, first, last))
        order = _mcus(coding.factors, group, across, down, own)
        out.append(_scan(blocks, order, first, last, coding.restart))
    return b"".join([*out, b"\xff\xd9"])


def _segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def _table(number: int, length: int, symbols: Sequence[int]) -> bytes:
    counts = bytearray(16)
    counts[length - 1] = len(symbols)
    return _segment(0xC4, bytes([number]) + bytes(counts) + bytes(symbols))


def _scan_header(coding: Coding, group: Sequence[int], first: int, last: int) -> bytes:
    body = b"".join(bytes([coding.ids[c], 0]) for c in group)
    return _segment(0xDA, bytes([len(group)]) + body + bytes([first, last, 0]))


def _dct() -> NDArray[np.float64]:
    k, n = np.mgrid[:BLOCK, :BLOCK]
    basis = np.cos((2 * n + 1) * k * np.pi / (2 * BLOCK)) / 2
    basis[0] /= np.sqrt(2)
    return basis


def _blocks(
    plane: UInt8Array, h: int, v: int, most_h: int, most_v: int, across: int, down: int, step: int
) -> NDArray[np.int64]:
    """(rows, columns, 64) quantised coefficients in zigzag order, of whole MCUs."""
    height, width = down * BLOCK * most_v, across * BLOCK * most_h
    padded = np.pad(plane, ((0, height - plane.shape[0]), (0, width - plane.shape[1])), mode="edge")
    # Not averaged: a sample is the first of the pixels that it stands for, which keeps colours sharp.
    rows = np.arange(down * BLOCK * v) * most_v // v
    columns = np.arange(across * BLOCK * h) * most_h // h
    small = padded[rows][:, columns].astype(np.float64) - 128
    tiles = small.reshape(down * v, BLOCK, across * h, BLOCK).swapaxes(1, 2)
    basis = _dct()
    frequencies = np.rint(basis @ tiles @ basis.T / step).astype(np.int64)
    return frequencies.reshape(down * v, across * h, 64)[..., ZIGZAG]


def _mcus(
    factors: Sequence[tuple[int, int]],
    group: Sequence[int],
    across: int,
    down: int,
    own: Sequence[tuple[int, int]],
) -> Iterator[list[tuple[int, int, int]]]:
    """(component, row, column) of the blocks of each MCU of a scan."""
    if len(group) == 1:
        rows, columns = own[group[0]]
        yield from ([(group[0], y, x)] for y in range(rows) for x in range(columns))
        return
    for y in range(down):
        for x in range(across):
            yield [
                (c, y * factors[c][1] + j, x * factors[c][0] + i)
                for c in group
                for j in range(factors[c][1])
                for i in range(factors[c][0])
            ]


def _scan(
    blocks: Sequence[NDArray[np.int64]],
    order: Iterator[list[tuple[int, int, int]]],
    first: int,
    last: int,
    restart: int,
) -> bytes:
    bits, out = Bits(), bytearray()
    previous = [0] * len(blocks)
    code = {symbol: place for place, symbol in enumerate(AC_SYMBOLS)}
    for number, mcu in enumerate(order):
        if restart and number and number % restart == 0:
            out += bits.take() + bytes([0xFF, 0xD0 + (number // restart - 1) % 8])
            previous = [0] * len(blocks)
        for c, row, column in mcu:
            block = blocks[c][row, column].tolist()
            if first == 0:
                difference = block[0] - previous[c]
                previous[c] = block[0]
                bits.put(abs(difference).bit_length(), 4)
                bits.put_number(difference)
            _put_ac(bits, code, block[max(first, 1) : last + 1])
    return bytes(out + bits.take())


def _put_ac(bits: Bits, code: Mapping[int, int], values: Sequence[int]) -> None:
    run = 0
    for value in values:
        if value == 0:
            run += 1
            continue
        while run > 15:
            bits.put(code[0xF0], 8)
            run -= 16
        bits.put(code[run << 4 | abs(value).bit_length()], 8)
        bits.put_number(value)
        run = 0
    if run:
        bits.put(code[0x00], 8)


def photo(height: int, width: int, *, channels: int = 3, seed: int = 0) -> UInt8Array:
    """(height, width, channels): smooth colours, edges and grain, so that every neighbour matters."""
    draw = np.random.default_rng([seed, height, width, channels])
    y, x = np.mgrid[:height, :width] / 16.0
    layers = []
    for _ in range(channels):
        a, b, c, d = draw.uniform(-1, 1, 4)
        wave = np.sin(a * x + b * y) + np.sin(c * x * y / 9 + d * y) + np.sign(np.sin(d * x + a * y))
        layers.append(128 + 38 * wave + draw.normal(0, 9, (height, width)))
    return np.clip(np.stack(layers, axis=-1), 0, 255).astype(np.uint8)


def saved(pixels: UInt8Array, file_format: str = "JPEG", mode: str | None = None, **options: object) -> bytes:
    """``pixels`` as Pillow writes them."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    out = io.BytesIO()
    (image.convert(mode) if mode else image).save(out, file_format, **options)
    return out.getvalue()


FULL = (1, 1)
# As jpegtran -arithmetic wrote it: an encoder of its own would be as long as all that is here.
ARITHMETIC = (
    "|JeWF01!$>Nk#wx0RR9200961|JwjV02>k%7Zed27Zw*D92+1gLMtdGB`8rkJupIGRb^yfRb5+Zc$tA}agcLcU4^xVke;Kft*d8%yve$z$C"
    ";?Br2okP3kU!Z02l!Q5di<p00saM5C#9*00;pA002J#{{TKn4@N5TnsxVT9&K>W7L!Z%!XdPn|Je"
)
SAMPLINGS = {
    "4:4:4": (1, 1),
    "4:2:2": (2, 1),
    "4:2:0": (2, 2),
    "4:1:1": (4, 1),
    "4:4:0": (1, 2),
    "4:1:0": (4, 2),
}
ODD_SAMPLINGS = {
    "1x4": ((1, 4), FULL, FULL),
    "3x1": ((3, 1), FULL, FULL),
    "chroma in both": ((2, 2), (2, 1), (1, 2)),
    "chroma finer than luma": (FULL, (2, 2), (2, 2)),
    "2x1 all": ((2, 1), (2, 1), (2, 1)),
    "4:2:2 doubled": ((2, 2), (1, 2), (1, 2)),
    "three widths": ((4, 1), (2, 1), FULL),
}


@functools.cache
def kinds(height: int, width: int) -> Mapping[str, bytes]:
    """One JPEG of this size of every kind, by name."""
    rgb = photo(height, width)
    grey, four = photo(height, width, channels=1), photo(height, width, channels=4)
    every = itertools.chain(_by_pillow(rgb, grey), _by_hand(rgb, four), _odd(rgb, grey, four))
    return MappingProxyType(dict(every))


def _by_pillow(rgb: UInt8Array, grey: UInt8Array) -> Iterator[tuple[str, bytes]]:
    for name in ("4:4:4", "4:2:2", "4:2:0"):
        yield name, saved(rgb, subsampling=name, quality=90)
        yield f"{name} progressive", saved(rgb, subsampling=name, quality=80, progressive=True)
        yield f"{name} restart markers", saved(rgb, subsampling=name, quality=95, restart_marker_blocks=1)
    yield "4:2:0 restart rows", saved(rgb, subsampling="4:2:0", restart_marker_rows=1)
    yield "quality 1", saved(rgb, quality=1)
    yield "quality 100", saved(rgb, quality=100)
    yield "grey", saved(grey)
    yield "grey progressive", saved(grey, progressive=True)
    yield "CMYK", saved(rgb, mode="CMYK")
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "EXIF rotated", saved(rgb, exif=exif)
    yield "zeros behind it", saved(rgb) + bytes(100)
    yield "text behind it", saved(rgb) + b"and something else"
    yield "two pictures", saved(rgb, "MPO", save_all=True, append_images=[Image.fromarray(rgb[::-1])])


def _by_hand(rgb: UInt8Array, four: UInt8Array) -> Iterator[tuple[str, bytes]]:
    ycc = np.asarray(Image.fromarray(rgb).convert("YCbCr"))
    for name, first in SAMPLINGS.items():
        three = Coding(factors=(first, FULL, FULL))
        yield f"{name} by hand", encode(ycc, three)
        yield f"{name} by hand, restarts", encode(ycc, replace(three, restart=3))
        yield f"{name} separate scans", encode(ycc, replace(three, scans="separate"))
        yield f"{name} progressive by hand", encode(ycc, replace(three, scans="progressive"))
        if name != "4:1:0":  # at most ten blocks make an MCU
            yield f"YCCK {name}", encode(four, Coding(factors=(first, FULL, FULL, first), adobe=2))
    for name, factors in ODD_SAMPLINGS.items():
        yield name, encode(ycc, Coding(factors=factors))


def _odd(rgb: UInt8Array, grey: UInt8Array, four: UInt8Array) -> Iterator[tuple[str, bytes]]:
    for across, down in ((1, 1), (2, 2), (3, 1)):
        yield f"grey sampled {across}x{down}", encode(grey, Coding(factors=((across, down),)))
    yield "RGB by Adobe transform 0", encode(rgb, Coding(adobe=0))
    yield "RGB by its identifiers", encode(rgb, Coding(ids=b"RGB"))
    yield "RGB subsampled", encode(rgb, Coding(factors=((2, 2), FULL, FULL), adobe=0))
    cmyk = Coding(factors=(FULL,) * 4, adobe=0)
    yield "CMYK by hand", encode(four, cmyk)
    yield "CMYK without a marker", encode(four, replace(cmyk, adobe=None))
    yield "CMYK progressive", encode(four, replace(cmyk, scans="progressive"))


def lossless(grey: UInt8Array) -> bytes:
    """A lossless JPEG of (height, width) ``grey``: each sample is coded as its difference to the one before it."""
    values = grey.astype(int)
    before = np.empty_like(values)
    before[:, 1:], before[1:, 0], before[0, 0] = values[:, :-1], values[:-1, 0], 128
    bits = Bits()
    for difference in (values - before).ravel().tolist():
        bits.put(abs(difference).bit_length(), 4)
        bits.put_number(difference)
    frame = struct.pack(">BHHB", 8, *grey.shape, 1) + bytes([1, 0x11, 0])
    header = _segment(0xC3, frame) + _table(0x00, 4, range(12)) + _segment(0xDA, bytes([1, 1, 0, 1, 0, 0]))
    return b"\xff\xd8" + header + bits.take() + b"\xff\xd9"


def arithmetic() -> bytes:
    """A JPEG of 24 × 16 pixels in arithmetic coding."""
    return base64.b85decode(ARITHMETIC)


def marked(data: bytes, marker: int) -> bytes:
    """The JPEG with another start-of-frame marker: 0xC0 is baseline."""
    return data.replace(b"\xff\xc0", bytes([0xFF, marker]), 1)


def with_size(data: bytes, height: int, width: int) -> bytes:
    """The baseline JPEG with another size in its header."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[at + 4 :]


def with_precision(data: bytes, bits: int) -> bytes:
    """The baseline JPEG with other bits per sample in its header."""
    at = data.index(b"\xff\xc0") + 4
    return data[:at] + bytes([bits]) + data[at + 1 :]


def without_tables(data: bytes, marker: int) -> bytes:
    """The JPEG without its segments of one kind: 0xC4 Huffman tables, 0xDB quantisation tables."""
    out, at = data[:2], 2
    while data[at + 1] != 0xDA:
        length = 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] != marker:
            out += data[at : at + length]
        at += length
    return out + data[at:]


def scan_bomb(side: int, scans: int) -> bytes:
    """A grey progressive JPEG of ``side`` × ``side`` zeros whose scans, each over all blocks, take few bytes."""
    blocks = (-(-side // BLOCK)) ** 2
    frame = struct.pack(">BHHB", 8, side, side, 1) + bytes([1, 0x11, 0])
    # One code each: no difference; a run of 2^14 and more blocks without a coefficient, and one block.
    tables = _table(0x00, 1, [0x00]) + _table(0x10, 2, [0xE0, 0x00])
    out = [b"\xff\xd8", _segment(0xDB, bytes([0]) + bytes([1]) * 64), _segment(0xC2, frame), tables]
    out += [_segment(0xDA, bytes([1, 1, 0, 0, 0, 0])), bytes(-(-blocks // 8))]
    bits = Bits()
    for run in [32767] * (blocks // 32767):
        bits.put(0, 2)
        bits.put(run - (1 << 14), 14)
    for _ in range(-(-(blocks % 32767) // (1 << 14))):
        bits.put(0, 16)
    coded = bits.take()
    for number in range(scans - 1):
        high, low = (0, 13) if number == 0 else (max(14 - number, 1), max(13 - number, 0))
        out += [_segment(0xDA, bytes([1, 1, 0, 1, 63, high << 4 | low])), coded]
    return b"".join([*out, b"\xff\xd9"])
