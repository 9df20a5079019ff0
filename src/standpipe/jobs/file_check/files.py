"""The function that looks through files; what it needs is loaded when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from standpipe.contracts import Source
from standpipe.jobs.file_check.findings import FileCheckReport
from standpipe.spec import DecodeLimits, DecodeMode, Decoding, Reads

Progress: TypeAlias = Callable[[str, int, int | None], None]


def check_files(
    source: Source,
    *,
    limits: DecodeLimits | None = None,
    allow_truncated: bool = False,
    duplicates: bool = True,
    num_workers: int | Literal["auto"] = "auto",
    large_image_memory: int | str | None = None,
    reads: Reads | None = None,
    fresh: bool = False,
    on_progress: Progress | None = None,
) -> FileCheckReport:
    """Read and decode every file of a source completely, and say which ones a loader would refuse, and why.

    What is found out is kept in the user's cache folder (``$XDG_CACHE_HOME/standpipe/checks``), some 50 bytes a file.
    So an interrupted check goes on, also a killed one, and another one later reads only files whose size or
    modification time is another than before, and those that couldn't be read. Memory doesn't grow with the number of
    files.

    source              ``ImageFolder``, ``FileList``, or ``Concat`` of them. Class folders may be empty
    limits              as of ``Pipeline.decode``; so is ``allow_truncated``
    duplicates          whether to look for files with the same bytes
    num_workers         threads; ``"auto"``: one per CPU that this process may use. More where storage is slow
    large_image_memory  bytes (or text) for files that need a whole frame at once, over all threads; default: 256 MiB. A
                        file that needs more is bad, as it is to a loader with as much
    reads               what is done about reads that fail, as of ``Pipeline.plan``
    fresh               whether to forget what is known, and look at all files
    on_progress         called with what is counted, how many are done, and of how many. What it was told of stays known
                        however the process ends

    Raises ``PlanError`` for a source that can't be opened or has no image files, ``StandpipeError`` when another
    process looks through the same files, or the disk is full.
    """
    from standpipe.jobs.file_check.run import run  # SQLite costs a tenth of what importing standpipe does

    return run(
        source,
        decoding=Decoding(DecodeMode.EXACT, limits or DecodeLimits(), allow_truncated),
        duplicates=duplicates,
        workers=num_workers,
        large_image_memory=large_image_memory,
        reads=reads or Reads(),
        fresh=fresh,
        on_progress=on_progress,
    )
