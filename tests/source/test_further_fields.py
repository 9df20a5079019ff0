"""Records of several images: lists and folders beside the first one."""

from __future__ import annotations

import os
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import age, encoded, picture
from standpipe.contracts import Encoded, OpenSource, check_source
from tars import shard


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def located(source: OpenSource, base: Path) -> dict[str, list[str]]:
    """The paths of all records below ``base``, by field."""
    files = source.locate(np.arange(source.num_records)).files
    return {
        name: [os.path.relpath(os.fsdecode(each.paths[row]), base) for row in range(source.num_records)]
        for name, each in files.items()
    }


@pytest.fixture
def lists(tmp_path: Path) -> dict[str, Path]:
    """Lists of two images, and of what belongs to each."""
    return {
        "path": write(tmp_path / "left.txt", "l/0.jpg 4", "l/1.jpg 2"),
        "right": write(tmp_path / "right.txt", "r/0 a.jpg", "r/1.jpg 7"),
        "depth": write(tmp_path / "depth.txt", "d/0.png", "d/1.png"),
        "mask": write(tmp_path / "mask.txt", "m/0.png", "m/1.png"),
    }


def test_further_lists_are_fields(lists: dict[str, Path], tmp_path: Path) -> None:
    source = sp.FileList(**lists).open()
    assert dict(list(source.fields.items())[:4]) == dict.fromkeys(
        ("image", "depth", "mask", "right"), Encoded()
    )
    assert [*source.fields][4:] == ["label"]
    assert located(source, tmp_path) == {
        "image": ["l/0.jpg", "l/1.jpg"],
        "right": ["r/0 a.jpg", "r/1.jpg 7"],
        "depth": ["d/0.png", "d/1.png"],
        "mask": ["m/0.png", "m/1.png"],
    }
    assert source.locate(np.array([1, 0])).plain["label"].tolist() == [2, 4]
    assert source.name(1) == str(tmp_path / "l/1.jpg")
    assert [note.partition(" index: ")[0] for note in source.index_note.split("; ")[1:]] == [
        "of depth:",
        "of mask:",
        "of right:",
    ]


def test_root_holds_for_all_lists(lists: dict[str, Path], tmp_path: Path) -> None:
    source = sp.FileList(root=tmp_path / "data", **lists)
    assert located(source.open(), tmp_path / "data")["right"] == ["r/0 a.jpg", "r/1.jpg 7"]
    write(lists["depth"], "d/0.png", "../1.png")
    with pytest.raises(sp.PlanError, match=r"depth\.txt:2: the path is absolute or has a"):
        source.open()


def test_the_digest_covers_each_list_and_its_name(lists: dict[str, Path], tmp_path: Path) -> None:
    first, right = lists["path"], lists["right"]
    other = write(tmp_path / "other.txt", "r/0 a.jpg", "r/2.jpg")
    sources = [
        sp.FileList(first),
        sp.FileList(first, right=right),
        sp.FileList(first, right=other),
        sp.FileList(first, left=right),
        sp.FileList(first, right=right, left=other),
        sp.FileList(first, right=other, left=right),
    ]
    assert len({source.open().digest for source in sources}) == len(sources)
    again = sp.FileList(first, left=other, right=right)
    assert again.open().digest == sources[4].open().digest


