"""Bad data: every file, array and sample that can't be used is an error with a name, never a crash, a hang or zeros."""

from __future__ import annotations

import io
import os
import random
import re
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from forked import output, run
from jpegs import arithmetic, kinds, lossless, marked, photo, with_precision, with_size
from photos import deep_png, encoded, foreign_kinds, numbers, picture, write_list
from reference import check_rows, decoded, delivered, in_order, listed

HEIGHT, WIDTH = 40, 56
GOOD = encoded(picture(0), quality=90)
PROGRESSIVE = encoded(picture(1), quality=90, progressive=True)
FRAMES = [picture(seed) for seed in range(3)]

# Who makes rows: native threads, or Python code, whoever runs that.
WAYS = [
    pytest.param(None, id="native"),
    pytest.param("inline", id="inline"),
    pytest.param("thread", id="threads"),
    pytest.param("process", id="processes"),
]
HERE = [way for way in WAYS if way.values != ("process",)]  # where starting processes shows nothing more


def loader(source: sp.FileList | sp.ImageFolder, way: str | None, **settings: Any) -> sp.Loader:
    """One image after the other, scaled to one size."""
    pipeline = sp.Pipeline(source)
    if way is not None:
        pipeline = pipeline.map(np.asarray, field="image")
    settings = {"memory": "1GiB", "num_workers": 1, "executor": way or "thread", **settings}
    return pipeline.map(sp.Resize((HEIGHT, WIDTH))).batch(1).loader(**settings)


def refused(folder: Path, content: bytes, way: str | None = None, **settings: Any) -> sp.SampleError:
    """The error of a file that stands between two good ones. It has the file's facts, and the good ones come."""
    source = write_list(folder, {"before.jpg": GOOD, "bad.jpg": content, "after.jpg": GOOD})
    with loader(source, way, **settings) as batches:
        iterator = iter(batches)
        assert next(iterator)["index"].tolist() == [0]
        with pytest.raises(sp.SampleError) as caught:
            next(iterator)
        batches.skip_steps(1)
        assert [batch["index"].tolist() for batch in batches.steps(1)] == [[2]]
    error = caught.value
    assert (error.index, error.path, error.offset) == (1, str(folder / "bad.jpg"), 0)
    assert error.reason
    return error


def several(kind: str, frames: list[np.ndarray[Any, Any]], **options: object) -> bytes:
    """A file of several frames or pages."""
    out = io.BytesIO()
    first, *others = map(Image.fromarray, frames)
    first.save(out, kind, save_all=True, append_images=others, **options)
    return out.getvalue()


