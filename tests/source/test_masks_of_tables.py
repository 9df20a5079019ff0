"""Masks of the objects in Hugging Face's data sets, in COCO's forms."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from standpipe.contracts import check_source

datasets = pytest.importorskip("datasets")

HEIGHT, WIDTH = 20, 30
LEFT_HALF = [(15, 0), (15, 20), (0, 20), (0, 0), None]
TRIANGLE, SQUARE = [2.0, 3.0, 12.0, 3.0, 12.0, 13.0], [4.0, 4.0, 8.0, 4.0, 8.0, 8.0, 4.0, 8.0]
POLYGON = datasets.List(datasets.List(datasets.Value("float32")))
SIZE_OF_RUNS = datasets.List(datasets.Value("int32"))
BOX = [0.0, 0.0, 20.0, 15.0]


def loaded(
    folder: Path, shapes: list[Any], kind: Any, *, listed: bool = False, box: Any = BOX, **options: Any
) -> Any:
    """A source of images of ``shapes[n]``, a mask for each object, of a feature ``kind``."""
    data = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT)).save(data, "PNG")
    features = {
        "bbox": datasets.List(datasets.Value("float32"), length=4),
        "category": datasets.Value("int64"),
        "segmentation": kind,
    }
    each: Any = [features] if listed else {name: datasets.List(part) for name, part in features.items()}
    objects: list[Any] = [
        {"bbox": [box] * len(of_image), "category": [*range(len(of_image))], "segmentation": of_image}
        for of_image in shapes
    ]
    if listed:
        objects = [
            [dict(zip(one, row, strict=True)) for row in zip(*one.values(), strict=True)] for one in objects
        ]
    side = datasets.Value("int32")
    rows = len(shapes)
    columns = {
        "image": [{"bytes": data.getvalue(), "path": None}] * rows,
        "width": [WIDTH] * rows,
        "height": [HEIGHT] * rows,
        "objects": objects,
    }
    kinds = datasets.Features({"image": datasets.Image(), "width": side, "height": side, "objects": each})
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(folder)
    return sp.HuggingFace(datasets.load_from_disk(folder), instances="objects", **options)


def points(source: Any, *indices: int) -> list[Any]:
    """The points of each shape of records, with None behind each ring."""
    found = source.open().locate(np.array(indices)).shapes
    parts = np.split(found.values, found.ends[:-1])
    return [[None if np.isnan(x) else (x, y) for x, y in part.tolist()] for part in parts]


@pytest.mark.parametrize("listed", [False, True])
def test_polygons_are_masks(listed: bool, tmp_path: Path) -> None:
    shapes = [[[TRIANGLE], [SQUARE, TRIANGLE]], [], [[SQUARE]]]
    source = loaded(tmp_path, shapes, POLYGON, listed=listed, instance_masks=True)
    check_source(source)
    triangle, square = [(2, 3), (12, 3), (12, 13), None], [(4, 4), (8, 4), (8, 8), (4, 8), None]
    assert points(source, 2, 0) == [square, triangle, square + triangle]
    with sp.Pipeline(source).map(sp.Resize((HEIGHT, WIDTH))).batch(3, masks="dense").loader() as loader:
        masks = loader.peek()["instance_masks"]
    assert masks[:, 7, 4].tolist() == [0, 1, 1]
    assert masks[2].sum() == 16


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        (datasets.Value("string"), "0\\9\\9"),
        (datasets.Value("binary"), b"0\\9\\9"),
        (datasets.List(datasets.Value("int64")), [0, 300, 300]),
    ],
)
def test_runs_of_pixels_are_masks(tmp_path: Path, kind: Any, counts: Any) -> None:
    runs = {"counts": counts, "size": [HEIGHT, WIDTH]}
    kind = {"counts": kind, "size": SIZE_OF_RUNS}
    source = loaded(tmp_path, [[runs]], kind, instance_masks=True)
    assert points(source, 0) == [LEFT_HALF]


def test_invalid_masks_are_faults(tmp_path: Path) -> None:
    shapes = [[[TRIANGLE], None, [[1.0, 2.0]]], [[SQUARE]]]
    source = loaded(tmp_path, shapes, POLYGON, instance_masks=True)
    opened = source.open()
    assert opened.locate(np.array([0, 1])).ragged["labels"].values.tolist() == [0, 0]
    assert [len(each) for each in points(source, 0, 1)] == [4, 5]
    assert "1 × instance without a mask, 1 × mask that isn't polygons" in opened.index_note
    with pytest.raises(sp.PlanError, match="2 faults, first instance without a mask: record 0"):
        loaded(tmp_path / "error", shapes, POLYGON, instance_masks=True, invalid="error").open()


def test_fractions_are_of_polygons(tmp_path: Path) -> None:
    polygon = (np.array(TRIANGLE) / np.tile([WIDTH, HEIGHT], 3)).tolist()
    options: dict[str, Any] = {"normalized": True, "instance_masks": True, "box": [0.0, 0.0, 1.0, 1.0]}
    source = loaded(tmp_path, [[[polygon]]], POLYGON, **options)
    assert np.allclose(points(source, 0)[0][:3], [(2, 3), (12, 3), (12, 13)], atol=1e-5)


def test_shapes_are_no_values_of_objects(tmp_path: Path) -> None:
    """Polygons of one length would be a column of numbers, which transforms don't move."""
    source = loaded(tmp_path / "polygons", [[[SQUARE]] * 2], POLYGON)
    assert not source.open().has_masks
    assert {*source.open().fields} == {"image", "width", "height", "boxes", "labels"}
    without = loaded(tmp_path / "other", [[7]], datasets.Value("int64"), instance_masks=True)
    assert without.open().num_instances == 0
    dataset = without.dataset.map(
        lambda row: {"objects": {n: row["objects"][n] for n in ("bbox", "category")}}
    )
    with pytest.raises(sp.PlanError, match="'objects' needs a list 'segmentation' in each row"):
        sp.HuggingFace(dataset, instances="objects", instance_masks=True).open()
