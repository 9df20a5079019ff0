"""``loader.progress()``: how a run goes, on stderr, while it runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

import standpipe as sp
from standpipe.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

EVERY_S = 1.0
LINE_EVERY_S = 10.0
MIB = 1 << 20


class View(Protocol):
    """A place where snapshots of one loader are shown."""

    def show(self, now: Snapshot) -> None:
        """Show the newest snapshot."""

    def close(self) -> None:
        """End the view. The last snapshot stays visible."""


@contextmanager
def show_progress(loader: sp.Loader) -> Iterator[None]:
    """Show how a run goes, while the block runs."""
    view = _view()
    done = threading.Event()

    def keep_showing() -> None:
        try:
            while not done.wait(EVERY_S):
                view.show(loader.snapshot())
        except Exception:  # the training loop has nothing to do with it
            import logging

            logging.getLogger("standpipe").debug("progress is shown no more", exc_info=True)

    thread = threading.Thread(target=keep_showing, name="standpipe-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with suppress(
            Exception
        ):  # of a terminal that is gone, or a fork: nothing that training should end with
            try:
                view.show(loader.snapshot())
            finally:
                view.close()


def _view() -> View:
    """Return the view that suits stderr and the installed packages."""
    if _in_notebook():
        try:
            return _Bar()
        except ImportError:
            return _Lines()
    if sys.stderr is not None and sys.stderr.isatty():
        try:
            return _Terminal()
        except ImportError:
            return _Lines()
    return _Lines()


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"


class _Lines:
    """A line every ten seconds, and one at the end."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + LINE_EVERY_S
        self._now: Snapshot | None = None  # and not printed

    def show(self, now: Snapshot) -> None:
        self._now = now
        if time.monotonic() >= self._next_s:
            self._next_s += LINE_EVERY_S
            self.close()

    def close(self) -> None:
        if self._now is not None:
            print(self._now, file=sys.stderr, flush=True)
            self._now = None


class _Bar:
    """A progress bar of tqdm over the steps of an epoch. Raises ``ImportError`` without tqdm."""

    def __init__(self) -> None:
        from tqdm.std import tqdm

        try:
            from tqdm.notebook import tqdm as of_notebook

            self._bar: Any = of_notebook(unit="step")
        except ImportError:  # it shows itself by ipywidgets
            self._bar = tqdm(unit="step", file=sys.stderr)

    def show(self, now: Snapshot) -> None:
        bar = self._bar
        epoch, bar.n = now.at
        bar.total = now.steps_per_epoch
        bar.set_description(f"epoch {epoch}", refresh=False)
        bar.set_postfix_str(", ".join(_facts(now)), refresh=False)
        bar.refresh()

    def close(self) -> None:
        self._bar.close()


class _Terminal:
    """Lines at the bottom of a terminal, drawn by rich; one below the other for several loaders.

    Other output goes above them. Raises ``ImportError`` without rich.
    """

    _lock = threading.RLock()
    _live: Any = None  # of all of them
    _open: dict[_Terminal, Snapshot | None] = {}  # noqa: RUF012

    def __init__(self) -> None:
        from rich.live import Live

        with self._lock:
            if not self._open:
                _Terminal._live = Live(
                    console=_console(self._lock),
                    auto_refresh=False,
                    transient=True,
                    redirect_stdout=sys.stdout.isatty(),
                )
                self._live.start()
            self._open[self] = None

    def show(self, now: Snapshot) -> None:
        with self._lock:
            if self in self._open:
                self._open[self] = now
                self._refresh()

    def close(self) -> None:
        """End the view; its last lines stay."""
        with self._lock:
            last = self._open.pop(self)
            try:
                self._refresh()
                if last is not None:
                    self._live.console.print(_two_lines(last))
            finally:
                if not self._open:
                    self._live.stop()

    def _refresh(self) -> None:
        from rich.console import Group

        lines = Group(*(_two_lines(now) for now in self._open.values() if now is not None))
        self._live.update(lines, refresh=True)


def _console(lock: threading.RLock) -> Console:
    """Return a console of which one thread at a time prints or refreshes.

    Rich works out where the cursor is before it writes; a refresh between the two would glue lines together.
    """
    from rich.console import Console

    class OneAtATime(Console):
        def __enter__(self) -> Console:
            lock.acquire()
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            try:
                super().__exit__(*error)
            finally:
                lock.release()

    return OneAtATime(stderr=True, highlight=False, emoji=False)


def _two_lines(now: Snapshot) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    epoch, step = now.at
    whole = now.steps_per_epoch
    above = Table.grid(padding=(0, 2), expand=True)
    for _ in range(2):
        above.add_column(no_wrap=True)
    above.add_column(ratio=1)
    above.add_column(no_wrap=True, justify="right")
    above.add_row(
        Text(f"epoch {epoch}", "bold"),
        f"step {step:,}" + ("" if whole is None else f"/{whole:,}"),
        ProgressBar(whole, step) if whole is not None else "",
        Text(f"{now.rows_per_s:,.0f} rows/s", "bold"),
    )
    below = Text("  ".join(_facts(now)[1:]), no_wrap=True, overflow="ellipsis")
    return Group(above, below)


def _facts(now: Snapshot) -> list[str]:
    """Return the facts of a snapshot without the steps, the most important first."""
    return [
        f"{now.rows_per_s:,.0f} rows/s",
        f"waits {now.recent.wait_share:.0%}",
        f"memory {now.memory / MIB:,.0f} of {now.limit / MIB:,.0f} MiB",
        *([f"{now.stats.bad:,} bad"] if now.stats.bad else []),
        *([f"limit: {now.limited}"] if now.limited else []),
    ]