@pytest.mark.parametrize("way", WAYS)
def test_zero_byte_file(tmp_path: Path, way: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without a byte is a bad sample, "empty", and no decoder is asked."""
    # To see that nobody calls it.
    monkeypatch.setattr("standpipe.transform.decoders.foreign.decode_foreign", None)
    error = refused(tmp_path, b"", way)
    assert type(error) is sp.DecodeError
    assert error.reason == "empty file"


@pytest.mark.parametrize("way", HERE)
@pytest.mark.parametrize("content", [GOOD, PROGRESSIVE], ids=["baseline", "progressive"])
def test_jpeg_cut_by_10_percent(tmp_path: Path, content: bytes, way: str | None) -> None:
    """A JPEG that lacks its last tenth is a bad sample, whatever the crop."""
    error = refused(tmp_path, content[: len(content) * 9 // 10], way)
    assert re.match(r"truncated: JPEG ends after \d+ bytes, in (row|scan) \d", error.reason)


@pytest.mark.parametrize("way", HERE)
def test_png_named_jpg_and_jpeg_with_trailing_garbage(tmp_path: Path, way: str | None) -> None:
    """A file is what its first bytes say, not its name. What follows a JPEG's end is ignored, up to a cap."""
    garbage = np.random.default_rng(0).bytes(100_000)
    contents = {
        "a.jpg": encoded(FRAMES[0], "PNG"),
        "b.png": GOOD,
        "c.jpg": GOOD + garbage,
        "d": GOOD + bytes(9),
    }
    with loader(write_list(tmp_path, contents), way) as batches:
        images = [batch["image"][0].copy() for batch in batches]
    for image, content in zip(images, contents.values(), strict=True):
        assert np.array_equal(image, np.asarray(decoded(content)))


def test_trailing_garbage_has_a_cap(tmp_path: Path) -> None:
    """It counts as part of the file, which is read up to ``large_image_memory=`` and refused above."""
    content = GOOD + b"\1" * (20 << 20)
    error = refused(tmp_path, content, large_image_memory="1MiB")
    assert error.reason.startswith(
        f"too large: {len(content)} encoded bytes are more than large_image_memory="
    )
    with loader(write_list(tmp_path, [content]), None, large_image_memory="32MiB") as batches:
        assert np.array_equal(next(iter(batches))["image"][0], np.asarray(decoded(GOOD)))


@pytest.mark.parametrize("way", HERE)
@pytest.mark.parametrize(
    "content",
    [b"<html>404 Not Found</html>", bytes(999), b"RIFF\x24\0\0\0WAVEfmt ", b"\x80\x04\x95.", b"\xff\xd8"],
    ids=["HTML", "zeros", "sound", "pickle", "two bytes"],
)
def test_unknown_magic(tmp_path: Path, content: bytes, way: str | None) -> None:
    """What begins like no known format is a bad sample, whose error shows how it begins."""
    error = refused(tmp_path, content, way)
    assert error.reason.startswith(f"not an image: starts with {content[:8].hex(' ')}")


def turned() -> Iterator[tuple[str, bytes]]:
    """An image in every orientation that EXIF knows."""
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for kind in ("JPEG", "PNG", "WEBP", "TIFF"):
            yield f"{kind} {orientation}", encoded(picture(5, 30, 44), kind, exif=exif)


def test_every_colour_form_and_orientation(tmp_path: Path) -> None:
    """CMYK, YCCK, grey, 16 bits, palettes with alpha, EXIF 1 to 8: Pillow's RGB, without any tolerance.

    Which of its pixels are meant is documented: orientation counts in TIFF alone, where Pillow applies it.
    ``tests/transform`` has the kinds of every format.
    """
    jpegs = kinds(33, 47)
    chosen = (
        "CMYK",
        "YCCK 4:2:0",
        "YCCK 4:4:4",
        "CMYK by hand",
        "grey",
        "grey progressive",
        "RGB by its identifiers",
    )
    palette = Image.fromarray(photo(33, 47)).quantize(40)
    files = {name: jpegs[name] for name in chosen} | dict(turned())
    files["16 bits"] = deep_png(photo(33, 47).astype(np.uint16) * 257)
    out = io.BytesIO()
    palette.save(out, "PNG", transparency=bytes(range(0, 240, 6)))
    files["palette with alpha"] = out.getvalue()
    transforms = (sp.RandomResizedCrop((24, 31)), sp.RandomHorizontalFlip())
    images = {}
    for name, content in files.items():
        image = Image.open(io.BytesIO(content))
        image.info.pop("transparency", None)  # Pillow would warn that RGB has none
        images[name] = image.convert("RGB")
    assert images["JPEG 6"].size == images["PNG 6"].size == (44, 30)
    assert images["TIFF 6"].size == (30, 44)
    check_rows(delivered(in_order(listed(tmp_path, list(files.values())), *transforms)), images, transforms)


@pytest.mark.parametrize("way", HERE)
def test_lossless_and_arithmetic_jpeg(tmp_path: Path, way: str | None) -> None:
    """Codings that Pillow alone decodes have its pixels."""
    grey = photo(33, 47, channels=1)[..., 0]
    files = {"lossless": lossless(grey), "arithmetic": arithmetic(), "baseline": GOOD}
    images = {name: decoded(content) for name, content in files.items()}
    assert np.array_equal(np.asarray(images["lossless"])[..., 0], grey)
    assert images["arithmetic"].size == (24, 16)
    transforms = (sp.RandomResizedCrop((24, 31)), sp.RandomHorizontalFlip())
    pipeline = sp.Pipeline(listed(tmp_path, list(files.values())), seed=0)
    if way is not None:
        pipeline = pipeline.map(np.asarray, field="image")
    pipeline = pipeline.map(*transforms).batch(len(files))
    with pipeline.loader(memory="128MiB", num_workers=1, executor=way or "thread") as batches:
        check_rows(next(iter(batches))["image"].copy(), images, transforms)


@pytest.mark.parametrize("way", HERE)
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (marked(with_precision(GOOD, 12), 0xC1), "12"),
        (marked(with_precision(GOOD, 12), 0xC2), "12"),
        (marked(GOOD, 0xC5), "SOF type 0xc5"),
    ],
    ids=[
        "12 bits",
        "12 bits, progressive",
        "hierarchical",
    ],
)
def test_12_bit_and_hierarchical_jpeg(tmp_path: Path, content: bytes, says: str, way: str | None) -> None:
    """Codings that there is no decoder for are bad samples, "unsupported", and the process lives on."""
    error = refused(tmp_path, content, way)
    assert error.reason.startswith("unsupported JPEG: ")
    assert says in error.reason


