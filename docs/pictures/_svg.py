"""Boxes, arrows and text as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent.parent / "images"
BLUE, GREEN, AMBER, RED = "#2563eb", "#059669", "#d97706", "#dc2626"
TEXT, LINE = "#334155", "#94a3b8"
LIGHT = {BLUE: "#eff6ff", GREEN: "#ecfdf5", AMBER: "#fffbeb", RED: "#fef2f2", LINE: "#f8fafc"}
DARK = {
    "#ffffff": "#131416",
    "#e2e8f0": "#334155",
    "#7c3aed": "#a78bfa",
    TEXT: "#cbd5e1",
    LINE: "#64748b",
    BLUE: "#7aa7ff",
    GREEN: "#34d399",
    AMBER: "#fbbf24",
    RED: "#f87171",
    **dict(zip(LIGHT.values(), ("#172238", "#10261f", "#2b2413", "#2e1a1c", "#1c2026"), strict=True)),
}


def dark_style() -> str:
    """Return a ``<style>`` that gives every colour its dark one, where the reader's colour scheme is dark."""
    rules = [
        f'[{part}="{light}"],[style*="{part}: {light}"]{{{part}:{dark}!important}}'
        for light, dark in DARK.items()
        for part in ("fill", "stroke")
    ]
    return "<style>@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}</style>"


def text(x: float, y: float, words: str, *, size: int = 13, bold: bool = False, fill: str = TEXT) -> str:
    """Return words around the middle ``x``, with their base line at ``y``."""
    weight = ' font-weight="bold"' if bold else ""
    style = f'font-size="{size}"{weight} fill="{fill}" text-anchor="middle"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    title: str,
    lines: Sequence[str] = (),
    colour: str = BLUE,
    size: int = 12,
) -> str:
    """Return a box with a title and lines of text of ``size`` pixels in its middle."""
    top = y + height / 2 - 0.75 * size * len(lines) + 5
    parts = [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{LIGHT[colour]}" '
        f'stroke="{colour}"/>',
        text(x + width / 2, top, title, size=size + 2, bold=True, fill=TEXT if colour == LINE else colour),
    ]
    parts += [
        text(x + width / 2, top + 1.6 * size + 1.4 * size * row, line, size=size)
        for row, line in enumerate(lines)
    ]
    return "\n".join(parts)


def arrow(x: float, y: float, to_x: float, to_y: float, colour: str = LINE) -> str:
    """Return an arrow that is horizontal, vertical, or goes across and then down."""
    across = to_y == y
    back = -1 if to_x > x else 1  # from the tip to the line
    tip = f"M{to_x:g} {to_y:g}l{7 * back} -5v10z" if across else f"M{to_x:g} {to_y:g}l-5 -7h10z"
    path = f"M{x:g} {y:g}H{to_x + 6 * back if across else to_x:g}" + ("" if across else f"V{to_y - 6:g}")
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/><path d="{tip}" fill="{colour}"/>'
    )


def bracket(x: float, y: float, to_x: float) -> str:
    """Return a bracket below things from ``x`` to ``to_x``."""
    return f'<path d="M{x:g} {y:g}v8H{to_x:g}v-8" fill="none" stroke="{LINE}" stroke-width="1.5"/>'


def save(name: str, width: int, height: int, *parts: str) -> None:
    """Write a picture to docs/images."""
    body = "\n".join(parts)
    (IMAGES / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif">\n{dark_style()}\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )
