"""Photo-like JPEGs, made from numbers alone: hills or patches of colour, a thing before them, and sensor noise."""

from __future__ import annotations

import colorsys
import io
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Rng = np.random.Generator
Floats = NDArray[np.float32]

ENCODING, PIXELS = 0, 1  # the purposes of random streams: they share no number
FIELD_PX = 1024


@dataclass(frozen=True, slots=True)
class Encoding:
    """The file format of one image.

    height, width  pixels
    quality        quality as in Pillow and libjpeg, 1 to 100
    subsampling    as in Pillow: 0 for 4:4:4, 2 for 4:2:0; 0 for grey images
    grey           True for one component instead of three
    """

    height: int
    width: int
    quality: int
    subsampling: int
    grey: bool


def encoding(seed: int, index: int) -> Encoding:
    """Return how image ``index`` is stored: a function of (seed, index) alone.

    Two thirds of ImageNet's files are Flickr's 500-pixel version, 4:4:4 at quality 96. The others come from
    everywhere, in any size, mostly 4:2:0 and smaller per pixel.
    """
    rng = np.random.default_rng((seed, index, ENCODING))
    upright, grey = rng.random() < 0.27, bool(rng.random() < 0.02)
    if rng.random() < 0.67:
        usual = rng.choice((375, 333, 334, 500, 0), p=(0.41, 0.3, 0.1, 0.02, 0.17))
        long, short = 500, int(usual) or int(rng.integers(280, 450))
        quality, subsampling = 96, 0
    else:
        pixels = float(np.clip(rng.lognormal(np.log(165_000), 0.8), 9_000, 2_600_000))
        aspect = rng.choice((4 / 3, 3 / 2, 1.0, rng.uniform(1, 2)), p=(0.4, 0.25, 0.1, 0.25))
        long, short = round((pixels * aspect) ** 0.5), round((pixels / aspect) ** 0.5)
        quality = int(rng.choice((70, 75, 80, 85, 90, 95, 98), p=(0.1, 0.27, 0.22, 0.15, 0.13, 0.1, 0.03)))
        subsampling = 2 if rng.random() < 0.67 and not grey else 0
    height, width = (long, short) if upright else (short, long)
    return Encoding(height, width, quality, subsampling, grey)


def jpeg(seed: int, index: int) -> bytes:
    """Return the JPEG file of image ``index``, as bytes."""
    how = encoding(seed, index)
    image = Image.fromarray(photo(seed, index, how.height, how.width))
    if how.grey:
        image = image.convert("L")
    file = io.BytesIO()
    image.save(file, "JPEG", quality=how.quality, subsampling=how.subsampling)
    return file.getvalue()


def photo(seed: int, index: int, height: int, width: int) -> NDArray[np.uint8]:
    """Return one photo's pixels, (height, width, 3) uint8 RGB: a function of the arguments alone.

    ``index % 10`` decides the shape of the thing in front, so that labels made that way can be learnt. The same
    NumPy and Pillow on the same kind of CPU give the same bytes.
    """
    rng = np.random.default_rng((seed, index, PIXELS))
    unit = np.float32(min(height, width))
    y = np.arange(height, dtype=np.float32)[:, None] / unit
    x = np.arange(width, dtype=np.float32)[None, :] / unit
    rough = min(0.5, rng.lognormal(-1.7, 0.8))  # decides how many bytes the file takes
    sky = y / y[-1, 0] if height > 1 else y
    image = 0.08 * _window(rng, 1.8, height, width) + _colour(rng, 0.6) * (1 - sky)
    image += _colour(rng, 0.6, 0.1) * sky
    horizon, hilly = rng.uniform(0.2, 0.7), rng.random() < 0.6
    for layer in range(int(rng.integers(1, 5))):  # each nearer than those before
        ridge = horizon + 0.13 * layer + 0.06 * _window(rng, 1.9, 1, width)
        level = rng.normal(0.4, 0.7) - _window(rng, 2.0, height, width)
        depth = (y - ridge if hilly else -0.2 * level) * unit
        _cover(rng, image, _colour(rng, 0.1, 0.25, 0.3, 0.6), np.clip(depth, 0, 1), rough)
    _subject(rng, image, index % 10, y, x, rough)
    noise = min(0.12, rng.lognormal(-4.3, 0.8))
    image += noise * _window(rng, 0.0, height, width)
    image += noise / 2 * np.stack([_window(rng, 0.0, height, width) for _ in range(3)])
    return np.ascontiguousarray(np.clip(image * 255 + 0.5, 0, 255).astype(np.uint8).transpose(1, 2, 0))


@cache
def _field(slope: float) -> Floats:
    """Noise whose amplitude falls as 1/f**slope, (FIELD_PX, FIELD_PX) of mean 0 and deviation 1; periodic."""
    white = np.random.default_rng(int(10 * slope)).standard_normal((FIELD_PX, FIELD_PX), np.float32)
    frequency = np.hypot(np.fft.fftfreq(FIELD_PX)[:, None], np.fft.rfftfreq(FIELD_PX)[None, :])
    frequency[0, 0] = np.inf  # so that the mean is 0
    lens = np.exp(-((frequency / 0.4) ** 4))
    field = np.fft.irfft2(np.fft.rfft2(white) * frequency**-slope * lens)
    return np.asarray(field / field.std(), np.float32)


def _window(rng: Rng, slope: float, height: int, width: int) -> Floats:
    """Return a random window of a field, (height, width)."""
    top, left = rng.integers(FIELD_PX, size=2)
    rows, columns = np.arange(top, top + height), np.arange(left, left + width)
    return _field(slope).take(rows, 0, mode="wrap").take(columns, 1, mode="wrap")


def _colour(rng: Rng, *hues: float) -> Floats:
    """Return a muted colour, (3, 1, 1), near one of ``hues``; of any hue if there are none."""
    hue = (rng.choice(hues) + rng.normal(0, 0.04)) % 1 if hues else rng.random()
    red_green_blue = colorsys.hsv_to_rgb(hue, rng.uniform(0.05, 0.55), rng.uniform(0.25, 0.85))
    return np.array(red_green_blue, np.float32)[:, None, None]


def _cover(rng: Rng, image: Floats, colour: Floats, alpha: Floats, rough: float) -> None:
    """Lay a rough surface over ``image``, (3, h, w), where ``alpha``, (h, w), is 1."""
    surface = _window(rng, float(rng.choice((0.7, 1.0, 1.3))), *image.shape[1:])
    image += alpha * (colour * (1 + rough * surface) - image)


def _subject(rng: Rng, image: Floats, kind: int, y: Floats, x: Floats, rough: float) -> None:
    """Draw a lit thing of 0 to 5 lobes, striped for every other kind."""
    size, turn = rng.uniform(0.2, 0.4), rng.normal(0, 0.15)
    down, across = y - rng.uniform(0.4, 0.6) * y[-1, 0], x - rng.uniform(0.4, 0.6) * x[0, -1]
    angle, distance = np.arctan2(down, across) + turn, np.hypot(down, across)
    lobes = (0, 2, 3, 4, 5)[kind // 2]
    edge = size * (1 + 0.35 * np.cos(lobes * angle))
    shade = 1 - 0.3 * (distance / size) ** 2 - 0.4 * (down + across)
    if kind % 2:
        shade = shade * (1 + 0.5 * np.sign(np.sin(40 * (down + turn * across))))
    alpha = np.clip((edge - distance) * min(image.shape[1:]), 0, 1)
    _cover(rng, image, _colour(rng) * np.clip(shade, 0.1, 1.4), alpha, rough)
