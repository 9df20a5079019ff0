"""Progressive JPEGs that lack scans but end properly: libjpeg smooths over what is missing."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from jpegs import SAMPLINGS, Coding, encode, photo, saved
from reference import SMOOTHS_AS_PILLOW, check_rows, decoded, delivered, explain_difference, in_order, listed

CROP = sp.RandomResizedCrop((30, 40), scale=(0.01, 0.5))


def without_scans(data: bytes) -> Iterator[bytes]:
    """A progressive JPEG with its first scan, its first two, and so on, each with the marker at its end."""
    end = data.rindex(b"\xff\xd9")
    at = data.index(b"\xff\xda")
    while (at := data.find(b"\xff\xda", at + 1)) >= 0:
        yield data[:at] + data[end:]


def files() -> dict[str, bytes]:
    """Files of several sizes, one of them two blocks wide, and samplings, by what they are."""
    made = {}
    for height, width in ((90, 120), (33, 16), (61, 47)):
        pixels = photo(height, width)
        for sampling in ("4:4:4", "4:2:2", "4:2:0"):
            data = saved(pixels, progressive=True, subsampling=sampling)
            cuts = dict(enumerate(without_scans(data), 1))
            made |= {f"{width}x{height} {sampling} {scans} scans": cut for scans, cut in cuts.items()}
        for name, first in SAMPLINGS.items():
            coding = Coding(factors=(first, (1, 1), (1, 1)), scans="dc only")
            made[f"{width}x{height} {name} dc only"] = encode(pixels, coding)
    made["grey"] = next(without_scans(saved(photo(90, 120, channels=1), progressive=True)))
    return made


FILES = files()


@pytest.mark.skipif(
    not SMOOTHS_AS_PILLOW, reason="libjpeg-turbo before 3.0.1 smooths otherwise than Pillow's"
)
@pytest.mark.parametrize("crop", [None, CROP], ids=["whole", "crops"])
def test_a_jpeg_that_lacks_scans_has_pillows_pixels(
    tmp_path: Path, crop: sp.RandomResizedCrop | None
) -> None:
    for name, data in FILES.items():
        image = decoded(data)
        transform = crop or sp.Resize((image.height, image.width))
        source = listed(tmp_path, [data], times=20 if crop else 1)
        check_rows(delivered(in_order(source, transform)), {name: image}, [transform])


def test_a_scan_names_jpegs_whose_pixels_arent_pillows(tmp_path: Path) -> None:
    whole = {"whole": saved(photo(90, 120), progressive=True), "baseline": saved(photo(90, 120))}
    every = FILES | whole
    source = listed(tmp_path, list(every.values()))
    named = {list(every)[finding.index] for finding in sp.check_files(source).findings("smoothed")}
    differing = set()
    for number, (name, data) in enumerate(every.items()):
        image = np.asarray(decoded(data))
        (tmp_path / str(number)).mkdir()
        (ours,) = delivered(in_order(listed(tmp_path / str(number), [data]), sp.Resize(image.shape[:2])))
        if explain_difference(ours, image):
            differing.add(name)
    assert differing <= named
    assert not named & set(whole)
    assert bool(differing) == bool(named) == (not SMOOTHS_AS_PILLOW)
