"""Run PyTorch's DataLoader tests with torch's DataLoader and with ours, and compare what becomes of each.

``scripts/torch_tests`` fetches the tests and calls this: ``python scripts/torch_tests.py test_dataloader.py
[TEST…]``. A failure that isn't expected is run a second time, alone, before it counts: some of these tests are about
time.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

PAGE = Path("docs/guide/drop-in.md")  # a row of its table: a test's name, and why it fails with ours
ROW = re.compile(r"\| `(\w+\.test_\w+)` \| (.+) \|")
OURS = "from standpipe.torch import DataLoader\n"
LONGEST_S = 60  # of a test; the longest takes 10 s
PASSED, SKIPPED = "passed", "skipped"
Outcomes = dict[str, tuple[str, str]]  # by test: what became of it, and the error's text


def main() -> int:
    """Print the comparison; the exit code."""
    source, *chosen = sys.argv[1:]
    text, listed = Path(source).read_text(), dict(ROW.findall(PAGE.read_text()))
    theirs, ours = _outcomes(text, chosen, ()), _outcomes(_changed(text), chosen, listed)
    failed = {name: error for name, (kind, error) in ours.items() if kind not in (PASSED, SKIPPED)}
    unexpected = {
        name: error for name, error in failed.items() if name not in listed and theirs[name][0] == PASSED
    }
    for name, error in unexpected.items():
        print(f"--- {name}\n{error}")
    for name in sorted(listed.keys() & ours.keys() - failed.keys()):
        print(f"passes, though {PAGE} lists it: {name}")
    for who, outcomes in (("torch's DataLoader", theirs), ("standpipe.torch.DataLoader", ours)):
        kinds = [kind for kind, _ in outcomes.values()]
        print(f"{who}: {kinds.count(PASSED)} of {len(kinds) - kinds.count(SKIPPED)} pass")
    print(
        "fail with both:", ", ".join(sorted(name for name in failed if theirs[name][0] != PASSED)) or "none"
    )
    print(f"expected differences: {len(failed.keys() & listed.keys())}")
    print("unexpected failures:", ", ".join(unexpected) or "none")
    return bool(unexpected)


def _changed(text: str) -> str:
    """The tests as a user changes a script: another import, and every DataLoader is ours."""
    text, imports = re.subn(r"^    DataLoader,\n", "", text, flags=re.M)
    assert imports == 1
    text = re.sub(r"\btorch\.utils\.data\.DataLoader\b", "DataLoader", text)
    return text.replace("from torch.utils.data import (\n", f"{OURS}from torch.utils.data import (\n", 1)


def _outcomes(text: str, chosen: Collection[str], listed: Collection[str]) -> Outcomes:
    """Run the tests, or those that are chosen; run a failure again unless it is listed. Return each test's outcome."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_dataloader.py").write_text(text)
        # All that torch's own TestCase takes of that package: it isn't needed otherwise.
        (Path(folder) / "expecttest.py").write_text("from unittest import TestCase\n")
        outcomes = _run(folder, chosen)
        failed = [
            name
            for name, (kind, _) in outcomes.items()
            if kind not in (PASSED, SKIPPED) and name not in listed
        ]
        return outcomes | {name: each for one in failed for name, each in _run(folder, [one]).items()}


def _run(folder: str, chosen: Collection[str]) -> Outcomes:
    """Run tests in one process, and those that come after one that ended it in another."""
    outcomes: Outcomes = {}
    log = Path(folder) / "log"
    while True:
        log.write_text("")
        with (Path(folder) / "output").open("w+") as output:
            child = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), "--child", *chosen],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": folder},
            )
            child.communicate(json.dumps(list(outcomes)).encode())
            os.killpg(child.pid, signal.SIGKILL) if _lives(child.pid) else None
            output.seek(0)
            said = output.read()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        outcomes |= {name: (kind, error) for name, kind, error in (line for line in lines if len(line) == 3)}
        begun = lines[-1] if lines and len(lines[-1]) == 1 else None
        if begun is None:
            assert child.returncode == 0, said
            return outcomes
        outcomes[begun[0]] = ("ended the process, or took too long", said[-4000:])


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def child() -> None:
    """Run tests, and write a line before each and one after it."""
    chosen, done = sys.argv[2:], set(json.loads(sys.stdin.read()))
    module: Any = importlib.import_module("test_dataloader")
    module.load_tests = None  # it refuses tests that another script than their own runs
    with Path("log").open("a", buffering=1) as log:
        for test in _tests(unittest.defaultTestLoader.loadTestsFromModule(module)):
            name = ".".join(test.id().split(".")[-2:])
            if name in done or (chosen and name not in chosen):
                continue
            print(json.dumps([name]), file=log)
            faulthandler.dump_traceback_later(LONGEST_S, exit=True)
            result = unittest.TestResult()
            test.run(result)
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps([name, *_outcome(result)]), file=log)


def _tests(suite: Any) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestCase):
            yield each
        else:
            yield from _tests(each)


def _outcome(result: unittest.TestResult) -> tuple[str, str]:
    errors = [text for _, text in (*result.errors, *result.failures)]
    if errors or result.unexpectedSuccesses:
        return "failed", "\n".join(errors) or "it passes, and was expected to fail"
    return (SKIPPED if result.skipped else PASSED), ""


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child()
    else:
        sys.exit(main())
