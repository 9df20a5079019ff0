"""Make folders of synthetic photos, complete them after an interruption, and enlarge them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from standpipe import PlanError
from standpipe.cli.synth.photo import jpeg
from standpipe.system.files import drafted, whole_file
from standpipe.system.machine import cpu_count

MARKER = ".standpipe-synth.json"
RECIPE = 3  # raised when the same (seed, i) would give another file, so that a folder never mixes two


@dataclass(frozen=True, slots=True)
class Synthesized:
    """The result of ``synthesize``.

    images         images in the folder now
    written        number of those that were missing before
    written_bytes  bytes of these
    """

    images: int
    written: int
    written_bytes: int


def synthesize(
    out: str | os.PathLike[str],
    images: int,
    classes: int = 10,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    *,
    num_workers: int | None = None,
) -> Synthesized:
    """Make a folder of photo-like JPEGs; image 13 of 10 classes is ``out/class-3/00000013.jpg``.

    out          a new or empty folder, or one of ours with the same classes and seed, which is completed
    on_progress  called in the caller's thread with (images done, images in all)
    num_workers  threads; None takes as many as this process may use cores. The files don't depend on it.

    Raises ``PlanError`` when a number makes no sense or ``out`` holds other things. Every file is whole or absent, at
    any time.
    """
    for name, value, least in (("images", images, 1), ("classes", classes, 1), ("seed", seed, 0)):
        if value < least:
            raise PlanError(f"{name} must be at least {least}, not {value}")
    root = Path(out)
    _check_folder(root, classes, seed)
    missing = []
    for index in range(images):
        path = root / _class_name(index % classes, classes) / f"{index:08d}.jpg"
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            missing.append((index, path))
    there = sum(1 for _ in root.glob("*/*.jpg"))
    if there + len(missing) > images:
        raise PlanError(f"{root} has {there} images already; ask for more, or name another folder")
    pool = ThreadPoolExecutor(num_workers or cpu_count(), thread_name_prefix="standpipe-synth")
    written_bytes = 0
    try:
        for done, size in enumerate(pool.map(lambda image: _write(seed, *image), missing), there + 1):
            written_bytes += size
            if on_progress is not None:
                on_progress(done, images)
    finally:
        pool.shutdown(cancel_futures=True)
    return Synthesized(images, len(missing), written_bytes)


def _check_folder(root: Path, classes: int, seed: int) -> None:
    """Make the folder and its marker. Raises ``PlanError`` for one that has anything else than such images."""
    marker, asked = root / MARKER, json.dumps({"recipe": RECIPE, "classes": classes, "seed": seed})
    if root.exists() and not root.is_dir():
        raise PlanError(f"{root} is a file; name a new folder")
    if not marker.exists():
        found = next(root.iterdir(), None) if root.exists() else None
        if found is not None:
            raise PlanError(f"{root} holds other things ({found.name!r}); name a new or empty folder")
        root.mkdir(parents=True, exist_ok=True)
        with whole_file(marker) as file:
            file.write(asked)
    elif (made := marker.read_text(encoding="utf-8")) != asked:
        raise PlanError(f"{root} was made with {made}, not {asked}; name another folder")


def _write(seed: int, index: int, path: Path) -> int:
    """Write the JPEG of image ``index`` completely or not at all; return its size in bytes."""
    data = jpeg(seed, index)
    with drafted(path) as draft:
        draft.write_bytes(data)
    return len(data)


def _class_name(label: int, classes: int) -> str:
    return f"class-{label:0{len(str(classes - 1))}d}"
