"""What stands for Python code in a cache's identity."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import albumentations
import numpy as np
import pytest

import standpipe as sp
from programs import LIMIT_S
from standpipe.identity.modules import is_installed, is_packaged
from standpipe.identity.parts import code_parts


def parts_of(*transforms: Any, dataset: Any = None, **options: Any) -> dict[str, str]:
    pipeline = sp.Pipeline(sp.Arrays(image=np.zeros((1, 4, 4, 3), np.uint8)))
    return code_parts(pipeline.map(*transforms, **options).transforms, dataset)


def brighter(by: int) -> Callable[[Any], Any]:
    def add(image: Any) -> Any:
        return image + by

    return add


def darker(by: int) -> Callable[[Any], Any]:
    def add(image: Any) -> Any:
        return image - by

    return add


class Dataset:
    """Two samples."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> int:
        return self.values[index]


class Marked(Dataset):
    """One that says what it is."""

    def __init__(self, values: list[int], mark: str) -> None:
        super().__init__(values)
        self._fingerprint = mark


def test_code_and_the_values_it_uses_make_another_identity() -> None:
    one = parts_of(brighter(1))
    assert one == parts_of(brighter(1))
    others = (
        parts_of(brighter(2)),
        parts_of(darker(1)),
        parts_of(brighter(1), field="image"),
        parts_of(brighter(1), field="image", input_format="pil"),
        parts_of(brighter(1), brighter(1)),
        parts_of(),
    )
    assert all(one != other for other in others)
    assert len({str(other) for other in others}) == len(others)


def test_transforms_of_standpipe_have_no_part_here() -> None:
    assert parts_of(sp.Resize(8)) == {}


def test_a_dataset_enters_by_what_it_holds_or_says_of_itself() -> None:
    assert parts_of(dataset=Dataset([1, 2])) == parts_of(dataset=Dataset([1, 2]))
    assert parts_of(dataset=Dataset([1, 2])) != parts_of(dataset=Dataset([1, 3]))
    assert parts_of(dataset=Marked([1], "a")) == parts_of(dataset=Marked([2], "a"))
    assert parts_of(dataset=Marked([1], "a")) != parts_of(dataset=Marked([1], "b"))


def test_packages_enter_by_their_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    def shrink(image: Any) -> Any:
        return np.ascontiguousarray(image[::2])

    assert parts_of(shrink)["package numpy"].startswith(f"{np.__version__} ")
    transform = albumentations.Resize(8, 8)
    before = parts_of(transform)
    assert {"package albumentations", "package cv2", "package numpy"} <= before.keys()
    monkeypatch.setattr(albumentations, "__version__", "2.0.9")
    assert parts_of(transform) != before


def test_a_package_that_was_installed_again_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the same version, as one's own package is."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    (site / "of_mine.py").write_text("def f(image): return image\n")
    about = site / "of_mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: of-mine\nVersion: 1.0\n")
    record = about / "RECORD"
    record.write_text("of_mine.py,sha256=a,31\n../../bin/of-mine,sha256=b,99\n")
    is_installed.cache_clear(), is_packaged.cache_clear()
    import of_mine  # type: ignore[import-not-found]

    try:
        before = parts_of(of_mine.f)
        assert before["package of_mine"].startswith("1.0 ")
        record.write_text("of_mine.py,sha256=a,31\n../../bin/of-mine,sha256=of another place,99\n")
        assert parts_of(of_mine.f) == before
        record.write_text("of_mine.py,sha256=c,31\n../../bin/of-mine,sha256=b,99\n")
        assert parts_of(of_mine.f) != before
    finally:
        is_installed.cache_clear(), is_packaged.cache_clear()
        del sys.modules["of_mine"]


def test_equal_in_every_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import albumentations as A, numpy as np, standpipe as sp\n"
        "from standpipe.identity.parts import code_parts\n"
        "whole = A.Compose([A.Resize(8, 8), A.Normalize()])\n"
        "def made(image):\n"
        "    return whole(image=image)['image']\n"
        "pipeline = sp.Pipeline(sp.Arrays(image=np.zeros((1, 4, 4, 3), np.uint8))).map(whole, made)\n"
        "print(code_parts(pipeline.transforms, {'b', 'a', 'c'}))\n"
    )

    def said() -> str:
        return subprocess.run(
            [sys.executable, program], capture_output=True, text=True, timeout=LIMIT_S, check=True
        ).stdout

    assert said() == said()


def test_what_cant_be_told_apart_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        with pytest.raises(sp.PlanError, match=r"changes of .*add can't be detected.*_fingerprint"):
            parts_of(brighter(file))  # type: ignore[arg-type]
        with pytest.raises(sp.PlanError, match=r"changes of the dataset can't be detected.*_fingerprint"):
            parts_of(dataset=Dataset(file))  # type: ignore[arg-type]
        assert parts_of(dataset=Marked(file, "a"))  # type: ignore[arg-type]


def test_own_generators_are_refused() -> None:
    with pytest.raises(sp.PlanError, match=r"add holds Generator of numpy"):
        parts_of(brighter(np.random.default_rng(0)))  # type: ignore[arg-type]
    with pytest.raises(sp.PlanError, match=r"add holds HorizontalFlip of albumentations"):
        parts_of(brighter(albumentations.Compose([albumentations.HorizontalFlip()])))
    with pytest.raises(sp.PlanError, match=r"the dataset holds Random of random"):
        parts_of(dataset=Dataset(random.Random(3)))  # type: ignore[arg-type]


def test_what_a_function_imports_when_it_is_called_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_mine").mkdir()
    for name in ("__init__", "near", "far"):
        (tmp_path / "of_mine" / f"{name}.py").write_text("by = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def near(image: Any) -> Any:
        from of_mine import near  # type: ignore[import-not-found]

        return image + near.by

    def far(image: Any) -> Any:
        import os

        import cv2
        import of_mine.far  # type: ignore[import-not-found]

        return cv2.blur(image, (of_mine.far.by, len(os.sep)))

    before = parts_of(near), parts_of(far)
    assert before == (parts_of(near), parts_of(far))
    assert "package cv2" in before[1]
    (tmp_path / "of_mine" / "far.py").write_text("by = 2\n")
    after = parts_of(near), parts_of(far)
    assert after[1] != before[1]
    (tmp_path / "of_mine" / "near.py").write_text("by = 2\n")
    assert parts_of(near) != after[0]
    assert "of_mine" not in sys.modules


def test_a_version_stands_for_code_without_a_file() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def add(image): return image + 1", names)
    pipeline = sp.Pipeline(sp.Arrays(image=np.zeros((1, 4, 4, 3), np.uint8))).map(names["add"])
    with pytest.raises(
        sp.PlanError, match=r"changes of __main__.add can't be detected.*notebook.*Use Cache\(version=…\)"
    ):
        code_parts(pipeline.transforms)
    first, again, other, number = (
        code_parts(pipeline.transforms, version=each) for each in ("1", "1", "2", 1)
    )
    assert first == again
    assert first not in (other, number)
    assert code_parts(pipeline.map(brighter(1)).transforms, version="1") != code_parts(
        pipeline.map(brighter(2)).transforms, version="1"
    )
