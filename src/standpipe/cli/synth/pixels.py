"""Photo-like pixels, made from numbers alone.

Natural images are edges of objects of all sizes, with surfaces whose amplitude falls as 1/f, seen through a
lens and a noisy sensor. A photo is made in that order::

    setting  →  subject  →  light  →  exposure  →  lens  →  sensor

All of it is drawn from a few periodic noise fields, which are made once per process; a photo takes random
windows of them. Inside this module an image is planar, (3, h, w) float32 with 0 black and 1 white, because
NumPy runs three times faster over planes than over a last axis of 3.
"""

from __future__ import annotations

import colorsys
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from standpipe.cli.synth.fields import FIELD_PX, Floats, field_named, window
from standpipe.cli.synth.subjects import SUBJECTS, Part

Rng = np.random.Generator
Colour = tuple[float, float, float]

PIXELS = 1  # the purpose of this random stream, so that it shares no draw with an image's file settings


def photo(seed: int, index: int, height: int, width: int) -> NDArray[np.uint8]:
    """One photo's pixels, (height, width, 3) uint8 RGB: a function of the arguments alone.

    The subject is the one of ``index % 10``, so labels made that way can be learnt. The same NumPy and Pillow
    on the same kind of CPU give the same bytes.
    """
    rng = np.random.default_rng((seed, index, PIXELS))
    softness = max(1.0, 0.9 + 0.9 * rng.random() ** 2)
    h, w = max(1, round(height / softness)), max(1, round(width / softness))
    image = _setting(rng, h, w)
    _draw_subject(rng, image, SUBJECTS[index % len(SUBJECTS)])
    _light(rng, image)
    _expose(rng, image)
    image = _resize(image, height, width)
    return _sense(rng, image)


def _material(rng: Rng, texture: str, h: int, w: int) -> Floats:
    """A surface, (h, w) float32: a texture, and the finer grain that things have when one looks closely."""
    return window(rng, texture, h, w) + np.float32(rng.uniform(0.1, 0.9)) * window(rng, "grain", h, w)


def _colour(rng: Rng, hue: float | None = None, saturation: float = 0.4, value: float = 0.5) -> Colour:
    """A colour near the given one; any hue if None. All in [0, 1]."""
    hue = rng.random() if hue is None else float(hue) + rng.normal(0, 0.03)
    saturation = float(np.clip(saturation * rng.lognormal(0, 0.3), 0, 1))
    return colorsys.hsv_to_rgb(hue % 1, saturation, float(np.clip(value * rng.lognormal(0, 0.2), 0.04, 1)))


def _planes(colour: Colour) -> Floats:
    return np.array(colour, np.float32)[:, None, None]


def _between(start: Colour, stop: Colour, weight: Floats) -> Floats:
    """Colours from ``start`` (weight 0) to ``stop`` (1), (3, h, w) for a weight of (h, w)."""
    span = _planes(stop) - _planes(start)
    return np.asarray(_planes(start) + span * weight, np.float32)


def _setting(rng: Rng, h: int, w: int) -> Floats:
    """Return the background of the subject, (3, h, w), out of focus more often than not."""
    blur = float(rng.choice((1.0, 1.4, 2.2, 4.0), p=(0.42, 0.2, 0.22, 0.16)))
    small_h, small_w = max(1, round(h / blur)), max(1, round(w / blur))
    draw = tuple(SETTINGS)[rng.choice(len(SETTINGS), p=tuple(SETTINGS.values()))]
    return _resize(draw(rng, small_h, small_w), h, w, Image.Resampling.BILINEAR)


