"""``filter(fn)``: every record is asked about once, whoever asks, and the answers outlive what asked."""

import contextlib
import json
import os
import select
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from photos import WAIT_S, Watched, numbers, write_photos
from programs import BEGIN
from standpipe.spec import Int64Array

ROWS = 1000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of each test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/standpipe/filters"


def watched(rows: int = ROWS) -> tuple[sp.Pipeline, list[int]]:
    """A pipeline of numbers, and the records that anybody has located."""
    located: list[int] = []
    source = Watched(numbers(rows), lambda indices: located.extend(indices.tolist()))
    return sp.Pipeline(source), located


def records(pipeline: sp.Pipeline, **settings: Any) -> list[int]:
    """The numbers of the records that a pipeline delivers in its first epoch."""
    settings = {"memory": "512MiB", "num_workers": 2, **settings}
    with pipeline.batch(7, last_batch="partial").loader(**settings) as loader:
        return [int(index) for batch in loader for index in batch["index"]]


def thirds(sample: dict[str, Any]) -> bool:
    return bool(sample["x"][0] % 9 == 0)


def is_bright(image: np.ndarray) -> bool:
    return bool(image.mean() > 128)


@pytest.mark.parametrize("executor", ["thread", "process", "inline"])
def test_every_executor_keeps_the_same_records(tmp_path: Path, executor: str) -> None:
    photos = write_photos(tmp_path, 30)
    means = [np.asarray(Image.open(tmp_path / f"{number:03d}.jpg")).mean() for number in range(30)]
    bright = [number for number, mean in enumerate(means) if mean > 128]
    assert 0 < len(bright) < 30
    to_batch = sp.Pipeline(photos).filter(is_bright, field="image").map(sp.CenterCrop(8))
    assert records(to_batch, executor=executor) == bright


@pytest.mark.parametrize("input_format", ["numpy", "pil"])
def test_images_come_in_the_form_asked_for(tmp_path: Path, input_format: Any) -> None:
    forms = {"numpy": lambda s: s["image"].shape == (40, 56, 3), "pil": lambda s: s["image"].size == (56, 40)}
    photos = sp.Pipeline(write_photos(tmp_path, 3)).filter(forms[input_format], input_format=input_format)
    assert records(photos.map(sp.CenterCrop(8))) == [0, 1, 2]


def test_the_plan_asks_nobody(cache: Path) -> None:
    pipeline, located = watched()
    with pytest.raises(
        sp.PlanError, match=r"filter\(.*thirds, code .*1,000 records yet\. .*pipeline\.run_filters"
    ):
        pipeline.filter(thirds).batch(10).plan()
    assert located == []
    assert not cache.exists()


def test_every_record_is_asked_about_once_and_never_again() -> None:
    pipeline, located = watched()
    kept = pipeline.filter(thirds).shuffle(seed=1).batch(10)
    kept.run_filters(memory="64MiB")
    assert sorted(set(located)) == list(range(ROWS))
    located.clear()
    assert kept.plan().order.num_positions == 334
    kept.loader(memory="64MiB").close()
    kept.run_filters()
    assert located == []


def test_another_function_another_scan() -> None:
    pipeline, located = watched()
    limit = 30
    assert records(pipeline.filter(lambda sample: sample["x"][0] < limit)) == list(range(10))
    located.clear()
    assert records(pipeline.filter(lambda sample: sample["x"][0] < 27)) == list(range(9))
    assert set(located) == set(range(ROWS))
    limit = 15
    assert records(pipeline.filter(lambda sample: sample["x"][0] < limit)) == list(range(5))


def test_another_dataset_another_scan() -> None:
    def small(value: int) -> bool:
        return value < 3

    for begin in (0, 1):
        dataset = sp.MapSource(list(range(begin, 1500 + begin)), fields="x")
        assert records(sp.Pipeline(dataset).filter(small, field="x")) == list(range(3 - begin))


@pytest.mark.parametrize(
    "items", [[f"{number}" * 3 for number in range(2000)], [(number, 0.5) for number in range(2000)]]
)
def test_a_packed_list_is_known_by_its_items(items: list[Any]) -> None:
    """Through the digest alone: what a list holds is in no error and no batch."""

    def described(held: Any) -> str:
        selection: Any = sp.Pipeline(numbers(3)).filter(lambda _: held).selections[0]
        said: str = selection.describe()
        return said

    assert described(sp.share_list(items)) == described(sp.share_list(list(items)))
    others = [items[:-1], [*items[:-1], items[0]], items[::-1]]
    assert len({described(sp.share_list(each)) for each in [items, *others]}) == 4


def test_a_filter_stands_among_other_selections() -> None:
    pipeline, _ = watched()
    kept = pipeline.skip(100).filter(thirds).take(50).filter(lambda sample: sample["x"][0] % 2 == 0)
    assert records(kept) == [number for number in range(100, ROWS) if number % 3 == 0][:50:2]


