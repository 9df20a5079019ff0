"""Make folders of synthetic photos, complete them after an interruption, and enlarge them."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from standpipe import PlanError, StandpipeError
from standpipe.cli.synth.photo import jpeg
from standpipe.system.files import drafted

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

    Raises ``PlanError`` when a number makes no sense or ``out`` holds other things, ``StandpipeError`` when
    ``out`` can't be written or another process is filling it. Every file is whole or absent, at any time.
    """
    for name, value, least in (("images", images, 1), ("classes", classes, 1), ("seed", seed, 0)):
        if value < least:
            raise PlanError(f"{name} must be at least {least}, not {value}")
    root = Path(out)
    with _claimed(root, classes, seed):
        done = _survey(root, images, classes)
        paths = {label: root / _class_name(label, classes) for label in range(min(images, classes))}
        for path in paths.values():
            path.mkdir(exist_ok=True)
        missing = ((i, paths[i % classes] / _file_name(i)) for i in range(images) if i not in done)
        written = written_bytes = 0
        for size in _write_all(missing, seed, num_workers or _cores()):
            written, written_bytes = written + 1, written_bytes + size
            if on_progress is not None:
                on_progress(len(done) + written, images)
    return Synthesized(images, written, written_bytes)


@contextmanager
def _claimed(root: Path, classes: int, seed: int) -> Iterator[None]:
    """Hold the folder: ours, of these classes and this seed, and no other process's."""
    if root.exists() and not root.is_dir():
        raise PlanError(f"{root} is a file; name a new folder")
    if root.is_dir() and not (root / MARKER).exists():
        found = next(root.iterdir(), None)
        if found is not None:
            raise PlanError(f"{root} holds other things ({found.name!r}); name a new or empty folder")
    asked = {"recipe": RECIPE, "classes": classes, "seed": seed}
    try:
        root.mkdir(parents=True, exist_ok=True)
        marker = (root / MARKER).open("a+")
    except OSError as error:
        raise StandpipeError(f"can't write to {root}: {error.strerror}") from error
    with marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StandpipeError(f"another process is filling {root}; wait until it is done") from error
        marker.seek(0)
        text = marker.read()
        if not text:
            try:
                os.write(marker.fileno(), json.dumps(asked).encode())
            except OSError as error:
                raise StandpipeError(f"can't write to {root}: {error.strerror}") from error
        elif text != json.dumps(asked):
            raise PlanError(f"{root} was made with {text}, not {json.dumps(asked)}; name another folder")
        yield


def _survey(root: Path, images: int, classes: int) -> set[int]:
    """Return the images that exist; remove files that an interrupted run left half written."""
    done: set[int] = set()
    for folder in root.iterdir():
        if folder.name == MARKER:
            continue
        if not folder.is_dir():
            raise PlanError(f"{root} holds other things ({folder.name!r}); move them away")
        with os.scandir(folder) as entries:
            for entry in entries:
                index = _index_of(entry.name)
                if entry.name.endswith(".part") or (index is not None and entry.stat().st_size == 0):
                    Path(entry.path).unlink()
                elif index is None or folder.name != _class_name(index % classes, classes):
                    raise PlanError(f"{folder} holds other things ({entry.name!r}); move them away")
                else:
                    done.add(index)
    if done and max(done) >= images:
        raise PlanError(f"{root} has more than {images} images already; ask for more, or name another folder")
    return done


def _write_all(missing: Iterator[tuple[int, Path]], seed: int, workers: int) -> Iterator[int]:
    """Write files on threads, which NumPy and Pillow leave free to run, and yield their sizes in order."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="standpipe-synth")
    running: deque[Future[int]] = deque()
    try:
        for index, path in missing:
            running.append(pool.submit(_write, seed, index, path))
            if len(running) >= 4 * workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _write(seed: int, index: int, path: Path) -> int:
    """Write the JPEG of image ``index`` completely or not at all; return its size in bytes."""
    data = jpeg(seed, index)
    with drafted(path) as draft:
        draft.write_bytes(data)
    return len(data)


def _class_name(label: int, classes: int) -> str:
    return f"class-{label:0{len(str(classes - 1))}d}"


def _file_name(index: int) -> str:
    return f"{index:08d}.jpg"


def _index_of(name: str) -> int | None:
    """Return the image index in a file name of ``_file_name``; None for any other name."""
    found = re.fullmatch(r"(\d{8,})\.jpg", name, re.ASCII)
    return int(found[1]) if found is not None and _file_name(int(found[1])) == name else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
