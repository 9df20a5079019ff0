"""Rows that native threads make, with a cache: the same batches, and nothing that lies."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from photos import LONG_AGO_NS, age, encoded, foreign_kinds, picture, write_list
from programs import open_below
from standpipe.spec import AnyArray

MEMORY = "64MiB"
ROWS = 20

Batches = list[dict[str, AnyArray]]
Build = Callable[[sp.Pipeline, sp.Cache], sp.Pipeline]


@pytest.fixture
def cache(tmp_path: Path) -> sp.Cache:
    (tmp_path / "rows").mkdir()
    return sp.Cache("test", memory="32MiB", directory=tmp_path / "rows", strict=True)


def photos(folder: Path) -> sp.FileList:
    """JPEGs, and files of every other format."""
    files = [encoded(picture(seed, 40 + seed, 64)) for seed in range(ROWS - 10)]
    return aged(folder, [*files, *foreign_kinds(picture(99))])


def aged(folder: Path, files: Iterable[bytes]) -> sp.FileList:
    listed = write_list(folder, files)
    age(*folder.glob("*.jpg"))
    return listed


def epochs(pipeline: sp.Pipeline, many: int = 2, num_workers: int = 2) -> tuple[Batches, sp.Stats]:
    """Batches of so many epochs, and the counters after them."""
    with pipeline.loader(memory=MEMORY, num_workers=num_workers) as loader:
        found = [
            {name: value.copy() for name, value in batch.items()} for _ in range(many) for batch in loader
        ]
        return found, loader.stats()


def assert_same(one: Batches, other: Batches) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert left.keys() == right.keys()
        for name, value in left.items():
            assert value.tobytes() == right[name].tobytes(), name


EVAL = (sp.Resize((40, 48)), sp.CenterCrop(32))
PLACES: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
    "after the source": ((), (*EVAL, sp.Normalize())),
    "bytes in the end": (EVAL, ()),
    "floats in the end": (EVAL, (sp.Normalize(),)),
    "behind Normalize": ((*EVAL, sp.Normalize()), ()),
    "planar bytes": (EVAL, (sp.ToLayout("NCHW"),)),
    "halves": (EVAL, (sp.Normalize(), sp.ToDtype("float16"))),
    "a flip behind it": (EVAL, (sp.RandomHorizontalFlip(), sp.Normalize())),
    "a random crop behind it": (EVAL, (sp.RandomResizedCrop(24), sp.RandomHorizontalFlip())),
    "between resize and crop": ((sp.Resize((40, 48)),), (sp.CenterCrop(32), sp.RandomHorizontalFlip())),
    "random from the source on": ((), (sp.RandomResizedCrop(24), sp.RandomHorizontalFlip(), sp.Normalize())),
}


@pytest.mark.parametrize("place", PLACES)
def test_batches_are_the_same_with_and_without(tmp_path: Path, cache: sp.Cache, place: str) -> None:
    before, behind = PLACES[place]
    source = sp.Pipeline(photos(tmp_path), seed=3).shuffle(seed=3)
    plain = source.map(*before, *behind).batch(4)
    kept = source.map(*before).cache(cache).map(*behind).batch(4)
    expected, _ = epochs(plain)
    assert kept.plan().digest == plain.plan().digest  # a state goes on with and without it

    found, stats = epochs(kept)
    assert_same(found, expected)
    assert stats.cache_stored == ROWS
    assert stats.cache_hits > ROWS / 2  # a row may be asked for again while it is being made
    found, stats = epochs(kept, num_workers=1)
    assert_same(found, expected)
    assert (stats.cache_stored, stats.cache_misses) == (0, 0)
    assert (stats.read.rows, stats.read.bytes, stats.read.latency.count) == (0, 0, 0)  # no file was


@pytest.mark.parametrize("place", PLACES)
def test_batches_are_the_same_where_no_cache_is_to_be_had(
    tmp_path: Path, cache: sp.Cache, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows are planned in two parts then, with nothing between them."""
    (tmp_path / "rows" / f"standpipe-{os.geteuid()}").write_text("in the way")
    before, behind = PLACES[place]
    arrays = sp.Arrays(image=np.stack([picture(seed) for seed in range(8)]))
    for source in (photos(tmp_path), arrays):
        pipeline = sp.Pipeline(source, seed=3)
        if source is arrays and not before:
            continue  # there is nothing to keep
        kept = pipeline.map(*before).cache(replace(cache, strict=False)).map(*behind).batch(4)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "standpipe"):
            found, stats = epochs(kept)
        assert_same(found, epochs(pipeline.map(*before, *behind).batch(4))[0])
        assert (stats.cache_hits, stats.cache_misses, stats.cache_stored) == (0, 0, 0)
        assert caplog.text.count("goes on without a cache") == 1


