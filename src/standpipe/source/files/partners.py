"""Check that two folders have the same images, apart from the suffixes of their names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.source.index.listing import Listing
from standpipe.system.paths import path_text

ROWS_AT_ONCE = 1 << 14
DOT = ord(".")


def check_partners(first: Listing, other: Listing, name: str) -> None:
    """Check that image n of both folders has the same path below its folder, up to the suffix.

    name  the field of the other folder's images

    Raises ``PlanError`` with the numbers of images without a partner, and the first of them.
    """
    if first.num_records == other.num_records and all(
        np.array_equal(mine.ends, theirs.ends) and np.array_equal(mine.blob, theirs.blob)
        for mine, theirs in zip(_stems(first), _stems(other), strict=True)
    ):
        return
    wrong = [*_alone(first, other), *_alone(other, first)]
    raise PlanError(
        f"ImageFolder: {name}={path_text(other.subject.base)} must have a partner for each image, of the same path up "
        f"to the suffix: {' and '.join(wrong) or 'names are the same, but suffixes change their number or order'}. "
        f"For other names write two lists, FileList('images.txt', {name}='{name}.txt')"
    )


def _alone(first: Listing, other: Listing) -> Iterator[str]:
    """Yield the number of images of a folder without a partner in the other one, and the first of them, as text."""
    mine, theirs = (
        np.fromiter((hash(stems[row]) for stems in _stems(each) for row in range(len(stems))), np.int64)
        for each in (first, other)
    )
    alone = np.flatnonzero(~np.isin(mine, theirs))
    if len(alone):
        yield f"{len(alone):,} of {path_text(first.subject.base)} have none, first {first.name(int(alone[0]))}"


def _stems(listing: Listing) -> Iterator[Paths]:
    """Yield all paths below a folder in blocks, without their suffixes."""
    for start in range(0, listing.num_records, ROWS_AT_ONCE):
        paths = listing.paths(np.arange(start, min(start + ROWS_AT_ONCE, listing.num_records)))
        dots = np.flatnonzero(paths.blob == DOT)
        stops = dots[np.searchsorted(dots, paths.ends) - 1]  # every image has a suffix
        starts = paths.ends - np.diff(paths.ends, prepend=0) + len(listing.subject.base)
        steps = np.zeros(len(paths.blob) + 1, np.int8)
        steps[starts] = 1
        steps[stops] -= 1
        yield Paths(
            paths.blob[np.cumsum(steps[:-1], dtype=np.int8).astype(np.bool_)], np.cumsum(stops - starts)
        )
