from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from standpipe import PlanError
from standpipe.cli import main
from standpipe.cli.synth.folder import synthesize
from standpipe.cli.synth.photo import encoding, jpeg, photo

NUM_IMAGES = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synth") / "photos"
    made = synthesize(out, NUM_IMAGES, seed=5, num_workers=2)
    assert (made.images, made.written) == (NUM_IMAGES, NUM_IMAGES)
    assert made.written_bytes == sum(path.stat().st_size for path in out.glob("*/*.jpg"))
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".json"
    }


def test_layout(folder: Path) -> None:
    expected = {f"class-{i % 10}/{i:08d}.jpg" for i in range(NUM_IMAGES)}
    assert set(contents(folder)) == expected


def test_labels_sort_like_their_names(tmp_path: Path) -> None:
    synthesize(tmp_path / "out", 11, classes=11)
    names = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert names == [f"class-{label:02d}" for label in range(11)]


def test_files_are_what_encoding_says(folder: Path) -> None:
    for path in folder.glob("*/*.jpg"):
        how = encoding(5, int(path.stem))
        with Image.open(path) as image:
            image.load()
            assert image.size == (how.width, how.height)
            assert image.mode == ("L" if how.grey else "RGB")


def test_bytes_per_pixel_are_like_imagenets(folder: Path) -> None:
    shares = []
    for path in folder.glob("*/*.jpg"):
        how = encoding(5, int(path.stem))
        shares.append(path.stat().st_size / (how.height * how.width))
    # 500 files of ImageNet: median 0.585, half of them between 0.325 and 0.80, extremes 0.087 and 1.67
    assert 0.45 < np.median(shares) < 0.72
    assert min(shares) > 0.05
    assert max(shares) < 2.2
    assert np.quantile(shares, 0.75) > 1.5 * np.quantile(shares, 0.25)


def test_sizes_and_settings_are_like_imagenets() -> None:
    all_of_them = [encoding(0, i) for i in range(1000)]
    pixels = np.array([how.height * how.width for how in all_of_them])
    assert 170_000 < np.mean(pixels) < 225_000
    assert 0.15 < np.mean([(how.width, how.height) == (500, 375) for how in all_of_them]) < 0.25
    assert 0.6 < np.mean([how.width > how.height for how in all_of_them]) < 0.8
    assert 0.15 < np.mean([how.subsampling == 2 for how in all_of_them]) < 0.3
    assert 0.01 < np.mean([how.grey for how in all_of_them]) < 0.035
    assert pixels.min() >= 8_000
    assert pixels.max() < 3_000_000


def test_an_image_depends_on_its_seed_and_index_alone(folder: Path, tmp_path: Path) -> None:
    synthesize(tmp_path / "few", 7, seed=5, num_workers=1)
    synthesize(tmp_path / "few", 12, seed=5, num_workers=3)  # enlarged, on other threads
    few, many = contents(tmp_path / "few"), contents(folder)
    assert len(few) == 12
    assert few == {name: many[name] for name in few}
    assert many["class-3/00000003.jpg"] == jpeg(5, 3)
    assert jpeg(5, 3) != jpeg(6, 3)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 300), (7, 3), (64, 48), (1100, 40)])
def test_photos_of_any_size(height: int, width: int) -> None:
    for index in range(10):
        pixels = photo(1, index, height, width)
        assert pixels.shape == (height, width, 3)
        assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, photo(1, 9, height, width))


def test_photos_have_the_spectrum_of_photos() -> None:
    y = np.hypot(*np.meshgrid(np.fft.fftfreq(256), np.fft.fftfreq(256)))
    rings = [(y > low) & (y <= 2 * low) for low in (1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8)]
    amplitude = np.zeros((256, 256))
    for index in range(10):
        amplitude += np.abs(np.fft.fft2(photo(0, index, 256, 256).mean(axis=2)))
    octaves = np.log2([amplitude[ring].mean() for ring in rings])
    slope = -np.polyfit(np.arange(len(rings)), octaves, 1)[0]
    assert 0.7 < slope < 1.5  # photos: about 1/f


def test_an_interrupted_run_leaves_whole_files_and_is_completed(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def interrupt(done: int, total: int) -> None:
        assert total == 20
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesize(out, 20, seed=5, on_progress=interrupt)
    many, before = contents(folder), contents(out)
    assert 3 <= len(before) < 20
    assert before == {name: many[name] for name in before}

    seen: list[tuple[int, int]] = []
    made = synthesize(out, 20, seed=5, on_progress=lambda done, total: seen.append((done, total)))
    assert made.written == 20 - len(before)
    assert seen == [(done, 20) for done in range(len(before) + 1, 21)]
    assert contents(out) == {f"class-{i % 10}/{i:08d}.jpg": jpeg(5, i) for i in range(20)}
    assert synthesize(out, 20, seed=5).written == 0


def test_refuses_folders_that_hold_other_things(tmp_path: Path) -> None:
    foreign = tmp_path / "holiday"
    foreign.mkdir()
    (foreign / "me.jpg").write_bytes(b"mine")
    with pytest.raises(PlanError, match=r"holds other things \('me\.jpg'\)"):
        synthesize(foreign, 3)
    assert contents(foreign) == {"me.jpg": b"mine"}
    with pytest.raises(PlanError, match="is a file"):
        synthesize(foreign / "me.jpg", 3)

    ours = tmp_path / "ours"
    synthesize(ours, 2)
    with pytest.raises(PlanError, match="was made with"):
        synthesize(ours, 2, seed=1)
    with pytest.raises(PlanError, match="has 2 images already"):
        synthesize(ours, 1)


@pytest.mark.parametrize("wrong", [{"images": 0}, {"images": 3, "classes": 0}, {"images": 3, "seed": -1}])
def test_refuses_numbers_without_sense(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(PlanError, match="must be at least"):
        synthesize(tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "with [bold]brackets")
    assert main(["synth", out, "--images", "3", "--classes", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["path"] == out
    assert (facts["images"], facts["classes"], facts["seed"], facts["written"]) == (3, 2, 0, 3)
    assert facts["written_bytes"] == sum(map(len, contents(Path(out)).values()))

    assert main(["synth", out, "--images", "3", "--classes", "2"]) == 0
    assert capsys.readouterr().out == f"{out} was complete: 3 images\n"
    assert main(["synth", out, "--images", "4", "--classes", "2"]) == 0
    assert "1 images written, 3 were there" in capsys.readouterr().out
    assert main(["synth", out, "--images", "4"]) == 1
    assert capsys.readouterr().err.startswith(f"standpipe: {out} was made with")
