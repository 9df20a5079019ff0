"""Datasets that people have: torch's, Hugging Face's, and classes like them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import standpipe as sp
from photos import encoded, picture
from preloaded import TORCH
from torchvision_cpu import OPERATORS, torchvision

SETTINGS = [
    pytest.param({"executor": "inline"}, id="inline"),
    pytest.param({"executor": "thread", "num_workers": 2}, id="threads"),
    pytest.param({"executor": "process", "num_workers": 2, "mp_context": TORCH}, id="processes"),
]


class Waves(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Tensors, with noise from torch's generator, as people add it."""

    def __init__(self, length: int) -> None:
        self.waves = torch.linspace(0, 1, length * 8).reshape(length, 8)

    def __len__(self) -> int:
        return len(self.waves)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.waves[index] + index, index % 3


def batches(source: sp.MapSource, **settings: Any) -> list[dict[str, Any]]:
    pipeline = sp.Pipeline(source).shuffle(seed=5).batch(16)
    with pipeline.loader(memory="1GiB", **settings) as loader:
        return [{name: np.array(value) for name, value in batch.items()} for batch in loader]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_torch_dataset_a_subset_and_a_concatenation(settings: dict[str, Any]) -> None:
    whole = Waves(3000)
    subset = torch.utils.data.Subset(whole, list(range(100, 2500)))
    both = torch.utils.data.ConcatDataset([subset, torch.utils.data.Subset(whole, [0, 2, 4])])
    source = sp.MapSource(both, fields=("wave", "label"))
    found = batches(source, **settings)
    expected = batches(source, executor="inline")
    assert len(found) == 2403 // 16
    for one, other in zip(found, expected, strict=True):
        assert {name: (array.shape, array.dtype.name) for name, array in one.items()} == {
            "wave": ((16, 8), "float32"),
            "label": ((16,), "int64"),
            "index": ((16,), "int64"),
        }
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
        inside = one["index"] < 2400
        np.testing.assert_array_equal(one["label"][inside], (one["index"][inside] + 100) % 3)


@pytest.mark.parametrize("settings", SETTINGS)
def test_torchvisions_folder_with_its_own_transform(settings: dict[str, Any], tmp_path: Path) -> None:
    if OPERATORS is not None and settings["executor"] == "process":
        pytest.skip(
            "this torchvision can be imported with torchvision_cpu only, which workers know nothing of"
        )
    for number in range(12):
        path = tmp_path / "abc"[number % 3] / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded(picture(number), quality=90))
    v2 = torchvision.transforms.v2
    resized = v2.Compose([v2.Resize((16, 16)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    dataset = torchvision.datasets.ImageFolder(str(tmp_path), transform=resized)
    with sp.Pipeline(sp.MapSource(dataset)).batch(12).loader(memory="1GiB", **settings) as loader:
        (batch,) = loader
    np.testing.assert_array_equal(batch["label"], np.arange(12) // 4)
    for row, (image, _) in enumerate(dataset):
        np.testing.assert_array_equal(batch["image"][row], image.numpy())


class Rows:
    """As a Hugging Face dataset: rows as dicts, lists of numbers in them, and a fingerprint of its content."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "image": Image.new("RGB", (4, 4), (index, 0, 0)),
            "text": f"row {index}",
            "tokens": [index] * index,
        }


@pytest.mark.parametrize("settings", SETTINGS)
def test_rows_as_dicts(settings: dict[str, Any]) -> None:
    with sp.Pipeline(sp.MapSource(Rows("a"))).batch(8).loader(memory="1GiB", **settings) as loader:
        first = next(iter(loader))
    assert first["image"].shape == (8, 4, 4, 3)
    assert first["text"] == [f"row {index}" for index in range(8)]
    assert first["tokens"] == [[index] * index for index in range(8)]


def test_a_fingerprint_stands_for_the_content() -> None:
    def digest(source: sp.MapSource) -> str:
        return sp.Pipeline(source).batch(8).plan().digest

    assert digest(sp.MapSource(Rows("a"))) == digest(sp.MapSource(Rows("a")))
    assert digest(sp.MapSource(Rows("a"))) != digest(sp.MapSource(Rows("b")))
    with sp.Pipeline(sp.MapSource(Rows("a"))).batch(8).loader() as one:
        state = one.state_dict()
    with (
        sp.Pipeline(sp.MapSource(Rows("b"))).batch(8).loader() as other,
        pytest.raises(sp.StateError, match="source"),
    ):
        other.load_state_dict(state)
