"""What holds code up until a test lets it go on, and what the log says meanwhile."""

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
    """Whoever passes waits until it is opened: in a thread, or in a worker process that has a copy of it."""

    path: Path

    @classmethod
    def closed(cls, path: Path) -> Gate:
        """One that holds everybody up."""
        os.mkfifo(path)
        return cls(path)

    def wait(self) -> None:
        """Until it is opened."""
        with self.path.open("rb"):
            pass

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let everybody through, for the length of a ``with`` block."""
        file = os.open(self.path, os.O_RDWR)
        try:
            yield
        finally:
            os.close(file)

    def abolish(self) -> None:
        """Let everybody through; whoever comes later finds no gate, which is an error."""
        if self.path.exists():
            with self.opened():
                self.path.unlink()


class Log(logging.Handler):
    """What standpipe logs, from the beginning of a ``with`` block on."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.lines.append(record.getMessage())
            self._changed.notify_all()

    def wait_for(self, *words: str) -> str:
        """The first line that holds all of them."""

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