def png(width: int, height: int) -> bytes:
    """The first bytes of a PNG of that size, grey, and some of its pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(2000)))
        + chunk(b"IEND", b"")
    )


def gif(width: int, height: int) -> bytes:
    content = bytearray(encoded(FRAMES[0], "GIF"))
    content[6:10] = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    return bytes(content)


def bmp(width: int, height: int) -> bytes:
    content = bytearray(encoded(FRAMES[0], "BMP"))
    content[18:26] = width.to_bytes(4, "little", signed=True) + height.to_bytes(4, "little", signed=True)
    return bytes(content)


def tiff(width: int, height: int) -> bytes:
    """A TIFF with these sizes in its directory."""
    content = bytearray(encoded(FRAMES[0], "TIFF", compression="tiff_lzw"))
    begin = int.from_bytes(content[4:8], "little")
    for entry in range(begin + 2, begin + 2 + 12 * int.from_bytes(content[begin : begin + 2], "little"), 12):
        tag = int.from_bytes(content[entry : entry + 2], "little")
        if tag in (256, 257):
            content[entry + 2 : entry + 12] = b"\4\0\1\0\0\0" + (width if tag == 256 else height).to_bytes(
                4, "little"
            )
    return bytes(content)


def webp(width: int, height: int) -> bytes:
    """A WebP whose extended header has another size than its picture."""
    content = bytearray(encoded(np.dstack([FRAMES[0], FRAMES[0][..., :1]]), "WEBP"))
    assert content[12:16] == b"VP8X"
    content[24:30] = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return bytes(content)


def ppm(width: int, height: int) -> bytes:
    return b"P6 %d %d 255\n" % (width, height) + bytes(2000)


def ico(width: int, height: int) -> bytes:
    """An icon of 256 × 256 by its directory, and of this size by its picture, which Pillow loads as it opens it."""
    content = png(width, height)
    return b"\0\0\1\0\1\0" + struct.pack("<4B2H2I", 0, 0, 0, 0, 1, 32, len(content), 22) + content


def jpeg_2000(width: int, height: int, inner: tuple[int, int] | None = None) -> bytes:
    """A JPEG 2000 with this size in its container, and that or ``inner``, as (width, height), in its picture."""
    content = bytearray(encoded(FRAMES[0], "JPEG2000"))
    at = content.index(b"ihdr") + 4
    content[at : at + 8] = height.to_bytes(4, "big") + width.to_bytes(4, "big")
    at = content.index(b"\xff\x4f\xff\x51") + 8
    size = b"".join(side.to_bytes(4, "big") for side in inner or (width, height))
    content[at : at + 8] = content[at + 16 : at + 24] = size
    return bytes(content)


def dds(width: int, height: int) -> bytes:
    content = bytearray(encoded(FRAMES[0], "DDS"))
    content[12:20] = height.to_bytes(4, "little") + width.to_bytes(4, "little")
    return bytes(content)


def tga(width: int, height: int) -> bytes:
    content = bytearray(encoded(FRAMES[0], "TGA"))
    content[12:16] = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    return bytes(content)


def avif(width: int, height: int) -> bytes:
    content = bytearray(encoded(FRAMES[0], "AVIF"))
    at = content.index(b"ispe") + 8
    content[at : at + 8] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return bytes(content)


def tiled_tiff(side: int) -> bytes:
    """A small TIFF in one tile that is much larger."""
    entries = {256: 9, 257: 9, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side, 324: 200, 325: 20}
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries.items())
    content = b"II*\0\10\0\0\0" + struct.pack("<H", len(entries)) + directory + bytes(4)
    return content.ljust(200, b"\0") + zlib.compress(bytes(5000))


HUGE = {
    "JPEG": with_size(GOOD, 65500, 65500)[:2000],
    "JPEG, progressive": marked(with_size(GOOD, 65500, 65500), 0xC2)[:2000],
    "PNG": png(65500, 65500),
    "GIF": gif(65500, 65500),
    "BMP": bmp(65500, 65500),
    "TIFF": tiff(65500, 65500),
    "WebP": webp(16383, 16383),
    "PPM": ppm(65500, 65500),
    "ICO": ico(65500, 65500),
    "JPEG2000": jpeg_2000(65500, 65500),
    "DDS": dds(65500, 65500),
    "TGA": tga(65500, 65500),
    "AVIF": avif(16000, 16000),
    "TIFF, tiled": tiled_tiff(65520),
}
REASONS = """
from programs import peaks