def test_damage_is_counted_when_a_row_is_found_too(tmp_path: Path, cache: sp.Cache) -> None:
    whole = encoded(picture(1, 64, 64), quality=95)
    source = aged(tmp_path, [whole, whole[: len(whole) * 2 // 3]])
    kept = sp.Pipeline(source).decode(allow_truncated=True).map(*EVAL).cache(cache).batch(2)
    _, stats = epochs(kept)
    assert stats.truncated >= 2
    _, stats = epochs(kept)
    assert stats.truncated >= 2
    assert stats.cache_misses == 0


def test_rows_of_arrays_are_kept(cache: sp.Cache) -> None:
    source = sp.Arrays(image=np.stack([picture(seed) for seed in range(8)]), label=np.arange(8))
    plain = sp.Pipeline(source).map(*EVAL)
    expected, _ = epochs(plain.batch(3, last_batch="partial"))
    found, stats = epochs(plain.cache(cache).batch(3, last_batch="partial"))
    assert_same(found, expected)
    assert (stats.cache_stored, stats.cache_misses) == (8, 8)


def test_jobs_share_rows_without_asking(tmp_path: Path, cache: sp.Cache) -> None:
    source = photos(tmp_path)
    kept = sp.Pipeline(source).map(*EVAL).cache(cache).batch(4)
    other = sp.Cache("another", memory="32MiB", directory=tmp_path / "rows", strict=True)
    with kept.loader(memory=MEMORY) as first, kept.shuffle(seed=1).loader(memory=MEMORY) as second:
        list(first)
        list(second)
        assert second.stats().cache_misses == 0
    _, stats = epochs(sp.Pipeline(source).map(*EVAL).cache(other).batch(5), many=1)
    assert stats.cache_misses == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda source: sp.Pipeline(source).map(sp.Resize((40, 48)), sp.CenterCrop(31)),
        lambda source: sp.Pipeline(source).map(
            sp.Resize((40, 48), interpolation="bicubic"), sp.CenterCrop(32)
        ),
        lambda source: sp.Pipeline(source).map(*EVAL).decode("fast"),
        lambda source: sp.Pipeline(source).map(*EVAL).decode(allow_truncated=True),
        lambda source: sp.Pipeline(source).map(*EVAL).decode(limits=sp.DecodeLimits(max_pixels=10**6)),
    ],
)
def test_what_makes_other_rows_is_another_set(
    tmp_path: Path, cache: sp.Cache, change: Callable[[sp.FileList], sp.Pipeline]
) -> None:
    source = photos(tmp_path)
    epochs(sp.Pipeline(source).map(*EVAL).cache(cache).batch(4), many=1)
    _, stats = epochs(change(source).cache(cache).batch(4), many=1)
    assert stats.cache_stored == ROWS


def test_what_makes_the_same_rows_is_the_same_set(tmp_path: Path, cache: sp.Cache) -> None:
    source = photos(tmp_path)
    kept = sp.Pipeline(source).map(*EVAL).cache(cache)
    epochs(kept.batch(4), many=1)
    for same in (kept.map(sp.Normalize()), kept.shuffle(seed=2), kept.skip(3), kept.shard(0, 2)):
        assert epochs(same.batch(4), many=1)[1].cache_misses == 0


def test_a_changed_list_is_another_set(tmp_path: Path, cache: sp.Cache) -> None:
    source = photos(tmp_path)
    epochs(sp.Pipeline(source).map(*EVAL).cache(cache).batch(4), many=1)
    (tmp_path / "list.txt").write_text("001.jpg\t1\n000.jpg\t0\n")
    found, stats = epochs(sp.Pipeline(source).map(*EVAL).cache(cache).batch(2), many=1)
    assert stats.cache_stored == 2
    assert_same(found, epochs(sp.Pipeline(source).map(*EVAL).batch(2), many=1)[0])


def test_files_of_the_same_names_elsewhere_are_another_set(tmp_path: Path, cache: sp.Cache) -> None:
    parts = {}
    for number, name in enumerate("abc"):
        (tmp_path / name).mkdir()
        parts[name] = aged(tmp_path / name, [encoded(picture(number), "BMP")])  # as many bytes, of one time
    sources = [
        sp.Concat(parts["a"], parts["b"]),
        sp.Concat(parts["a"], parts["c"]),
        sp.Mixture({sp.Pipeline(parts["a"]): 1, sp.Pipeline(parts["b"]): 1}),
        sp.Mixture({sp.Pipeline(parts["a"]): 1, sp.Pipeline(parts["c"]): 1}),
        *parts.values(),
    ]
    for source in sources:
        plain = sp.Pipeline(source).map(*EVAL)
        for _ in range(2):
            assert_same(
                epochs(plain.cache(cache).batch(2, last_batch="pad"))[0],
                epochs(plain.batch(2, last_batch="pad"))[0],
            )


def other_picture(path: Path) -> Path:
    """A new file beside it: another picture of the same length and time."""
    length = path.stat().st_size
    other = encoded(picture(1234, 30, 30), quality=30)
    assert len(other) < length
    new = path.with_suffix(f".{len([*path.parent.iterdir()])}")
    new.write_bytes(other + bytes(length - len(other)))
    age(new)
    return new


def link_to(new: Path, path: Path) -> None:
    """It takes the place of another one at once: a loader may be reading."""
    link = path.with_suffix(".link")
    link.symlink_to(new)
    link.replace(path)


def changed(path: Path, later_ns: int = 1) -> None:
    """Another picture of the same length, a nanosecond later."""
    new = other_picture(path)
    age(new, at_ns=LONG_AGO_NS + later_ns)
    link_to(new, path)


def copied(new: Path, path: Path) -> None:
    """As ``cp -p``."""
    path.write_bytes(new.read_bytes())
    age(path)


def moved(new: Path, path: Path) -> None:
    """As ``mv``."""
    new.replace(path)


@pytest.mark.parametrize("put", [copied, moved, link_to])
def test_what_bears_the_old_ones_time_is_never_missed(
    tmp_path: Path, cache: sp.Cache, put: Callable[[Path, Path], None]
) -> None:
    path = tmp_path / "003.jpg"
    source = photos(tmp_path)
    kept = sp.Pipeline(source).map(*EVAL).cache(cache).batch(4)
    before, _ = epochs(kept)
    then = path.stat()
    put(other_picture(path), path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (then.st_size, then.st_mtime_ns)
    found, stats = epochs(kept)
    assert_same(found, epochs(sp.Pipeline(source).map(*EVAL).batch(4))[0])
    assert found[0]["image"].tobytes() != before[0]["image"].tobytes()
    assert stats.cache_stale >= 1


@pytest.mark.parametrize("before", [(), EVAL], ids=["bytes", "images"])
def test_a_file_that_changed_before_the_start_is_never_missed(
    tmp_path: Path, cache: sp.Cache, before: tuple[object, ...]
) -> None:
    source = photos(tmp_path)
    behind = () if before else EVAL
    kept = sp.Pipeline(source).map(*before).cache(cache).map(*behind).batch(4)
    epochs(kept)
    changed(tmp_path / "003.jpg")
    found, stats = epochs(kept)
    assert_same(found, epochs(sp.Pipeline(source).map(*EVAL).batch(4))[0])
    assert stats.cache_stored == 1
    assert stats.cache_stale >= 1  # a row may be asked for again while it is being made
    assert epochs(kept)[1].cache_misses == 0  # the new row is kept


def test_a_file_that_changes_during_the_run_is_found_as_validate_says(
    tmp_path: Path, cache: sp.Cache
) -> None:
    source = photos(tmp_path)

    def stale(validate: str) -> list[int]:
        """After each epoch, files that were found to have changed; one does after the first epoch."""
        mode = sp.Cache(
            "test",
            memory="32MiB",
            directory=tmp_path / "rows",
            validate=validate,  # type: ignore[arg-type]
        )
        kept = sp.Pipeline(source).map(*EVAL).cache(mode).batch(ROWS)
        counts = []
        with kept.loader(memory=MEMORY, prefetch=1, num_workers=1) as loader:
            for epoch in range(4):
                list(loader)
                counts.append(loader.stats().cache_stale)
                if epoch == 0:
                    changed(tmp_path / "003.jpg", later_ns=len(validate))
        return counts

    epochs(sp.Pipeline(source).map(*EVAL).cache(cache).batch(4))
    assert stale("never")[-1] == 0
    assert stale("loader")[-1] == 1  # that of "never"
    assert stale("epoch")[-1] == 2  # that of "loader", and its own, though batches are made ahead


def test_a_file_that_was_just_written_is_read_again_at_the_next_start(
    tmp_path: Path, cache: sp.Cache
) -> None:
    source = photos(tmp_path)
    path = tmp_path / "003.jpg"
    os.utime(path, ns=(2**62, 2**62))  # as new as can be: another write may bear the same time
    kept = sp.Pipeline(source).map(*EVAL).cache(cache).batch(4)
    assert epochs(kept)[1].cache_stored == ROWS
    assert epochs(kept)[1].cache_stale >= 1
    age(path)
    assert epochs(kept)[1].cache_stale >= 1
    assert epochs(kept)[1].cache_stale == 0


def test_a_bad_sample_is_kept_by_nobody(tmp_path: Path, cache: sp.Cache) -> None:
    source = photos(tmp_path)
    (tmp_path / "002.jpg").write_bytes(b"\xff\xd8 no image")
    age(tmp_path / "002.jpg")
    raising = sp.Pipeline(source).map(*EVAL).cache(cache).batch(4)
    for _ in range(2):
        with pytest.raises(sp.DecodeError, match="002"):
            epochs(raising)
    replacing = raising.on_error(sp.Replace(at_most=0.5))
    expected, _ = epochs(sp.Pipeline(source).map(*EVAL).batch(4).on_error(sp.Replace(at_most=0.5)))
    for _ in range(2):
        found, _ = epochs(replacing)
        assert_same(found, expected)


def test_a_file_that_is_gone_raises_although_its_row_is_kept(tmp_path: Path, cache: sp.Cache) -> None:
    kept = sp.Pipeline(photos(tmp_path)).map(*EVAL).cache(cache).batch(4)
    epochs(kept)
    (tmp_path / "005.jpg").unlink()
    with pytest.raises(sp.ReadError, match="005"):
        epochs(kept)


def test_flipped_bits_are_never_delivered(tmp_path: Path, cache: sp.Cache) -> None:
    kept = sp.Pipeline(photos(tmp_path)).map(*EVAL).cache(cache).batch(4)
    expected, _ = epochs(kept)
    for path in (tmp_path / "rows").rglob("rows-*"):
        content = bytearray(path.read_bytes())
        for place in range(100, len(content), 1000):
            content[place] ^= 4
        with path.open("r+b") as file:
            file.write(content)
    found, stats = epochs(kept)
    assert_same(found, expected)
    assert stats.cache_errors >= ROWS


@pytest.mark.parametrize("memory", [1, 3000])
def test_a_cache_smaller_than_a_row_keeps_nothing_and_says_so_once(
    tmp_path: Path, memory: int, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rows").mkdir()
    source = photos(tmp_path)
    tiny = sp.Cache("tiny", memory=memory, directory=tmp_path / "rows")
    expected, _ = epochs(sp.Pipeline(source).map(*EVAL).batch(4))
    with caplog.at_level(logging.WARNING, "standpipe"):
        found, stats = epochs(sp.Pipeline(source).map(*EVAL).cache(tiny).batch(4))
    assert_same(found, expected)
    assert (stats.cache_stored, stats.cache_hits) == (0, 0)
    assert stats.cache_skipped >= 2 * ROWS
    assert len(caplog.records) == 1


def test_a_closed_loader_keeps_no_row_open(tmp_path: Path, cache: sp.Cache) -> None:
    def rows() -> list[str]:
        return [path for path in open_below(tmp_path) if "/rows-" in path]

    loader = sp.Pipeline(photos(tmp_path)).map(*EVAL).cache(cache).batch(4).loader(memory=MEMORY)
    for _ in range(2):
        list(loader)
    assert rows()
    loader.close()
    assert rows() == []  # what is destroyed now is free, whoever has the loader yet


def test_a_cache_of_no_bytes_is_off(tmp_path: Path) -> None:
    off = sp.Pipeline(photos(tmp_path)).map(*EVAL).cache(sp.Cache("off", memory=0)).batch(4)
    assert off.plan().cache is None
    assert epochs(off)[1].cache_misses == 0


def test_a_run_goes_on_from_a_state_with_and_without_a_cache(tmp_path: Path, cache: sp.Cache) -> None:
    source = sp.Pipeline(photos(tmp_path), seed=1).shuffle(seed=1)
    plain, kept = (source.map(*EVAL).batch(4), source.map(*EVAL).cache(cache).batch(4))
    with plain.loader(memory=MEMORY) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [batch["image"].copy() for batch in batches]
    for _ in range(2):
        with kept.loader(memory=MEMORY) as loader:
            loader.load_state_dict(state)
            assert [batch["image"].tobytes() for batch in loader] == [image.tobytes() for image in rest]
