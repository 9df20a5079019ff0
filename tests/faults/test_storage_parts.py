"""Samples that are parts of larger files: which are opened once, read together where that pays, and may change."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from forked import output
from parts import Parts, write_parts
from photos import age, encoded, picture
from standpipe import _native
from standpipe.spec import UInt8Array
from tars import shard

SIZE = 24
JPEGS = [encoded(picture(seed), quality=90) for seed in range(24)]
# Who reads: the native pool, or Python workers of every kind.
WAYS: dict[str, dict[str, Any]] = {
    "native": {},
    "threads": {"executor": "thread"},
    "inline": {"executor": "inline"},
    "processes": {"executor": "process"},
}


def loader(parts: Any, way: str = "native", *, bad: Any = None, rows: int = 2, **settings: Any) -> sp.Loader:
    pipeline = sp.Pipeline(parts).map(sp.Resize((SIZE, SIZE)))
    if way != "native":
        pipeline = pipeline.map(np.asarray, field="image")
    if bad is not None:
        pipeline = pipeline.on_error(bad)
    given = {"memory": "256MiB", "num_workers": 1, "prefetch": 1, "reads": sp.ReadOptions(backoff_s=0.001)}
    return pipeline.batch(rows).loader(**(given | WAYS[way] | settings))


def images(parts: Parts, **settings: Any) -> tuple[list[UInt8Array], sp.Stats]:
    """All images of an epoch, and the counters."""
    with loader(parts, **settings) as running:
        found = [image for batch in running for image in batch["image"].copy()]
        return found, running.stats()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[UInt8Array]:
    folder = tmp_path_factory.mktemp("expected")
    for number, content in enumerate(JPEGS):
        (folder / f"{number:03d}.jpg").write_bytes(content)
    (folder / "list.txt").write_text("".join(f"{number:03d}.jpg\n" for number in range(len(JPEGS))))
    pipeline = sp.Pipeline(sp.FileList(folder / "list.txt")).map(sp.Resize((SIZE, SIZE)))
    return list(next(iter(pipeline.batch(len(JPEGS)).loader(memory="256MiB")))["image"].copy())


def same(found: list[UInt8Array], expected: list[UInt8Array]) -> bool:
    return len(found) == len(expected) and all(map(np.array_equal, found, expected))


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def touched(path: Path) -> None:
    age(path, at_ns=path.stat().st_mtime_ns + 10**9)


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (
        truncated,
        "the file has changed since it was indexed: it has {now} bytes, and had {before}",
    ),
    "modified": (touched, "the file has changed since it was indexed: it was modified at another time"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_many_samples_changes_during_a_run(tmp_path: Path, change: str, way: str) -> None:
    """Its open descriptor shows that, too."""
    parts = write_parts(tmp_path, JPEGS)
    (path,) = parts.paths
    before = path.stat().st_size
    happens, text = CHANGES[change]
    with loader(parts, way) as running:
        batches = iter(running)
        next(batches)
        happens(path)
        with pytest.raises(sp.ReadError) as caught:
            list(batches)
    error = caught.value
    expected = re.escape(text.format(now=path.stat().st_size, before=before))
    # Read while it changes, it is read once more.
    assert re.fullmatch(rf"{expected}( \(2 tries in [\d.]+ s\))?", error.reason)
    assert error.index > 1
    assert error.path == parts.name(error.index)
    assert error.offset == parts.places[error.index][1]
    assert f"{path}: {error.index:03d}.jpg at byte {error.offset}" in str(error)


@pytest.mark.parametrize("change", CHANGES)
def test_a_tar_shard_changes_during_a_run(tmp_path: Path, change: str) -> None:
    members = [(f"{number:03d}.jpg", content) for number, content in enumerate(JPEGS)]
    shards = [shard(tmp_path / f"{each}.tar", members[12 * each : 12 * each + 12]) for each in range(2)]
    source = sp.TarShards(shards)
    happens, text = CHANGES[change]
    with loader(source) as running:
        batches = iter(running)
        next(batches)
        before = shards[1].stat().st_size
        happens(shards[1])
        with pytest.raises(sp.ReadError) as caught:
            list(batches)
    error = caught.value
    assert error.reason == text.format(now=shards[1].stat().st_size, before=before)
    assert error.path == f"{shards[1]}: {error.index:03d}.jpg"
    assert error.offset > 0


@pytest.mark.parametrize("way", WAYS)
def test_samples_of_a_file_cut_since_its_index_are_replaced_one_by_one(
    tmp_path: Path, way: str, expected: list[UInt8Array]
) -> None:
    parts = write_parts(tmp_path, JPEGS, files=3)
    truncated(parts.paths[1])
    with loader(parts, way, bad=sp.Replace(at_most=20)) as running:
        found = [
            (int(index), image)
            for batch in running
            for index, image in zip(batch["index"], batch["image"].copy(), strict=True)
        ]
        bad = {each.index: each for each in running.bad_samples}
    assert len(found) == len(JPEGS)
    assert set(bad) == set(range(8, 16)), "no other file's"
    assert all(each.reason.startswith("the file has changed since it was indexed") for each in bad.values())
    assert all(each.offset == parts.places[each.index][1] for each in bad.values())
    assert all(np.array_equal(image, expected[index]) for index, image in found)


@pytest.mark.parametrize("way", WAYS)
def test_without_a_known_size_a_truncated_file_says_which_sample_lacks_bytes(
    tmp_path: Path, way: str
) -> None:
    parts = write_parts(tmp_path, JPEGS, known=False)
    _, offset, length = parts.places[-1]
    os.truncate(parts.paths[0], offset + length // 2)
    with pytest.raises(sp.ReadError) as caught:
        images(parts, way=way)
    assert caught.value.reason == f"truncated: file ends after {length // 2} of {length} bytes"
    assert (caught.value.index, caught.value.offset) == (len(JPEGS) - 1, offset)


def test_a_file_that_another_one_replaces_is_read_to_the_end_and_refused_by_the_next_run(
    tmp_path: Path, expected: list[UInt8Array]
) -> None:
    """What is open is what was indexed, whatever has its name by now."""
    parts = write_parts(tmp_path, JPEGS)
    with loader(parts) as running:
        batches = iter(running)
        found = list(next(batches)["image"].copy())
        other = tmp_path / "other"
        other.write_bytes(bytes(parts.paths[0].stat().st_size + 1))
        other.rename(parts.paths[0])
        found += [image for batch in batches for image in batch["image"].copy()]
        assert same(found, expected)
    with pytest.raises(sp.ReadError, match="the file has changed since it was indexed"):
        images(parts)


@pytest.mark.parametrize("way", WAYS)
def test_a_file_of_many_samples_is_opened_once(tmp_path: Path, way: str, expected: list[UInt8Array]) -> None:
    parts = write_parts(tmp_path, JPEGS, files=3)
    with loader(parts, way) as running:
        for _ in range(2):
            assert same([image for batch in running for image in batch["image"].copy()], expected)
        stats = running.stats()
    assert stats.opens == 3
    assert 2 * len(JPEGS) <= stats.ranges <= stats.read.rows + 2, "of rows at work the range counts first"


def test_of_whole_files_each_read_opens_one(tmp_path: Path) -> None:
    for number, content in enumerate(JPEGS):
        (tmp_path / f"{number}.jpg").write_bytes(content)
    (tmp_path / "list.txt").write_text("".join(f"{number}.jpg\n" for number in range(len(JPEGS))))
    pipeline = sp.Pipeline(sp.FileList(tmp_path / "list.txt")).map(sp.Resize((SIZE, SIZE))).batch(2)
    with pipeline.loader(memory="256MiB", num_workers=1) as running:
        assert len(list(running)) == len(JPEGS) // 2
        stats = running.stats()
    assert stats.opens == stats.ranges >= len(JPEGS)


EPOCH = """
import hashlib
from pathlib import Path
from parts import Parts
{before}
parts = Parts({paths!r}, {places!r}, {known!r})
pipeline = sp.Pipeline(Parts(tuple(map(Path, parts.paths)), parts.places, parts.known)).map(sp.Resize(({size}, {size})))
settings = {{"memory": "256MiB", "num_workers": 2, "reads": sp.ReadOptions(**{reads!r}), **{settings!r}}}
digest = hashlib.blake2b()
with pipeline.batch({rows}).loader(**settings) as loader:
    for batch in loader:
        digest.update(batch["image"].tobytes())
    stats = loader.stats()
    files = [os.path.realpath(f"/proc/self/fd/{{each}}") for each in os.listdir("/proc/self/fd")]
    open_files = len([each for each in files if {folder!r} in each])