def reason_of(source, **settings):
    resized = sp.Pipeline(source).map(sp.Resize((8, 8))).batch(1)
    with resized.loader(memory="512MiB", num_workers=1, **settings) as loader:
        try:
            next(iter(loader))
        except sp.SampleError as error:
            return error.reason
"""


def test_65500_x_65500_header_with_a_body_of_2_kb(tmp_path: Path) -> None:
    """A header that announces 12 GB is refused before anything is allocated: neither memory nor addresses grow."""
    for name, content in HUGE.items():
        assert len(content) < 16_000
        (tmp_path / name).write_bytes(content)
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
        kind = name.partition(",")[0]
        (tmp_path / f"good {name}").write_bytes(encoded(FRAMES[0], "WEBP" if kind == "WebP" else kind))
        (tmp_path / f"good {name}.txt").write_text(f"good {name}\n")
    text = output(
        REASONS
        + f"""
folder, names = {str(tmp_path)!r}, {list(HUGE)!r}
def reason(name, **settings):
    return reason_of(sp.FileList(folder + "/" + name + ".txt", labels=False), **settings)
assert [reason("good " + name) for name in names] == [None] * len(names)
before = peaks()
print(*[reason(name) for name in names], sep="\\n")
print({{name: now - before[name] for name, now in peaks().items()}})
"""
    )
    *reasons, grown = text.splitlines()
    assert all(reason.startswith("too large: ") for reason in reasons), reasons
    grown_mib = eval(grown)
    assert grown_mib["VmHWM"] < 16, grown_mib
    assert grown_mib["VmPeak"] < 2048, grown_mib  # what threads reserve for their heaps and stacks


@pytest.mark.parametrize("way", HERE)
@pytest.mark.parametrize(
    "content",
    [
        with_size(GOOD, HEIGHT, 0),
        with_size(GOOD, 0, WIDTH),
        png(0, 9),
        png(9, 0),
        bmp(0, 9),
        bmp(9, 0),
        bmp(-9, 9),
        tiff(0, 9),
        tiff(9, 0),
        ppm(0, 9),
        ppm(9, 0),
        b"GIF89a" + bytes(7) + b",\0\0\0\0\0\0\0\0\0\2\0;",
    ],
    ids=lambda content: content[:4].decode("latin-1").strip(),
)
@pytest.mark.filterwarnings("ignore:(?s).*(Corrupt EXIF data|Truncated File Read):UserWarning")
def test_0_x_n_image(tmp_path: Path, content: bytes, way: str | None) -> None:
    """A picture without a pixel is a bad sample."""
    assert type(refused(tmp_path, content, way)) is sp.DecodeError


@pytest.mark.parametrize("way", WAYS)
def test_1_x_1_and_images_smaller_than_the_crop(tmp_path: Path, way: str | None) -> None:
    """Small images are enlarged by crops and resizes and padded with black by ``CenterCrop``, whoever makes them."""
    sizes = [(1, 1), (1, 40), (3, 2), (17, 5), (40, 56)]
    files = [encoded(picture(3, *size), kind) for size in sizes for kind in ("JPEG", "PNG")]
    images = {str(number): decoded(content) for number, content in enumerate(files)}
    for transforms in ((sp.RandomResizedCrop(24),), (sp.Resize(20), sp.CenterCrop(23)), (sp.CenterCrop(32),)):
        if way is None:
            rows = delivered(in_order(listed(tmp_path, files), *transforms))
        else:
            pipeline = sp.Pipeline(listed(tmp_path, files)).map(np.asarray, field="image").map(*transforms)
            with pipeline.batch(64, last_batch="partial").loader(
                memory="1GiB", num_workers=2, executor=way
            ) as batches:
                rows = [image for batch in batches for image in batch["image"].copy()]
        check_rows(rows, images, transforms)


def commented_gif(comment_bytes: int) -> bytes:
    """A GIF with a long comment in front of its picture."""
    content = encoded(np.zeros((8, 8), np.uint8), "GIF")
    at = 13 + (3 << ((content[10] & 7) + 1)) * (content[10] >> 7)
    return (
        content[:at]
        + b"!\xfe"
        + b"\xff".join([b""] + [b"x" * 255] * (comment_bytes // 255))
        + b"\0"
        + content[at:]
    )


def tiff_of_entries(count: int, size: int) -> bytes:
    """A TIFF with many entries that all point at the same bytes."""
    entries = [(256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8)]
    entries += [(277, 3, 1, 1), (278, 3, 1, 8), (279, 4, 1, 64)]
    entries += [(40_000 + number, 7, size, 8) for number in range(count)]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHLL", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<L", 8 + size) + bytes(size) + directory + bytes(4)


@pytest.mark.parametrize("way", HERE)
def test_animations_and_pages_give_their_first_frame(tmp_path: Path, way: str | None) -> None:
    """Of an animated GIF or WebP and of a TIFF of several pages the first frame comes."""
    contents = {
        "a.gif": several("GIF", FRAMES),
        "b.webp": several("WEBP", FRAMES, lossless=True),
        "c.tiff": several("TIFF", FRAMES),
        "d.png": several("PNG", FRAMES),
    }
    with loader(write_list(tmp_path, contents), way) as batches:
        for batch, content in zip(batches, contents.values(), strict=True):
            assert np.array_equal(batch["image"][0], np.asarray(decoded(content)))


@pytest.mark.filterwarnings("ignore:Tag data larger than file:UserWarning")
def test_bombs_of_pages_and_frames_are_capped(tmp_path: Path) -> None:
    """Twenty thousand frames, a comment of 16 MB, entries that share 1 MB: no more memory than a few files' size."""
    frame = several("GIF", FRAMES[:2], duration=10)
    again = frame.index(b"!\xf9", frame.index(b"!\xf9") + 1)
    bombs = {
        "frames.gif": frame[:-1] + frame[again:-1] * 20_000 + b";",
        "comment.gif": commented_gif(16 << 20),
        "entries.tiff": tiff_of_entries(3000, 1 << 20),
    }
    for name, content in bombs.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    largest_mib = max(map(len, bombs.values())) >> 20
    text = output(
        REASONS
        + f"""
import warnings
warnings.simplefilter("ignore")  # Pillow's, of the entries
reason_of(sp.FileList({str(tmp_path / "entries.tiff.txt")!r}, labels=False), large_image_memory="1MiB")  # Pillow
before = peaks()
for name in {list(bombs)!r}:
    files = sp.FileList({str(tmp_path)!r} + "/" + name + ".txt", labels=False)
    print(name, reason_of(files, large_image_memory="96MiB"))
print(peaks()["VmHWM"] - before["VmHWM"])
"""
    )
    *fates, grown_mib = text.splitlines()
    assert fates[0] == "frames.gif None"
    assert fates[1].startswith("comment.gif too large: its header is read again and again")
    assert int(grown_mib) < 2 * largest_mib + 32, text


