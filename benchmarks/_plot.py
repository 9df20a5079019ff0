"""A line chart as PNG, drawn with Pillow, so that a benchmark needs no plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 900, 480
LEFT, TOP, RIGHT, BOTTOM = 80, 50, 30, 60
COLOURS = ("#1f5fa8", "#d1701c", "#3a8f4c", "#8a4fa3")
GREY, DARK = "#d8d8d8", "#333333"
NAME_PX = 18

Points = Sequence[tuple[float, float]]


def line_chart(path: Path, title: str, x: str, y: str, curves: Mapping[str, Points]) -> None:
    """Draw curves of (x, y) points on axes that begin at 0, and save the image at ``path``."""
    most_x = max(point[0] for points in curves.values() for point in points)
    step_x, step_y = (
        _step(max(point[axis] for points in curves.values() for point in points)) for axis in (0, 1)
    )
    most_y = step_y * math.ceil(max(point[1] for points in curves.values() for point in points) / step_y)
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(14)

    def at(point: tuple[float, float]) -> tuple[float, float]:
        across = LEFT + point[0] / most_x * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - point[1] / most_y * (HEIGHT - TOP - BOTTOM)

    for k in range(round(most_y / step_y) + 1):
        _, height = at((0, k * step_y))
        draw.line([(LEFT, height), (WIDTH - RIGHT, height)], fill=GREY)
        draw.text((LEFT - 8, height), f"{k * step_y:,g}", DARK, font, anchor="rm")
    for k in range(math.floor(most_x / step_x) + 1):
        across, _ = at((k * step_x, 0))
        draw.text((across, HEIGHT - BOTTOM + 8), f"{k * step_x:,g}", DARK, font, anchor="mt")
    draw.text((LEFT, 12), title, DARK, font)
    draw.text((WIDTH - RIGHT, HEIGHT - 12), x, DARK, font, anchor="rb")
    draw.text((LEFT - 8, TOP - 12), y, DARK, font, anchor="rb")
    taken: list[float] = []  # heights of names that are drawn, so that no two overlap
    for (name, points), colour in zip(curves.items(), COLOURS, strict=False):
        draw.line([at(point) for point in points], fill=colour, width=3)
        across, height = at(points[-1])
        while any(abs(height - other) < NAME_PX for other in taken):
            height -= 1
        taken.append(height)
        draw.text((min(across, WIDTH - RIGHT), height - 6), name, colour, font, anchor="rb")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def _step(most: float) -> float:
    """Return a round distance between grid lines that divides ``most`` into at most eight parts."""
    power = 10 ** math.floor(math.log10(most))
    return next(power * part for part in (0.2, 0.25, 0.5, 1) if most / (power * part) <= 8)
