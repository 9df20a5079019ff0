"""A line chart, drawn with Matplotlib. Imported late: drawing is an option of benchmarks that run without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626")  # the first one is standpipe's
TEXT, GRID = "#334155", "#e2e8f0"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "grid.color": GRID,
    "svg.hashsalt": "standpipe",  # the same file for the same figures
}


def line_chart(
    path: Path, title: str, x: str, y: str, curves: Mapping[str, Sequence[tuple[float, float]]]
) -> None:
    """Draw curves of (x, y) points, by name, on axes that begin at 0, and save the image at ``path``."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure((8.2, 4.2), layout="constrained")
        axes = figure.add_subplot(title=title, xlabel=x, ylabel=y)
        for (name, points), colour in zip(curves.items(), COLOURS, strict=False):
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=2, label=name)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True)
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Write a figure without a date, so that the same figures give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, facecolor="white", dpi=110, metadata=metadata)