def test_parts_of_a_mixture_can_be_filtered() -> None:
    even = sp.Pipeline(numbers(ROWS)).filter(lambda sample: sample["x"][0] % 2 == 0)
    some = sp.Pipeline(numbers(100)).filter(thirds)
    seen = records(sp.Pipeline(sp.Mixture({even: 0.5, some: 0.5}, stopping="last")))
    assert {index % 2 for index in seen if index < ROWS} == {0}
    assert {index - ROWS for index in seen if index >= ROWS} == set(range(0, 100, 3))


def test_audit_counts_what_is_kept() -> None:
    kept = sp.Pipeline(numbers(ROWS)).filter(thirds).shuffle(seed=3).batch(10)
    with pytest.raises(sp.PlanError, match=r"pipeline\.run_filters"):
        kept.audit()
    kept.run_filters(memory="64MiB")
    proof = kept.audit(ranks=3, epochs=2)
    assert proof.ok
    assert proof.positions == 334


def test_a_state_goes_on_and_belongs_to_the_function() -> None:
    kept = sp.Pipeline(numbers(ROWS)).filter(thirds).shuffle(seed=3)
    whole = records(kept)
    with kept.batch(10).loader(memory="64MiB") as loader:
        next(iter(loader))
        state = json.loads(json.dumps(loader.state_dict()))
    with kept.batch(7, last_batch="partial").loader(memory="64MiB") as loader:
        loader.load_state_dict(state)
        assert [int(index) for batch in loader for index in batch["index"]] == whole[10:]
    other = sp.Pipeline(numbers(ROWS)).filter(lambda sample: sample["x"][0] % 9 == 0).shuffle(seed=3)
    with (
        other.batch(10).loader(memory="64MiB", executor="thread") as loader,
        pytest.raises(sp.StateError, match="selection was 'filter"),
    ):
        loader.load_state_dict(state)


def test_a_failing_sample_is_named_and_what_was_done_before_stays() -> None:
    """The environment says whether the function fails, so that its code stays the same."""
    pipeline, located = watched()

    def fails(sample: dict[str, Any]) -> bool:
        if sample["x"][0] == 1800 and "FAIL" in os.environ:
            raise RuntimeError("no")
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIL", "1")
        with pytest.raises(sp.TransformError, match="RuntimeError: no") as caught:
            pipeline.filter(fails).run_filters(memory="64MiB", executor="inline")
    assert caught.value.index == 600
    located.clear()
    pipeline.filter(fails).run_filters(memory="64MiB", executor="inline")
    assert located[0] == 512


@pytest.mark.parametrize("answer", [3, None, "yes", np.array([True, False])])
def test_an_answer_is_true_or_false(answer: Any) -> None:
    pipeline = sp.Pipeline(numbers(10))
    for kept in (pipeline.filter(lambda _: answer), pipeline.filter(lambda _: answer, field="x")):
        with pytest.raises(sp.TransformError, match="return"):
            kept.run_filters(memory="64MiB")


def test_nothing_left_is_said() -> None:
    with pytest.raises(sp.PlanError, match=r"filter\(.* selects none of 1,000 records"):
        records(sp.Pipeline(numbers(ROWS)).filter(lambda _: False))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"condition": lambda sample, rng: rng.random() < 0.5}, r"takes rng.*\.split\(share"),
        ({"condition": thirds, "input_format": "jpeg"}, r"filter\(input_format='jpeg'\)"),
        ({"condition": thirds, "field": 3}, r"filter\(field=3\)"),
        ({"condition": "label < 3", "field": "x"}, "apply to functions only"),
        ({"condition": dict}, "a condition on columns"),
    ],
)
def test_what_cant_be_asked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(sp.PlanError, match=message):
        sp.Pipeline(numbers(10)).filter(**arguments)


def test_a_function_that_holds_a_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as file:
        pipeline = sp.Pipeline(numbers(10)).filter(lambda _: file.closed).batch(2)
        with pytest.raises(sp.PlanError, match="so it can't keep its answers"):
            pipeline.plan()


def test_settings_that_there_are_not() -> None:
    with pytest.raises(TypeError, match=r"a plan or loader takes no worker=: did you mean num_workers=\?"):
        sp.Pipeline(numbers(10)).filter(thirds).run_filters(worker=3)  # type: ignore[call-arg]


def test_a_place_that_cant_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    with pytest.raises(sp.PlanError, match="Set XDG_CACHE_HOME"):
        sp.Pipeline(numbers(10)).filter(thirds).run_filters()


