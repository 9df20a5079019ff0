"""The public function ``check_files``. It imports the modules that do the work only when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from standpipe.contracts import Source
from standpipe.jobs.file_check.findings import FileCheckReport
from standpipe.spec import DecodeLimits, Decoding, ReadOptions
from standpipe.units import parse_bytes

Progress: TypeAlias = Callable[[str, int, int | None], None]


def check_files(
    source: Source,
    *,
    limits: DecodeLimits | None = None,
    allow_truncated: bool = False,
    duplicates: bool = True,
    num_workers: int | Literal["auto"] = "auto",
    large_image_memory: int | str | None = None,
    reads: ReadOptions | None = None,
    fresh: bool = False,
    on_progress: Progress | None = None,
) -> FileCheckReport:
    """Read and decode every file of a source completely, and report those that a loader would refuse.

    If records have several images, all of them are checked, and findings name the field. Masks must be class numbers.
    Images must have the size that annotations say. ``skipped_files()`` of the report names the faults of annotations.

    Results are kept in the user's cache folder (``$XDG_CACHE_HOME/standpipe/checks``), about 50 bytes per
    file. So a check that was interrupted or killed continues, and a later check reads only files whose size
    or modification time has changed, and those that couldn't be read. Memory doesn't grow with the number of
    files.

    Parameters
    ----------
    source : ImageFolder, FileList, TarShards, TFRecords, MDS, Arrow, HuggingFace, Coco, YoloLabels, PascalVoc or Concat
        The source to check; a ``Concat`` must consist of the others. Class folders may be empty.
    limits : DecodeLimits, optional
        Limits of decoding, as for ``Pipeline.decode``.
    allow_truncated : bool, default False
        True if files that end too soon are allowed, as for ``Pipeline.decode``.
    duplicates : bool, default True
        True to look for files with the same bytes.
    num_workers : int or "auto", default "auto"
        Number of threads. ``"auto"``: one per CPU that this process may use. Use more where storage is slow.
    large_image_memory : int or str, optional
        Memory in bytes, or text such as ``"1GiB"``, for files that need a whole frame at once, over all
        threads. Default: 256 MiB. A file that needs more is bad, as for a loader with the same setting.
    reads : ReadOptions, optional
        Retries and time limits of reads, as for ``Pipeline.plan``.
    fresh : bool, default False
        True to discard earlier results, and check all files.
    on_progress : callable, optional
        Called with ``"files"``, the number of files checked so far, and their total number. The results of
        these files are stored before the call.

    Returns
    -------
    standpipe.reports.FileCheckReport
        Counts by kind, and the findings of single files and labels.

    Raises
    ------
    PlanError
        If the source can't be opened or has no image files, or an argument is invalid.
    StandpipeError
        If another process is checking the same files, or the disk is full.

    Examples
    --------
    >>> report = sp.check_files(sp.ImageFolder("photos"), num_workers=1)
    >>> report.ok, report.records, dict(report.counts)
    (True, 24, {})
    """
    # SQLite costs a tenth of what importing standpipe does.
    from standpipe.jobs.file_check.checking import SIDE_BYTES, FileCheckSpec
    from standpipe.jobs.file_check.run import run

    decoding = Decoding(limits=limits or DecodeLimits(), allow_truncated=allow_truncated)
    given = large_image_memory
    side_bytes = SIDE_BYTES if given is None else parse_bytes("large_image_memory", given)
    spec = FileCheckSpec(decoding, reads or ReadOptions(), side_bytes, duplicates)
    return run(source, spec, num_workers, fresh=fresh, on_progress=on_progress)