def flipped(content: bytes, flips: int, seed: int) -> bytes:
    """The file with some bits changed."""
    out, draw = bytearray(content), random.Random(seed)
    for _ in range(flips):
        out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    return bytes(out)


def hundred_files() -> list[bytes]:
    """Small images of every format that is read."""
    jpegs = list(kinds(24, 31).values())
    others = [content for seed in range(5) for content in foreign_kinds(picture(seed, 24, 31))]
    files = jpegs + others
    return (files + files)[:100]


@pytest.mark.parametrize("flips", [1, 1000])
def test_bit_flips_at_1000_random_positions_of_100_files(tmp_path: Path, flips: int) -> None:
    """Each is a picture or a bad sample, within a cap of memory and time. ``scripts/fuzz`` does it under sanitizers."""
    files = hundred_files()
    assert len(files) == 100
    count = 1000 if flips == 1 else 100
    contents = [flipped(files[number % 100], flips, number) for number in range(count)]
    write_list(tmp_path, contents)
    done = run(
        REASONS
        + f"""
import warnings
warnings.simplefilter("ignore")  # Pillow's, of what it reads over
source = sp.FileList({str(tmp_path / "list.txt")!r})
before, good, bad = peaks(), 0, 0
with sp.Pipeline(source).map(sp.Resize((8, 8))).batch(1).loader(memory="512MiB", num_workers=1) as loader:
    for number in range({count}):
        iterator = loader.steps(1)
        try:
            assert next(iterator)["index"].tolist() == [number]
            good += 1
        except (sp.DecodeError, sp.ReadError) as error:
            assert (error.index, error.path) == (number, source.open().name(number))
            loader.skip_steps(1)
            bad += 1
print(good, bad, peaks()["VmHWM"] - before["VmHWM"])
"""
    )
    assert done.returncode == 0, done.stderr  # which has libtiff's own words otherwise
    good, bad, grown_mib = map(int, done.stdout.split())
    assert good + bad == count
    assert bad >= 50
    assert good >= (100 if flips == 1 else 0)
    assert grown_mib < 128, done.stdout


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (lambda folder: sp.Arrays(x=np.zeros((0, 3))), "no rows"),
        (lambda folder: sp.MapSource([], fields="x"), "the dataset is empty"),
        (lambda folder: sp.FileList(folder / "list.txt"), "lists no files"),
        (lambda folder: sp.ImageFolder(folder / "classes"), "has no class folders"),
        (lambda folder: sp.Concat(numbers(3), sp.Arrays(x=np.zeros((0, 1)))), "no rows"),
    ],
    ids=["arrays", "dataset", "list", "folder", "one part of several"],
)
def test_empty_dataset(tmp_path: Path, source: Callable[[Path], Any], says: str) -> None:
    """A data set without a sample, or a part without one, is an error when it is planned."""
    (tmp_path / "list.txt").write_text("\n \n")
    (tmp_path / "classes").mkdir()
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(source(tmp_path)).batch(2).plan()


