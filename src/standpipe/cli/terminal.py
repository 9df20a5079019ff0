"""Print for terminals with markup, elsewhere plain text, and JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from standpipe import StandpipeError

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

Advance: TypeAlias = Callable[[int], None]

COLUMNS = 80  # of a terminal that doesn't say
LINE_EVERY_S = 5.0
MIB = 1 << 20
TAG = re.compile(r"(\\*)(\[[a-z#/@][^\[\]]*\])")


def say(markup: str) -> None:
    """Print to stdout: with rich's markup at a terminal, without the tags anywhere else.

    Text that comes from outside, such as a path, goes through ``verbatim`` first.
    """
    console = _console(stderr=False)
    with written():
        if console is None:
            print(_without_tags(markup))
        else:
            console.print(markup)


def say_wrapped(text: str, first: int = 0, later: int | None = None) -> None:
    """Print text from outside, wrapped as by ``wrapped``."""
    say(verbatim(wrapped(harmless(text), first, later)))


def print_json(value: Any) -> None:
    """Print one JSON document on one line of stdout, in ASCII, so that any name survives any terminal."""
    with written():
        print(json.dumps(value))


class Unwritten(StandpipeError):
    """The error that stdout can't be written, for example to a file on a full disk."""


def check_stdout() -> None:
    """Raise ``Unwritten`` if stdout is closed, as by ``>&-`` in a shell."""
    if sys.stdout is None:
        raise Unwritten("can't write to stdout: it is closed; for no output, say >/dev/null")


@contextmanager
def written() -> Iterator[None]:
    """Inside, stdout is written, and nothing else can fail. Raises ``Unwritten``; ``BrokenPipeError`` stays one."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritten(f"can't write to stdout: {error.strerror}") from error


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """Show how far a long task is, on stderr, so that stdout holds results only.

    Yields a function to be called with the number of things done so far. At a terminal with rich it moves a
    bar, elsewhere it prints a line every 5 seconds. Without a total, how much is left isn't known.
    """
    console = _console(stderr=True)
    if console is None:
        yield _lines(title, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def stages(title: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show the progress of one stage after the other. Yields what public functions take as ``on_progress``."""
    with ExitStack() as stack:
        shown: dict[str, Advance] = {}

        def on_progress(what: str, done: int, total: int | None) -> None:
            unit = MIB if what == "bytes" else 1
            if what not in shown:
                stack.close()
                label = f"{title}, {'MiB' if what == 'bytes' else what}"
                whole = None if total is None else -(-total // unit)
                shown[what] = stack.enter_context(progress(label, whole))
            shown[what](-(-done // unit))

        yield on_progress


def verbatim(text: str) -> str:
    """Return ``text`` escaped for use inside rich's markup, so that no part of it acts as a tag."""
    return TAG.sub(lambda found: f"{found[1] * 2}\\{found[2]}", text)


def printable(name: str | bytes) -> str:
    r"""A file name on one line, whatever its bytes are: what isn't UTF-8 as ``\xff``, a newline as ``\n``."""
    try:
        text = os.fsencode(name).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a surrogate pair, which no file system gave us
        text = str(name)
    return harmless(text)


def harmless(text: str, keep: str = "") -> str:
    r"""Return ``text`` with unprintable characters, except those in ``keep``, as escapes such as ``\x1b``."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def columns_of(stream: TextIO) -> int | None:
    """Return a terminal's width; None for other outputs, whose lines may have any length."""
    return (os.get_terminal_size(stream.fileno()).columns or COLUMNS) if stream.isatty() else None


def cells(text: str) -> int:
    """Return a text's width in terminal columns: two for each Chinese letter and emoji."""
    return sum(map(_cells_of, text))


def beginning(text: str, columns: int) -> str:
    """Return as much of a text's beginning as fits into ``columns`` terminal columns."""
    return text[: sum(taken <= columns for taken in accumulate(map(_cells_of, text)))]


def text_end(text: str, columns: int) -> str:
    """Return as much of a text's end as fits into ``columns`` terminal columns."""
    return beginning(text[::-1], columns)[::-1]


def _cells_of(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def shortened(text: str, columns: int) -> str:
    """Return text of at most a number of characters; an ellipsis replaces the middle."""
    if cells(text) <= columns:
        return text
    end = (columns - 1) // 2
    return f"{beginning(text, columns - 1 - end)}…{text_end(text, end)}"


def wrapped(text: str, first: int = 0, later: int | None = None, columns: int = COLUMNS) -> str:
    """Return each line of a text broken between words; words longer than ``columns`` stay whole.

    first, later  indent of a line's first part, and of the others: the same if None
    """
    import textwrap

    wrap = textwrap.TextWrapper(
        columns,
        initial_indent=" " * first,
        subsequent_indent=" " * (first if later is None else later),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(map(wrap.fill, text.split("\n")))


def in_columns(text: str, stream: TextIO, indent: int = 2) -> str:
    """Return text wrapped where a stream is a terminal, which would break it anywhere; else as it is.

    indent  of all lines but the first
    """
    columns = columns_of(stream)
    return text if columns is None else wrapped(text, 0, indent, columns)


def row(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line of a table. A negative width puts a text on the left; a text that is too long loses its middle."""
    columns = (
        f"{shortened(harmless(text), abs(width)):{'<' if width < 0 else '>'}{abs(width)}}"
        for text, width in zip(texts, widths, strict=True)
    )
    return " ".join(columns).rstrip()


def _without_tags(markup: str) -> str:
    """Return what rich would print, without colours: an odd number of backslashes before a tag makes it text."""

    def plain(found: re.Match[str]) -> str:
        slashes, tag = found.groups()
        return "\\" * (len(slashes) // 2) + (tag if len(slashes) % 2 else "")

    return TAG.sub(plain, markup)


def _lines(title: str, total: int | None) -> Advance:
    """Plain progress. Short tasks print nothing."""
    next_at = time.monotonic() + LINE_EVERY_S

    def advance(done: int) -> None:
        nonlocal next_at
        now = time.monotonic()
        if now >= next_at:
            next_at = now + LINE_EVERY_S
            of = "" if total is None else f" of {total}"
            print(f"{title}: {done}{of}", file=sys.stderr, flush=True)

    return advance


def _console(*, stderr: bool) -> Console | None:
    """Rich's console for a stream that is a terminal; None where plain text is right or rich is missing."""
    stream = sys.stderr if stderr else sys.stdout
    return _rich_console(stderr) if stream.isatty() else None


@cache
def _rich_console(stderr: bool) -> Console | None:
    try:
        from rich.console import Console  # 0.1 s, so only when something is printed to a terminal
    except ImportError:
        return None
    return Console(stderr=stderr, highlight=False, emoji=False, soft_wrap=True)
