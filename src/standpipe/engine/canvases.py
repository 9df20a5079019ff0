"""Find where the pictures of a batch that differ in size are in their slot, before they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from standpipe.batch.collate import Padded, Shape
from standpipe.engine.moves import Traced
from standpipe.spec import AnyArray, Int64Array

if TYPE_CHECKING:
    from standpipe.order import Cursor
    from standpipe.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Canvases:
    """The places of a batch's rows in fields whose pictures differ in size: each has the corner of a canvas.

    areas     (rows, 5) int64 by field: the first byte of a row's canvas from the field's own on, height and width of
              the picture, and of the canvas, in pixels
    shapes    shapes of the padded fields, and of their lengths
    lengths   (rows, axes) int64 by field: shape of each row's picture
    too_large rows whose pictures are larger than ``max_shape``, and why they don't fit, as text
    """

    areas: Mapping[str, Int64Array] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    lengths: Mapping[str, Int64Array] = field(default_factory=dict)
    too_large: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, at: Cursor, traced: Traced | None) -> Canvases:
        """Return the places for rows whose sizes are known; none if the plan's kernel doesn't pad."""
        kernel = plan.samples_at(at).kernel
        if traced is None or kernel is None:
            return NO_CANVASES
        canvases, shapes, lengths = {}, dict[str, Shape](), {}
        too_large: dict[int, str] = {}
        for name, padded in plan.batch.canvases.items():
            head = next(head for head in kernel.heads if head.field == name)
            reference = traced.moves[kernel.image.field][:, -1, 9:11].astype(np.int64)
            sizes = reference * head.input.grid // kernel.image.input.grid
            lengths[name] = found = head.shapes(sizes)
            fits = np.all(found <= np.array(padded.most), axis=1)
            for row in np.flatnonzero(~fits).tolist():
                too_large.setdefault(row, _too_large(padded, tuple(found[row].tolist())))
            inside = found * fits[:, None]
            shapes |= padded.shapes([tuple(shape) for shape in inside.tolist()])
            canvas = np.array(shapes[name][1:], np.int64)
            height, width = canvas[head.axes]
            canvases[name] = areas = np.zeros((len(sizes), 5), np.int64)
            areas[:, 0] = np.arange(len(sizes)) * int(canvas.prod()) * padded.dtype.itemsize
            areas[:, 1:3] = sizes * fits[:, None]
            areas[:, 3:] = height, width
        return cls(canvases, shapes, lengths, too_large)

    def write_lengths(self, fields: Mapping[str, AnyArray]) -> None:
        """Write the shapes of all rows' pictures into a slot."""
        for name, lengths in self.lengths.items():
            fields[f"{name}_length"][...] = lengths


NO_CANVASES = Canvases()


def _too_large(padded: Padded, shape: Shape) -> str:
    limit = "length" if padded.fixed else "max_shape"
    return f"{padded.misfit(shape, padded.dtype)}: see Pad({limit}=…)"
