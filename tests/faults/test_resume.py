"""Resume and elasticity: after whatever end, the rest of the stream is what it would have been."""

from __future__ import annotations

import json
import queue
import select
import signal
import subprocess
import sys
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from forked import run
from photos import WAIT_S, Watched, numbers, write_list, write_photos
from programs import BEGIN

PHOTOS, ROWS, EPOCHS = 11, 2, 2
STEPS = EPOCHS * (PHOTOS // ROWS)

# Trains, and saves its state after every step: first what it did, then the state, each as one write and renamed. Kills
# itself at step ``kill_at``, before or after it saved; ``paced``: it waits for a letter before every step.
TRAINER = """
import json
from hashlib import blake2b

def replace(name, text):
    with open(name + ".new", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(name + ".new", name)

def train(source, folder, kill_at, when, steps, **settings):
    crop = (sp.RandomResizedCrop(9), sp.RandomHorizontalFlip())
    pipeline = sp.Pipeline(source).shuffle(seed=3).map(*crop)
    if settings.get("executor"):
        pipeline = pipeline.map(np.asarray, field="image")
    with pipeline.batch(2).loader(memory="1GiB", **settings) as loader:
        if os.path.exists(folder + "/state"):
            with open(folder + "/state") as file:
                loader.load_state_dict(json.load(file))
        begun = (loader.epoch, loader.state_dict()["consumed"])
        for number, batch in enumerate(loader.steps(steps), start=1):
            if when == "paced":
                sys.stdin.read(1)
            what = [batch["index"].tolist(), blake2b(batch["image"].tobytes()).hexdigest()]
            with open(folder + "/done", "a") as file:
                file.write(json.dumps(what) + "\\n")
            print(number, flush=True)
            if (number, when) == (kill_at, "before"):
                os.kill(os.getpid(), signal.SIGKILL)
            replace(folder + "/state", json.dumps(loader.state_dict()))
            if (number, when) == (kill_at, "after"):
                os.kill(os.getpid(), signal.SIGKILL)
        return begun
"""


def start(text: str) -> subprocess.Popen[str]:
    program = BEGIN.format(path=[path for path in sys.path if path]) + TRAINER + text
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def train(source: Path, folder: Path, kill_at: int, when: str, steps: int, **settings: Any) -> int:
    """Run it as a process of its own; how it ends."""
    folder.mkdir(exist_ok=True)
    call = (
        f"train(sp.FileList({str(source)!r}), {str(folder)!r}, {kill_at}, {when!r}, {steps}, **{settings!r})"
    )
    return run(TRAINER + call).returncode


def done(folder: Path) -> list[Any]:
    """What was trained on, step by step."""
    return [json.loads(line) for line in (folder / "done").read_text().splitlines()]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder, PHOTOS)
    return folder / "list.txt"


def rest_of(source: Path, state: dict[str, Any], steps: int, **settings: Any) -> list[Any]:
    """The stream from a state on, in this process."""
    pipeline = (
        sp.Pipeline(sp.FileList(source))
        .shuffle(seed=3)
        .map(sp.RandomResizedCrop(9), sp.RandomHorizontalFlip())
    )
    if settings.get("executor"):
        pipeline = pipeline.map(np.asarray, field="image")
    with pipeline.batch(ROWS).loader(memory="1GiB", **settings) as loader:
        loader.load_state_dict(state)
        return [
            [batch["index"].tolist(), blake2b(batch["image"].tobytes()).hexdigest()]
            for batch in loader.steps(steps)
        ]


