"""Boxes, class names and keypoints over the picture of a sample."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from standpipe.batch.instances import VALID_INSTANCES
from standpipe.jobs.show.pixels import IGNORED, class_colours
from standpipe.spec import MASKS, AnyArray, Float32Array, Int64Array, UInt8Array

if TYPE_CHECKING:
    from PIL import Image, ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

TEXT_PX, NAME_PX, POINT_PX, LINE_PX = 12, 15, 3, 2
COVERED = 110  # of 255, by which the colour of a mask covers the picture
LEAST_NAME_PX = 90  # a longer name is shortened to its box, half of the picture, or this
Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """The n instances of a picture, of which none has an empty box, and the largest is the first.

    boxes   (n, 4) xyxy in pixels of the picture
    labels  (n,) class numbers, which give the colours
    names   (n,) class names; may be empty
    points  (n, K, 3) x, y and visibility of keypoints; K may be 0
    bones   numbers of points between which lines are drawn
    masks   (H, W, 4) colours of masks, and how much they cover; None without any
    """

    boxes: Float32Array
    labels: Int64Array
    names: Sequence[str]
    points: Float32Array
    bones: Sequence[tuple[int, int]]
    masks: UInt8Array | None = None

    def draw(self, picture: Image.Image, scale: float) -> None:
        """Draw on a picture that is ``scale`` times as large as the one in whose pixels the boxes are."""
        from PIL import Image, ImageDraw, ImageFont

        if self.masks is not None:
            layer = Image.fromarray(self.masks).resize(picture.size, Image.Resampling.NEAREST)
            picture.paste(layer, mask=layer)
        font = ImageFont.load_default(TEXT_PX)
        pen = ImageDraw.Draw(picture)
        colours: list[Colour] = [(r, g, b) for r, g, b in class_colours()[self.labels % IGNORED].tolist()]
        last = picture.width - 1, picture.height - 1
        for box, colour in zip(self.boxes * scale, colours, strict=True):
            left, top, right, bottom = np.clip(np.rint(box), 0, [*last, *last]).tolist()
            pen.rectangle((left, top, right, bottom), outline=colour, width=LINE_PX)
        for points, colour in zip(self.points, colours, strict=True):
            places = [(x * scale, y * scale) if seen else None for x, y, seen in points.tolist()]
            for one, other in self.bones:
                if (begin := places[one]) is not None and (end := places[other]) is not None:
                    pen.line((begin, end), colour, LINE_PX)
            for place in places:
                if place is not None:
                    pen.circle(place, POINT_PX, colour, "white")
        for (left, top, right, _), name, colour in zip(self.boxes * scale, self.names, colours, strict=True):
            if name:
                room_px = min(max(right - left, picture.width / 2, LEAST_NAME_PX), picture.width)
                text = fitted(name, font, room_px - 2 * LINE_PX)
                width = math.ceil(font.getlength(text)) + 2 * LINE_PX
                x = min(max(round(left), 0), picture.width - width)
                y = round(top) - NAME_PX if top >= NAME_PX else round(top)
                pen.rectangle((x, y, x + width, y + NAME_PX), colour)
                pen.text((x + LINE_PX, y + NAME_PX // 2), text, _ink(colour), font, anchor="lm")


def overlay_of(
    sample: Mapping[str, AnyArray],
    prefix: str,
    classes: tuple[str, ...] | None,
    bones: Sequence[tuple[int, int]],
) -> Overlay:
    """Return the instances of one of a sample's images.

    prefix   of the names of their fields
    classes  class names by label; None if there are none
    """
    boxes = np.asarray(sample[f"{prefix}boxes"], np.float32)
    sides = boxes[:, 2:] - boxes[:, :2]
    valid = np.asarray(sample.get(prefix + VALID_INSTANCES, True), np.bool_)
    order = np.argsort(-sides.prod(axis=1), kind="stable")
    kept = order[(valid & (sides > 0).all(axis=1))[order]]
    labels = sample.get(f"{prefix}labels")
    points = np.asarray(sample.get(f"{prefix}keypoints", np.zeros((len(boxes), 0, 3))), np.float32)
    numbers = np.zeros(len(boxes), np.int64) if labels is None else labels.astype(np.int64)
    names = [class_name(label, classes) if labels is not None else "" for label in numbers[kept].tolist()]
    masks: UInt8Array | None = None
    if (found := sample.get(prefix + MASKS)) is not None:
        of_numbers = np.zeros((len(boxes) + 1, 4), np.uint8)
        of_numbers[1:, :3], of_numbers[1:, 3] = class_colours()[numbers % IGNORED], COVERED
        masks = of_numbers[found.astype(np.int64)]
    return Overlay(boxes[kept], numbers[kept], names, points[kept], bones, masks)


def class_name(label: int, classes: Sequence[str] | None) -> str:
    """Return the name of a class, or its number as text if it has none."""
    return (classes[label] if classes is not None and 0 <= label < len(classes) else "") or str(label)


def _ink(colour: Colour) -> str:
    """Return the colour of text that can be read on ``colour``."""
    red, green, blue = colour
    return "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 110 else "white"


def fitted(text: str, font: Font, room_px: float) -> str:
    """Return ``text`` in one line, or its beginning and its end around an ellipsis: a name's end says most."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)

    def keeping(letters: int) -> str:
        head = letters // 3
        return f"{text[:head]}…{text[len(text) - (letters - head) :]}"

    if font.getlength(text) <= room_px:
        return text
    most = min(len(text), 400)
    fitting = bisect.bisect(range(1, most), room_px, key=lambda letters: font.getlength(keeping(letters)))
    return keeping(max(1, fitting))