def _landscape(rng: Rng, h: int, w: int) -> Floats:
    """Sky, hills, and ground that recedes."""
    horizon = round(h * rng.uniform(0.2, 0.65))
    image = _sky(rng, h, w)
    haze = image[:, max(0, horizon - 1), :1, None].copy()
    rows = np.arange(h, dtype=np.float32)[:, None]
    hue, hills = rng.choice((0.1, 0.25, 0.33, 0.58)), int(rng.integers(0, 4))
    for hill in range(hills):
        near = (hill + 1) / (hills + 1)
        line = (
            horizon - h * 0.22 * (1 - near) * rng.uniform(0.5, 1.2) + h * 0.04 * window(rng, "cloud", 1, w)[0]
        )
        line += (1 + 4 * near) * window(rng, "natural", 1, w)[0]
        colour = haze + (_planes(_colour(rng, hue, 0.35, 0.32)) - haze) * np.float32(near)
        shade = 1 + 0.25 * near * _material(rng, "natural", h, w)
        image += np.clip(rows - line, 0, 1) * (colour * shade - image)
    texture = str(rng.choice(("grain", "natural", "fur", "wave", "crack", "patch")))
    ground = _floor(
        rng, h - horizon, w, texture, _colour(rng, rng.choice((0.09, 0.12, 0.27, 0.3)), 0.4, 0.45)
    )
    image[:, horizon:] = ground
    _scatter(rng, image, int(rng.integers(0, 14)), top=horizon / h - 0.08)
    return image


def _sky(rng: Rng, h: int, w: int) -> Floats:
    down = np.linspace(0, 1, h, dtype=np.float32)[:, None] ** 0.8
    high = _colour(rng, 0.59, 0.5, 0.62)
    low = _colour(rng, rng.choice((0.08, 0.58)), 0.12, 0.88)
    image = _between(high, low, down)
    cloud = window(rng, "cloud", h, w) + 0.15 * window(rng, "relief", h, w)
    cover = np.clip(0.35 * cloud + rng.uniform(-0.6, 0.5), 0, 0.9)
    white = _planes(_colour(rng, 0.6, 0.03, 0.92))
    return np.asarray(image + cover * (white - image), np.float32)


def _floor(rng: Rng, h: int, w: int, texture: str, colour: Colour) -> Floats:
    """A textured plane that recedes upwards, (3, h, w): a window of a field seen in perspective."""
    down = (np.arange(h, dtype=np.float32) + 1) / max(1, h)
    distance = 1.15 / (0.15 + down)
    rows = (np.cumsum(distance**1.5) + rng.integers(FIELD_PX)).astype(np.int64) % FIELD_PX
    across = np.arange(w, dtype=np.float32) - w / 2
    columns = (distance[:, None] * across + rng.integers(FIELD_PX)).astype(np.int64) % FIELD_PX
    relief = field_named(texture)[rows[:, None], columns] * (0.32 / distance[:, None] ** 0.3)
    patches = 0.12 * window(rng, "cloud", h, w) + rng.uniform(0.02, 0.2) * window(rng, "grain", h, w)
    shade = (0.8 + 0.35 * down[:, None]) * np.maximum(0.1, 1 + relief + patches)
    return np.asarray(_planes(colour) * shade, np.float32)


def _foliage(rng: Rng, h: int, w: int) -> Floats:
    """Leaves over leaves, of all sizes."""
    hue = rng.choice((0.08, 0.22, 0.28, 0.33))
    dark, light = _colour(rng, hue, 0.5, 0.14), _colour(rng, hue, 0.5, 0.42)
    image = _between(dark, light, 0.5 + 0.3 * _material(rng, "patch", h, w))
    for _ in range(rng.integers(40, 100)):
        long = min(0.35, 0.045 * (1 - rng.random()) ** -0.6)
        x, y = rng.uniform(-0.1, 1.1, 2).tolist()
        part = Part(x, y, long, long * rng.uniform(0.2, 0.5), rng.uniform(0, np.pi))
        colour = _colour(rng, hue, 0.5, rng.uniform(0.2, 0.6))
        _draw_part(rng, image, part, colour, texture="relief", rough=0.06, relief=0.2)
    return image


def _surface(rng: Rng, h: int, w: int) -> Floats:
    """One material filling the view: sand, stone, fur, cloth, water."""
    texture = str(rng.choice(("natural", "relief", "grain", "fur", "wave", "crack", "patch")))
    colour, other = _colour(rng, None, 0.25, 0.45), _colour(rng, None, 0.25, 0.55)
    image = _between(colour, other, np.clip(0.5 + 0.4 * window(rng, "cloud", h, w), 0, 1))
    image *= 1 + rng.uniform(0.08, 0.3) * _material(rng, texture, h, w)
    _scatter(rng, image, int(rng.integers(0, 25)), top=0.0)
    return image


