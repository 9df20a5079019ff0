"""Sources of annotation files: their common description, the subject of their index, and the opened source."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import TypeAlias, get_args, get_type_hints

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.annotations.table import (
    BONES,
    FAULT,
    FAULTS,
    MOST,
    SIDES,
    Annotations,
    Faults,
    WithoutInstances,
)
from standpipe.source.index.file import Facts, IndexFile
from standpipe.source.index.listing import Listing
from standpipe.source.index.store import OwnPaths, Progress, is_settled, open_index
from standpipe.source.index.with_fields import changed_arguments, shown_call
from standpipe.source.index.writer import IndexWriter
from standpipe.source.targets import Invalid
from standpipe.system.paths import AnyPath, absolute, path_text

# What is seen of the files now, and the latest modification time; given what an index has of them.
Looks: TypeAlias = Callable[[Mapping[str, int]], tuple[dict[str, int], int]]
# The images and instances of the files, and what is seen of the files.
Reads: TypeAlias = Callable[[Faults, Progress | None], tuple[Annotations, dict[str, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationSource:
    """A description of images with annotation files. Fields without a default are paths."""

    without_instances: WithoutInstances = "keep"
    invalid: Invalid = "clip"
    index: AnyPath | None = None

    def open(self) -> OpenSource:
        """Find the index of the annotations, or read them and build one.

        Raises ``PlanError`` if files can't be read or have another form, or there are no images; and for a fault with
        ``invalid="error"``.
        """
        subject = self.subject()
        return AnnotationListing(subject, open_index(subject))

    def subject(self) -> AnnotationSubject:
        """Return the annotations, as the subject of an index."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        paths = [getattr(self, each.name) for each in fields(self) if each.default is MISSING]
        return shown_call(self, ", ".join(f"'{path_text(path)}'" for path in paths))

    def made(
        self, kind: str, paths: tuple[bytes, bytes], look: Looks, read: Reads, *, options: str = ""
    ) -> AnnotationSubject:
        """Return a subject. Raises ``PlanError`` for an option with another value than its type names.

        paths    the annotations, and the folder that the images' names start from
        options  further text that what is indexed depends on
        """
        for name, hint in get_type_hints(type(self)).items():
            choices, value = (False, True) if hint is bool else get_args(hint), getattr(self, name)
            if choices and isinstance(choices[0], str | bool) and value not in choices:
                raise PlanError(
                    f"{type(self).__name__}: {name} must be {' or '.join(map(repr, choices))}, got {value!r:.80}"
                )
        index = None if self.index is None else absolute(self.index, field=f"{type(self).__name__}'s index")
        base = os.path.join(paths[1], b"")  # noqa: PTH118 (pathlib has no bytes)
        text = ", ".join([*changed_arguments(self, "index"), options])
        return AnnotationSubject(
            kind, paths[0], base, index, text, self.invalid, self.without_instances, look, read
        )


@dataclass(frozen=True, slots=True)
class AnnotationSubject(OwnPaths):
    """A ``Subject`` of annotation files.

    path  absolute path of the annotations
    base  folder that the images' names start from, with a slash at the end
    """

    kind: str
    path: bytes
    base: bytes
    index: bytes | None
    options: str
    invalid: Invalid
    without_instances: WithoutInstances
    look: Looks
    read: Reads

    stays = False
    costly = True

    @property
    def name(self) -> str:
        """The annotations' path."""
        return path_text(self.path)

    @property
    def key(self) -> str:
        """The name of its index in the cache folder: a digest of paths and options."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        return blake2b(
            repr((self.kind, self.path, self.base, self.options)).encode(), digest_size=16
        ).hexdigest()

    def objection(self, index: IndexFile) -> str | None:
        """Return None if all that is seen of the files is as in the index; else why not."""
        facts = index.facts
        if facts.kind != self.kind or facts.options != {self.options: True}:
            return "it was built with other options"
        if not {"instances", "sizes"} <= {*facts.optional} or MOST not in facts.seen:
            return "it was built by another version of standpipe"
        seen, newest_ns = self.look(facts.seen)
        if any(facts.seen.get(name) != value for name, value in seen.items()):
            return "the annotations or the folders of images changed since"
        if not is_settled(newest_ns, facts.began_ns):
            return "the annotations may have changed again without a new modification time"
        return None

    def build(self, writer: IndexWriter, on_progress: Progress | None) -> Facts:
        """Read the annotations, and write their index."""
        began_ns = time.time_ns()
        faults = Faults(self.name)
        found, seen = self.read(faults, on_progress)
        facts = found.write(writer, faults, self.invalid, self.without_instances)
        options = {self.options: True}
        return replace(facts, kind=self.kind, options=options, seen={**facts.seen, **seen}, began_ns=began_ns)


class AnnotationListing(Listing):
    """An ``OpenSource`` of images with instances, in a packed index."""

    __slots__ = ()

    @property
    def most_instances(self) -> int:
        """The largest number of instances of a record."""
        return self.index.facts.seen.get(MOST, 0)

    @property
    def num_instances(self) -> int:
        """The number of instances of all records."""
        return self.index.instances

    @property
    def flip_pairs(self) -> tuple[tuple[int, int], ...] | None:
        """Numbers of left and right keypoints, which swap where an image is mirrored; None if they aren't known."""
        return self._pairs(SIDES)

    @property
    def skeleton(self) -> tuple[tuple[int, int], ...]:
        """Numbers of keypoints between which lines are drawn; empty if they aren't known."""
        return self._pairs(BONES) or ()

    def _pairs(self, name: str) -> tuple[tuple[int, int], ...] | None:
        if (section := self.index.facts.sections.get(name)) is None:
            return None
        found = self.index.part(name, "<i8", (2,), 0, section.size // 16).tolist()
        return tuple((one, other) for one, other in found)

    @property
    def index_note(self) -> str:
        """The index's location and size, and the numbers of faults, for ``explain()``."""
        seen = self.index.facts.seen.items()
        counts = [
            f"{n:,} × {path_text(name.removeprefix(FAULT))}" for name, n in seen if name.startswith(FAULT)
        ]
        return self._place + (f"; faults of annotations: {', '.join(counts)}" if counts else "")

    def skipped(self) -> Iterator[str]:
        """Yield a text for each fault, with the place and what is wrong."""
        rest = b""
        for block in self.index.blocks(FAULTS) if FAULTS in self.index.facts.sections else ():
            *whole, rest = (rest + block.tobytes()).split(b"\0")
            yield from map(path_text, whole)