def test_a_list_with_further_lists_is_a_value(lists: dict[str, Path]) -> None:
    """Equal, hashed, pickled and changed like one alone, whatever the order of its fields."""
    source = sp.FileList("a", root="r", right="b", depth=Path("c"))
    assert source == sp.FileList("a", "r", depth=Path("c"), right="b")
    assert source != sp.FileList("a", root="r", right="b")
    assert hash(source) == hash(pickle.loads(pickle.dumps(source)))
    assert replace(source, root=None) == sp.FileList("a", depth=Path("c"), right="b")
    assert source.describe() == "FileList('a', root='r', depth='c', right='b')"
    check_source(replace(sp.FileList(**lists), index=None))


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"lables": False}, TypeError, r"FileList\(\) takes no lables=: did you mean labels=\?"),
        ({"indx": "x"}, TypeError, r"FileList\(\) takes no indx=: did you mean index=\?"),
        ({"label": "x"}, TypeError, r"FileList\(\) takes no label=: did you mean labels=\?"),
        ({"transform": abs}, TypeError, r"FileList\(\) takes no transform=: write \.map"),
        (
            {"image": "x"},
            sp.PlanError,
            r"FileList\(image='x'\): it takes root=, labels=, index=, instances=, .* and paths of",
        ),
        ({"source": "x"}, sp.PlanError, r"FileList\(source='x'\): .* other than image, label, index"),
        ({"a b": "x"}, sp.PlanError, r"FileList\(a b='x'\): .* whose names are identifiers"),
        (
            {"right": None},
            sp.PlanError,
            r"FileList\(right=None\): it takes root=, labels=, index=, instances=, .* and paths of",
        ),
        (
            {"right": ["a.jpg"]},
            sp.PlanError,
            r"FileList\(right=\['a\.jpg'\]\): it takes root=, labels=, index=, instances=, .* and paths of",
        ),
    ],
)
def test_names_and_values_that_are_no_fields(
    fields: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        sp.FileList("list.txt", **fields)


def test_a_missing_path_is_asked_for() -> None:
    arguments: Any = {"right": "right.txt"}
    with pytest.raises(TypeError, match=r"FileList\(\) needs path=: write FileList\(path=…\)"):
        sp.FileList(**arguments)


def test_a_column_of_a_further_fields_name_is_refused(lists: dict[str, Path], tmp_path: Path) -> None:
    index = tmp_path / "index"
    sp.build_index(sp.FileList(lists["path"], index=index), columns={"right": np.arange(2)})
    with pytest.raises(
        sp.PlanError, match=r"the index of .*left\.txt has a column 'right': give the further field"
    ):
        sp.FileList(lists["path"], index=index, right=lists["right"]).open()


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_folders_are_paired_by_names_without_suffixes(tmp_path: Path) -> None:
    left = touch(tmp_path / "left", "cat/001.jpg", "cat/a.b/2.jpg", "dog/é 3.JPG", "cat/notes.txt")
    right = touch(tmp_path / "right", "cat/001.png", "cat/a.b/2.jpg", "dog/é 3.webp", "empty/.keep")
    source = sp.ImageFolder(left, right=right)
    check_source(source)
    opened = source.open()
    assert [*opened.fields] == ["image", "right", "label"]
    assert located(opened, tmp_path) == {
        "image": ["left/cat/001.jpg", "left/cat/a.b/2.jpg", "left/dog/é 3.JPG"],
        "right": ["right/cat/001.png", "right/cat/a.b/2.jpg", "right/dog/é 3.webp"],
    }
    assert opened.locate(np.arange(3)).plain["label"].tolist() == [0, 0, 1]
    assert opened.classes == ("cat", "dog")
    assert source.describe() == f"ImageFolder('{left}', right='{right}')"
    assert replace(source, allow_empty=True) == sp.ImageFolder(left, allow_empty=True, right=right)


def test_folders_of_pairs_need_no_classes(tmp_path: Path) -> None:
    left = touch(tmp_path / "left", "10.png", "9.png", "9 b.png", ".png", "notes.txt")
    depth = touch(tmp_path / "depth", "10.tif", "9.tif", "9 b.png", ".tif")
    for folder in (left, depth):
        os.mkfifo(folder / "pipe.png")
    source = sp.ImageFolder(left, depth=depth)
    check_source(source)
    opened = source.open()
    assert (list(opened.fields), opened.classes) == (["image", "depth"], None)
    assert located(opened, tmp_path) == {
        "image": ["left/.png", "left/10.png", "left/9 b.png", "left/9.png"],
        "depth": ["depth/.tif", "depth/10.tif", "depth/9 b.png", "depth/9.tif"],
    }
    assert opened.name(1) == str(left / "10.png")
    assert list(opened.skipped()) == [str(left / "pipe.png"), str(depth / "pipe.png")]
    with pytest.raises(
        sp.PlanError, match=r"left/ has 4 images but no class folders; move each class .*FileList"
    ):
        sp.ImageFolder(left).open()


@pytest.mark.parametrize(
    ("left", "right", "says"),
    [
        ("a/1 a/2 b/3", "a/1 b/3", r"each image, of the same path .* 1 of \S+/l/ have none, first \S+/l/a/2.jpg. For"),
        ("a/1", "a/1 a/2 b/1", r"suffix: 2 of \S+/r/ have none, first \S+/r/a/2.png. For"),
        ("a/1 a/2", "a/1x4 a/2x4", r"2 of \S+/l/ have none, first \S+/a/1.jpg and 2 of \S+/r/ .* \S+/r/a/1x4.png"),
        ("a/1 a/2", "1 2", r"ImageFolder: right=\S+/r/ must have .* 2 of \S+/l/ have none, .*lists, FileList\('i"),
        ("a/1 a/1.k", "a/1 a/1.k", "names are the same, but suffixes change their number or order"),
    ],
)  # fmt: skip
def test_images_without_a_partner_are_named(left: str, right: str, says: str, tmp_path: Path) -> None:
    touch(tmp_path / "l", *(f"{name}.jpg" for name in left.split()))
    touch(tmp_path / "r", *(f"{name}.png" for name in right.split()))
    with pytest.raises(sp.PlanError, match=says):
        sp.ImageFolder(tmp_path / "l", right=tmp_path / "r").open()


def test_many_pairs_are_compared_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standpipe.source.files.partners.ROWS_AT_ONCE", 3)
    monkeypatch.setattr("standpipe.source.files.sorted_names.ROWS_AT_ONCE", 4)
    names = [f"{number}" for number in range(20)]
    left = touch(tmp_path / "left", *(f"{name}.jpeg" for name in names))
    right = touch(tmp_path / "right", *(f"{name}.png" for name in names))
    pairs = located(sp.ImageFolder(left, right=right).open(), tmp_path)
    assert (
        [Path(name).stem for name in pairs["image"]]
        == [Path(name).stem for name in pairs["right"]]
        == sorted(names)
    )
    (right / "13.png").rename(right / "013.png")
    with pytest.raises(
        sp.PlanError, match=r"1 of \S+ have none, first \S+/13.jpeg and 1 of \S+, first|/013\.png"
    ):
        sp.ImageFolder(left, right=right).open()


def test_a_misspelt_argument_of_a_folder_is_no_field(tmp_path: Path) -> None:
    arguments: Any = {"alow_empty": True}
    with pytest.raises(TypeError, match=r"ImageFolder\(\) takes no alow_empty=: did you mean allow_empty="):
        sp.ImageFolder(tmp_path, **arguments)
    arguments = {"target_transform": abs}
    with pytest.raises(TypeError, match=r"ImageFolder\(\) takes no target_transform=: write \.map"):
        sp.ImageFolder(tmp_path, **arguments)


def test_folders_of_masks_give_the_batches_of_lists(tmp_path: Path) -> None:
    images, masks = tmp_path / "images", tmp_path / "masks"
    for number in range(6):
        touch(tmp_path, f"images/{number}.jpg", f"masks/{number}.png")
        (images / f"{number}.jpg").write_bytes(encoded(picture(number)))
        (masks / f"{number}.png").write_bytes(encoded(picture(number)[..., 0], "PNG"))
    for name, suffix in (("images", "jpg"), ("masks", "png")):
        write(tmp_path / f"{name}.txt", *(f"{name}/{number}.{suffix}" for number in range(6)))
    found = []
    for source in (
        sp.ImageFolder(images, mask=masks),
        sp.FileList(tmp_path / "images.txt", mask=tmp_path / "masks.txt"),
    ):
        pipeline = sp.Pipeline(source).shuffle(seed=3).map(sp.RandomResizedCrop(16)).batch(6)
        with pipeline.loader(memory="128MiB", num_workers=1) as loader:
            (batch,) = loader
            found.append({name: np.array(values) for name, values in batch.items()})
    assert [*found[0]] == [*found[1]]
    assert all((found[0][name] == values).all() for name, values in found[1].items())


def test_records_of_several_images_are_joined(lists: dict[str, Path], tmp_path: Path) -> None:
    left = touch(tmp_path / "l", "0.jpg", "1.jpg", "2.jpg")
    right = touch(tmp_path / "r", "0.png", "1.png", "2.png")
    folders = sp.ImageFolder(left, right=right)
    both = sp.Concat(
        folders, sp.FileList(write(tmp_path / "more.txt", "3.jpg"), right=write(tmp_path / "r.txt", "4.png"))
    )
    check_source(both)
    assert located(both.open(), tmp_path) == {
        "image": ["l/0.jpg", "l/1.jpg", "l/2.jpg", "3.jpg"],
        "right": ["r/0.png", "r/1.png", "r/2.png", "4.png"],
    }
    with pytest.raises(sp.PlanError, match="it has no field 'right'"):
        sp.Concat(folders, sp.FileList(tmp_path / "more.txt")).open()


def members(count: int, *extensions: str) -> list[tuple[str | bytes, bytes]]:
    return [
        (f"{n:03}.{extension}", b"%d" % n if extension == "cls" else f"{extension} {n}".encode())
        for n in range(count)
        for extension in extensions
    ]


def parts(source: OpenSource) -> dict[str, list[bytes]]:
    """The bytes of all records, by field."""
    files = source.locate(np.arange(source.num_records)).files
    return {
        name: [
            Path(os.fsdecode(each.paths[row])).read_bytes()[each.offset[row] :][: each.length[row]]
            for row in range(source.num_records)
        ]
        for name, each in files.items()
    }


def test_images_of_shards_are_fields_by_their_names(tmp_path: Path) -> None:
    shard(tmp_path / "0.tar", members(2, "cls", "json", "left.jpg", "Right-Eye.PNG", "depth.png"))
    shard(tmp_path / "1.tar", members(1, "cls", "left.png", "right-eye.jpg", "depth.png"))
    source = sp.TarShards(tmp_path / "*.tar")
    check_source(source)
    opened = source.open()
    assert dict(list(opened.fields.items())[:3]) == dict.fromkeys(("depth", "left", "right_eye"), Encoded())
    assert parts(opened) == {
        "depth": [b"depth.png 0", b"depth.png 1", b"depth.png 0"],
        "left": [b"left.jpg 0", b"left.jpg 1", b"left.png 0"],
        "right_eye": [b"Right-Eye.PNG 0", b"Right-Eye.PNG 1", b"right-eye.jpg 0"],
    }
    assert opened.locate(np.arange(3)).plain["label"].tolist() == [0, 1, 0]
    assert opened.name(1) == f"{tmp_path}/0.tar: 001.depth.png"


def test_the_index_of_shards_of_pairs_is_used_again(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", members(3, "before.jpg", "after.jpg"))
    built = sp.build_index(sp.TarShards(path), columns={"score": np.arange(3)})
    opened = sp.TarShards(path).open()
    assert str(built.path) in opened.index_note
    assert [*opened.fields] == ["after", "before", "score"]
    assert sp.verify_index(sp.TarShards(path)).ok
    with pytest.raises(sp.PlanError, match="the column 'after' has the name of a field of the records"):
        sp.build_index(sp.TarShards(path), columns={"after": np.arange(3)})
    shard(path, [*members(2, "before.jpg", "after.jpg"), ("2.before.jpg", b"longer"), ("2.after.jpg", b"x")])
    *_, difference = sp.verify_index(sp.TarShards(path)).differences
    assert re.search(
        r"record 2 is after \S+ at byte \d+, 11 bytes, before \S+ at byte .* in the index", difference
    )


@pytest.mark.parametrize(
    ("extensions", "fields", "found"),
    [
        (("jpg", "right.jpg"), None, ["image"]),
        (("image.jpg", "right.jpg"), None, ["image", "right"]),
        (("left.jpg", "right.jpg", "txt"), {"right": "right.jpg", "left": "left.jpg"}, ["left", "right"]),
        (("jpg", "right.jpg"), {"right": "right.jpg;right.png", "image": "jpg"}, ["image", "right"]),
        (("left.jpg", "txt"), {"text": "txt", "left": "left.jpg"}, ["left", "text"]),
    ],
)
def test_fields_of_shards(extensions: tuple[str, ...], fields: Any, found: list[str], tmp_path: Path) -> None:
    opened = sp.TarShards(shard(tmp_path / "a.tar", members(2, *extensions)), fields=fields).open()
    assert [*opened.fields] == found
    assert all(spec == Encoded("file" if name == "text" else "image") for name, spec in opened.fields.items())


@pytest.mark.parametrize(
    ("extensions", "fields", "says"),
    [
        (("x.jpg",), None, "no images, only members with .x.jpg; a key ends at the first dot of a name"),
        (
            ("1.jpg", "2.jpg"),
            None,
            "no images, only members with .1.jpg, .2.jpg; a key ends at the first dot",
        ),
        (("a-b.jpg", "a_b.jpg"), None, "no images, only members with .a-b.jpg, .a_b.jpg"),
        (("label.jpg", "right.jpg"), None, "no images, only members with .label.jpg"),
        (("left.jpg", "right.jpg"), {"text": "txt"}, "must say what the image is"),
    ],
)
def test_members_that_are_no_fields(
    extensions: tuple[str, ...], fields: Any, says: str, tmp_path: Path
) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.TarShards(shard(tmp_path / "a.tar", members(2, *extensions)), fields=fields).open()


def test_a_record_without_one_of_its_images_is_refused(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", [*members(1, "left.jpg", "right.jpg"), ("1.left.jpg", b"x")])
    with pytest.raises(sp.PlanError, match=r"the member 1\.left\.jpg has no right next to it"):
        sp.TarShards(path).open()


def test_index_files_of_further_lists_are_verified(lists: dict[str, Path], tmp_path: Path) -> None:
    age(*lists.values())
    source = sp.FileList(**lists)
    sp.build_index(source)
    assert sp.verify_index(source).ok
    sp.build_index(sp.FileList(lists["right"], labels=False))
    assert sp.verify_index(source).ok
    write(lists["right"], "r/0 a.jpg", "r/1.jpg 7", "r/2.jpg")
    differences = sp.verify_index(source).differences
    assert differences[0] == "right: a run wouldn't use it: the list changed since"
    assert differences[1] == "right: it has 2 records, the list has 3"
    age(*touch(tmp_path, "a/1.png", "b/1.png").glob("[ab]"))
    folders = sp.ImageFolder(tmp_path / "a", b=tmp_path / "b")
    sp.build_index(folders)
    sp.build_index(sp.ImageFolder(tmp_path / "b", a=tmp_path / "a"))
    assert sp.verify_index(folders).ok
    touch(tmp_path, "b/2.png")
    assert "b: it has 1 records, the folder has 2" in sp.verify_index(folders).differences
