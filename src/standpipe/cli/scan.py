"""``standpipe scan``: read and decode every file of a folder or list, and name those that a loader would refuse."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from standpipe.cli.task import add_source_arguments, source_of
from standpipe.cli.terminal import (
    COLUMNS,
    beginning,
    cells,
    print_json,
    printable,
    say,
    stages,
    text_end,
    verbatim,
)
from standpipe.system.files import check_output_path

if TYPE_CHECKING:
    from standpipe.reports import FileCheckReport, FileFinding, LabelFinding

SKIPPED = "skipped files, which aren't records"
UNABLE = 2  # the exit code of a scan that can't be done: 1 says that there are bad files
EXAMPLES = 3  # of each kind
GROUPS = (  # as the report has them
    (
        "bad",
        (
            "unreadable",
            "empty",
            "truncated",
            "damaged",
            "not-an-image",
            "unsupported",
            "oversized",
            "other-size",
        ),
    ),
    ("delivered, but odd", ("flawed", "cut", "smoothed", "copy", "label-conflict", "repeated-key", "suffix")),
)

HELP = "find images that can't be decoded, copies and odd labels"
DESCRIPTION = (
    "Read and decode every image completely, on all CPUs, and say "
    "which ones a loader would refuse, and why. Interrupted, the same command goes on where it was; run again "
    "later, it reads only files that changed. Exits with 1 if there are bad files, and with 2 if it can't look."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_source_arguments(parser)
    parser.add_argument(
        "--output", metavar="FILE", help="write a list of the bad files, for Pipeline.exclude(FILE)"
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        choices=GROUPS[1][1],
        metavar="KIND",
        help=f"with --output, name these too: {', '.join(GROUPS[1][1])}; may be given again",
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier scans, and read all files")
    parser.add_argument(
        "--workers", type=int, default=None, metavar="N", help="threads (default: one per CPU)"
    )
    parser.add_argument(
        "--no-duplicates", action="store_true", help="don't look for files with the same bytes"
    )
    parser.add_argument("--allow-truncated", action="store_true", help="accept files that end too soon")
    parser.add_argument(
        "--max-pixels", type=int, metavar="N", help="largest width × height of an image (default: 178956970)"
    )
    parser.add_argument(
        "--large-image-memory", metavar="SIZE", help="memory for images such as PNGs (default: 256MiB)"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object per line: one for each finding, and at the end one with the totals",
    )
    parser.set_defaults(failed=UNABLE)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    import standpipe as sp

    source = source_of(args)
    annotated = isinstance(source, sp.Coco | sp.YoloLabels | sp.PascalVoc)
    if args.output is not None:
        check_output_path(args.output)
    with _progress() as on_progress, _hint():
        found = sp.check_files(
            source,
            limits=sp.DecodeLimits() if args.max_pixels is None else sp.DecodeLimits(args.max_pixels),
            allow_truncated=args.allow_truncated,
            duplicates=not args.no_duplicates,
            num_workers="auto" if args.workers is None else args.workers,
            large_image_memory=args.large_image_memory,
            fresh=args.fresh,
            on_progress=on_progress,
        )
    listed = None
    if args.output is not None:
        listed = found.write(args.output, kinds=(*GROUPS[0][1], *args.also))
    if args.json:
        for finding in found.findings():
            print_json(finding.facts())
        for path in found.skipped_files():
            fault = {"text": path, "level": "note", "kind": "annotation"}
            print_json(fault if annotated else {"path": path, "level": "skipped", "kind": "special"})
        print_json({"path": args.path, **found.facts(), "output": args.output, "listed": listed})
    else:
        _report(found, _root(args))
        _report_skipped(found, _root(args), "faults of annotations" if annotated else SKIPPED)
        if listed is not None:
            say(f"{verbatim(printable(args.output))}: {listed:,} records, for Pipeline.exclude()")
    return 0 if found.ok else 1


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A bar, at a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    with stages("scanning") as on_progress:
        yield on_progress


@contextmanager
def _hint() -> Iterator[None]:
    """Print after Ctrl-C that the results so far are stored, so that the next scan continues from them."""
    try:
        yield
    except KeyboardInterrupt:
        print("\nstandpipe: what was found out so far is kept: the same command goes on", file=sys.stderr)
        raise


def _report(found: FileCheckReport, root: str) -> None:
    """Print the findings by kind, within 80 columns, with a few examples of each kind."""
    files = found.records * len(found.fields)
    known = f", {files - found.looked:,} of them known" if found.looked < files else ""
    size = f"{found.size / 1e9:,.1f} GB" if found.size >= 1e9 else f"{found.size / 1e6:.1f} MB"
    say(f"[bold]{files:,} files[/bold], {size}{known}; {_speed(found)}")
    for title, kinds in GROUPS:
        counts = {kind: found.counts[kind] for kind in kinds if kind in found.counts}
        colour = "red" if title == "bad" and counts else "bold"
        say(f"[{colour}]{title}: {sum(counts.values()):,}[/{colour}]")
        for kind, count in counts.items():
            say(f"  {kind:<14s} {count:,}")
            for finding in islice(found.findings(kind), EXAMPLES):
                say(verbatim(_line(finding, root)))
            if count > EXAMPLES:
                say("    …")
    _report_labels(found.labels)


def _report_skipped(found: FileCheckReport, root: str, title: str) -> None:
    if found.skipped:
        say(f"[bold]{title}: {found.skipped:,}[/bold]")
        for path in islice(found.skipped_files(), EXAMPLES):
            say(verbatim(_shortened(f"    {path.replace(root, '')}", COLUMNS)))
        if found.skipped > EXAMPLES:
            say("    …")


def _report_labels(labels: tuple[LabelFinding, ...]) -> None:
    if labels:
        say(f"[bold]odd labels: {len(labels):,}[/bold]")
    for kind in dict.fromkeys(label.kind for label in labels):
        some = [label for label in labels if label.kind == kind]
        names = [printable(label.name) if label.name else str(label.label) for label in some[:EXAMPLES]]
        names += ["…"] if len(some) > EXAMPLES else []
        say(verbatim(_shortened(f"  {kind:<14s} {len(some):,}: {', '.join(names)}", COLUMNS)))


def _speed(found: FileCheckReport) -> str:
    if found.looked == 0:
        return f"{found.seconds:.1f} s"
    return f"{found.seconds:.1f} s, {found.looked / found.seconds:,.0f} files/s"


def _line(finding: FileFinding, root: str) -> str:
    """Return one example's line: its path below ``root`` and its text, shortened to fit."""
    path = finding.path or f"record {finding.index}"
    path = path.removeprefix(root)
    if cells(path) > COLUMNS // 2:  # its end says most
        path = f"…{text_end(path, COLUMNS // 2 - 1)}"
    return _shortened(f"    {path}: {finding.text.replace(root, '')}", COLUMNS)


def _shortened(text: str, columns: int) -> str:
    """Return text of at most a number of columns; an ellipsis shows the cut."""
    return text if cells(text) <= columns else f"{beginning(text, columns - 1)}…"


def _root(args: argparse.Namespace) -> str:
    """Return the common beginning of all paths, which the report leaves out."""
    folder = args.path
    if not os.path.isdir(folder):  # noqa: PTH112 (as text, whatever its bytes)
        folder = args.root or os.path.dirname(folder)  # noqa: PTH120
    return printable(os.path.join(os.path.abspath(folder), ""))  # noqa: PTH100, PTH118
