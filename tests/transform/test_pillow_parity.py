"""Damaged files: refused exactly where Pillow 13 refuses them, whatever the crop, and delivered with its pixels."""

from pathlib import Path

import pytest
from PIL import Image

import standpipe as sp
from draws import Sample
from jpegs import marked, photo, saved
from model.pictures import transformed
from parity import CROP, SIZE_PX, Parity, damaged, delivered, small_photos
from reference import decoded, in_order, listed
from standpipe.transform import decoder_version

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about damaged metadata

FILES = small_photos(lambda number: Image.fromarray(photo(*SIZE_PX, seed=number)))
BASELINE = FILES["JPEG 4:2:0"]
SCAN = BASELINE.index(b"\xff\xda")
# An older libjpeg-turbo smooths otherwise where a progressive JPEG lacks scans.
SMOOTHS_AS_PILLOW = int(decoder_version().partition(".")[0]) >= 3


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


def with_segment(inserted: bytes, data: bytes = BASELINE) -> bytes:
    """The JPEG with something behind its first marker."""
    return data[:2] + inserted + data[2:]


def exif(kind: int, count: int, value: bytes) -> bytes:
    """EXIF whose horizontal resolution has another type than it should."""
    entries = b"\x1a\x01" + bytes([kind, 0]) + count.to_bytes(4, "little") + value.ljust(4, b"\0")
    entries += b"\x28\x01\3\0\1\0\0\0\2\0\0\0"
    return segment(0xE1, b"Exif\0\0II*\0\10\0\0\0\2\0" + entries + bytes(4))


WITHOUT_JFIF = BASELINE[:2] + BASELINE[20:]
HEADERS = {
    "a resolution of one byte": with_segment(exif(1, 1, b"\x07"), WITHOUT_JFIF),
    "a resolution in text": with_segment(exif(2, 2, b"7"), WITHOUT_JFIF),
    "an undefined resolution": with_segment(exif(7, 1, b"\x07"), WITHOUT_JFIF),
    "a resolution as a number": with_segment(exif(3, 1, b"\x07"), WITHOUT_JFIF),
    "a short JFIF": with_segment(segment(0xE0, b"JFIF\0")),
    "a short Adobe": with_segment(segment(0xEE, b"Adobe\0")),
    "a short ICC profile": with_segment(segment(0xE2, b"ICC_PROFILE\0\1")),
    "Photoshop, cut": with_segment(segment(0xED, b"Photoshop 3.0\x008BIM\3\xed")),
    "another picture's index": with_segment(segment(0xE2, b"MPF\0II*\0\10\0\0\0\1\0")),
    "bytes between segments": with_segment(b"abc"),
    "a fill byte": with_segment(b"\xff"),
    "a start marker more": with_segment(b"\xff\xd8"),
    "an end marker first": with_segment(b"\xff\xd9"),
    "tables first": BASELINE[:20] + b"\xff\xd9" + BASELINE,
    "a restart marker": with_segment(b"\xff\xd3"),
    "a reserved marker": with_segment(b"\xff\x02"),
    "TEM": with_segment(b"\xff\x01"),
    "a length of 0": with_segment(b"\xff\xe5\0\0"),
    "hierarchical": marked(BASELINE, 0xC5),
    "arithmetic by its marker": marked(BASELINE, 0xC9),
    "no scan": BASELINE[:SCAN],
    "two scans": BASELINE[:-2] + BASELINE[SCAN:],
    "no end": BASELINE[:-2],
    "half an end": BASELINE[:-1],
    "rows behind the end": BASELINE + BASELINE[SCAN + 20 :],
}


def compared(files: list[tuple[str, bytes]], folder: Path) -> Parity:
    parity = Parity()
    for begin in range(0, len(files), 200):  # a loader lists its newest 1,000 bad samples
        parity.add(files[begin : begin + 200], folder / str(begin))
    return parity


def test_damaged_files_are_refused_and_delivered_as_by_pillow(tmp_path: Path) -> None:
    parity = compared(list(damaged(FILES, 800, seed=5)), tmp_path)
    if not SMOOTHS_AS_PILLOW:
        parity.other_pixels = [line for line in parity.other_pixels if "JPEG, progressive" not in line]
    assert parity.differences == []
    assert parity.files == 800
    assert 300 < parity.refused < 500


def test_odd_headers_are_read_as_by_pillow(tmp_path: Path) -> None:
    parity = compared(list(HEADERS.items()), tmp_path)
    assert parity.differences == []
    assert 8 < parity.refused < len(HEADERS) - 5


@pytest.mark.parametrize("marker", [0x02, 0xC0, 0xC4, 0xD8, 0xDA, 0xD3])
def test_a_stray_marker_in_the_scan_has_one_verdict(tmp_path: Path, marker: int) -> None:
    """Of 20 crops, also those that end above it."""
    at = (SCAN + len(BASELINE)) // 2
    data = BASELINE[:at] + bytes([0xFF, marker]) + BASELINE[at + 2 :]
    crop = (sp.RandomResizedCrop((24, 31), scale=(0.02, 0.3)),)
    rows, reasons = delivered(in_order(listed(tmp_path, [data, BASELINE], times=20), *crop))
    is_bad = {position in reasons for position in range(0, 40, 2)}
    try:
        expected = decoded(data)
    except OSError:
        assert is_bad == {True}
        assert {reason.partition(":")[0] for reason in reasons.values()} == {"damaged JPEG"}
    else:
        assert is_bad == {False}
        for position in range(0, 40, 2):
            assert (rows[position] == transformed(expected, crop, Sample(position=position))).all()
    assert marker == 0xD3 or is_bad == {True}  # a restart marker is passed over


def test_scan_finds_what_a_loader_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = list(damaged(FILES, 200, seed=6))
    source = listed(tmp_path, [data for _, data in files])
    _, reasons = delivered(in_order(source, *CROP))
    limits = sp.DecodeLimits(max_pixels=1 << 22)
    found = sp.check_files(source, limits=limits, duplicates=False)
    assert {finding.index: finding.text for finding in found.findings() if finding.level == "bad"} == reasons


def test_a_second_block_is_read_only_where_pillow_reads_it(tmp_path: Path) -> None:
    """Rubbish behind the last row counts only as far as Pillow has read: blocks of 64 KiB."""
    small = saved(photo(*SIZE_PX), quality=50)
    files = [
        (f"{size} bytes, then {marker:02x}", small[:-2] + bytes(size) + bytes([0xFF, marker]) + bytes(9))
        for size in (10, 60_000, 64 << 10, 70_000)
        for marker in (0x02, 0xC0, 0xD8, 0xD9)
    ]
    parity = compared(files, tmp_path)
    assert parity.differences == []
    assert 0 < parity.refused < len(files)
