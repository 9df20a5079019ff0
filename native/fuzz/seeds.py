"""What fuzzers start from, small JPEGs of every kind among it:  seeds.py JPEGS LISTS CACHES TARS EXAMPLES."""

import io
import os
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from standpipe import _native

SIZES = [(1, 1), (7, 5), (16, 16), (33, 47), (90, 61), (200, 3)]
KINDS = {
    "baseline": {"quality": 90},
    "444": {"subsampling": 0},
    "422": {"subsampling": 1, "quality": 60},
    "progressive": {"progressive": True},
    "progressive444": {"progressive": True, "subsampling": 0, "quality": 30},
    "restarts": {"restart_marker_blocks": 2},
    "optimised": {"optimize": True, "restart_marker_rows": 1, "quality": 20},
}


def picture(mode: str, size: tuple[int, int]) -> Image.Image:
    """Noise and slopes, the same every time."""
    width, height = size
    bands = len(Image.new(mode, (1, 1)).getbands())
    noise = bytes(
        (x * 3 + y * 5 + band * 80 + (x * x * 7 + y * y * 13 + x * y * 11) % 61) % 256
        for y in range(height)
        for x in range(width)
        for band in range(bands)
    )
    return Image.frombytes(mode, size, noise)


def first_scans(jpeg: bytes, count: int) -> bytes:
    """A progressive JPEG that ends early, as one may."""
    at = 0
    for _ in range(count + 1):
        at = jpeg.index(b"\xff\xda", at) + 1
    return jpeg[: at - 1] + b"\xff\xd9"


LISTS = {
    "numbers": b"a.jpg 1\nfolder/b c.jpg\t-22\n\n/abs/d.jpg 9223372036854775807\r\n",
    "names": b"\xef\xbb\xbfa.jpg\tgolden retriever\nb.jpg\tcat\nb.jpg\tcat\nlonger/c.jpg\tdog\n",
    "bare": b"a b.jpg\n \t\nc\xff.jpg\n" + b"x" * 300,
    "upwards": b"a/../b.jpg\n../c.jpg\n/d.jpg\n..e/f..jpg\n..\n",
    "mixed": b"a.jpg 1\nb.jpg cat\nc.jpg",
    "places": b"\0\0\0\0\0\0\2\0\3\0\0\0\0\0\2\0" + b"ab\ncd\nef\ngh\nij",
}


def cache() -> bytes:
    """Of a set of four records: the beginning of the table's header, its entries, and an extent."""
    with TemporaryDirectory() as folder:
        table, extent = Path(folder) / "table", Path(folder) / "rows-000000"
        table.write_bytes(_native.CacheStore.table_header(4, 0x5A17))
        directory, file = os.open(folder, os.O_RDONLY), os.open(extent, os.O_RDWR | os.O_CREAT)
        store = _native.CacheStore(directory, 4, 0x5A17, True, 0)
        store.add_extent(0, file, 0, 1 << 20, False)
        for record in range(4):
            store.put(record, b"row" * 7**record, _native.Stamp(record, -1, -2, record == 2))
        os.close(directory)
        os.close(file)
        header_and_entries = table.read_bytes()
        return header_and_entries[:64] + header_and_entries[4096:] + extent.read_bytes()


def tars() -> dict[str, bytes]:
    """Shards of a few members, in every form that has its own headers."""
    members = [
        f"{key}.{kind}" for key in ("a", "b/" + "c" * 110) for kind in ("jpg", "cls", "seg.png", "txt")
    ]
    made = {}
    for name, kind in (
        ("ustar", tarfile.USTAR_FORMAT),
        ("gnu", tarfile.GNU_FORMAT),
        ("pax", tarfile.PAX_FORMAT),
    ):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
            for member in members[: 4 if name == "ustar" else 8]:
                about = tarfile.TarInfo(member)
                about.size = 2
                if name == "pax":
                    about.pax_headers = {"comment": "x", "size": "2"}
                tar.addfile(about, io.BytesIO(b"7\n"))
        made[name] = out.getvalue().rstrip(b"\0") + bytes(1536 - len(out.getvalue().rstrip(b"\0")) % 512)
    return made


def examples() -> dict[str, bytes]:
    """TFRecord files of a few records, whose checksums the target corrects; with numbers of both forms."""

    def part(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    numbers = {
        "packed": {b"n": part(3, part(1, b"\1\x80\1")), b"f": part(2, part(1, bytes(8)))},
        "unpacked": {b"n": part(3, b"\x08\7\x08\7"), b"f": part(2, b"\x0d\0\0\0\0")},
    }
    made = {}
    for name, features in numbers.items():
        entries = [(b"i", part(1, part(1, b"image"))), *features.items(), (b"other", b"")]
        record = part(1, b"".join(part(1, part(1, key) + part(2, value)) for key, value in entries))
        made[name] = 3 * (len(record).to_bytes(8, "little") + bytes(4) + record + bytes(4))
    return made


def main(folder: Path, lists: Path, caches: Path, shards: Path, records: Path) -> None:
    """Write them."""
    every = (
        (lists, LISTS),
        (caches, {"set": cache()}),
        (shards, tars()),
        (records, examples()),
    )
    for small, contents in every:
        small.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (small / name).write_bytes(content)
    folder.mkdir(parents=True, exist_ok=True)
    for width, height in SIZES:
        for mode in ("RGB", "L", "CMYK"):
            image = picture(mode, (width, height))
            for kind, options in KINDS.items():
                if mode == "RGB" or kind in ("baseline", "progressive", "restarts"):
                    path = folder / f"{mode}-{kind}-{width}x{height}.jpg"
                    image.save(path, "JPEG", **options)
                    if options.get("progressive") and min(image.size) > 8:
                        for count in (1, 2, 3):
                            part = path.with_stem(f"{path.stem}-{count}")
                            part.write_bytes(first_scans(path.read_bytes(), count))
    # More pixels than most of the target's programs allow, in few bytes.
    for kind in ("baseline", "progressive", "progressive444"):
        Image.new("RGB", (1100, 900), "teal").save(folder / f"large-{kind}.jpg", "JPEG", **KINDS[kind])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:6]))