def change_a_mark(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def anothers(file: Path) -> None:
    """The answers to another question, under this one's name."""
    before = set(file.parent.iterdir())
    sp.Pipeline(numbers(ROWS)).filter(lambda _: True).run_filters(memory="64MiB")
    (other,) = set(file.parent.iterdir()) - before
    other.rename(file)


@pytest.mark.parametrize("damage", [change_a_mark, cut_short, empty, anothers])
def test_a_damaged_file_is_never_believed(cache: Path, damage: Callable[[Path], None]) -> None:
    kept = sp.Pipeline(numbers(ROWS)).filter(thirds)
    before = records(kept)
    (file,) = cache.iterdir()
    content = file.read_bytes()
    damage(file)
    with pytest.raises(sp.PlanError, match=r"pipeline\.run_filters"):
        kept.batch(7).plan()
    assert records(kept) == before
    assert file.read_bytes() == content


SCAN = """
import os, signal, sys
located = []
pipeline = sp.Pipeline(Watched(numbers(2000), lambda indices: located.extend(indices.tolist())))

def odd(sample):
    if sample["x"][0] == 3 * 1500 and "HOW" in os.environ:
        if os.environ["HOW"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        print("held", flush=True)
        sys.stdin.read(1)
    return bool(sample["x"][0] % 2)

odd._fingerprint = "odd"  # this program is in no file
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
pipeline.filter(odd).batch(10).run_filters(memory="64MiB", executor="inline")
print(next(iter(located), None), pipeline.filter(odd).batch(10).plan().order.num_positions)
"""


@contextlib.contextmanager
def scanning(how: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that scans, and is killed or held at record 1500."""
    environment = {**os.environ, **({} if how is None else {"HOW": how})}
    program = BEGIN.format(path=[path for path in sys.path if path]) + textwrap.dedent(SCAN)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_killed_scan_goes_on_where_it_was(cache: Path) -> None:
    with scanning("killed") as killed:
        _, said = killed.communicate(timeout=WAIT_S)
    assert killed.returncode == -9, said
    (left,) = cache.iterdir()
    with left.open("ab") as file:
        file.write(b"half a block")  # what a machine that lost its power may leave
    with scanning() as goes_on:
        done, said = goes_on.communicate(timeout=WAIT_S)
    first, kept = map(int, done.split())
    assert first in (4 * 256, 5 * 256), said  # whole blocks; the fifth was made, and perhaps not handed over
    assert kept == 1000
    assert f"filtering records {first:,} to 2,000" in said


def test_one_process_asks_and_the_others_wait() -> None:
    with scanning("held") as asks:
        assert asks.stdout is not None
        assert asks.stdout.readline() == "held\n"
        with scanning("held") as waits:
            assert waits.stderr is not None
            readable, _, _ = select.select([waits.stderr], [], [], WAIT_S)
            assert readable
            assert waits.stderr.readline().startswith("waiting for another process that builds")
            assert asks.communicate("x", timeout=WAIT_S)[0].split() == ["0", "1000"]
            assert waits.communicate(timeout=WAIT_S)[0].split() == ["None", "1000"]


NAMES = """
import functools, json
LIMITS = {"b", "a", "c"}

class Judge:
    least = 3
    def __init__(self, names): self.names = names
    @property
    def half(self): return self.least / 2
    def __call__(self, sample): return sample["x"] > self.half

def again(depth): return depth and again(depth - 1)
def named(sample): return sample["name"] in {"x", "y", "z"} or sample["name"] in LIMITS or again(3)

for fn in (Judge({"k": [1, 2]}), named, functools.partial(np.any, axis=0), lambda s: named(s)):
    print(sp.Pipeline(numbers(3)).filter(fn).selections[0].describe())
"""


def test_a_function_has_one_name_in_every_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(BEGIN.format(path=[path for path in sys.path if path]) + textwrap.dedent(NAMES))
    said = {
        subprocess.run(
            [sys.executable, program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    (names,) = said
    assert len(set(names.splitlines())) == 4


def test_a_function_without_a_source_file_is_refused() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def fn(sample): return True", names)
    pipeline = sp.Pipeline(numbers(10)).filter(names["fn"]).batch(2)
    with pytest.raises(
        sp.PlanError, match=r"from a notebook.*Define it in a file, or give it .* _fingerprint"
    ):
        pipeline.plan()
    names["fn"]._fingerprint = "one"
    assert len(records(pipeline)) == 10


def test_marks_of_many_records(cache: Path) -> None:
    """More than one piece of 2^18 marks, and a last block that isn't full."""
    count = (1 << 18) + 300
    odd: Int64Array = np.arange(1, count, 2)
    pipeline = sp.Pipeline(
        sp.MapSource(range(count), fields="x", spec={"x": sp.ArraySpec((), np.dtype(np.int64))})
    )
    kept = pipeline.filter(lambda x: x % 2 == 1, field="x")
    kept.run_filters(memory="64MiB", executor="inline")
    plan = kept.batch(1000, last_batch="partial").plan()
    assert np.array_equal(plan.order.indices(0, 0, len(odd)), odd)
    assert next(cache.iterdir()).stat().st_size < count // 6


def test_a_stream_cant_be_filtered_so() -> None:
    with pytest.raises(
        sp.PlanError, match="a stream has its own order, so it can't be combined with selections"
    ):
        sp.Pipeline(sp.IterableSource(lambda: iter([1, 2]))).filter(lambda _: True).run_filters()
