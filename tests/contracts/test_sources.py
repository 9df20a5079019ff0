from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from painted import painted
from photos import encoded, picture
from record_files import example, mds, tfrecord
from standpipe.contracts import Source, check_source
from standpipe.source import Arrays, Concat, FileList, ImageFolder, TarShards
from tars import shard


def folder(tmp_path: Path) -> Source:
    for name in ("cat/2.jpg", "cat/more/1.png", "cat/1.jpg", "dog/1.JPEG", "d\nog/1.webp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return ImageFolder(tmp_path)


def numbered_list(tmp_path: Path) -> Source:
    (tmp_path / "list.txt").write_bytes(b"b.jpg 3\n/abs/a.jpg -1\n\xff .jpg\t70000\n")
    return FileList(tmp_path / "list.txt")


def named_list(tmp_path: Path) -> Source:
    (tmp_path / "list.txt").write_text("b.jpg\tgolden retriever\na.jpg\tcat\nb.jpg\tcat\n")
    return FileList(tmp_path / "list.txt", root="/images")


def bare_list(tmp_path: Path) -> Source:
    (tmp_path / "list.txt").write_text("b c.jpg\n/a.jpg\n")
    return FileList(tmp_path / "list.txt", labels=False)


def list_with_further_lists(tmp_path: Path) -> Source:
    """The second in an index file, the third with absolute paths."""
    (tmp_path / "list.txt").write_text("a.jpg\tcat\nb.jpg\tdog\nc.jpg\tcat\n")
    (tmp_path / "right.txt").write_text("r/a 1.png\nr/b.png\nr/c.png\n")
    (tmp_path / "depth.txt").write_text("/d/a.png\n/d/b.png\n/d/a.png\n")
    sp.build_index(FileList(tmp_path / "right.txt", labels=False))
    return FileList(tmp_path / "list.txt", right=tmp_path / "right.txt", depth=tmp_path / "depth.txt")


def folder_of_pairs(tmp_path: Path) -> Source:
    """Without class folders, and its index in a file."""
    for name in ("left/1.jpg", "left/2.jpg", "right/1.png", "right/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return ImageFolder(tmp_path / "left", index=tmp_path / "index", right=tmp_path / "right")


def folder_with_columns(tmp_path: Path) -> Source:
    """In an index file, with columns of some shapes and dtypes."""
    folder(tmp_path / "set")
    source = ImageFolder(tmp_path / "set")
    columns = {
        "weight": np.linspace(0, 1, 5, dtype=">f4"),
        "box": np.arange(20).reshape(5, 4),
        "known": np.arange(5) % 2 == 0,
        "length": len,
    }
    sp.build_index(source, columns=columns)
    return source


def list_in_a_file(tmp_path: Path) -> Source:
    (tmp_path / "list.txt").write_bytes(
        b"\xef\xbb\xbf" + b"".join(b"%d.jpg\t%d\r\n" % (n, n**5) for n in range(500))
    )
    return FileList(tmp_path / "list.txt", index=tmp_path / "list.index")


def arrays_in_memory(tmp_path: Path) -> Source:
    image = np.arange(5 * 4 * 4 * 3, dtype=np.uint8).reshape(5, 4, 4, 3)
    return Arrays(image=image, label=np.arange(10)[::2], weight=np.arange(5, dtype=">f4"))


def arrays_and_texts(tmp_path: Path) -> Source:
    parts = [Arrays(caption=["a", "", "漢字 😀\0"][:n], label=np.arange(n)) for n in (3, 1)]
    return Concat(parts[0], parts[1], parts[0])


def arrays_in_files(tmp_path: Path) -> Source:
    np.save(tmp_path / "image.npy", np.arange(30, dtype=np.float16).reshape(5, 2, 3))
    np.save(tmp_path / "label.npy", np.arange(5, dtype=np.int16))
    return Arrays({"image": tmp_path / "image.npy", "label": tmp_path / "label.npy"})


def concatenated(tmp_path: Path) -> Source:
    for name in ("1", "2"):
        (tmp_path / f"{name}.txt").write_text(f"{name}/b c.jpg\tcat\n/{name}/a.jpg\tdog\n")
    lists = [FileList(tmp_path / f"{name}.txt") for name in ("1", "2")]
    return Concat(lists[0], lists[1], lists[0])


def concatenated_arrays(tmp_path: Path) -> Source:
    parts = [Arrays(x=np.arange(2 * n).reshape(n, 2), label=np.arange(n)) for n in (3, 1, 4)]
    return Concat(parts[0], Concat(parts[1], parts[0]), parts[2])


def tar_shards(tmp_path: Path) -> Source:
    for number in range(2):
        members = [(f"{n}.{kind}", b"%d" % n) for n in range(3) for kind in ("cls", "jpg", "json")]
        shard(tmp_path / f"{number}.tar", members)
    return TarShards(tmp_path / "{0,1}.tar")


def tf_records(tmp_path: Path) -> Source:
    """Files with numbers, other bytes and texts, and an index file."""
    for number in range(2):
        records = [
            example({"i": b"\xff\xd8\xff", "n": [n], "f": [0.5, n / 2], "t": b"x" * n}) for n in range(3)
        ]
        tfrecord(tmp_path / f"{number}.tfrecord", records)
    named = {"image": "i", "label": "n", "box": "f", "other": "t", "text": "t"}
    return sp.TFRecords(tmp_path / "{0,1}.tfrecord", index=tmp_path / "index", texts="text", **named)


def mds_shards(tmp_path: Path) -> Source:
    columns = {"x": "jpeg", "y": "int", "z": "ndarray:float16:2", "t": "str"}
    samples = [{"x": b"x" * n, "y": n, "z": [n, 1], "t": "text"} for n in range(5)]
    return sp.MDS(mds(tmp_path / "mds", columns, samples, per_shard=2))


def fixed_records(tmp_path: Path) -> Source:
    fields = np.dtype([("label", "<i4"), ("image", "u1", (3, 2, 2))])
    for number in range(2):
        np.frombuffer(np.arange(48, dtype=np.uint8), fields).tofile(tmp_path / f"{number}.bin")
    return sp.FixedRecords([tmp_path / "0.bin", tmp_path / "1.bin"], fields=fields, image_axes="CHW")


def idx_files(tmp_path: Path) -> Source:
    header = bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in (5, 2, 2))
    (tmp_path / "images").write_bytes(header + bytes(range(20)))
    (tmp_path / "labels").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 5]) + bytes(range(5)))
    return sp.IdxFiles(image=tmp_path / "images", label=tmp_path / "labels")


