"""Draw the plots and write the table of docs/comparison.md:  python docs/pictures/plots.py

It reads benchmarks/results/comparison.json, which benchmarks/comparison.py writes, and writes comparison.svg and
memory_over_time.svg in docs/images, and docs/figures/comparison.md. Every figure of the comparison comes from there.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from _plot import COLOURS, STYLE, line_chart, save  # noqa: E402
from _svg import dark_style  # noqa: E402

OTHERS = "#94a3b8"
SHOWN_S = 20  # of memory over time
MOST_CHARACTERS = 130  # of an error


def measured() -> dict[str, Any]:
    """Return the result file."""
    text = (ROOT / "benchmarks" / "results" / "comparison.json").read_text(encoding="utf-8")
    results: dict[str, Any] = json.loads(text)
    return results


def median(loader: Mapping[str, Any], key: str) -> float:
    """Return the median of a figure over the runs of a loader."""
    return statistics.median(run[key] for run in loader["runs"])


def spread(values: list[float], form: str) -> str:
    """Return the median and range of values, such as ``512 (498–530)``."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def table(results: dict[str, Any]) -> str:
    """Return the table in Markdown, with what was measured and where."""
    lines = [
        "| | images/s | peak memory, MiB | first batch, s | resumed after, s | the next batch then |",
        "|---|---|---|---|---|---|",
    ]
    for name, loader in results["loaders"].items():
        runs = loader["runs"]
        cells = [
            f"{name} {results['loader_versions'][name].partition('+')[0]}",
            spread([run["images_per_s"] for run in runs], ",.0f"),
            spread([run["peak_pss_mib"] for run in runs], ",.0f"),
            spread([run["first_batch_s"] for run in runs], ".2f"),
            spread(loader["resume_s"], ".2f"),
            "the same pixels"
            if loader["same_pixels"]
            else "the same photos, other crops"
            if loader["same_samples"]
            else "other photos",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "A photo that is cut short, in the error of each:", ""]
    lines += [
        f"- **{name}**: `{short(loader['damaged']['error'])}`" for name, loader in results["loaders"].items()
    ]
    measured = f"Measured on {results['date']}, at commit {results['commit'][:10]}"
    about = f"{measured}. Machine: {results['machine']}. Versions: {results['versions']}."
    return "\n".join([*lines, "", about, ""])


def short(error: str) -> str:
    """Return an error without what comes before its cause."""
    for cause in ("Failed to decode", "map operation", "OSError: image file", "jpeg::Uncompress"):
        if cause in error:
            error = error[error.index(cause) :]
    error = error.replace("`", "'")
    return error if len(error) <= MOST_CHARACTERS else f"{error[:MOST_CHARACTERS]}…"


def bars(results: dict[str, Any], path: Path) -> None:
    """Draw rate and peak memory of every loader, one above the other."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = list(results["loaders"])[::-1]
    with rc_context(STYLE):
        figure = Figure((4.6, 4.4), layout="constrained")  # narrow: words can be read on a phone
        for number, (key, title) in enumerate(
            {"images_per_s": "images per second", "peak_pss_mib": "peak memory, MiB"}.items(), 1
        ):
            axes = figure.add_subplot(2, 1, number, title=title)
            values = [median(results["loaders"][name], key) for name in names]
            drawn = axes.barh(
                names, values, color=[COLOURS[0] if name == "standpipe" else OTHERS for name in names]
            )
            axes.bar_label(drawn, [f" {value:,.0f}" for value in values])
            axes.set_xlim(0, 1.3 * max(values))
            axes.xaxis.set_visible(False)
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(left=False)
        save(figure, path)


def main() -> None:
    results = measured()
    images = ROOT / "docs" / "images"
    bars(results, images / "comparison.svg")
    curves = {
        name: [point for point in loader["runs"][0]["memory"] if point[0] <= SHOWN_S]
        for name, loader in results["loaders"].items()
    }
    title = "memory of a loader's processes, from their start"
    line_chart(images / "memory_over_time.svg", title, "seconds", "PSS, MiB", curves)
    for path in (images / "comparison.svg", images / "memory_over_time.svg"):
        drawn = path.read_text(encoding="utf-8")
        path.write_text(drawn.replace(" <metadata>", f" {dark_style()}\n <metadata>", 1), encoding="utf-8")
    page = ROOT / "docs" / "figures" / "comparison.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
