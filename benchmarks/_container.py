"""A control group with a memory limit, for benchmarks that run in a small container."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

VERSION_1, VERSION_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class Unavailable(Exception):
    """Raised where this machine doesn't allow a control group with a memory limit."""


class Container:
    """A control group that may use ``limit_bytes`` of memory. It exists inside a ``with`` block.

    Entering it raises ``Unavailable`` if the machine doesn't allow such a group.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._is_v1 = (VERSION_1 / "cgroup.procs").exists()
        self._folder = (VERSION_1 if self._is_v1 else VERSION_2) / f"standpipe-bench-{os.getpid()}"
        self._limit_bytes = limit_bytes

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir()
        except OSError as error:
            raise Unavailable(f"control groups can't be made on this machine: {error}") from error
        try:
            self._file("limit_in_bytes", "max").write_text(str(self._limit_bytes))
        except OSError as error:
            self._folder.rmdir()
            raise Unavailable(f"control groups can't limit memory on this machine: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.rmdir()

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command that runs ``words`` inside the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"), *words]

    @property
    def peak_bytes(self) -> int:
        """The group's peak memory, including the page cache of its files."""
        return int(self._file("max_usage_in_bytes", "peak").read_text())

    @property
    def kills(self) -> int:
        """The number of processes that the kernel killed because the group was out of memory."""
        lines = self._file("oom_control", "events").read_text().splitlines()
        return next(int(number) for name, number in map(str.split, lines) if name == "oom_kill")

    def _file(self, version_1: str, version_2: str) -> Path:
        return self._folder / f"memory.{version_1 if self._is_v1 else version_2}"
