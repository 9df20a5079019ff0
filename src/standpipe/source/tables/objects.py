"""The objects in a table's images: columns of lists, which become ragged fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from standpipe.contracts import Paths, RaggedRows, Records
from standpipe.contracts.source import FieldSpec, places_in_ranges
from standpipe.errors import PlanError
from standpipe.source.annotations.shapes import ShapeReader
from standpipe.source.annotations.table import Annotations, Faults, Masks
from standpipe.source.tables.opened import OpenTable, named_classes
from standpipe.source.targets import BOXES, FORMS, KEYPOINTS, LABELS, SEGMENTATION, BoxForm, key_of_target
from standpipe.spec import SIDES, AnyArray, Int64Array, RaggedSpec


@dataclass(frozen=True, eq=False)
class OpenObjects(OpenTable):
    """An ``OpenSource`` of a table's rows with the objects in their images, which are held in memory.

    values  values of all objects by name, (objects, …) each
    ends    (records,) int64: end of each record's objects among all
    sizes   (records, 2) int64: height and width of the images in pixels
    faults  what is wrong with boxes and masks
    shapes  the shapes of all objects; None without any
    """

    values: Mapping[str, AnyArray]
    ends: Int64Array
    sizes: Int64Array
    faults: Faults
    shapes: RaggedRows | None = None

    flip_pairs = None
    skeleton = ()

    @property
    def fields(self) -> Mapping[str, FieldSpec]:
        """Images, numbers, texts, and the values of objects."""
        ragged = {name: RaggedSpec(each.shape[1:], each.dtype) for name, each in self.values.items()}
        return {**super().fields, **ragged}

    @property
    def most_instances(self) -> int:
        """The largest number of objects of a record."""
        return int(np.diff(self.ends, prepend=0).max())

    @property
    def num_instances(self) -> int:
        """The number of objects of all records."""
        return int(self.ends[-1])

    @property
    def has_masks(self) -> bool:
        """True if objects have shapes."""
        return self.shapes is not None

    @property
    def index_bytes(self) -> int:
        """Bytes of memory: of the table's places, and of the objects."""
        return super().index_bytes + sum(each.nbytes for each in self._arrays())

    def _arrays(self) -> list[AnyArray]:
        shapes = [] if self.shapes is None else [self.shapes.values, self.shapes.ends]
        return [self.ends, self.sizes, *self.values.values(), *shapes]

    @property
    def index_note(self) -> str:
        """The columns that are read in place and left out, and the numbers of faults, for ``explain()``."""
        counts = ", ".join(f"{count:,} × {kind}" for kind, count in self.faults.counts().items())
        return f"{super().index_note}; objects are in memory{f'; faults: {counts}' if counts else ''}"

    @cached_property
    def digest(self) -> str:
        """A digest of the table's, and of all objects."""
        return self.digest_of(super().digest, self._arrays())

    def locate(self, indices: Int64Array) -> Records:
        """Return the places of the images, the numbers, the texts, and the objects."""
        ragged = {name: RaggedRows(each, self.ends).take(indices) for name, each in self.values.items()}
        shapes = None
        if self.shapes is not None:
            begins = np.where(indices > 0, self.ends[indices - 1], 0)
            shapes = self.shapes.take(places_in_ranges(begins, self.ends[indices])[0])
        return replace(super().locate(indices), ragged=ragged, sizes=self.sizes[indices], shapes=shapes)


