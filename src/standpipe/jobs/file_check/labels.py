"""Find labels of a source that may be mistakes, such as classes without files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from standpipe.spec import AnyArray

MOST_LABELS = 1 << 16  # largest number of different labels that are counted


@dataclass(frozen=True, slots=True)
class LabelFinding:
    """A finding about one label, or about all labels.

    Attributes
    ----------
    kind : str
        ``"no-file"``: a class without files; ``"one-file"``: a class with a single file; ``"missing"``: an
        integer below the largest label that no record has; ``"negative"``: a label below 0; ``"too-many"``:
        there are more than 65,536 different labels, which aren't checked.
    label : int
        The label; for ``"too-many"`` the number of records.
    name : str or None
        Name of the class.
    files : int
        Files with this label.

    Examples
    --------
    >>> from pathlib import Path
    >>> Path("photos/fox").mkdir()
    >>> (finding,) = sp.check_files(sp.ImageFolder("photos"), num_workers=1).labels
    >>> finding.kind, finding.label, finding.name
    ('no-file', 2, 'fox')
    """

    kind: Literal["no-file", "one-file", "missing", "negative", "too-many"]
    label: int
    name: str | None = None
    files: int = 0

    def facts(self) -> dict[str, object]:
        """Return the finding as plain values."""
        return {"kind": self.kind, "label": self.label, "name": self.name, "files": self.files}


class LabelCounts:
    """A counter of records per label, to which labels are added in pieces.

    classes  class names, by label; None: the source has no classes
    """

    def __init__(self, classes: tuple[str, ...] | None) -> None:
        self._classes = classes
        self._counts: dict[int, int] = {}
        self._records = 0

    def add(self, labels: AnyArray) -> None:
        """Add labels, (n,) integers, to the counts."""
        self._records += len(labels)
        if len(self._counts) > MOST_LABELS:
            return
        values, counts = np.unique(labels, return_counts=True)
        for label, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._counts[label] = self._counts.get(label, 0) + count

    def findings(self) -> tuple[LabelFinding, ...]:
        """Return the findings, in the order of the labels."""
        if not self._counts:
            return ()
        if len(self._counts) > MOST_LABELS:
            return (LabelFinding("too-many", self._records),)
        return tuple(self._of_classes() if self._classes is not None else self._of_numbers())

    def _of_classes(self) -> Iterator[LabelFinding]:
        assert self._classes is not None
        for label, name in enumerate(self._classes):
            match self._counts.get(label, 0):
                case 0:
                    yield LabelFinding("no-file", label, name)
                case 1:
                    yield LabelFinding("one-file", label, name, 1)

    def _of_numbers(self) -> Iterator[LabelFinding]:
        """Yield the lowest label if it is negative, and each integer from 0 to the largest label that no record has.

        If about half of these integers or more are missing, the labels aren't meant to be 0 to n − 1: it yields none.
        """
        lowest, highest = min(self._counts), max(self._counts)
        if lowest < 0:
            yield LabelFinding("negative", lowest, None, self._counts[lowest])
        if highest >= 2 * len(self._counts):
            return
        for label in range(highest):
            if label not in self._counts:
                yield LabelFinding("missing", label)
