"""Read the instances of listed images from a file of JSON lines, one for each image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

import numpy as np

from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.source.annotations.json_targets import JsonTargets
from standpipe.source.annotations.listing import AnnotationSubject
from standpipe.source.annotations.paired import image_sizes
from standpipe.source.annotations.table import Annotations, Faults
from standpipe.source.index.listing import Listing
from standpipe.source.index.store import Progress
from standpipe.source.targets import BoxForm
from standpipe.system.files import open_regular
from standpipe.system.paths import path_text, reading

IMAGES_AT_ONCE = 1 << 14
SEEN = ("st_size", "st_mtime_ns", "st_ino")


def lines_subject(images: Listing, path: bytes, form: BoxForm, index: bytes | None) -> AnnotationSubject:
    """Return the images of a list with the instances of JSON lines, as the subject of an index.

    path  absolute path of the JSON lines
    """
    base, options = images.subject.base, f"{path_text(images.subject.path)} {form}"
    look = partial(_look, (images.subject.path, path))
    read = partial(_read, images, path, form)
    return AnnotationSubject("lines", path, base, index, options, form.invalid, "keep", look, read)


def _look(files: tuple[bytes, bytes], before: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Look at the list and the lines."""
    with reading(files[1]):
        infos = [os.stat(path) for path in files]  # noqa: PTH116 (bytes)
    seen = {f"{name} {n}": getattr(info, name) for n, info in enumerate(infos) for name in SEEN}
    return seen, max(info.st_mtime_ns for info in infos)


def _read(
    images: Listing, path: bytes, form: BoxForm, faults: Faults, on_progress: Progress | None
) -> tuple[Annotations, dict[str, int]]:
    """Read the lines, and the headers of all images."""
    seen, _ = _look((images.subject.path, path), {})
    shown, targets, lines = path_text(path), JsonTargets(form), []
    with reading(path), open(path, "rb", opener=open_regular) as file:
        for line, text in enumerate(file, 1):
            try:
                if text.strip():
                    targets.read(text)
                    lines.append(line)
            except ValueError as error:
                raise PlanError(f"{shown}:{line}: the line can't be read as instances: {error}") from None
    count = images.num_records
    if len(lines) != count:
        raise PlanError(
            f"{images.subject.name} has {count:,} lines, and {shown} {len(lines):,}; line n of one belongs to line n "
            "of the other"
        )
    sizes, names = [], []
    for start in range(0, count, IMAGES_AT_ONCE):
        some = images.paths(np.arange(start, min(start + IMAGES_AT_ONCE, count)))
        paths = [some[place] for place in range(len(some))]
        sizes.append(image_sizes(paths, faults))
        names += [path.removeprefix(images.subject.base) for path in paths]
        if on_progress is not None:
            on_progress("images", len(names), count)
    known = np.concatenate(sizes)
    found = targets.take(
        Paths.pack(names), known, lambda image, instance: f"{shown}:{lines[image]}, instance {instance}"
    )
    return found.of_images(known[:, 0] > 0), seen
