"""Turn the names of shards into paths: braces, globs and lists."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence

from standpipe.errors import PlanError
from standpipe.source.index.store import SUFFIX
from standpipe.system.paths import AnyPath, absolute, is_address, open_for_reading, path_text, reading
from standpipe.system.urls import Url

MOST_SHARDS = 1 << 20
INNERMOST = re.compile(rb"\{([^{}]*)\}")
RANGE = re.compile(rb"(-?\d{1,18})\.\.(-?\d{1,18})")
BRACE = re.compile(rb"[{}]")
GLOB = re.compile(rb"[*?[]")


def shard_paths(shards: AnyPath | Sequence[AnyPath], call: str = "TarShards") -> tuple[bytes, ...]:
    """Return the absolute paths of shards, each once, sorted by their bytes.

    A name that exists is taken as it is. In others, ``{000..146}`` and ``{a,b}`` are expanded, then ``*``,
    ``?`` and ``[…]``. ``call``: the source's name, for messages.

    URLs are expanded by their braces alone, as nothing is listed.

    Raises ``PlanError`` for no shards, a pattern that fits none, braces that aren't a range or a choice, and more than
    about a million.
    """
    given = [shards] if isinstance(shards, str | bytes | os.PathLike) else list(shards)
    found: set[bytes] = set()
    for each in given:
        path = shard_path(each, call)
        if os.path.lexists(path):
            found.add(path)
            continue
        for name in _expanded(os.path.expanduser(os.fsencode(each)), f"{call}({path_text(each)!r})"):  # noqa: PTH111 (bytes)
            if BRACE.search(name) and not os.path.lexists(name):
                raise PlanError(
                    f"{call}: the braces of {path_text(name)} aren't a range or a choice; write them as in "
                    "'train-{000..146}' or 'train-{a,b}'"
                )
            if is_address(name) and GLOB.search(name):
                raise PlanError(
                    f"{call}: {path_text(name)} has a pattern, and stores aren't listed; name the shards by braces, as "
                    "in s3://bucket/train-{000..146}.tar, or as a list"
                )
            matches = glob.glob(name) if GLOB.search(name) and not os.path.lexists(name) else [name]  # noqa: PTH207
            if not matches:
                raise PlanError(f"{call}: no file fits {path_text(name)}; check the pattern")
            # The index of shards is beside them, and begins with the first one's name.
            found.update(shard_path(match, call) for match in matches if not match.endswith(SUFFIX))
    if not found:
        raise PlanError(f"{call} has no shards; give it a name such as 'train-{{000..146}}', or a list")
    return tuple(sorted(found))


def shards_text(shards: AnyPath | Sequence[AnyPath]) -> str:
    """Return shards as text for messages: the first one, and the number of the others."""
    if isinstance(shards, str | bytes | os.PathLike):
        return f"'{path_text(shards)}'"
    more = f" and {len(shards) - 1} more" if len(shards) > 1 else ""
    return f"'{path_text(shards[0])}'{more}" if shards else "no shards"


def check_shards(shards: object, call: str) -> None:
    """Raise ``PlanError`` for shards that aren't a path or a sequence of paths."""
    each = (shards,) if isinstance(shards, str | bytes | os.PathLike) else shards
    if not isinstance(each, Sequence) or not all(isinstance(one, str | bytes | os.PathLike) for one in each):
        raise PlanError(
            f"{call} needs a name such as 'train-{{000..146}}', or a list of paths, got {shards!r}"
        )


def read_small(path: bytes, most_bytes: int, what: str) -> bytes:
    """Read a file. Raises ``PlanError`` if it has more than ``most_bytes``; ``what``: what it should be."""
    with open_for_reading(path) as file, reading(path):
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise PlanError(f"{path_text(path)} is larger than {most_bytes:,} bytes; is it {what}?")
        return file.read()


def shard_path(path: AnyPath, call: str = "TarShards") -> bytes:
    """Return the absolute path or the URL of a shard, without a ``..``.

    The index has it relative to the folder of all shards.
    """
    if is_address(path):
        url = Url.parse(path, field=f"{call}' shards")
        if not url.path or url.path.endswith("/"):
            raise PlanError(
                f"{call}: {url.text} is no shard; write it as in s3://bucket/train-{{000..146}}.tar"
            )
        return url.text.encode()
    whole = absolute(path, field=f"{call}' shards")
    folder, name = os.path.split(whole)
    return os.path.join(os.path.realpath(folder), name) if b".." in folder.split(b"/") else whole  # noqa: PTH118


def _expanded(path: bytes, given: str) -> list[bytes]:
    """Expand the braces of a path, also nested ones. ``given``: the source, for messages."""
    done: list[bytes] = []
    waiting = [path]
    while waiting:
        name = waiting.pop()
        for match in INNERMOST.finditer(name):
            choices = list(_choices(match.group(1), given))
            if choices:
                waiting += [name[: match.start()] + choice + name[match.end() :] for choice in choices]
                break
        else:
            done.append(name)
        if len(done) + len(waiting) > MOST_SHARDS:
            raise PlanError(f"{given} has more than {MOST_SHARDS:,} shards; make them larger")
    return done


def _choices(text: bytes, given: str) -> Iterator[bytes]:
    """Yield what the text between braces stands for; nothing if it stands for itself."""
    if (match := RANGE.fullmatch(text)) is not None:
        first, last = (int(number) for number in match.groups())
        if abs(last - first) > MOST_SHARDS:
            raise PlanError(f"{given} has more than {MOST_SHARDS:,} shards; make them larger")
        padded = any(re.match(rb"-?0\d", number) for number in match.groups())
        width = max(map(len, match.groups())) if padded else 0
        step = 1 if last >= first else -1
        for number in range(first, last + step, step):
            yield b"%0*d" % (width, number)
    elif b"," in text:
        yield from text.split(b",")
