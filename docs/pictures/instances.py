"""Draw docs/images/instances.png, the way of one image's boxes and keypoints:  python docs/pictures/instances.py"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

import standpipe as sp

OUT = Path(__file__).parents[1] / "images" / "instances.png"
WIDTH, HEIGHT, LARGER = 264, 198, 4  # pixels; the scene is drawn larger, for smooth edges
CAPTION = 46  # pixels below the pictures, with the path of the file
NAMES = ("house", "tree", "sun", "person")
BOXES = {"house": (18, 66, 98, 150), "tree": (196, 40, 246, 160), "sun": (130, 12, 166, 48)}
POINTS = {  # places and names of the person's keypoints
    "nose": (146, 88),
    "left_hand": (172, 112),
    "right_hand": (120, 112),
    "left_hip": (152, 134),
    "right_hip": (140, 134),
    "left_foot": (160, 172),
    "right_foot": (132, 172),
}
BONES = [("nose", "left_hand"), ("nose", "right_hand"), ("nose", "left_hip"), ("nose", "right_hip")]
BONES += [("left_hip", "right_hip"), ("left_hip", "left_foot"), ("right_hip", "right_foot")]
PERSON = (114, 70, 178, 178)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        source = stored(Path(folder))
        transforms = (
            sp.RandomResizedCrop((HEIGHT, WIDTH), scale=(0.4, 0.5)),
            sp.RandomHorizontalFlip(p=1),
            sp.Resize((132, 176)),
            sp.SanitizeBoundingBoxes(min_visibility=0.3),
        )
        sheet = sp.Pipeline(source).map(*transforms).show(1, steps=True).image
    sheet.crop((0, 0, sheet.width, sheet.height - CAPTION)).quantize(64).save(OUT, optimize=True)


def stored(folder: Path) -> sp.Coco:
    """Write the scene and its annotations."""
    scene().save(folder / "scene.png")
    numbers = list(POINTS)
    boxes = [{"category_id": 1 + NAMES.index(name), "bbox": wide(box)} for name, box in BOXES.items()]
    points = [value for place in POINTS.values() for value in (*place, 2)]
    boxes.append({"category_id": 1 + NAMES.index("person"), "bbox": wide(PERSON), "keypoints": points})
    skeleton = [[numbers.index(one) + 1, numbers.index(other) + 1] for one, other in BONES]
    content = {
        "images": [{"id": 1, "file_name": "scene.png", "width": WIDTH, "height": HEIGHT}],
        "annotations": [{"id": number, "image_id": 1, **each} for number, each in enumerate(boxes)],
        "categories": [
            {"id": 1 + number, "name": name, "keypoints": numbers, "skeleton": skeleton}
            for number, name in enumerate(NAMES)
        ],
    }
    (folder / "scene.json").write_text(json.dumps(content))
    return sp.Coco(folder, folder / "scene.json")


def wide(box: tuple[int, int, int, int]) -> list[int]:
    """Return a box as COCO's format has it."""
    left, top, right, bottom = box
    return [left, top, right - left, bottom - top]


def scene() -> Image.Image:
    """Draw a house, a tree, the sun and a person."""
    made = Image.new("RGB", (WIDTH * LARGER, HEIGHT * LARGER), (196, 222, 240))
    pen = ImageDraw.Draw(made)

    def at(*places: float) -> list[float]:
        return [place * LARGER for place in places]

    pen.rectangle(at(0, 146, WIDTH, HEIGHT), (150, 184, 128))
    pen.ellipse(at(*BOXES["sun"]), (250, 214, 110))
    pen.rectangle(at(26, 100, 90, 150), (214, 170, 140))
    pen.polygon(at(18, 100, 58, 66, 98, 100), (160, 84, 74))
    pen.rectangle(at(50, 122, 66, 150), (110, 80, 66))
    pen.rectangle(at(216, 100, 226, 160), (120, 88, 64))
    pen.ellipse(at(196, 40, 246, 112), (86, 136, 84))
    for begin, end in (((146, 98), "left_hand"), ((146, 98), "right_hand"), ((146, 98), "left_hip")):
        pen.line(at(*begin, *POINTS[end]), (70, 76, 104), 5 * LARGER)
    pen.polygon(at(138, 98, 154, 98, 156, 136, 136, 136), (90, 104, 150))
    for side in ("left", "right"):
        pen.line(at(*POINTS[f"{side}_hip"], *POINTS[f"{side}_foot"]), (70, 76, 104), 6 * LARGER)
    pen.ellipse(at(135, 72, 157, 98), (232, 196, 170))
    return made.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    main()
