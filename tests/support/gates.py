"""A gate that stops code until a test opens it, and the lines that standpipe logs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from photos import WAIT_S


@dataclass(frozen=True)
class Gate:
    """A gate at which threads wait until it is opened. Worker processes may have copies of it."""

    path: Path

    @classmethod
    def closed(cls, path: Path) -> Gate:
        """Return a gate that is closed."""
        os.mkfifo(path)
        return cls(path)

    def wait(self) -> None:
        """Wait until the gate is opened."""
        with self.path.open("rb"):
            pass

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the gate for the length of a ``with`` block."""
        file = os.open(self.path, os.O_RDWR)
        try:
            yield
        finally:
            os.close(file)

    def abolish(self) -> None:
        """Open the gate and remove it: a later ``wait`` raises an error."""
        if self.path.exists():
            with self.opened():
                self.path.unlink()


class Log(logging.Handler):
    """The lines that standpipe logs from the beginning of a ``with`` block on."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.lines.append(record.getMessage())
            self._changed.notify_all()

    def wait_for(self, *words: str) -> str:
        """Wait for a line that has all ``words``, and return the first one."""

        def found() -> str | None:
            return next((line for line in self.lines if all(word in line for word in words)), None)

        with self._changed:
            assert self._changed.wait_for(found, WAIT_S), f"{words} not in {self.lines}"
            line = found()
        assert line is not None
        return line

    def __enter__(self) -> Log:
        logging.getLogger("standpipe").addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        logging.getLogger("standpipe").removeHandler(self)