def _plain(rng: Rng, h: int, w: int) -> Floats:
    """A studio backdrop, or sky alone."""
    if rng.random() < 0.4:
        return _sky(rng, h, w)
    value = float(rng.choice((0.06, 0.4, 0.95)))
    colour = _colour(rng, None, 0.1, value)
    image = _planes(colour) * (1 + 0.1 * window(rng, "cloud", h, w))
    edge = round(h * rng.uniform(0.5, 0.9))
    image[:, edge:] *= rng.uniform(0.85, 1.1)
    return image


SETTINGS = {_landscape: 0.45, _foliage: 0.2, _surface: 0.22, _plain: 0.13}  # how often each is drawn


def _scatter(rng: Rng, image: Floats, count: int, top: float) -> None:
    """Draw ``count`` things of all sizes below ``top``, a share of the height; nearer ones are larger."""
    for y in np.sort(rng.uniform(top, 1.05, count)):
        size = min(0.2, 0.02 * (1 - rng.random()) ** -0.7) * (0.5 + y)
        angle, power = rng.normal(0, 0.3), int(rng.choice((2, 2, 2, 4)))
        part = Part(rng.uniform(-0.05, 1.05), y - size, size * rng.uniform(0.5, 1.6), size, angle, power)
        colour = _colour(rng, None, 0.4, rng.uniform(0.15, 0.8))
        texture = str(rng.choice(("natural", "relief", "grain", "crack", "patch")))
        _draw_part(
            rng, image, part, colour, texture, rough=rng.uniform(0, 0.25), relief=rng.uniform(0.04, 0.25)
        )


def _draw_subject(rng: Rng, image: Floats, parts: tuple[Part, ...]) -> None:
    """Draw a subject, placed, sized, turned, mirrored and coloured at random."""
    _, h, w = image.shape
    size = min(h, w) * rng.uniform(0.32, 0.72)
    x, y = rng.uniform(0.35, 0.65) * w, rng.uniform(0.42, 0.62) * h
    turn, mirror = rng.normal(0, 0.12), float(rng.choice((-1, 1)))
    cos, sin = math.cos(turn), math.sin(turn)
    main, hue = _colour(rng, None, 0.42, rng.uniform(0.3, 0.75)), rng.random()
    colours = (main, _colour(rng, hue, 0.4, 0.6), (0.05, 0.045, 0.04), (0.93, 0.92, 0.9))
    texture = str(rng.choice(("natural", "fur", "relief", "crack", "patch")))
    rough, relief = rng.uniform(0.01, 0.12), rng.uniform(0.05, 0.28)
    for part in parts:
        placed = Part(
            (x + size * (mirror * part.x * cos - part.y * sin)) / w,
            (y + size * (mirror * part.x * sin + part.y * cos)) / h,
            part.rx * size / min(h, w),
            part.ry * size / min(h, w),
            mirror * part.angle + turn,
            part.power,
            part.colour,
        )
        _draw_part(rng, image, placed, colours[part.colour], texture, rough, relief * (part.colour < 2))


def _reach(image: Floats, part: Part, grow: float) -> tuple[slice, slice, Floats, Floats] | None:
    """The rows and columns a part may touch, and each pixel's place in the part's own axes, 1 at its rim."""
    _, h, w = image.shape
    unit = min(h, w)
    rx, ry = max(0.6, part.rx * unit), max(0.6, part.ry * unit)
    cx, cy, cos, sin = part.x * w, part.y * h, np.cos(part.angle), np.sin(part.angle)
    across, down = grow * np.hypot(rx * cos, ry * sin), grow * np.hypot(rx * sin, ry * cos)
    if part.power != 2:
        across, down = grow * (abs(rx * cos) + abs(ry * sin)), grow * (abs(rx * sin) + abs(ry * cos))
    left, right = max(0, int(cx - across)), min(w, int(cx + across) + 2)
    top, bottom = max(0, int(cy - down)), min(h, int(cy + down) + 2)
    if left >= right or top >= bottom:
        return None
    x = np.arange(left, right, dtype=np.float32)[None, :] - np.float32(cx)
    y = np.arange(top, bottom, dtype=np.float32)[:, None] - np.float32(cy)
    along = x * np.float32(cos / rx) + y * np.float32(sin / rx)
    aside = y * np.float32(cos / ry) - x * np.float32(sin / ry)
    return slice(top, bottom), slice(left, right), along, aside


