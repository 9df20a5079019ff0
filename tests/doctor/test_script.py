"""``standpipe doctor SCRIPT.py``, on real scripts: each finds what its comments say, line by line, and no more."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from programs import children, wait_for_end
from standpipe.cli import doctor_script
from standpipe.doctor.facts import BatchFacts, Host, LoaderFacts, RunFacts, StepFacts, WorkerFacts
from standpipe.doctor.script import ScriptReport

SCRIPTS = Path(__file__).parent / "scripts"
LIMIT_S = 240
HEADLINE = re.compile(r"^(?:problem|warning|note)  ([\w-]+)  \w+\.py:(\d+)$", re.MULTILINE)


OURS = """
import torch, standpipe.torch
for _ in standpipe.torch.DataLoader(torch.utils.data.TensorDataset(torch.arange(9)), 3, memory="64MiB"): pass
"""


def doctor(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command, at its end."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "standpipe.doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=folder,
        check=False,
    )


def expected(script: str) -> dict[int, set[str]]:
    """What the comments of a script promise, by the line of the loader behind them."""
    lines = (SCRIPTS / script).read_text().splitlines()
    return {
        number + 2: set(line.partition("finds:")[2].split())
        for number, line in enumerate(lines)
        if "# finds:" in line
    }


def check_report(script: str, text: str) -> None:
    """What is printed is what the comments promise, within 80 columns."""
    found: dict[int, set[str]] = {line: set() for line in expected(script)}
    for code, line in HEADLINE.findall(text):
        found[int(line)].add(code)
    assert found == expected(script)
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_a_healthy_script(tmp_path: Path) -> None:
    done = doctor(str(SCRIPTS / "healthy.py"), "--json", "--", "--lr", "0.5", "model.pt", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["findings"] == []
    assert told["ended"] == "enough"
    train, stream, validation = told["loaders"]
    assert (train["samples"], train["workers"], train["batches"]) == (256, 1, 48)
    assert list(train["transforms_s"])[-1] == "the rest"
    assert {"Crop", "mirrored"} < set(train["transforms_s"])
    assert (stream["samples"], stream["epochs"]) == (None, 2)
    assert (validation["batches"], validation["worker_bytes_at_end"]) == (48, 0)
    assert "epoch 1" in done.stderr
    assert list(tmp_path.iterdir()) == []  # no checkpoint of a few steps


def test_each_cause_alone() -> None:
    done = doctor(str(SCRIPTS / "causes.py"), "--steps", "10")
    assert done.returncode == 1, done.stderr
    check_report("causes.py", done.stdout)
    text = " ".join(done.stdout.split())
    assert re.search(
        r"Dawdle takes (9\d|100)% of a sample's time", text
    )  # the rest is the machine's other work
    for evidence in (
        "dataset.annotations: a dict of str: list, about 400,0",
        "dawdling_collate takes",
        "the same state of dataset.generator",
        "began epochs 0 and 1 with the same state of numpy.random",
        "came from worker 1 too by their part [1]",
        "1 thread at the fork: metrics",
    ):
        assert evidence in text


def test_two_ranks() -> None:
    done = doctor(str(SCRIPTS / "ranks.py"), "--ranks", "2")
    assert done.returncode == 1, done.stderr
    check_report("ranks.py", done.stdout)


def test_workers_started_by_spawn() -> None:
    done = doctor(str(SCRIPTS / "spawned.py"), "--steps", "4")
    assert done.returncode == 1, done.stderr
    # Of forgotten semaphores, say. On a busy machine torch's workers say more as they end.
    assert not re.search("semaphore|standpipe_|doctor", done.stderr)
    check_report("spawned.py", done.stdout)


@pytest.mark.parametrize(
    ("kind", "limit", "code", "evidence"),
    [
        ("broken", "60", "bad-sample", "dataset[10], photos/13.jpg"),
        ("grey", "60", "mixed-samples", "sample 13, photos/13.jpg: [0] (1, 8, 8) torch.float32, [1] int"),
        ("hangs", "4", "stuck-sample", "worker 0 was still making dataset[13] when the time was over"),
    ],
)
def test_bad_samples(kind: str, limit: str, code: str, evidence: str) -> None:
    done = doctor("--json", "--seconds", limit, str(SCRIPTS / "bad.py"), "--", kind)
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.returncode, finding["code"]) == (1, code)
    assert evidence in finding["evidence"]


def test_a_script_that_saves_in_short_epochs(tmp_path: Path) -> None:
    """It goes on, on scratch files; short epochs are watched for longer."""
    done = doctor(str(SCRIPTS / "checkpoints.py"), "--json", "--steps", "12", folder=tmp_path)
    told = json.loads(done.stdout)
    assert (told["ended"], told["error"]) == ("enough", None), done.stderr
    (train,) = told["loaders"]
    assert (train["epochs"], train["batches"]) == (4, 12)  # 3 batches each
    assert "epoch 3" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_run_left_stays(tmp_path: Path) -> None:
    """The script finds the files as it believes to have left them; afterwards the folder is as it was."""
    left = {"model.pt": "trained for a week", "old.pt": "old", "log.txt": "log\n"}
    functions = re.findall(r"^def (\w+)", (SCRIPTS / "withheld.py").read_text(), re.MULTILINE)
    for function in functions:
        (tmp_path / function / "folder").mkdir(parents=True)
        for name, text in left.items():
            (tmp_path / function / name).write_text(text)
    done = doctor(str(SCRIPTS / "withheld.py"), "--json", folder=tmp_path)
    assert "all is as it should be" in done.stderr
    (tmp_path / "list_them" / "copy").rmdir()
    for function in functions:
        there = {path.name: path for path in (tmp_path / function).rglob("*")}
        log = "log\nmore\n" if function == "write_files_in_other_ways" else "log\n"
        assert there.keys() == {"folder", *left}
        assert {name: there[name].read_text() for name in left} == left | {"log.txt": log}


@pytest.mark.parametrize(("sample_s", "is_told"), [(4e-6, False), (5e-3, True)])
def test_waiting_for_a_cpu_is_told_of_samples_that_take_time(
    sample_s: float, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Printed by a private function, since what waits for a CPU depends on the machine."""
    made = BatchFacts(samples=1, seconds=sample_s, cpu_s=0.0, queued_s=sample_s, collate_s=0.0)
    loader = LoaderFacts(
        site="train.py:7",
        makers=(WorkerFacts(epoch=0, worker=0, made=(made,)),),
        steps=(StepFacts(epoch=0, wait_s=0.1, step_s=None, bytes=1),),
    )
    host = Host(cores=2, memory_free=1 << 30, memory=1 << 30, shm_free=1 << 30, shm=1 << 30)
    report = ScriptReport(
        script="train.py", host=host, run=RunFacts(how="enough", loaders=(loader,)), findings=(), seconds=1.0
    )
    doctor_script._print_loader(report, 0)
    assert ("of it without a CPU" in capsys.readouterr().out) == is_told


