"""What a user says of a cache, and what of it can't be."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

import standpipe as sp
from standpipe.identity.cached_set import Identity
from standpipe.system.filesystem import FileSystem, check_local, file_system


@pytest.mark.parametrize("name", ["eval", "Eval-2.b_c", "7", "a" * 64])
def test_names_of_files_name_a_session(name: str, tmp_path: Path) -> None:
    sp.Cache(name, "1MiB", directory=tmp_path).check()


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "-x", "a/b", "a b", "ä", "a\n", "a" * 65, None, 7]
)
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(sp.PlanError, match="at most 64 letters"):
        sp.Cache(name).check()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"memory": "much"}, r"Cache\('eval'\) memory='much' isn't a size. Give a number of bytes"),
        ({"memory": -1}, "memory=-1"),
        ({"memory": False}, "memory=False"),
        ({"spill_limit": "1GiB"}, "needs spill="),
        ({"spill": "/", "spill_limit": "some"}, "spill_limit='some'"),
        ({"validate": "always"}, "'loader', 'epoch' or 'never'"),
        ({"scope": "world_size"}, "'ranks' or 'node'"),
        ({"idle_after": -1}, "idle_after=-1"),
        ({"strict": 1}, "strict=1"),
        ({"directory": ""}, "directory=''"),
        ({"directory": 3}, "directory=3"),
        ({"directory": "/nowhere/at/all"}, "No such file or directory"),
        ({"directory": "/dev/null"}, "Not a directory"),
        ({"spill": "/nowhere/at/all"}, r"spill='/nowhere/at/all'\): No such file"),
        ({"shared_group": "no such group"}, "has no such group"),
        ({"shared_group": 1.5}, "name or number of a group"),
    ],
)
def test_what_can_not_be_is_a_plan_error(given: dict[str, Any], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Cache("eval", **given).check()


def test_constructing_touches_nothing(tmp_path: Path) -> None:
    cache = sp.Cache("eval", "64MiB", directory=tmp_path / "none", spill=tmp_path / "neither")
    assert not list(tmp_path.iterdir())
    assert cache == dataclasses.replace(cache)
    assert hash(cache) == hash(dataclasses.replace(cache))


@pytest.mark.parametrize(("memory", "number"), [(None, None), (0, 0), ("8GiB", 8 << 30), (1, 1)])
def test_memory_is_a_number_or_text(memory: int | str | None, number: int | None) -> None:
    cache = sp.Cache("eval", memory)
    assert cache.memory_bytes == number
    assert cache.is_off == (number == 0)


def test_memory_of_none_is_off_wherever_it_would_be() -> None:
    sp.Cache("eval", 0, directory="/nowhere/at/all").check()


def test_more_than_the_machine_has_is_refused_with_the_numbers() -> None:
    with pytest.raises(sp.PlanError, match=r"memory='1024.0TiB' is too large") as told:
        sp.Cache("eval", 1 << 50).check()
    assert "a tmpfs, has" in str(told.value)
    assert "of memory" in str(told.value)


def test_more_than_the_disk_has_is_refused_with_the_numbers(tmp_path: Path) -> None:
    there = os.statvfs(tmp_path)
    with pytest.raises(sp.PlanError, match=r"spill_limit=.* is too large"):
        sp.Cache(
            "eval", "1MiB", spill=tmp_path, spill_limit=there.f_blocks * there.f_frsize + (1 << 30)
        ).check()


def test_file_systems_are_told_apart(tmp_path: Path) -> None:
    memory, other = file_system("/dev/shm"), file_system("/proc/self")
    assert (memory.kind, memory.in_memory, memory.elsewhere) == ("tmpfs", True, False)
    assert not other.in_memory
    assert file_system(str(tmp_path)).free_bytes > 0


def test_a_shared_file_system_is_refused_with_the_reason() -> None:
    nfs = FileSystem("NFS", in_memory=False, elsewhere=True, total_bytes=1 << 40, free_bytes=1 << 40)
    with pytest.raises(
        sp.PlanError, match=r"directory='/far/away'.* is on NFS, but a cache belongs to one machine"
    ):
        check_local("directory", "/far/away", nfs)


def test_an_identity_is_its_parts() -> None:
    one = Identity({"source": "abc", "pixels": 1}, "photos")
    assert one.digest == Identity({"pixels": 1, "source": "abc"}, "other photos").digest
    assert len(one.digest) == 32
    assert one.salt == int(one.digest[:16], 16)
    for parts in ({"source": "abc", "pixels": 2}, {"source": "abc"}, {"source": "abc", "pixels": "1"}):
        assert Identity(parts, "photos").digest != one.digest


def test_an_identity_never_changes() -> None:
    assert Identity({"source": "a", "n": 1}, "x").digest == "9eeb114981a5c371e57a8dee837927a2"


def test_any_path_can_be_in_an_identity() -> None:
    assert len(Identity({"path": "\udcff"}, "x").digest) == 32