print(digest.hexdigest(), stats.opens, stats.ranges, stats.read.rows, stats.retries, stats.hedged, open_files)
"""


def epoch(
    parts: Parts,
    faults: str = "",
    *,
    reads: dict[str, Any] | None = None,
    rows: int = 24,
    before: str = "",
    **settings: Any,
) -> tuple[str, list[int]]:
    """The digest of an epoch in a process of its own; then opens, ranges, rows, retries, hedged, files still open."""
    text = EPOCH.format(
        before=before,
        paths=tuple(map(str, parts.paths)),
        places=parts.places,
        known=parts.known,
        size=SIZE,
        rows=rows,
        reads=reads or {"backoff_s": 0.001},
        settings=settings,
        folder=str(parts.paths[0].parent),
    )
    digest, *counts = output(text, environment={"STANDPIPE_FAULTS": faults}).split()
    return digest, [*map(int, counts)]


def at(path: Path) -> str:
    return f"@#{_native.fault_key(os.fsencode(path))}"


def test_a_handle_that_became_stale_is_opened_anew(tmp_path: Path) -> None:
    parts = write_parts(tmp_path, JPEGS)
    whole, _ = epoch(parts)
    digest, (opens, _, _, retries, *_) = epoch(
        parts, f"read.stat=estale{at(parts.paths[0])}*1", num_workers=1
    )
    assert digest == whole
    assert opens >= 2
    assert retries >= 1


def test_an_open_that_hangs_is_hedged_and_others_get_the_new_one(tmp_path: Path) -> None:
    parts = write_parts(tmp_path, JPEGS)
    whole, _ = epoch(parts)
    hangs = f"read.open=delay:25s{at(parts.paths[0])}*1"
    digest, (opens, _, _, _, hedged, _) = epoch(parts, hangs, reads={"hedge_after_s": 0.1})
    assert digest == whole
    assert hedged >= 1
    assert opens >= 1


SLOW = "read.pread=delay:3ms"


def many(tmp_path: Path, **options: Any) -> Parts:
    return write_parts(tmp_path, [JPEGS[number % len(JPEGS)] for number in range(240)], **options)


def test_neighbours_are_read_together_while_storage_is_slow(tmp_path: Path) -> None:
    parts = many(tmp_path, files=2)
    whole, (_, ranges, rows, *_) = epoch(parts)
    assert ranges >= rows, "not of warm files"  # one more may be under way
    digest, (opens, ranges, rows, *_) = epoch(parts, SLOW)
    assert digest == whole
    assert opens == 2
    assert ranges < rows / 3


@pytest.mark.parametrize(
    "fault", ["read.pread=eio*1", "read.stat=eio*1", "read.open=eio*1", "read.pread=short*1"]
)
def test_neighbours_that_cant_be_read_together_are_read_one_by_one(tmp_path: Path, fault: str) -> None:
    parts = many(tmp_path)
    whole, _ = epoch(parts)
    digest, (_, _, _, retries, *_) = epoch(parts, f"{SLOW};{fault}")
    assert digest == whole
    assert retries >= 1


def test_neighbours_wait_for_buffers_one_at_a_time(tmp_path: Path) -> None:
    """As many as fit the least that is read ahead: no thread may hold some and wait for more."""
    parts = write_parts(tmp_path, [JPEGS[number % len(JPEGS)] + bytes(60_000) for number in range(160)])
    whole, _ = epoch(parts, rows=8)
    pipeline = sp.Pipeline(parts).map(sp.Resize((SIZE, SIZE))).batch(8)
    with pytest.raises(sp.BudgetError) as caught:
        pipeline.plan(memory=1, num_workers=1, prefetch=4)
    least = caught.value.smallest_bytes
    digest, (_, ranges, rows, *_) = epoch(parts, SLOW, rows=8, memory=least, num_workers=1, prefetch=4)
    assert digest == whole
    assert ranges < rows


def test_a_sample_of_neighbours_that_is_bad_is_replaced_alone(tmp_path: Path) -> None:
    parts = many(tmp_path, known=False)
    number, _, length = parts.places[100]
    broken = Parts(parts.paths, (*parts.places[:100], (number, 1 << 40, length), *parts.places[101:]))
    text = f"""
    from pathlib import Path
    from parts import Parts
    parts = Parts((Path({str(parts.paths[0])!r}),), {broken.places!r})
    pipeline = sp.Pipeline(parts).map(sp.Resize(({SIZE}, {SIZE}))).on_error(sp.Replace(at_most=2))
    with pipeline.batch(24).loader(memory="256MiB", num_workers=2) as loader:
        rows = sum(len(batch["image"]) for batch in loader)
        print(rows, loader.stats().ranges < 200, [(bad.index, bad.reason) for bad in loader.bad_samples])
    """
    reason = f"truncated: file ends after 0 of {length} bytes"
    assert output(text, environment={"STANDPIPE_FAULTS": SLOW}) == f"240 True [(100, {reason!r})]\n"


def test_more_files_than_may_stay_open(tmp_path: Path) -> None:
    """A quarter of what the limit allows, and one for each of at most as many threads that read already for the
    next epoch. The others are opened again.
    """
    parts = many(tmp_path, files=60)
    whole, (opens, *_) = epoch(parts)
    assert opens == 60
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))"
    before = limit + "\nfrom standpipe import _native\nassert _native.most_kept_open() == 24"
    digest, (opens, *_, open_files) = epoch(parts, before=before)
    assert digest == whole
    assert opens >= 60
    assert 20 <= open_files <= 2 * 24


def test_without_a_free_descriptor_files_that_were_kept_open_are_given_up(tmp_path: Path) -> None:
    parts = many(tmp_path, files=8)
    text = f"""
    import contextlib, resource
    from pathlib import Path
    from parts import Parts
    parts = Parts(tuple(map(Path, {tuple(map(str, parts.paths))!r})), {parts.places!r}, {parts.known!r})
    pipeline = sp.Pipeline(parts).map(sp.Resize(({SIZE}, {SIZE}))).batch(10)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with pipeline.loader(memory="256MiB", num_workers=1, prefetch=1) as loader:
        batches = iter(loader)
        next(batches)
        with contextlib.suppress(OSError):
            while True:
                os.open("/dev/null", os.O_RDONLY)
        print(sum(1 for batch in batches), loader.stats().retries)
    """
    assert output(text) == "23 0\n"
