"""STANDPIPE_FAULTS: what it says happens, where and as often as it says; what can't be read is refused."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

import forked
from photos import write_photos
from programs import output, run
from standpipe.system.faults import POINTS, install_faults

PASSES = """
from standpipe.system.faults import faultpoint

def outcome(name, key=0, attempt=0):
    try:
        faultpoint(name, key, attempt)
    except OSError as error:
        return error.errno
    except RuntimeError as error:
        return str(error)

print([outcome({point!r}, key, attempt) for key in range({keys}) for attempt in range({attempts})])
"""


def outcomes(faults: str, point: str, *, keys: int = 1, attempts: int = 1) -> list[object]:
    """What passing a point gives for each of so many keys, and tries of each."""
    program = PASSES.format(point=point, keys=keys, attempts=attempts)
    found = eval(forked.output(program, environment={"STANDPIPE_FAULTS": faults}))
    assert isinstance(found, list)
    return found


def struck(faults: str, point: str = "index.read", *, keys: int = 1, attempts: int = 1) -> list[int]:
    """Of the passes, in order, those that gave an error."""
    return [n for n, got in enumerate(outcomes(faults, point, keys=keys, attempts=attempts)) if got]


def test_without_the_variable_nothing_happens() -> None:
    program = PASSES.format(point="index.read", keys=2, attempts=1)
    hits = "from standpipe.system.faults import fault_hits\nprint(any(fault_hits().values()))\n"
    assert output(program + hits).split("\n") == ["[None, None]", "False", ""]


@pytest.mark.parametrize(
    ("faults", "passes"),
    [
        ("index.read=eio", [0, 1, 2, 3, 4, 5]),
        (" index.read = eio ; seed=3 ;", [0, 1, 2, 3, 4, 5]),
        ("index.read=eio@3", [2]),
        ("index.read=eio@#1", [2, 3]),
        ("index.read=eio*1", [0, 2, 4]),
        ("index.read=eio@#1*1", [2]),
        ("index.read=eio@0.0", []),
        ("index.read=eio@1.0", [0, 1, 2, 3, 4, 5]),
        ("ledger.write=eio", []),
    ],
)
def test_which_passes_are_struck(faults: str, passes: list[int]) -> None:
    assert struck(faults, keys=3, attempts=2) == passes


def test_a_share_of_keys_is_the_same_in_every_process_and_another_for_another_seed() -> None:
    first = struck("index.read=eio@0.1", keys=2000)
    assert 150 < len(first) < 250
    assert struck("index.read=eio@0.1", keys=2000) == first
    other = struck("index.read=eio@0.1;seed=1", keys=2000)
    assert len(set(first) & set(other)) < 50
    assert 150 < len(other) < 250


def test_what_python_code_gets() -> None:
    assert outcomes("index.read=estale", "index.read") == [116]
    assert outcomes("worker.row=raise", "worker.row") == ["STANDPIPE_FAULTS: raised at worker.row"]
    begin = time.monotonic()
    assert outcomes("worker.row=delay:100ms;worker.row=delay:0.1s", "worker.row") == [None]
    assert time.monotonic() - begin >= 0.2


def test_a_process_ends_where_it_says() -> None:
    program = PASSES.format(point="worker.row", keys=1, attempts=1)
    killed = run(program, environment={"STANDPIPE_FAULTS": "worker.row=kill"})
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    left = run(program, environment={"STANDPIPE_FAULTS": "worker.row=exit"})
    assert (left.returncode, left.stdout) == (0, "")


def test_a_stopped_process_goes_on_when_it_is_told_to() -> None:
    program = """
from standpipe.system.faults import faultpoint
child = os.fork()
if child == 0:
    faultpoint("worker.row")
    os._exit(7)
_, status = os.waitpid(child, os.WUNTRACED)
assert os.WIFSTOPPED(status)
os.kill(child, signal.SIGCONT)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert output(program, environment={"STANDPIPE_FAULTS": "worker.row=stop"}) == "7\n"


