from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import painted
from standpipe.cli import main
from standpipe.cli.show import spread


def test_refuses_wrong_arguments_before_any_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "nowhere", "--output", "sheet.txt"]) == 1
    assert "sheet.txt" in capsys.readouterr().err
    assert main(["show", "nowhere", "--output", "sheet.png", "--draws", "0"]) == 1
    assert "--draws must be at least 1, not 0" in capsys.readouterr().err


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of five photos, each of one colour, and the working directory above it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    for number in range(5):
        Image.new("RGB", (64, 48), (255, 20 + 40 * number, 20 + 40 * number)).save(folder / f"{number}.png")
    return Path("photos")


def pixels_of(path: str) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.mark.parametrize(("asked", "shown"), [(3, 3), (8, 5)])
def test_a_sheet_holds_the_first_photos_in_several_epochs(photos: Path, asked: int, shown: int) -> None:
    arguments = ["--images", str(asked), "--draws", "4", "--size", "100", "--output", "sheet.png"]
    assert main(["show", str(photos), *arguments]) == 0
    sheet = pixels_of("sheet.png")
    areas = [int((sheet == (255, tone, tone)).all(axis=2).sum()) for tone in range(20, 220, 40)]
    assert areas == [4 * 100 * 100] * shown + [0] * (5 - shown)


def test_rows_are_spread_over_the_classes() -> None:
    labels = np.repeat(np.arange(4, dtype=np.uint8), [5, 1, 5, 5])
    assert spread(labels, 4).tolist() == [0, 5, 6, 11]
    assert spread(labels, 7).tolist() == [0, 1, 5, 6, 7, 11, 12]
    assert spread(labels, 2).tolist() == [0, 6]
    assert spread(labels, 16).tolist() == list(range(16))
    assert spread(np.array([3, 0, 3, 0, -1]), 3).tolist() == [0, 1, 4]


def test_a_sheet_has_photos_of_every_class(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, folder in enumerate(("dog", "emu")):
        (photos / folder).mkdir()
        Image.new("RGB", (64, 48), (255, 7 + number, 7 + number)).save(photos / folder / "0.png")
    assert main(["show", str(photos), "--images", "3", "--size", "100", "--output", "sheet.png"]) == 0
    sheet = pixels_of("sheet.png")
    assert [(sheet == (255, tone, tone)).all(axis=2).sum() for tone in (20, 7, 8)] == [6 * 100 * 100] * 3


def test_draws_are_those_of_training_epochs(photos: Path) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (48, 64, 3), np.uint8)).save(photos / "cat" / "0.png")
    arguments = ["--draws", "3", "--size", "100", "--seed", "5", "--output", "sheet.png"]
    assert main(["show", str(photos), *arguments]) == 0
    sheet = pixels_of("sheet.png")
    pipeline = sp.Pipeline(sp.ImageFolder(photos), seed=5)
    pipeline = pipeline.map(sp.RandomResizedCrop(100), sp.RandomHorizontalFlip()).batch(1)
    with pipeline.loader(memory="64MiB", num_workers=1) as loader:
        for _ in range(3):
            draw = next(iter(loader))["image"][0].copy()
            corners = np.argwhere((sheet == draw[0, 0]).all(axis=2))
            assert any(np.array_equal(sheet[y : y + 100, x : x + 100], draw) for y, x in corners)


def test_a_sheet_for_programs(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(photos), "--draws", "2", "--size", "32", "--output", "sheet.png", "--json"]) == 0
    height, width, _ = pixels_of("sheet.png").shape
    facts = {"path": "sheet.png", "width": width, "height": height, "images": 5, "draws": 2}
    assert json.loads(capsys.readouterr().out) == facts


def test_refuses_a_sheet_too_large_before_any_work(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in photos.glob("*/*.png"):
        path.write_bytes(b"")  # reading one would fail
    assert main(["show", str(photos), "--draws", "100000", "--output", "sheet.png"]) == 1
    assert "921 megapixels, above 100: draw fewer samples or epochs" in capsys.readouterr().err
    assert not Path("sheet.png").exists()


@pytest.fixture
def recipe(photos: Path) -> sp.Pipeline:
    """A pipeline, whose settings are in recipe.json."""
    pipeline = sp.Pipeline(sp.ImageFolder(photos), seed=5).map(sp.RandomResizedCrop(100), sp.Normalize())
    Path("recipe.json").write_text(json.dumps(pipeline.shuffle(seed=5).batch(256).to_dict()))
    return pipeline


def test_a_recipe_is_drawn_as_its_pipeline_draws_it(
    recipe: sp.Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["show", "photos", "--recipe", "recipe.json", "--output", "sheet.png", "--json"]
    for steps in (False, True):
        assert main([*arguments, *["--steps"] * steps]) == 0
        expected = recipe.shuffle(seed=5).show(steps=steps).image
        assert np.array_equal(pixels_of("sheet.png"), np.asarray(expected))
        facts = {"path": "sheet.png", "width": expected.width, "height": expected.height, "images": 5}
        assert json.loads(capsys.readouterr().out) == facts


def test_steps_without_a_recipe_are_those_of_the_crop_and_the_flip(photos: Path) -> None:
    assert (
        main(["show", str(photos), "--steps", "--images", "2", "--size", "100", "--output", "sheet.png"]) == 0
    )
    pipeline = sp.Pipeline(sp.ImageFolder(photos)).map(sp.RandomResizedCrop(100), sp.RandomHorizontalFlip())
    assert np.array_equal(pixels_of("sheet.png"), np.asarray(pipeline.show(2, steps=True).image))


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("{", [], "the recipe recipe.json isn't JSON"),
        ("[]", [], "from_dict takes the dict that to_dict() returned, got list"),
        ('{"version": 99}', [], "the recipe has version 99"),
        (None, [], "can't read the recipe recipe.json"),
        ("{}", ["--draws", "2"], "--draws has no effect"),
        ("{}", ["--size", "32"], "--size has no effect"),
    ],
)
def test_refuses_what_is_no_recipe(
    photos: Path, text: str | None, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        Path("recipe.json").write_text(text)
    assert main(["show", str(photos), "--recipe", "recipe.json", *arguments, "--output", "sheet.png"]) == 1
    assert message in " ".join(capsys.readouterr().err.split())


def test_annotations_are_named_by_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = painted(tmp_path, 3)
    crop = sp.RandomResizedCrop(100), sp.RandomHorizontalFlip()
    expected = np.asarray(sp.Pipeline(source).map(*crop).show(3, epoch=range(2)).image)
    output = str(tmp_path / "sheet.png")
    arguments = [str(tmp_path / "instances.json"), "--root", str(tmp_path / "images"), "--draws", "2"]
    assert main(["show", *arguments, "--size", "100", "--output", output]) == 0
    assert np.array_equal(pixels_of(output), expected)
