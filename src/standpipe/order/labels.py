"""Check that the labels in a column are valid classes."""

from __future__ import annotations

import numpy as np

from standpipe.errors import PlanError
from standpipe.order.columns import Columns, chunks
from standpipe.spec import Labels


def check_column(columns: Columns, labels: Labels) -> None:
    """Check a column of labels.

    Raise ``PlanError`` with the first invalid label's record, and how many there are.
    """
    asked_by = f"check_labels({labels.classes})"
    first: tuple[int, int] | None = None
    many = 0
    for start, chunk in chunks(columns, labels.field, asked_by):
        if chunk.dtype.kind not in "biu":
            raise PlanError(f"{asked_by}: labels must be integers, but {labels.field!r} is {chunk.dtype}")
        wrong = np.flatnonzero(labels.wrong(chunk))
        many += len(wrong)
        if first is None and len(wrong):
            first = start + int(wrong[0]), int(chunk[wrong[0]])
    if first is None:
        return
    place, label = first
    record = int(columns.numbers(place, place + 1)[0])
    path = columns.name(record)
    classes = columns.classes if labels.field == "label" else None
    of_class = "" if classes is None else f" ('{classes[label]}')"
    others = "" if many == 1 else f"; so have {many - 1:,} more"
    raise PlanError(
        f"{asked_by}: record {record}{'' if path is None else f', {path},'} has the {labels.field} {label}{of_class}, "
        f"and {labels.describe()}{others}"
    )
