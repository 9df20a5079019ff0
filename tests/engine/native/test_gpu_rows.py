"""Rows for the GPU's decoder in the native pool: which records they are, and what they wait for."""

import os
import threading
from pathlib import Path

import numpy as np
from hypothesis import given, strategies as st

import standpipe as sp
from jpegs import photo, saved
from photos import encoded, picture
from reference import in_order, listed
from standpipe import _native

PAINT = 77


def test_the_records_of_a_share_never_change() -> None:
    assert np.flatnonzero(_native.in_share(np.arange(24), 0.5)).tolist() == [
        1,
        8,
        9,
        11,
        14,
        16,
        17,
        18,
        19,
        22,
        23,
    ]
    far = np.array([(1 << 63) - 1 - place for place in range(6)])
    assert _native.in_share(far, 0.5) == [True, True, True, False, False, False]


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_has_the_records_of_a_smaller_one(one: float, other: float) -> None:
    records = np.arange(4000)
    few, many = (np.array(_native.in_share(records, share)) for share in sorted((one, other)))
    assert not (few & ~many).any()
    assert abs(few.mean() - min(one, other)) < 0.05
    assert np.array(_native.in_share(records, 1.0)).all()


def test_rows_for_the_gpu_that_hold_all_buffers_hold_up_nobody(tmp_path: Path) -> None:
    """The only other thread waits for a buffer that comes when all are back, so it makes no rows of frames."""
    files = [
        *(encoded(picture(seed, 80, 80), quality=100) for seed in range(6)),
        saved(photo(900, 900), quality=100),
    ]
    listed(tmp_path, files)
    paths = [str(path).encode() for path in sorted(tmp_path.glob("*.jpg"))]
    rows, frame_bytes, buffers = len(files), 3 * 80 * 80, 1 << 20
    assert len(files[-1]) > 3 * buffers // 4
    bell, policy = _native.Bell(), _native.ReadPolicy(0, 0.05, 0)
    pool = _native.Pool(1, 1, buffers, 64 << 20, policy, bell, frame_bytes)
    kernel = (
        in_order(sp.FileList(tmp_path / "list.txt", labels=False), sp.Resize((8, 8))).plan().samples.kernel
    )
    assert kernel is not None
    ring = _native.SlotRing(rows * 192, 2, 2, bell)
    slot = ring.take(False)
    program = kernel.compile(sp.Pipeline(sp.Arrays(x=np.zeros(1))).decoding)
    job = _native.Job(ring, slot, np.arange(rows), program, [(0, 192)], 0, 0)
    ends = np.cumsum([len(path) for path in paths])
    blob = np.frombuffer(b"".join(paths), np.uint8)
    job.files(blob, ends, np.zeros(rows, np.int64), np.full(rows, -1, np.int64))
    job.for_gpu(np.arange(rows), 1.0, 80 * 80)
    pool.submit(job)
    while not any(work.row == rows - 1 and work.phase == "waiting" for work in pool.at_work()):
        os.sched_yield()  # until it waits for the large file's buffer

    def decode() -> None:
        while (batch := pool.take_for_gpu()) is not None:
            for frame in batch.frames:
                frame[...] = PAINT
            batch.hand_back([True] * len(batch))

    thread = threading.Thread(target=decode, daemon=True)
    thread.start()
    seen = 0
    while not job.done:
        seen = bell.wait(seen)
    assert pool.close(10_000)
    thread.join(10)
    made = ring.view(slot)[: rows * 192].reshape(rows, 192)
    assert [bool((row == PAINT).all()) for row in made] == [True] * (rows - 1) + [False]
