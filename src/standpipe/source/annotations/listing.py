"""The opened source of annotation files, and the checks of its index that all kinds share."""

from __future__ import annotations

from collections.abc import Iterator

from standpipe.source.annotations.table import FAULTS, fault_counts
from standpipe.source.index.file import Facts
from standpipe.source.index.listing import Listing
from standpipe.source.index.store import is_settled
from standpipe.system.paths import path_text


class AnnotationListing(Listing):
    """An ``OpenSource`` of images with instances, in a packed index."""

    __slots__ = ()

    @property
    def index_note(self) -> str:
        """The index's location and size, and the numbers of faults, for ``explain()``."""
        counts = fault_counts(self.index.facts.seen)
        return self._place + (f"; faults of annotations: {counts}" if counts else "")

    def skipped(self) -> Iterator[str]:
        """Yield a text for each fault, with the place and what is wrong."""
        rest = b""
        for block in self.index.blocks(FAULTS) if FAULTS in self.index.facts.sections else ():
            *whole, rest = (rest + block.tobytes()).split(b"\0")
            yield from map(path_text, whole)


def changed(
    facts: Facts, kind: str, options: dict[str, bool], seen: dict[str, int], newest_ns: int
) -> str | None:
    """Return why an index doesn't fit the annotations; None if it fits.

    seen       what is seen of the annotation files now: all of it must be in the index
    newest_ns  the latest modification time of the files
    """
    if facts.kind != kind or facts.options != options:
        return "it was built with other options"
    if "instances" not in facts.optional or "sizes" not in facts.optional:
        return "it was built by another version of standpipe"
    if any(facts.seen.get(name) != value for name, value in seen.items()):
        return "the annotations or the folders of images changed since"
    if not is_settled(newest_ns, facts.began_ns):
        return "the annotations may have changed again without a new modification time"
    return None
