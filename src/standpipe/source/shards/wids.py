"""Read the JSON in which wids, WebDataset's library for random access, lists shards and their numbers of samples."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from standpipe.errors import PlanError
from standpipe.source.shards.names import read_small, shard_path
from standpipe.system.paths import path_text

MOST_BYTES = 64 << 20
SUFFIX = b".json"


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard as the list has it.

    path     absolute path
    samples  number of samples
    size     bytes of the file; None if the list doesn't say
    end      bytes that the file has at least
    """

    path: bytes
    samples: int
    size: int | None
    end: int = 0


def listed_shards(path: bytes) -> tuple[ListedShard, ...]:
    """Return the shards that a list names, sorted by path. Relative names start from the list's folder.

    Raises ``PlanError`` if the file isn't such a list, or names addresses instead of files.
    """
    import json  # imported here: with hashlib it takes a tenth of importing standpipe

    text = read_small(path, MOST_BYTES, "a list of shards")
    try:
        raw = json.loads(text or b"")
        found = [_listed(path, entry) for entry in raw["shardlist"]]
    except PlanError:  # a ValueError too
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PlanError(
            f"{path_text(path)} isn't a list of shards of wids, with 'shardlist', and 'url' and 'nsamples' of each: "
            f"{error!r}"
        ) from error
    if not found:
        raise PlanError(f"{path_text(path)} lists no shards")
    if len({shard.path for shard in found}) < len(found):
        raise PlanError(f"{path_text(path)} lists a shard twice; list each once")
    return tuple(sorted(found, key=lambda shard: shard.path))


def _listed(path: bytes, entry: dict[str, Any]) -> ListedShard:
    url, samples, size = entry["url"], entry["nsamples"], entry.get("filesize")
    if type(url) is not str or type(samples) is not int or (size is not None and type(size) is not int):
        raise TypeError(f"a shard {entry!r}")
    if ":" in url.partition("/")[0]:
        raise PlanError(
            f"{path_text(path)} lists the address {url!r}; copy the shards to a disk, and name them: "
            "TarShards('train-{000..146}.tar')"
        )
    name = os.path.join(os.path.dirname(path), os.fsencode(url))  # noqa: PTH118, PTH120 (pathlib has no bytes)
    return ListedShard(shard_path(name), samples, size)
