"""Choose sizes and JPEG settings of synthetic photos, distributed as in ImageNet."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from standpipe.cli.synth.pixels import photo

FILE_SETTINGS = 0  # the purpose of this random stream


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
    rng = np.random.default_rng((seed, index, FILE_SETTINGS))
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