def test_empty_stream() -> None:
    """Of a stream only taking a sample tells: then it is an error of the source."""
    stream = sp.Pipeline(sp.IterableSource(lambda: iter([]))).batch(2)
    with stream.loader(executor="inline") as batches, pytest.raises(sp.SampleError) as caught:
        list(batches)
    assert (caught.value.place, caught.value.reason) == ("source", "the stream ends after 0 samples")


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_fewer_samples_than_ranks(rows: int) -> None:
    """Ranks of one job have equal steps however few samples there are: padded ones are marked, or the plan refuses."""
    ranks = [sp.Pipeline(numbers(rows)).shard(rank, 4) for rank in range(4)]
    delivered_rows, steps = [], set()
    for rank in ranks:
        with rank.batch(2, last_batch="pad").loader(memory="64MiB", num_workers=1) as batches:
            got = list(batches)
        steps.add(len(got))
        delivered_rows += [row for batch in got for row in batch["index"][batch["valid"]].tolist()]
    assert len(steps) == 1
    assert sorted(delivered_rows) == list(range(rows))
    for rank in ranks:
        for last_batch, says in (
            ("drop", "rows fill no step"),
            ("partial", "would give ranks different batches"),
        ):
            with pytest.raises(sp.PlanError, match=says):
                rank.batch(2, last_batch=last_batch).plan()


