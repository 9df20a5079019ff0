from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from photos import encoded, picture
from standpipe.contracts import SkipsFiles
from standpipe.errors import PlanError
from standpipe.source import ImageFolder

TORCHVISION_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def touch(root: Path, *names: str | bytes) -> Path:
    for name in names:
        path = root / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def records(source: ImageFolder) -> list[tuple[bytes, int]]:
    opened = source.open()
    found = opened.locate(np.arange(opened.num_records))
    paths = found.files["image"].paths
    return [(paths[row], int(label)) for row, label in enumerate(found.plain["label"])]


def names(root: Path) -> list[str]:
    return [os.path.relpath(os.fsdecode(path), root) for path, _ in records(ImageFolder(root))]


def as_torchvision(root: Path) -> list[tuple[bytes, int]]:
    """What torchvision's ``make_dataset`` does, in our words: its order is the one to match."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    found = []
    for label, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(root / name, followlinks=True)):
            found += [
                (os.fsencode(Path(folder, file)), label)
                for file in sorted(files)
                if file.lower().endswith(TORCHVISION_SUFFIXES)
            ]
    return found


def test_order_and_labels_are_those_of_torchvision(tmp_path: Path) -> None:
    folders = ("a", "a-b", "a/b", "a/b-c", "a/b/c", "B", "é", "z/z/z")
    plain = ("1.jpg", "10.jpg", "2.JPG", "a.txt", "b.PnG", "B", ".jpg", "jpg")
    odd = ("x.tiff", "日本.webp", "1234567.bmp", "12345678.jpg", "123456789.jpg")
    touch(tmp_path, *(f"{folder}/{name}" for folder in folders for name in plain + odd))
    assert records(ImageFolder(tmp_path)) == as_torchvision(tmp_path)


def test_random_trees_have_the_order_of_torchvision(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    parts = ["a", "b", "a-", "a.", "ab", "aaaaaaaa", "aaaaaaaab", "á"]
    touch(
        tmp_path,
        *("/".join([*rng.choice(parts, rng.integers(1, 4)), f"{rng.choice(parts)}.jpg"]) for _ in range(400)),
    )
    assert records(ImageFolder(tmp_path)) == as_torchvision(tmp_path)


@pytest.mark.parametrize("sorted_at_once", [1, 2, 4, 7])
def test_classes_that_are_sorted_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sorted_at_once: int
) -> None:
    monkeypatch.setattr(
        "standpipe.source.files.sorted_names.SORTED_AT_ONCE", sorted_at_once
    )  # not 131,072 files
    monkeypatch.setattr("standpipe.source.files.sorted_names.ROWS_AT_ONCE", 3)
    touch(tmp_path, *(f"{label}/{name % 3}/{name * 7 % 10}.png" for label in "ab-" for name in range(9)))
    assert records(ImageFolder(tmp_path)) == as_torchvision(tmp_path)


def test_many_small_and_some_large_folders_are_sorted(tmp_path: Path) -> None:
    touch(tmp_path, *(f"c{label}/{name}.png" for label in range(40) for name in range(label * 3 + 1)))
    touch(tmp_path, *(f"many/{name}.png" for name in range(4_200)))
    assert records(ImageFolder(tmp_path)) == as_torchvision(tmp_path)


def test_classes_are_the_sorted_folder_names(tmp_path: Path) -> None:
    touch(tmp_path, "b/1.jpg", "a b/1.jpg", "C/1.jpg", "outside.jpg", "notes.txt")
    opened = ImageFolder(tmp_path).open()
    assert opened.classes == ("C", "a b", "b")
    assert opened.num_records == 3


def test_gif_is_an_image(tmp_path: Path) -> None:
    assert names(touch(tmp_path, "a/1.gif", "a/2.GIF")) == ["a/1.gif", "a/2.GIF"]


def test_relative_root_survives_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path / "set", "a/1.jpg")
    monkeypatch.chdir(tmp_path)
    opened = ImageFolder("set").open()
    monkeypatch.chdir("/")
    assert opened.locate(np.array([0])).files["image"].paths[0] == os.fsencode(tmp_path / "set/a/1.jpg")


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "set/a/1.jpg")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ImageFolder("~/set").open().name(0) == str(tmp_path / "set/a/1.jpg")


def test_bytes_root(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg")
    assert ImageFolder(os.fsencode(tmp_path)).open().digest == ImageFolder(tmp_path).open().digest


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    touch(tmp_path, b"a\xff/\xfe.jpg", b"a\xff/\xc3\xa9.jpg", "a/\n.jpg", "a/" + "x" * 251 + ".jpg")
    opened = ImageFolder(tmp_path).open()
    base = os.fsencode(tmp_path)
    assert [path for path, _ in records(ImageFolder(tmp_path))] == [
        base + b"/a/\n.jpg",
        base + b"/a/" + b"x" * 251 + b".jpg",
        base + b"/a\xff/\xc3\xa9.jpg",
        base + b"/a\xff/\xfe.jpg",
    ]
    assert opened.classes == ("a", r"a\xff")
    assert opened.name(0) == rf"{tmp_path}/a/\n.jpg"
    assert opened.name(3) == rf"{tmp_path}/a\xff/\xfe.jpg"


def test_folder_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    touch(tmp_path / "set", "a/1.jpg", "a/deep/2.jpg", "b/3.jpg")
    touch(tmp_path / "elsewhere", "4.jpg")
    (tmp_path / "set/c").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set/a/deep/up").symlink_to("..")
    (tmp_path / "set/a/deep/self").symlink_to(".")
    (tmp_path / "set/a/root").symlink_to(tmp_path / "set")
    (tmp_path / "set/a/to_b").symlink_to("../b")
    (tmp_path / "set/b/to_a").symlink_to("../a")
    assert names(tmp_path / "set") == [
        "a/1.jpg",
        "a/deep/2.jpg",
        "a/to_b/3.jpg",
        "b/3.jpg",
        "b/to_a/1.jpg",
        "b/to_a/deep/2.jpg",
        "c/4.jpg",
    ]


def test_a_folder_with_the_name_of_an_image_is_a_folder(tmp_path: Path) -> None:
    assert names(touch(tmp_path, "a/b.jpg/1.png", "a/2.png")) == ["a/2.png", "a/b.jpg/1.png"]


def test_file_links_are_records_even_when_they_lead_nowhere(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg")
    (tmp_path / "a/2.jpg").symlink_to("1.jpg")
    (tmp_path / "a/3.jpg").symlink_to("gone.jpg")
    (tmp_path / "a/4.jpg").symlink_to("4.jpg")
    assert names(tmp_path) == ["a/1.jpg", "a/2.jpg", "a/3.jpg", "a/4.jpg"]


@pytest.mark.parametrize("link", ["c", "a/more"])
def test_lost_link_that_may_be_a_folder_is_refused(tmp_path: Path, link: str) -> None:
    touch(tmp_path, "a/1.jpg")
    (tmp_path / link).symlink_to("/not/mounted")
    with pytest.raises(PlanError, match=rf"'{Path(link).name}' in .*target is gone"):
        ImageFolder(tmp_path).open()


def test_special_files_are_skipped_and_counted(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "a/deep/2.jpg", "b/3.jpg")
    os.mkfifo(tmp_path / "a/pipe.jpg")
    os.mkfifo(tmp_path / "a/deep/pipe.jpg")
    (tmp_path / "b/device.jpg").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "b/s.jpg"))
        found = sp.check_files(ImageFolder(tmp_path))
        opened = sp.Concat(ImageFolder(tmp_path), ImageFolder(tmp_path)).open()
    assert names(tmp_path) == ["a/1.jpg", "a/deep/2.jpg", "b/3.jpg"]
    special = ["a/deep/pipe.jpg", "a/pipe.jpg", "b/device.jpg", "b/s.jpg"]
    assert sorted(found.skipped_files()) == [str(tmp_path / name) for name in special]
    assert (found.records, found.skipped, found.facts()["skipped"]) == (3, 4, 4)
    assert isinstance(opened, SkipsFiles)
    assert set(opened.skipped()) == set(found.skipped_files())
    plan = sp.Pipeline(ImageFolder(tmp_path)).map(sp.CenterCrop(8)).batch(2).plan()
    assert "skipped pipes, sockets and devices with image names: 4" in " ".join(plan.explain().split())
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c/pipe.jpg")
    with pytest.raises(PlanError, match=r"no image in 'c', below .*, but 1 pipe, socket or device: remove"):
        ImageFolder(tmp_path).open()
    os.mkfifo(tmp_path / "c/pipe2.jpg")
    for folder in "ab":
        shutil.rmtree(tmp_path / folder)
    with pytest.raises(PlanError, match="has an image, but 2 pipes, sockets or devices; check the path"):
        ImageFolder(tmp_path, allow_empty=True).open()


def test_an_image_whose_path_is_too_long_is_one_bad_record(tmp_path: Path) -> None:
    """The system takes 4,095 bytes at once; what lies deeper can be made from folder to folder."""
    good = encoded(picture(1))
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.jpg").write_bytes(good)
    folder, length = os.open(tmp_path / "a", os.O_RDONLY), len(os.fsencode(tmp_path / "a"))
    while length < 3850:  # the last folder's own path isn't too long: an image's in it is
        name = "x" * 240
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder, length = below, length + 241
    try:
        file = os.open(f"{'y' * 250}.jpg", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
        os.write(file, good)
        os.close(file)
        for _ in range(2):  # with a new index, then as it is kept
            opened = ImageFolder(tmp_path, index=tmp_path.parent / "long.index").open()
            assert sorted(len(opened.name(row) or "") > 3500 for row in range(2)) == [False, True]
        pipeline = sp.Pipeline(ImageFolder(tmp_path)).map(sp.CenterCrop(8)).on_error(sp.Replace(at_most=1.0))
        with pipeline.batch(2).loader(memory="64MiB", num_workers=1) as loader:
            assert len(next(iter(loader))["index"]) == 2
            reasons = {bad.reason for bad in loader.bad_samples}
        assert reasons == {"can't be opened: File name too long"}
        os.mkdir("z" * 250, dir_fd=folder)
        with pytest.raises(PlanError, match="4,095"):
            ImageFolder(tmp_path).open()
    finally:
        os.close(folder)
        shutil.rmtree(tmp_path / "a")  # it goes from folder to folder too


def test_special_files_without_an_image_name_are_ignored(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg")
    os.mkfifo(tmp_path / "a/control")
    os.mkfifo(tmp_path / "beside.jpg")
    assert names(tmp_path) == ["a/1.jpg"]


def test_class_folders_without_images(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "b/notes.txt", "c/1.jpg", "d/deep/.keep")
    with pytest.raises(PlanError, match=r"no image in 'b', 'd', below .*allow_empty=True"):
        ImageFolder(tmp_path).open()
    opened = ImageFolder(tmp_path, allow_empty=True).open()
    assert opened.classes == ("a", "b", "c", "d")
    assert opened.locate(np.arange(2)).plain["label"].tolist() == [0, 2]


def test_many_empty_class_folders_are_named_in_part(tmp_path: Path) -> None:
    for name in "edcba":
        (tmp_path / name).mkdir()
    for allow_empty in (True, False):
        with pytest.raises(PlanError, match=r"no class folder in .* has an image"):
            ImageFolder(tmp_path, allow_empty=allow_empty).open()
    touch(tmp_path, "f/1.jpg")
    with pytest.raises(PlanError, match=r"'a', 'b', 'c' and 2 more, below"):
        ImageFolder(tmp_path).open()


def test_images_without_class_folders(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"2 images but no class folders.*FileList"):
        ImageFolder(touch(tmp_path, "1.jpg", "2.jpg")).open()


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"no class folders"):
        ImageFolder(tmp_path).open()
    with pytest.raises(PlanError, match=r"can't read .*/gone/: No such file .*check the path"):
        ImageFolder(tmp_path / "gone").open()
    with pytest.raises(PlanError, match=r"file\.txt/: Not a directory.*FileList"):
        ImageFolder(touch(tmp_path, "file.txt") / "file.txt").open()
    with pytest.raises(PlanError, match=r"is empty"):
        ImageFolder("").open()
    with pytest.raises(PlanError, match=r"NUL"):
        ImageFolder("a\0b").open()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that another user may enter, which pytest's own temporary folders aren't."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own are for root alone
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_folder_without_permission(open_to_all: Path) -> None:
    locked = touch(open_to_all, "a/1.jpg", "a/locked/2.jpg") / "a/locked"
    locked.chmod(0)
    user = os.geteuid()
    if user == 0:  # root may read everything
        os.seteuid(65534)
    try:
        with pytest.raises(PlanError, match=r"locked: Permission denied; make it readable"):
            ImageFolder(open_to_all).open()
    finally:
        os.seteuid(user)
        locked.chmod(0o755)


def test_digest_covers_paths_labels_and_classes_but_not_the_place(tmp_path: Path) -> None:
    def digest(folder: str, *files: str) -> str:
        return ImageFolder(touch(tmp_path / folder, *files), allow_empty=True).open().digest

    first = digest("1", "a/1.jpg", "b/2.jpg")
    assert digest("moved/1", "b/2.jpg", "a/1.jpg") == first
    assert digest("2", "a/1.jpg", "b/3.jpg") != first
    assert digest("3", "a/1.jpg", "c/2.jpg") != first
    assert digest("4", "a/1.jpg", "b/2.jpg", "b/3.jpg") != first
    assert digest("5", "a/1.jpg", "b/2.jpg", "c/.keep") != first


def test_index_is_packed(tmp_path: Path) -> None:
    touch(tmp_path, *(f"a/{name:04}.jpg" for name in range(1000)))
    assert ImageFolder(tmp_path).open().index_bytes < 1000 * (len("a/0000.jpg") + 1 + 8 + 1) + 4096


def test_describe() -> None:
    assert ImageFolder("a\nb").describe() == r"ImageFolder('a\nb')"
    assert ImageFolder(Path("x"), allow_empty=True).describe() == "ImageFolder('x', allow_empty=True)"
