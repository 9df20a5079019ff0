"""Draw the six places that a sample passes, docs/images/places.svg:  python docs/pictures/places.py"""

from __future__ import annotations

from html import escape
from pathlib import Path

PLACES = {
    "source": ("which records", "there are"),
    "order": ("which record is", "at position n"),
    "read": ("bytes from disk,", "ahead of need"),
    "transform": ("decode, crop,", "resize, flip"),
    "batch": ("rows in a slot of", "fixed memory"),
    "device": ("host or GPU", "arrays, tensors"),
}
BLUE, SLATE, LINE, FILL = "#2563eb", "#334155", "#94a3b8", "#eff6ff"
WIDTH, HEIGHT = 900, 210
BOX_WIDTH, BOX_HEIGHT, GAP, LEFT, TOP = 126, 84, 19, 24, 40


def text(x: float, y: float, words: str, *, size: int = 14, weight: str = "normal", fill: str = SLATE) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" fill="{fill}" '
        f'text-anchor="middle">{escape(words)}</text>'
    )


def picture() -> str:
    """Return the picture as SVG."""
    parts = []
    for number, (name, lines) in enumerate(PLACES.items()):
        left = LEFT + number * (BOX_WIDTH + GAP)
        middle = left + BOX_WIDTH / 2
        parts.append(
            f'<rect x="{left}" y="{TOP}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8" fill="{FILL}" '
            f'stroke="{BLUE}"/>'
        )
        parts.append(text(middle, TOP + 26, name, size=16, weight="bold", fill=BLUE))
        parts += [text(middle, TOP + 48 + 18 * row, line, size=13) for row, line in enumerate(lines)]
        if number:
            y = TOP + BOX_HEIGHT / 2
            parts.append(f'<path d="M{left - GAP + 2} {y:g}h{GAP - 8}" stroke="{LINE}" stroke-width="2"/>')
            parts.append(f'<path d="M{left - 7} {y - 5:g}l6 5l-6 5z" fill="{LINE}"/>')
    begin, end, y = LEFT, WIDTH - LEFT, TOP + BOX_HEIGHT + 20
    parts.append(
        f'<path d="M{begin} {y}v8h{end - begin}v-8" fill="none" stroke="{LINE}" stroke-width="1.5"/>'
    )
    parts.append(
        text(
            WIDTH / 2,
            y + 30,
            "one budget, memory=, and one recipe: the same batch with any workers, ranks and machines",
        )
    )
    parts.append(
        text(
            WIDTH / 2,
            24,
            "A sample passes six places, in native threads; your own Python code runs in workers",
        )
    )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    (Path(__file__).parent.parent / "images" / "places.svg").write_text(picture(), encoding="utf-8")
