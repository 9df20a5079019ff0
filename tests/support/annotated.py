"""The instances that a source of annotations has, as plain lists."""

from __future__ import annotations

from typing import Any

import numpy as np


def instances(source: Any) -> dict[str, list[Any]]:
    """Return all ragged fields, as a list with the values of each record."""
    opened = source.open()
    found = opened.locate(np.arange(opened.num_records)).ragged
    return {
        name: [part.tolist() for part in np.split(rows.values, rows.ends[:-1])]
        for name, rows in found.items()
    }


def faults(source: Any) -> list[str]:
    """Return the texts of all faults."""
    return list(source.open().skipped())