def _draw_part(
    rng: Rng, image: Floats, part: Part, colour: Colour, texture: str, rough: float, relief: float
) -> None:
    """Draw one shaded, textured shape. ``rough`` frays its rim, ``relief`` is the contrast of its surface."""
    reach = _reach(image, part, 1 + 2 * rough)
    if reach is None:
        return
    rows, columns, along, aside = reach
    radius = along * along + aside * aside if part.power == 2 else along**4 + aside**4
    surface = _material(rng, texture, *radius.shape)
    rim_px = min(part.rx, part.ry) * min(image.shape[1:]) * (0.5 if part.power == 2 else 0.25)
    alpha = np.clip((1 - radius + rough * surface) * max(0.6, rim_px), 0, 1)
    shade = 1.08 - 0.22 * np.minimum(radius, 1.5) + 0.2 * (along * np.float32(0.5) - aside)
    shade *= 1 + relief * surface
    region = image[:, rows, columns]
    for plane, tone in zip(region, colour, strict=True):
        plane += alpha * (tone * shade - plane)


def _light(rng: Rng, image: Floats) -> None:
    """Uneven light over the scene, and detail everywhere, mostly in brightness and a little in hue."""
    _, h, w = image.shape
    y = np.linspace(-1, 1, h, dtype=np.float32)[:, None]
    x = np.linspace(-1, 1, w, dtype=np.float32)[None, :]
    light = 1 + rng.normal(0, 0.12) * x + rng.normal(0, 0.1) * y - rng.uniform(0, 0.18) * (x * x + y * y)
    light += rng.uniform(0.02, 0.15) * window(rng, "cloud", h, w)
    detail = np.clip(0.4 + window(rng, "cloud", h, w), 0, 2)  # some parts of a photo are smooth
    detail *= window(rng, "grain", h, w)
    light += min(0.2, rng.lognormal(-3.55, 0.85)) * detail
    image *= light
    hue = rng.lognormal(-4.3, 0.5) * window(rng, "relief", h, w)
    image[0] += hue
    image[2] -= hue


def _resize(image: Floats, h: int, w: int, resampling: Image.Resampling = Image.Resampling.BICUBIC) -> Floats:
    """Resample (3, …, …) to (3, h, w)."""
    if image.shape[1:] == (h, w):
        return image
    planes = [Image.fromarray(plane).resize((w, h), resampling) for plane in image]
    return np.stack([np.asarray(plane, np.float32) for plane in planes])


def _expose(rng: Rng, image: Floats) -> None:
    """Bring brightness, contrast and colour to where photos have them.

    Mean brightness 0.46 ± 0.1, deviation 0.24 ± 0.05, colours about two thirds as strong as they were drawn.
    """
    luma = 0.3 * image[0] + 0.6 * image[1] + 0.1 * image[2]
    mean, deviation = float(luma.mean()), float(luma.std())
    contrast = np.float32(np.clip(rng.normal(0.245, 0.05) / max(0.03, deviation), 0.6, 2.2))
    colour = np.float32(min(1.5, rng.lognormal(-0.45, 0.4)) * contrast**-0.3)
    warmth = rng.normal(0.02, 0.03)
    target = np.clip(rng.normal(0.46, 0.1), 0.2, 0.75)
    bright = (luma - np.float32(mean)) * contrast + np.float32(target)
    for plane, cast in zip(image, (warmth, 0.0, -warmth), strict=True):
        plane -= luma
        plane *= contrast * colour
        plane += bright + np.float32(cast)


def _sense(rng: Rng, image: Floats) -> NDArray[np.uint8]:
    """Add the sensor's noise, in brightness more than in hue, and round to (H, W, 3) uint8."""
    _, h, w = image.shape
    level = min(0.12, rng.lognormal(-4.6, 0.8))
    shared = window(rng, "sensor", h, w) * np.float32(level)
    out = np.empty((h, w, 3), np.uint8)
    for channel, plane in enumerate(image):
        plane += shared
        plane += window(rng, "sensor", h, w) * np.float32(0.5 * level)
        out[:, :, channel] = np.clip(plane * 255 + 0.5, 0, 255)
    return out