THREADS = """
import random
import standpipe as sp

def noisy(x):
    return x + random.random()

numbers = sp.MapSource([float(number) for number in range(40)], fields="x")
with sp.Pipeline(numbers).map(noisy, field="x").batch(10).loader(EXECUTOR) as loader:
    for batch in loader:
        pass
"""


def test_code_in_threads_that_draws_from_the_scripts_generators(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(THREADS.replace("EXECUTOR", "executor='thread'"))
    done = doctor("train.py", "--json", folder=tmp_path)
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.returncode, finding["code"]) == (1, "randomness-of-the-process")
    assert finding["where"].endswith("train.py:9")
    assert "noisy, field='x' (random)" in finding["evidence"][0]
    assert "randomness-of-the-process" in doctor("train.py", folder=tmp_path).stdout
    (tmp_path / "train.py").write_text(THREADS.replace("EXECUTOR", ""))
    assert doctor("train.py", folder=tmp_path).returncode == 2  # nothing to say


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit(3)\n", "it exited with 3; its own arguments go behind --"),
        ("raise ValueError('\\n\\nof its own')\n", "it ended with ValueError: of its own"),
        ("print('done')\n", "it iterated over no torch.utils.data.DataLoader"),
        (OURS, "standpipe's own loaders aren't examined"),
        ("import os\nos.abort()\n", "it was killed by signal 6"),
    ],
)
def test_a_script_without_a_loader(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "train.py").write_text(text)
    done = doctor("train.py", folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stdout
    assert "doctor" not in done.stderr  # the script's own traceback has no frames of ours


def test_what_a_script_says_when_it_exits_is_seen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nsys.exit('usage: train.py FOLDER')\n")
    done = doctor("train.py", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, "usage: train.py FOLDER\n")
    assert "it exited with 1" in done.stdout


def test_a_script_that_isnt_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    done = doctor("trian.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "standpipe: there is no script trian.py; did you mean train.py?\n"


@pytest.mark.parametrize(
    ("sent", "code", "says"),
    [
        (signal.SIGINT, 130, "standpipe: interrupted\n"),
        pytest.param(signal.SIGTERM, 143, "it begins\n", marks=pytest.mark.long),
    ],
)
def test_a_signal_leaves_nothing(sent: signal.Signals, code: int, says: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "standpipe", "doctor", str(SCRIPTS / "bad.py"), "--", "hangs"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "it begins\n"
        script = children(process.pid)
        os.kill(process.pid, sent)
        assert process.wait(LIMIT_S) == code
        assert wait_for_end(script, LIMIT_S) == []
        assert ("it begins\n" + process.stderr.read()).endswith(says)
    assert list(tmp_path.glob("standpipe-*")) == []


def test_a_script_ends_with_a_doctor_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text("import signal\nprint('it begins', flush=True)\nsignal.pause()\n")
    with subprocess.Popen(
        [sys.executable, "-m", "standpipe", "doctor", str(script)],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "it begins\n"
        (started,) = children(process.pid)
        process.kill()
        assert wait_for_end([started], LIMIT_S) == []