ODD_NAMES = [
    b"gr\xfc\xdfe.jpg",
    b"two\nlines.jpg",
    b"x" * 251 + b".jpg",
    "\u202efoto 写真.jpg".encode(),
    b"\x1b[31m.jpg",
]


@pytest.mark.parametrize("way", WAYS)
def test_non_utf8_255_byte_and_newline_names(tmp_path: Path, way: str | None) -> None:
    """They work, and what an error or a plan calls them can be printed."""
    folder = bytes(tmp_path) + b"/photos/cl\xe9ss\n"
    os.makedirs(folder)  # noqa: PTH103 (pathlib has no bytes)
    for name in ODD_NAMES:
        with open(folder + b"/" + name, "wb") as file:  # noqa: PTH123
            file.write(GOOD)
    source = sp.ImageFolder(tmp_path / "photos")
    with loader(source, way) as batches:
        assert [int(batch["index"][0]) for batch in batches] == list(range(len(ODD_NAMES)))
        opened = batches.plan.source
    names = [opened.name(index) for index in range(len(ODD_NAMES))]
    paths = opened.locate(np.arange(len(ODD_NAMES))).files["image"].paths
    assert [os.path.basename(paths[row]) for row in range(len(paths))] == sorted(ODD_NAMES)  # noqa: PTH119
    assert all(name is not None and name.isprintable() for name in (*names, *opened.classes))
    with open(folder + b"/" + ODD_NAMES[0], "wb"):  # noqa: PTH123
        pass
    with loader(source, way) as batches, pytest.raises(sp.DecodeError, match="empty file") as caught:
        list(batches)
    assert str(caught.value).isprintable()
    assert caught.value.path in names


def test_names_of_a_list(tmp_path: Path) -> None:
    """In a list a name may have any byte but a line's end."""
    names = [name for name in ODD_NAMES if b"\n" not in name]
    for name in names:
        with open(bytes(tmp_path) + b"/" + name, "wb") as file:  # noqa: PTH123
            file.write(GOOD)
    (tmp_path / "list.txt").write_bytes(b"\n".join(names))
    with loader(sp.FileList(tmp_path / "list.txt", labels=False), None) as batches:
        assert len(list(batches)) == len(names)


def walked(folder: Path, names: Iterable[str]) -> tuple[int, list[bytes], str]:
    """What listing a folder of such images takes at most, the names in its order, and the digest."""
    (folder / "class").mkdir(parents=True)
    directory = os.open(folder / "class", os.O_RDONLY)
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=directory))
    os.close(directory)
    tracemalloc.start()
    opened = sp.ImageFolder(folder).open()
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    paths = opened.locate(np.arange(opened.num_records)).files["image"].paths
    return peak_bytes, [os.path.basename(paths[row]) for row in range(len(paths))], opened.digest  # noqa: PTH119


def test_folder_of_10_m_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is listed in memory that hardly grows with it, in one order whatever order the disk has.

    With 20,000 files and buffers as much smaller; ``benchmarks/ten_million_rows.py`` has the real number.
    """
    for buffer in ("sorted_names.SORTED_AT_ONCE", "sorted_names.ROWS_AT_ONCE", "walk.NAMES_AT_ONCE"):
        monkeypatch.setattr(f"standpipe.source.files.{buffer}", 500)
    names = [f"{number:06d}.jpg" for number in range(20_000)]
    shuffled = random.Random(1).sample(names, len(names))
    walked(tmp_path / "first", names[:10])  # imports
    few_bytes, _, _ = walked(tmp_path / "few", shuffled[:4000])
    many_bytes, order, digest = walked(tmp_path / "many", shuffled)
    assert order == [name.encode() for name in names]
    again_bytes, _, same = walked(tmp_path / "again", reversed(names))
    assert same == digest
    # Of five times the files: what is merged has a buffer for each part. Another thread may have allocated too.
    assert min(many_bytes, again_bytes) < 1.8 * few_bytes