def with_objects(
    call: str, table: OpenTable, name: str, column: Any, features: Mapping[str, Any], form: BoxForm
) -> OpenObjects:
    """Return an opened table with the objects of a column, which has the records' order.

    call      the source, for errors
    features  what metadata say of the columns

    Raises ``PlanError`` for columns without boxes and labels, without the images' sizes, and for wrong boxes with
    ``invalid="error"``.
    """
    counts, flat = _flat(column.combine_chunks())
    segments = flat.pop(SEGMENTATION, None)
    numbers = {each: _numbers(found) for each, found in flat.items()}
    values = {each: found for each, found in numbers.items() if found is not None}
    keys = {each: key_of_target(each, values) for each in (BOXES, LABELS)}
    shapes = [values[key].shape[1:] for key in keys.values() if key is not None]
    if shapes != [(4,), ()]:
        raise PlanError(
            f"{call}: each row of {name!r} must have a list of boxes, bbox or boxes, with four numbers each, and as "
            f"long a list of numbers, category, category_id or labels. It has {', '.join(map(repr, values)) or 'none'}"
        )
    if not all(side in table.columns for side in SIDES):
        raise PlanError(
            f"{call}: boxes need the sizes of their images, and the data set has no columns of numbers 'height' and "
            "'width'. Add them with dataset.map, or write MapSource(dataset, encoded='image', instances=('boxes', "
            "'labels')), which reads sizes as images come"
        )
    every = range(table.num_records)
    sizes = np.stack([table.column(side, 0, len(every)) for side in SIDES], axis=1).astype(np.int64)
    rows = np.repeat(every, counts)
    boxes = form.corners(str(keys[BOXES]), values.pop(str(keys[BOXES])).astype(np.float64))
    labels = values.pop(str(keys[LABELS])).astype(np.int64)
    others = {each: found for each, found in values.items() if each not in table.fields}
    pixels = form.in_pixels({BOXES: boxes, **_further(call, others)}, sizes[rows])
    found = Annotations(
        paths=Paths.pack([]),
        sizes=sizes,
        rows=rows,
        boxes=pixels.pop(BOXES).astype(np.float64),
        labels=labels,
        values=pixels,
        columns={},
        classes=None,
        masks=_masks(f"{call}: {name!r}", segments, sizes[rows], form) if form.instance_masks else None,
        place=lambda number: f"record {rows[number]:,}",
    )
    faults = Faults(call)
    found = found.valid(faults, form.invalid)
    faults.refuse(form.invalid)
    own = {each.name: getattr(table, each.name) for each in fields(table)}
    own["classes"] = table.classes or _classes(features.get(name), str(keys[LABELS]))
    own["left_out"] = {each: kind for each, kind in table.left_out.items() if each != name}
    return OpenObjects(
        **own,
        values={BOXES: found.boxes.astype(np.float32), LABELS: found.labels, **found.values},
        ends=np.cumsum(np.bincount(found.rows, minlength=len(every))),
        sizes=sizes,
        faults=faults,
        shapes=None if found.masks is None else found.masks.shapes.take(found.masks.numbers),
    )


def _further(call: str, values: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return further values of objects in the dtypes that they have in a batch, and keypoints as (objects, K, 3)."""
    found = {
        name: each.astype(FORMS[name].dtype if name in FORMS else each.dtype) for name, each in values.items()
    }
    if (points := found.get(KEYPOINTS)) is not None:
        if points.ndim != 2 or points.shape[1] % 3:
            raise PlanError(f"{call}: each object's {KEYPOINTS!r} must be x, y and visibility of each point")
        found[KEYPOINTS] = points.reshape(len(points), -1, 3).astype(np.float32)
    return found


def _masks(where: str, segments: Any, images: Int64Array, form: BoxForm) -> Masks:
    """Return the shapes of all objects. ``images``: (objects, 2) heights and widths of their images."""
    if segments is None:
        raise PlanError(
            f"{where} needs a list {SEGMENTATION!r} in each row, with a mask for each box: leave out "
            "instance_masks=True if it has none"
        )
    reader = ShapeReader()
    for each in segments:
        reader.add(each.as_py())
    return Masks.of(reader, images if form.normalized else None)


def _flat(array: Any) -> tuple[Int64Array, dict[str, Any]]:
    """Return the number of objects of each record, and arrays of all objects' values by name."""
    import pyarrow as pa

    lists = {}
    if pa.types.is_struct(array.type):
        named = zip(array.type, array.flatten(), strict=True)
        lists = {part.name: each for part, each in named if _is_list(each)}
        key = key_of_target(BOXES, lists)
        counts = _counts(lists[key]) if key is not None else np.zeros(len(array), np.int64)
        flat = {name: each.flatten() for name, each in lists.items() if np.array_equal(_counts(each), counts)}
    elif _is_list(array) and pa.types.is_struct(array.type.value_type):
        counts, objects = _counts(array), array.flatten()
        flat = {part.name: each for part, each in zip(objects.type, objects.flatten(), strict=True)}
    else:
        return np.zeros(len(array), np.int64), {}
    return counts, flat


def _numbers(flat: Any) -> AnyArray | None:
    """Return the values of objects, (objects, …); None if they aren't numbers, or not as many for each."""
    inner = flat
    while _is_list(inner) and not inner.null_count and len(np.unique(_counts(inner))) == 1:
        inner = inner.flatten()
    values: AnyArray = inner.to_numpy(zero_copy_only=False)
    if inner.null_count or values.dtype.kind not in "biuf":
        return None
    return values if inner is flat else values.reshape(len(flat), -1)


def _is_list(array: Any) -> bool:
    import pyarrow as pa

    kinds = pa.types
    return any(test(array.type) for test in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list))


def _counts(array: Any) -> Int64Array:
    """Return the number of values of each list; 0 for a null."""
    import pyarrow.compute as pc

    found: Int64Array = (
        pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return found


def _classes(feature: Any, key: str) -> tuple[str, ...] | None:
    """Return the names of objects' labels, if metadata have them."""
    for each in ("feature", key, "feature"):  # lists are outside of the object, or inside
        feature = feature.get(each, feature) if isinstance(feature, Mapping) else None
    return named_classes(feature)
