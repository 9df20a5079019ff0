from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from standpipe import PlanError
from standpipe.cli import main
from standpipe.cli.show import ShownRow, contact_sheet, spread


def row(
    draws: int = 6, size: int = 48, label: str = "class-3", name: str = "class-3/00000013.jpg"
) -> ShownRow:
    steps = np.arange(1, draws + 1, dtype=np.uint8) * 20
    pixels = np.broadcast_to(steps[:, None, None, None], (draws, size, size, 3)).copy()
    pixels[..., 0] = 255  # no grey of a caption has this red
    return ShownRow(pixels, label, name)


def columns_and_rows(sheet: np.ndarray, tone: int) -> tuple[int, int, int]:
    """First column, first row and number of pixels of a draw."""
    found = np.argwhere((sheet == (255, tone, tone)).all(axis=2))
    return int(found[:, 1].min()), int(found[:, 0].min()), len(found)


def test_draws_stand_side_by_side_and_records_below_each_other() -> None:
    sheet = np.asarray(contact_sheet([row(), row()]))
    places = [columns_and_rows(sheet, 20 * draw) for draw in range(1, 7)]
    assert [pixels for *_, pixels in places] == [2 * 48 * 48] * 6
    assert [x for x, _, _ in places] == sorted({x for x, _, _ in places})
    assert len({y for _, y, _ in places}) == 1
    one = np.asarray(contact_sheet([row()]))
    assert one.shape[1] == sheet.shape[1]
    assert one.shape[0] < sheet.shape[0] < 2 * one.shape[0]


def test_pixels_are_shown_as_they_are() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (2, 40, 30, 3), np.uint8)
    sheet = np.asarray(contact_sheet([ShownRow(noise, "a", "b.jpg")]))
    for draw in noise:
        corners = np.argwhere((sheet == draw[0, 0]).all(axis=2))
        assert any(np.array_equal(sheet[y : y + 40, x : x + 30], draw) for y, x in corners)


def test_captions_stay_inside_and_long_names_use_the_room_there_is() -> None:
    names = ["x.jpg", "deep/" * 60 + "end.jpg", "W" * 5000]
    sheets = [np.asarray(contact_sheet([row(name=name)])) for name in names]
    assert len({sheet.shape for sheet in sheets}) == 1
    height, width, _ = sheets[0].shape
    ends = [np.argwhere((sheet[height - 40 :] < 200).all(axis=2))[:, 1].max() / width for sheet in sheets]
    assert ends[0] < 0.6
    assert all(0.85 < end < 0.97 for end in ends[1:])


def test_the_end_of_a_long_name_is_kept() -> None:
    sheets = [np.asarray(contact_sheet([row(name="deep/" * 60 + end)])) for end in ("one.jpg", "two.jpg")]
    assert not np.array_equal(*sheets)


@pytest.mark.parametrize("name", [os.fsdecode(b"caf\xe9.jpg"), "line\nbreak.jpg", "猫.jpg", "", "\ud800.jpg"])
def test_any_name_can_be_printed(name: str) -> None:
    plain = contact_sheet([row(name="x")]).size
    assert contact_sheet([row(name=name, label=name)]).size == plain


@pytest.mark.parametrize(("draws", "size"), [(1, 1), (1, 224), (12, 16)])
def test_small_sheets_keep_room_for_text(draws: int, size: int) -> None:
    sheet = contact_sheet([row(draws, size)])
    assert sheet.width >= 240


def test_rows_of_different_shapes() -> None:
    sheet = np.asarray(contact_sheet([row(2, 20), row(5, 64)]))
    assert columns_and_rows(sheet, 20)[2] == 20 * 20 + 64 * 64


@pytest.mark.parametrize(
    "draws",
    [np.zeros((2, 8, 8), np.uint8), np.zeros((2, 8, 8, 3), np.float32), np.zeros((0, 8, 8, 3), np.uint8)],
)
def test_refuses_what_is_no_row(draws: np.ndarray) -> None:
    with pytest.raises(PlanError, match=r"must be \(draws, H, W, 3\) uint8"):
        contact_sheet([ShownRow(draws, "a", "b")])


def test_refuses_an_empty_sheet() -> None:
    with pytest.raises(PlanError, match="at least one row"):
        contact_sheet([])


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
    arguments = ["--images", str(asked), "--draws", "4", "--size", "32", "--output", "sheet.png"]
    assert main(["show", str(photos), *arguments]) == 0
    sheet = pixels_of("sheet.png")
    areas = [int((sheet == (255, tone, tone)).all(axis=2).sum()) for tone in range(20, 220, 40)]
    assert areas == [4 * 32 * 32] * shown + [0] * (5 - shown)


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
    assert main(["show", str(photos), "--images", "3", "--size", "32", "--output", "sheet.png"]) == 0
    sheet = pixels_of("sheet.png")
    assert [(sheet == (255, tone, tone)).all(axis=2).sum() for tone in (20, 7, 8)] == [6 * 32 * 32] * 3


def test_draws_are_those_of_training_epochs(photos: Path) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (48, 64, 3), np.uint8)).save(photos / "cat" / "0.png")
    assert (
        main(["show", str(photos), "--draws", "3", "--size", "32", "--seed", "5", "--output", "sheet.png"])
        == 0
    )
    sheet = pixels_of("sheet.png")
    pipeline = sp.Pipeline(sp.ImageFolder(photos), seed=5)
    pipeline = pipeline.map(sp.RandomResizedCrop(32), sp.RandomHorizontalFlip()).batch(1)
    with pipeline.loader(memory="64MiB", num_workers=1) as loader:
        for _ in range(3):
            draw = next(iter(loader))["image"][0].copy()
            corners = np.argwhere((sheet == draw[0, 0]).all(axis=2))
            assert any(np.array_equal(sheet[y : y + 32, x : x + 32], draw) for y, x in corners)


def test_a_sheet_for_programs(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(photos), "--draws", "2", "--size", "32", "--output", "sheet.png", "--json"]) == 0
    height, width, _ = pixels_of("sheet.png").shape
    facts = {"path": "sheet.png", "width": width, "height": height, "images": 5, "draws": 2}
    assert json.loads(capsys.readouterr().out) == facts


@pytest.mark.parametrize(
    "arguments", [["--size", "20000"], ["--images", "5", "--size", "4000"], ["--draws", "100000"]]
)
def test_refuses_a_sheet_too_large_before_any_work(
    photos: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in photos.glob("*/*.png"):
        path.write_bytes(b"")  # reading one would fail
    assert main(["show", str(photos), *arguments, "--output", "sheet.png"]) == 1
    assert "above 100 megapixels; lower --size, --images or --draws" in capsys.readouterr().err
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
