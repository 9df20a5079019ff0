"""Progress is shown where somebody looks, and leaves everything in order."""

from __future__ import annotations

import os
import pty
import re
import sys
import textwrap
from pathlib import Path

import pytest

from programs import BEGIN, run

LINE = r"epoch 0, step 32/32, [\d,]+ rows/s, waits \d+%, memory \d+%(, limit: \w+)?"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"

LOOP = """
loader = make()
with loader.progress():
    for number, batch in enumerate(loader):
        if number % 8 == 0:
            print("loss", number, flush=True)
"""


def at_terminal(program: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """How a program ends whose output is a terminal of 80 columns, and all that it wrote there."""
    text = BEGIN.format(path=[path for path in sys.path if path]) + textwrap.dedent(program)
    child, terminal = pty.fork()
    if child == 0:
        settings = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **(environment or {})}
        os.execve(sys.executable, [sys.executable, "-c", text], os.environ | settings)
    written = b""
    while True:
        try:
            more = os.read(terminal, 1 << 16)
        except OSError:  # its other end is closed
            break
        if not more:
            break
        written += more
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), written.decode()


def plain(text: str) -> list[str]:
    """Lines without what steers the terminal."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").split("\n")


def test_elsewhere_than_at_a_terminal_it_is_a_line() -> None:
    done = run(LOOP)
    assert (done.returncode, done.stdout) == (0, "loss 0\nloss 8\nloss 16\nloss 24\n")
    assert re.fullmatch(LINE + "\n", done.stderr), done.stderr


def test_at_a_terminal_what_is_printed_stays_whole_and_the_cursor_comes_back() -> None:
    code, text = at_terminal("""
import standpipe.observe.progress as shown
shown.EVERY_S = 0.001
with make() as loader, loader.progress():
    for epoch in range(30):
        for number, batch in enumerate(loader):
            print("loss", 32 * epoch + number)
""")
    assert code == 0
    lines = plain(text)
    assert [line for line in lines if "loss" in line] == [f"loss {number}" for number in range(30 * 32)]
    last = [line for line in lines if line.startswith("epoch")][-1]
    assert "step 32/32" in last
    assert "rows/s" in last
    assert max(map(len, lines)) <= 80
    assert text.count(HIDE) == text.count(SHOW) > 0
    assert text.rindex(SHOW) > text.rindex(HIDE)


def test_a_refresh_waits_for_a_print_that_has_begun() -> None:
    code, text = at_terminal("""
import standpipe.observe.progress as shown
from rich.live import Live
shown.EVERY_S = 0.001
refreshed = threading.Event()

class Written:
    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)
    def write(self, text):
        sys.__stderr__.write(text)
        if threading.current_thread() is not threading.main_thread():
            refreshed.set()

sys.stderr = Written()
where_the_cursor_goes = Live.process_renderables

def and_then_a_refresh(live, renderables):
    made = where_the_cursor_goes(live, renderables)
    if threading.current_thread() is threading.main_thread():
        refreshed.clear()
        refreshed.wait(0.1)  # it won't come: the print goes first
    return made

Live.process_renderables = and_then_a_refresh
with make() as loader, loader.progress():
    for number in range(5):
        print("loss", number)
""")
    assert code == 0, text
    assert [line for line in plain(text) if "loss" in line] == [f"loss {number}" for number in range(5)]


@pytest.mark.parametrize(
    ("cause", "code", "says"),
    [
        ("raise ValueError('of the step')", 1, "ValueError: of the step"),
        ("interrupt()", -2, "KeyboardInterrupt"),
    ],
)
def test_an_exception_and_ctrl_c_leave_the_terminal_in_order(cause: str, code: int, says: str) -> None:
    ended, text = at_terminal(
        f"""
with make() as loader, loader.progress():
    for batch in loader:
        {cause}
"""
    )
    assert ended == code
    assert says in text
    assert text.count(HIDE) == text.count(SHOW) > 0
    assert text.rindex(SHOW) > text.rindex(HIDE)
    assert text.index(says) > text.rindex(SHOW)


def test_two_loaders_stand_below_one_another() -> None:
    code, text = at_terminal("""
train, valid = make(), make(rows=4)
with train.progress(), valid.progress():
    for loader in (train, valid):
        for batch in loader:
            pass
""")
    assert code == 0, text
    steps = re.findall(r"step (\d+/\d+)", "\n".join(plain(text)))
    assert {"32/32", "16/16"} <= set(steps)
    assert text.count(HIDE) == text.count(SHOW) == 1


def test_without_rich_a_terminal_gets_lines() -> None:
    code, text = at_terminal(
        "sys.modules['rich'] = sys.modules['rich.live'] = sys.modules['rich.console'] = None" + LOOP
    )
    assert code == 0, text
    assert re.search(LINE, text)
    assert HIDE not in text


NOTEBOOK = """
import IPython
from IPython.core.interactiveshell import InteractiveShell
class ZMQInteractiveShell(InteractiveShell):
    "What a notebook's kernel runs."
ZMQInteractiveShell.instance()
"""


@pytest.mark.parametrize("tqdm", [True, False])
def test_in_a_notebook_it_is_a_bar_of_tqdm(tqdm: bool, tmp_path: Path) -> None:
    without = "" if tqdm else "sys.modules['tqdm'] = sys.modules['tqdm.std'] = None"
    done = run(without + NOTEBOOK + LOOP, environment={"IPYTHONDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    if tqdm:
        assert re.search(r"32/32 \[.*rows/s, waits \d+%", done.stderr), done.stderr
    else:
        assert re.search(LINE, done.stderr)


def test_it_ends_with_its_block() -> None:
    done = run("""
loader = make()
with loader.progress():
    next(iter(loader))
loader.close()
print([thread.name for thread in threading.enumerate()])
""")
    assert done.stdout == "['MainThread']\n"
