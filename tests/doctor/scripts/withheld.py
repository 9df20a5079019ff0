"""Functions that use checkpoints as scripts do. Each begins in a folder of files that an earlier run left."""

# ruff: noqa: PT017, PT018, SIM115
# ruff: noqa: PTH102, PTH104, PTH105, PTH106, PTH107, PTH109, PTH110, PTH114, PTH118
# ruff: noqa: PTH121, PTH123, PTH202, PTH204, PTH207, PTH208, PTH211 (scripts call these)

import contextlib
import glob
import os
import pickle
import shutil
import tempfile
from pathlib import Path

import torch


def save_and_look():
    torch.save(1, "model.pt")
    torch.save(obj=2, f=Path("new.pt"))
    assert torch.load(open("model.pt", "rb")) == torch.load("model.pt", mmap=True) == 1
    assert Path("new.pt").exists() and Path("new.pt").is_file() and Path("new.pt").stat().st_size > 0
    assert os.path.getmtime("new.pt") >= os.path.getmtime("log.txt")
    assert os.path.getsize("new.pt") == len(Path("new.pt").read_bytes())
    assert os.access("new.pt", os.R_OK) and os.path.samefile("new.pt", "folder/../new.pt")
    os.utime("new.pt", (1, 1))
    assert os.path.getmtime("new.pt") == 1


def save_where_nothing_can_be():
    for path, message in (("missing/model.pt", "missing does not exist"), ("folder", "cannot be opened")):
        with contextlib.suppress(RuntimeError):
            torch.save(1, path)
            raise AssertionError(message)
    assert not os.path.exists("missing")


def list_them():
    torch.save(1, "model.pt")
    torch.save(2, "new.pt")
    os.remove("old.pt")
    there = ["model.pt", "new.pt"]
    assert sorted(glob.glob("*.pt")) == sorted(path.name for path in Path().glob("*.pt")) == there
    assert sorted(set(os.listdir()) - {"folder", "log.txt"}) == there
    assert {path.name for path in Path().iterdir()} == {*there, "folder", "log.txt"}
    assert next(os.walk("."))[2].count("new.pt") == 1
    with os.scandir() as entries:
        (entry,) = (entry for entry in entries if entry.name == "new.pt")
    assert entry.is_file() and torch.load(entry.path) == 2
    torch.save(3, "folder/inner.pt")
    shutil.copytree("folder", "copy")
    assert torch.load("copy/inner.pt") == 3


def copy_them():
    torch.save(1, "new.pt")
    assert shutil.copyfile("new.pt", "model.pt") == "model.pt"
    assert shutil.copy("new.pt", "folder") == "folder/new.pt"
    shutil.copy2(src="new.pt", dst="kept")
    Path("by_hand.pt").write_bytes(Path("old.pt").read_bytes())
    os.remove("by_hand.pt")
    assert torch.load("model.pt") == torch.load("folder/new.pt") == torch.load("kept") == 1


def move_them():
    torch.save(1, "new.part")
    os.replace(src="new.part", dst="model.pt")
    assert torch.load("model.pt") == 1 and not os.path.exists("new.part")
    shutil.move("model.pt", "folder")
    assert torch.load("folder/model.pt") == 1 and not os.path.lexists("model.pt")
    os.rename("old.pt", "older.pt")  # nothing of these is the run's own
    assert Path("older.pt").read_text() == "old" and not os.path.exists("old.pt")
    os.rename("folder", "renamed")
    assert torch.load("renamed/model.pt") == 1
    os.rename("renamed", "folder")
    try:
        os.replace("nothing", "model.pt")
    except FileNotFoundError as error:
        assert error.filename == "nothing"


def remove_them():
    torch.save(1, "model.pt")
    os.remove("model.pt")
    Path("old.pt").unlink()
    for path in ("model.pt", "old.pt"):
        assert not os.path.exists(path)
        try:
            open(path)
        except FileNotFoundError as error:
            assert error.filename == path
    torch.save(2, "model.pt")
    assert torch.load("model.pt") == 2
    os.mkdir("run")
    torch.save(1, "run/model.pt")
    shutil.rmtree("run")
    os.mkdir("run")  # often with the inode of the other
    assert os.listdir("run") == []
    os.rmdir("run")


def link_them():
    torch.save(1, "folder/new.pt")
    os.symlink("folder/new.pt", "last.pt")
    assert os.path.islink("last.pt") and torch.load("last.pt") == torch.load(os.path.realpath("last.pt")) == 1
    Path("last.pt").unlink()
    Path("folder/last.pt").symlink_to("new.pt")
    assert torch.load("folder/last.pt") == 1
    os.link("folder/new.pt", "hard.pt")
    assert torch.load("hard.pt") == 1
    for link in (os.link, os.symlink):
        with contextlib.suppress(FileExistsError):
            link("folder/new.pt", "log.txt")
            raise AssertionError


def save_to_open_files():
    with open("model.pt", "wb") as file:
        torch.save(1, file)
    with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
        file.write(b"")
        torch.save(2, file)
        torch.save(3, file)
    os.replace(file.name, "old.pt")
    with open("new.pt", "wb") as file:
        pickle.dump("head", file)
        torch.save(4, file)
        pickle.dump("tail", file)
    assert torch.load("model.pt") == 1 and os.path.getsize("old.pt") > os.path.getsize("model.pt")
    with open("new.pt", "rb") as file:
        assert pickle.load(file) == "head"
    assert Path("new.pt").read_bytes().endswith(pickle.dumps("tail"))


def write_files_in_other_ways():
    with open("model.pt", "wb") as file:
        pickle.dump(1, file)
    assert pickle.loads(Path("model.pt").read_bytes()) == 1
    Path("model.tmp").write_bytes(b"whole")
    os.replace("model.tmp", "old.pt")
    assert Path("old.pt").read_text() == "whole" and not os.path.exists("model.tmp")
    with open("log.txt", "a") as file:
        file.write("more\n")


if __name__ == "__main__":
    folder = os.getcwd()
    for does in (
        save_and_look,
        save_where_nothing_can_be,
        list_them,
        copy_them,
        move_them,
        remove_them,
        link_them,
        save_to_open_files,
        write_files_in_other_ways,
    ):
        os.chdir(os.path.join(folder, does.__name__))
        does()
    print("all is as it should be")
