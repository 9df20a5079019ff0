"""Periodic noise fields with the spectra of natural surfaces, made once per process."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

FIELD_PX = 1024


def _spectrum(slope: float, stretch: float = 1.0, finest: float = 0.5) -> Floats:
    """Amplitudes as 1/f**slope up to ``finest``, of features ``stretch`` times as wide as high."""
    fy = np.fft.fftfreq(FIELD_PX).astype(np.float32)[:, None]
    fx = np.fft.rfftfreq(FIELD_PX).astype(np.float32)[None, :]
    radius = np.hypot(fy, fx * stretch)
    radius[0, 0] = 1.0
    amplitude: Floats = radius**-slope * np.exp(-((np.hypot(fy, fx) / finest) ** 4))
    amplitude[0, 0] = 0.0
    return amplitude


@cache
def field_named(name: str) -> Floats:
    """A periodic noise field, (FIELD_PX, FIELD_PX) float32 of mean 0 and deviation 1."""
    slope, stretch, finest = {
        "cloud": (1.9, 1.7, 0.2),
        "natural": (1.15, 1.0, 0.5),
        "relief": (1.4, 1.0, 0.5),
        "grain": (0.45, 1.0, 0.35),
        "fur": (0.75, 5.0, 0.4),
        "wave": (1.2, 0.2, 0.4),
        "crack": (1.6, 1.0, 0.5),
        "patch": (1.6, 1.0, 0.5),
        "sensor": (0.0, 1.0, 0.45),
    }[name]
    rng = np.random.default_rng([len(name), *name.encode()])
    white = np.fft.rfft2(rng.standard_normal((FIELD_PX, FIELD_PX), np.float32))
    field = np.fft.irfft2(white * _spectrum(slope, stretch, finest)).astype(np.float32)
    field /= field.std()
    if name == "crack":
        field = np.log(np.abs(field) + np.float32(0.03))
    elif name == "patch":
        field = np.tanh(9 * np.sin(4 * field)) + field
    field -= field.mean()
    field /= field.std()
    field.flags.writeable = False
    return field


def window(rng: np.random.Generator, name: str, h: int, w: int) -> Floats:
    """A random window of a field, (h, w) float32, mirrored at random; where larger than the field it repeats.

    Read-only, and mostly a view: copying windows took a third of a photo's time.
    """
    down, right, flips = rng.random(3).tolist()
    field = field_named(name)[:: 1 if flips < 0.5 else -1, :: 1 if flips % 0.5 < 0.25 else -1]
    y, x = int(down * max(1, FIELD_PX - h)), int(right * max(1, FIELD_PX - w))
    if max(h, w) <= FIELD_PX:
        return field[y : y + h, x : x + w]
    return field.take(np.arange(y, y + h), 0, mode="wrap").take(np.arange(x, x + w), 1, mode="wrap")