def test_a_forked_process_counts_its_own_passes() -> None:
    program = """
from standpipe.system.faults import fault_hits, faultpoint
faultpoint("worker.row")
faultpoint("worker.row")
child = os.fork()
if child == 0:
    faultpoint("worker.row")
    os._exit(fault_hits()["worker.row"])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), fault_hits()["worker.row"])
"""
    assert output(program, environment={"STANDPIPE_FAULTS": "seed=1"}) == "1 2\n"


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ("read.opn=eio", "no point 'read.opn'; there are read.open, read.stat, "),
        ("read.open", "no action ''; there are delay, kill, "),
        ("read.open=eoi", "no action 'eoi'"),
        ("read.open=eio:3s", "only delay has a time"),
        ("read.open=delay", "a delay has a time, as delay:5s"),
        ("read.open=delay:5", "a delay has a time"),
        ("read.open=delay:-5s", "a delay has a time"),
        ("read.open=delay:nans", "a delay has a time"),
        ("read.open=eio@1.5", "a share lies between"),
        ("read.open=eio@-0.5", "a share lies between"),
        ("read.open=eio@", "behind @ stands a share such as 0.01, a hit such as 3, or #KEY"),
        ("read.open=eio@0", "behind @ stands"),
        ("read.open=eio@#x", "behind @# stands a key"),
        ("read.open=eio*0", "behind \\* stands how many tries"),
        ("read.open=short", "nothing at read.open can be 'short'"),
        ("decode.row=eio", "nothing at decode.row can be 'eio'"),
        ("worker.row=corrupt", "nothing at worker.row can be 'corrupt'"),
        ("seed=x", "a seed is an integer"),
    ],
)
def test_what_cant_be_read_is_refused(faults: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        install_faults(faults)


def test_the_first_use_of_standpipe_refuses_it() -> None:
    done = run("import standpipe\nstandpipe.Pipeline", environment={"STANDPIPE_FAULTS": "read.opn=eio"})
    assert done.returncode == 1
    assert (
        "PlanError: STANDPIPE_FAULTS: 'read.opn=eio': no point 'read.opn'; there are read.open" in done.stderr
    )


def test_a_point_that_there_is_not() -> None:
    done = run(
        "from standpipe.system.faults import faultpoint; faultpoint('reed')",
        environment={"STANDPIPE_FAULTS": "seed=1"},
    )
    assert "ValueError: no fault point reed" in done.stderr


EVERYTHING = """
source = sp.ImageFolder({photos!r})
sp.build_index(source)
for settings in (dict(), dict(executor="process")):
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(16))
    if settings:
        pipeline = pipeline.map(lambda sample: sample)
    pipeline = pipeline.on_error(sp.Replace(at_most=1)).batch(2)
    with pipeline.loader(memory="256MiB", num_workers=1, error_log={log!r}, **settings) as loader:
        for batch in loader:
            pass

os.mkdir({store!r})
sp.pack_shards(source, {store!r} + "/shards")
import caches
cache = sp.Cache("all", "300kB", directory={store!r}, spill={store!r})
with caches.opened(cache) as found:
    assert caches.fill(found)
with caches.opened(cache) as found:
    assert caches.right(found)
assert sp.destroy_cache(cache).sets == 1
"""


def test_every_point_is_passed_in_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "class"
    folder.mkdir(parents=True)
    write_photos(folder, 4)
    (folder / "002.jpg").write_bytes(b"")
    points = {*POINTS}
    faults = ";".join(f"{point}=delay:0s" for point in points)
    program = EVERYTHING.format(
        photos=str(folder.parent), log=str(tmp_path / "bad.jsonl"), store=str(tmp_path / "store")
    )
    log = tmp_path / "faults.log"
    output(program, environment={"STANDPIPE_FAULTS": f"{faults};log={log}"})
    lines = [line.split() for line in log.read_text().splitlines()]
    assert {point for point, *_ in lines} == points
    assert {action for _, action, *_ in lines} == {"delay"}
    assert {int(key) for point, _, _, key in lines if point == "worker.row"} == {0, 1, 2, 3}