def arrow_files(tmp_path: Path) -> Source:
    """A file of two record batches, one of them with a null."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"image": [b"1", None, b"333"], "label": [2, 0, 1], "text": ["a", None, "漢字"]})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sp.Arrow(tmp_path / "a.arrow")


def hugging_face(tmp_path: Path) -> Source:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict(
        {"image": [b"1", b"22", b"333"], "label": [2, 0, 1], "text": ["a", "", "漢字 😀"]}
    )
    datasets.disable_progress_bars()
    made.save_to_disk(tmp_path / "set")
    return sp.HuggingFace(datasets.load_from_disk(tmp_path / "set").select([2, 0, 2, 1]))


def annotated(tmp_path: Path) -> Source:
    return painted(tmp_path / "data", 9, keypoints=True, index=tmp_path / "index")


def tar_shards_with_instances(tmp_path: Path) -> Source:
    image = picture(0)
    targets = [b'{"boxes": [[1, 2, 3, 4], [0, 0, 5, 5]], "labels": [1, 2], "score": [0, 1]}', b"[]"]
    members = [
        (f"{n}.{kind}", data)
        for n in range(5)
        for kind, data in (("jpg", encoded(image)), ("json", targets[n % 2]))
    ]
    return TarShards(shard(tmp_path / "0.tar", members), instances="json", index=tmp_path / "index")


def list_with_instances(tmp_path: Path) -> Source:
    for n in range(4):
        (tmp_path / f"{n}.jpg").write_bytes(encoded(picture(n)))
    (tmp_path / "list.txt").write_text("".join(f"{n}.jpg\n" for n in range(4)))
    lines = ['{"boxes": [[1, 2, 3, 4]], "labels": [1]}', '{"annotations": []}'] * 2
    (tmp_path / "boxes.jsonl").write_text("\n".join(lines))
    return FileList(tmp_path / "list.txt", instances=tmp_path / "boxes.jsonl", index=tmp_path / "index")


def annotated_twice(tmp_path: Path) -> Source:
    return Concat(annotated(tmp_path / "a"), annotated(tmp_path / "b"))


def mixed(tmp_path: Path) -> Source:
    parts = [sp.Pipeline(Arrays(label=np.arange(n), weight=np.arange(n, dtype=np.float32))) for n in (3, 5)]
    return sp.Mixture({parts[0]: 1, parts[1].shuffle(seed=1): 2.5})


@pytest.mark.parametrize(
    "make",
    [
        folder,
        numbered_list,
        named_list,
        bare_list,
        list_with_further_lists,
        folder_of_pairs,
        folder_with_columns,
        list_in_a_file,
        arrays_in_memory,
        arrays_in_files,
        arrays_and_texts,
        concatenated,
        concatenated_arrays,
        tar_shards,
        tar_shards_with_instances,
        list_with_instances,
        tf_records,
        mds_shards,
        fixed_records,
        idx_files,
        arrow_files,
        hugging_face,
        annotated,
        annotated_twice,
        mixed,
    ],
)
def test_source_keeps_its_contract(make: Callable[[Path], Source], tmp_path: Path) -> None:
    check_source(make(tmp_path))


@pytest.mark.parametrize(
    "source",
    [
        ImageFolder("/nowhere", right="/nowhere too"),
        FileList("/nowhere", right="/nowhere too"),
        TarShards("/nowhere-*.tar", fields={"image": "jpg"}),
        sp.TFRecords("/nowhere-*", image="image/encoded"),
        sp.MDS("/nowhere", image="x"),
        Arrays(image="/nowhere.npy", label=np.empty(0, object)),
        sp.Arrow("/nowhere.arrow"),
        sp.Coco("/nowhere", "/nowhere.json"),
        sp.YoloLabels("/nowhere"),
        sp.PascalVoc("/nowhere"),
        Concat(FileList("/nowhere"), FileList("/nowhere")),
        sp.Mixture({sp.Pipeline(FileList("/nowhere")): 1, sp.Pipeline(ImageFolder("/nowhere")): 1}),
    ],
    ids=lambda source: type(source).__name__,
)
def test_constructing_and_describing_touch_nothing(source: Source) -> None:
    assert "nowhere" in source.describe()