@pytest.fixture(scope="module")
def undisturbed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert train(photos, folder, 0, "", STEPS, num_workers=1) == 0
    return done(folder)


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_9_at_every_batch(photos: Path, undisturbed: list[Any], tmp_path: Path, when: str) -> None:
    """Killed at each step k, before or after its state was saved: from the last saved state the rest is the same."""
    assert len(undisturbed) == STEPS
    for kill_at in range(1, STEPS + 1):
        folder = tmp_path / str(kill_at)
        assert train(photos, folder, kill_at, when, STEPS, num_workers=2) == -signal.SIGKILL
        assert done(folder) == undisturbed[:kill_at]
        saved = kill_at - (when == "before")
        assert (folder / "state").exists() == (saved > 0)
        if saved:
            state = json.loads((folder / "state").read_text())
            assert rest_of(photos, state, STEPS - saved, num_workers=1 + kill_at % 3) == undisturbed[saved:]


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_kill_9_of_a_trainer_with_python_code(
    photos: Path, undisturbed: list[Any], tmp_path: Path, executor: str
) -> None:
    """The same where Python code makes the samples."""
    for kill_at in (1, STEPS // 2, STEPS - 1):
        folder = tmp_path / str(kill_at)
        assert (
            train(photos, folder, kill_at, "after", STEPS, executor=executor, num_workers=2)
            == -signal.SIGKILL
        )
        state = json.loads((folder / "state").read_text())
        rest = rest_of(photos, state, STEPS - kill_at, executor=executor, num_workers=1)
        assert done(folder) + rest == undisturbed


def test_kill_9_at_any_moment_again_and_again(photos: Path, undisturbed: list[Any], tmp_path: Path) -> None:
    """Killed from outside somewhere in a step, then started again, until it comes to its end."""
    call = (
        f"train(sp.FileList({str(photos)!r}), {str(tmp_path)!r}, 0, 'paced', STEPS - int(sys.argv[-1]), "
        "num_workers=2)"
    )
    program = (
        BEGIN.format(path=[path for path in sys.path if path]) + TRAINER + call.replace("STEPS", str(STEPS))
    )
    delivered: dict[int, Any] = {}
    kills = 0
    while len(delivered) < STEPS:
        begin = saved_steps(tmp_path)
        (tmp_path / "done").unlink(missing_ok=True)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        with subprocess.Popen([sys.executable, "-c", program, str(begin)], **pipes) as trainer:
            assert trainer.stdin is not None
            assert trainer.stdout is not None
            for _ in range(min(3, STEPS - begin)):
                trainer.stdin.write(b".")
                assert select.select([trainer.stdout], [], [], WAIT_S)[0]
                trainer.stdout.read(2)
            with suppress(BrokenPipeError):  # it had no step left
                trainer.stdin.write(b".")
            trainer.kill()
        kills += 1
        for step, what in enumerate(done(tmp_path), start=begin):
            assert delivered.setdefault(step, what) == what
    assert [delivered[step] for step in range(STEPS)] == undisturbed
    assert kills >= 2


def saved_steps(folder: Path) -> int:
    if not (folder / "state").exists():
        return 0
    state = json.loads((folder / "state").read_text())
    return (PHOTOS // ROWS) * int(state["epoch"]) + int(state["consumed"]) // ROWS


@pytest.mark.parametrize(
    "settings",
    [
        {"num_workers": 1, "prefetch": 1},
        {"num_workers": 4, "prefetch": 6},
        {"executor": "inline"},
        {"executor": "thread", "num_workers": 3, "prefetch": 3},
        {"executor": "process", "num_workers": 2},
    ],
    ids=lambda settings: " ".join(f"{name} {value}" for name, value in settings.items()),
)
def test_resume_with_other_workers_and_prefetch(
    photos: Path, undisturbed: list[Any], tmp_path: Path, settings: dict[str, Any]
) -> None:
    """A state of one loader goes on in one with other workers, executors and slots: the same bytes."""
    for step in (0, 3, PHOTOS // ROWS, STEPS - 1):
        pipeline = sp.Pipeline(sp.FileList(photos)).shuffle(seed=3)
        pipeline = pipeline.map(sp.RandomResizedCrop(9), sp.RandomHorizontalFlip())
        if "executor" in settings:
            pipeline = pipeline.map(np.asarray, field="image")
        with pipeline.batch(ROWS).loader(memory="1GiB", num_workers=2, prefetch=2) as loader:
            list(loader.steps(step))
            state = json.loads(json.dumps(loader.state_dict()))
        assert rest_of(photos, state, STEPS - step, **settings) == undisturbed[step:]


def stream(
    pipeline: sp.Pipeline, state: dict[str, Any], world_size: int, rows: int, steps: int
) -> list[list[int]]:
    """What all ranks together get, step by step."""
    ranks = []
    for rank in range(world_size):
        with pipeline.shard(rank, world_size).batch(rows).loader(memory="64MiB", num_workers=1) as loader:
            loader.load_state_dict(state)
            ranks.append([batch["index"].tolist() for batch in loader.steps(steps)])
            last = loader.state_dict()
    state.update(last)
    return [list(chain.from_iterable(step)) for step in zip(*ranks, strict=True)]


def test_8_then_4_then_6_ranks_in_one_epoch() -> None:
    """With one global batch of 24 rows, on 8, 4 and 6 ranks in turn: one order, every sample once, over epochs."""
    pipeline = sp.Pipeline(numbers(24 * 11 + 5)).shuffle(seed=9)
    with pipeline.batch(24).loader(memory="64MiB", num_workers=1) as loader:
        state = json.loads(json.dumps(loader.state_dict()))
        expected = [batch["index"].tolist() for batch in loader.steps(20)]
    got = []
    for world_size, rows, steps in ((8, 3, 3), (4, 6, 4), (6, 4, 2), (8, 3, 5), (4, 6, 6)):
        got += stream(pipeline, state, world_size, rows, steps)
    assert got == expected
    first_epoch = list(chain.from_iterable(got[:11]))
    assert len(set(first_epoch)) == len(first_epoch) == 24 * 11


def state_of(pipeline: sp.Pipeline) -> dict[str, Any]:
    with pipeline.batch(2).loader(memory="64MiB", num_workers=1) as loader:
        next(iter(loader))
        return loader.state_dict()


def test_state_of_another_dataset_seed_or_version(tmp_path: Path) -> None:
    """It is refused, with what it was and what it is; nothing changes then. ``loader/test_state.py`` has all parts."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_list(tmp_path / name, {f"{name}{number}.jpg": None for number in range(8)})
    one, other = (sp.FileList(tmp_path / name / "list.txt") for name in ("one", "other"))
    pipeline = sp.Pipeline(numbers(8)).shuffle(seed=7)
    state = state_of(pipeline)
    with pipeline.batch(2).loader(memory="64MiB", num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        before = loader.state_dict()
        with pytest.raises(sp.StateError, match="seed was 8 and is 7"):
            loader.load_state_dict(state_of(sp.Pipeline(numbers(8)).shuffle(seed=8)))
        with pytest.raises(sp.StateError, match="rows was 9 and is 8"):
            loader.load_state_dict(state_of(sp.Pipeline(numbers(9)).shuffle(seed=7)))
        with pytest.raises(sp.StateError, match="the state has version 2, this standpipe reads version 1"):
            loader.load_state_dict({**state, "version": 2})
        assert loader.state_dict() == before
        next(iterator)
    states = [
        sp.Pipeline(source).map(sp.CenterCrop(4)).batch(2).loader(memory="64MiB", num_workers=1).state_dict()
        for source in (one, other)
    ]
    digests = [source.open().digest for source in (one, other)]
    with pytest.raises(sp.StateError, match=f"source was '{digests[1]}' and is '{digests[0]}'"):
        sp.Pipeline(one).map(sp.CenterCrop(4)).batch(2).loader(memory="64MiB", num_workers=1).load_state_dict(
            states[1]
        )


@pytest.mark.parametrize("executor", ["native", "thread", "process"])
def test_state_while_workers_run_ahead(executor: str) -> None:
    """A state counts batches that were delivered, however many are filled by then."""
    located: queue.Queue[int] = queue.Queue()
    source = Watched(numbers(12), lambda rows: located.put(len(rows)))
    pipeline = sp.Pipeline(source)
    settings: dict[str, Any] = {"executor": executor} if executor != "native" else {}
    if settings:
        pipeline = pipeline.map(np.negative, field="x", spec=sp.ArraySpec((1,), np.dtype(np.int64)))
    with pipeline.batch(2).loader(memory="1GiB", num_workers=1, prefetch=4, **settings) as loader:
        iterator = iter(loader)
        for _ in range(5):
            located.get(timeout=WAIT_S)
        for delivered in range(1, 4):
            next(iterator)
            assert loader.state_dict()["consumed"] == 2 * delivered


def test_one_rank_fails_to_save() -> None:
    """Ranks don't talk to one another: whoever gathers their states asks ``check_states``, which names who differs."""
    pipeline = sp.Pipeline(numbers(64)).shuffle(seed=1)
    before, after = [], []
    for rank in range(4):
        with pipeline.shard(rank, 4).batch(2).loader(memory="64MiB", num_workers=1) as loader:
            iterator = iter(loader)
            next(iterator)
            before.append(loader.state_dict())
            next(iterator)
            after.append(loader.state_dict())
    sp.check_states(before)
    sp.check_states(after)
    with pytest.raises(
        sp.StateError, match=r"consumed is 16 on ranks 0, 1, 3 and 8 on rank 2\. Load states of one step"
    ):
        sp.check_states([*after[:2], before[2], after[3]])
    with pytest.raises(sp.StateError, match="rank 1 has no state"):
        sp.check_states([after[0], None, *after[2:]])
    other = state_of(sp.Pipeline(numbers(64)).shuffle(seed=2))
    with pytest.raises(sp.StateError, match="rank 3 has another recipe than rank 0: seed is 2, not 1"):
        sp.check_states([*after[:3], other])
    counted = {**after[1], "bad_rows": 3}
    sp.check_states([after[0], counted, *after[2:]])
