"""Read and decode files completely, in threads, and report the result for each file."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from standpipe import _native
from standpipe.contracts import Paths
from standpipe.engine.watchdog.guarded import guarded
from standpipe.formats import FORMATS, HEAD_BYTES, format_of
from standpipe.read import read_policy
from standpipe.source import is_settled
from standpipe.spec import Decoding, Int64Array, ReadOptions, UInt8Array
from standpipe.system.logs import logger
from standpipe.system.paths import path_text
from standpipe.transform import Fault, fault_of, only_libjpeg
from standpipe.transform.decoders.channels import Undecodable
from standpipe.transform.decoders.foreign import decode_input, encoded_size
from standpipe.transform.kinds import IMAGE

DIGEST_BYTES = 16
BUFFER_BYTES = 16 << 20  # limit of encoded files in memory
SIDE_BYTES = 256 << 20  # usual limit of memory for images that need a whole frame
QUEUED_PER_THREAD = 4  # pieces of work in the queue for each thread
IDLE_S = 0.5  # time without results after which ``run`` yields an empty list
FORMAT_OF_SUFFIX = {suffix.encode(): each.name for each in FORMATS for suffix in each.suffixes}
SLOW_S = 30.0  # time without results after which a warning names the files that threads read or decode
TURNED = "; decode(orientation='apply') turns images as their EXIF says, 'ignore' doesn't"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file to check.

    number   the record's number in its source, times the number of fields with images, plus the field's place
    label    the record's label; None: the source has no labels
    path     path of the file
    offset   first byte of the image in the file
    length   length of the image in bytes, as in ``contracts.Files``
    crc32c   CRC-32C of the image's bytes; -1: unknown
    kind     number of the image's kind
    size_px  height and width that annotations say it has; empty: they say none
    """

    number: int
    label: int | None
    path: bytes
    offset: int
    length: int
    crc32c: int = -1
    kind: int = IMAGE.number
    size_px: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking one file.

    file       the file
    size       size of the file in bytes
    mtime_ns   modification time of the file when it was read; 0 if the file wasn't read, or was so new that a
               later change might keep this time
    fault      kind of fault because of which a loader can't deliver the file; None: a loader can
    text       the fault in full, for people; empty without a fault
    flaw       ``"truncated"`` if the file was decoded although it ends too soon, since the settings allow this;
               ``"damaged"`` if it was decoded despite damage, as Pillow does too; ``"smoothed"`` for a progressive
               JPEG that lacks scans, for which this libjpeg-turbo may differ from Pillow; else None
    misnamed   the format, such as ``"PNG"``, of a file whose name has another format's suffix; else None
    digest     digest of the file's bytes; None for bad files, or if ``FileCheckSpec.digests`` is False
    """

    file: RecordFile
    size: int = 0
    mtime_ns: int = 0
    fault: Fault | None = None
    text: str = ""
    flaw: str | None = None
    misnamed: str | None = None
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class FileCheckSpec:
    """The settings of a file check.

    decoding    mode and limits of decoding
    reads       settings for reads that fail
    side_bytes  bytes of memory for images that need a whole frame, over all threads
    digests     True: compute a digest of each file's bytes, to find copies
    """

    decoding: Decoding
    reads: ReadOptions
    side_bytes: int
    digests: bool


Piece = Sequence[RecordFile]


class FileCheckers:
    """A pool of ``workers`` threads that read and decode files. The caller closes it at the end."""

    def __init__(self, spec: FileCheckSpec, workers: int) -> None:
        limits = spec.decoding.limits
        self._spec = spec
        self._native = _native.FileChecks(
            reads=read_policy(spec.reads),
            max_pixels=limits.max_pixels,
            max_scans=limits.max_scans,
            allow_truncated=spec.decoding.allow_truncated,
            only_libjpeg=only_libjpeg(),
            side_bytes=spec.side_bytes,
            buffer_bytes=BUFFER_BYTES,
        )
        self._todo: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[list[Verdict] | BaseException] = queue.SimpleQueue()
        self._at_work: dict[int, tuple[bytes, float]] = {}  # thread: file, since when
        self._threads = [
            guarded(f"standpipe-check-{number}", self._work, self._done.put) for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, pieces: Iterable[Piece]) -> Iterator[list[Verdict]]:
        """Check the files of all pieces; yield the results of one piece at a time, in any order.

        It yields an empty list after each half second without results, so that the caller can act. It raises the
        error of a thread that failed.
        """
        left = iter(pieces)
        waiting = 0
        for piece in islice(left, QUEUED_PER_THREAD * len(self._threads)):
            self._todo.put(piece)
            waiting += 1
        told = time.monotonic()
        while waiting:
            try:
                done = self._done.get(timeout=IDLE_S)
            except queue.Empty:
                told = self._warn_of_slow(told)
                yield []
                continue
            if isinstance(done, BaseException):
                raise done
            waiting -= 1
            for piece in islice(left, 1):
                self._todo.put(piece)
                waiting += 1
            yield done
            told = time.monotonic()

    def close(self, patience_s: float) -> None:
        """End the threads, and wait at most ``patience_s`` seconds for them.

        A thread inside a read of the operating system ends when that read returns.
        """
        ends = time.monotonic() + patience_s
        self._native.close()
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join(max(ends - time.monotonic(), 0))

    def _work(self) -> None:
        me = threading.get_ident()
        while (piece := self._todo.get()) is not None:
            verdicts: list[Verdict] = []
            for file in piece:
                self._at_work[me] = (file.path, time.monotonic())
                begin_ns = time.time_ns()
                found = self._native.check(file.path, file.offset, file.length, file.crc32c)
                if found.kind == "cancelled":
                    return
                verdicts.append(self._verdict(file, found, begin_ns))
            self._at_work.pop(me)
            self._done.put(verdicts)

    def _verdict(self, file: RecordFile, found: _native.CheckedFile, begin_ns: int) -> Verdict:
        mtime_ns = found.mtime_ns if is_settled(found.mtime_ns, begin_ns) else 0
        flaws = {"truncated": found.truncated, "damaged": found.damaged, "smoothed": found.smoothed}
        fault = found.text if found.kind in ("read", "decode") else None
        size_px: tuple[int, ...] = ()
        if found.kind == "foreign" or (file.kind != IMAGE.number and fault is None):
            try:
                frame = decode_input(
                    self._spec.decoding,
                    found.data,
                    file.kind,
                    lambda _, __, size: found.reserve(size) if found.kind == "foreign" else "",
                )
                flaws["truncated"] = frame.truncated
                size_px = frame.pixels.shape[:2]
            except Undecodable as error:
                fault = str(error)
        elif file.size_px and fault is None:
            limits = self._spec.decoding.limits
            size_px = _native.jpeg_size(found.data, limits.max_pixels, limits.max_scans, False)[:2]
        if (
            file.size_px
            and fault is None
            and size_px != file.size_px
            and file.size_px != self._upright(found)
        ):
            own, said = (f"{width} × {height}" for height, width in (size_px, file.size_px))
            fault = f"it has {own} pixels, but its annotations say {said}"  # as other_size of native code
            fault += TURNED if size_px == file.size_px[::-1] else ""
        if fault is not None:
            kind = fault_of("read" if found.kind == "read" else "decode", fault)
            return Verdict(file, found.size, mtime_ns, kind, fault)
        return Verdict(
            file,
            found.size,
            mtime_ns,
            flaw=next((name for name, is_found in flaws.items() if is_found), None),
            misnamed=_misnamed(file.path, found.data),
            digest=_digest(found.data) if self._spec.digests else None,
        )

    def _upright(self, found: _native.CheckedFile) -> tuple[int, int]:
        """Return height and width of an image as its EXIF turns it."""
        return encoded_size(found.data, replace(self._spec.decoding, upright=True))

    def _warn_of_slow(self, told: float) -> float:
        """Log a warning that names the files in work, unless 30 s haven't passed since ``told``.

        told  time of the last result or warning; returns the new value
        """
        now = time.monotonic()
        if now - told < SLOW_S:
            return told
        slow = [
            f"{path_text(path)} for {now - begin:.0f} s"
            for path, begin in sorted(self._at_work.copy().values())
        ]
        logger().warning("still reading or decoding %s", ", ".join(slow))
        return now


def file_marks(paths: Paths) -> tuple[Int64Array, Int64Array]:
    """Return the sizes and modification times in ns of files, (n,) each; −1 where the system gives none."""
    return _native.file_marks(paths.blob, paths.ends)


def _misnamed(path: bytes, data: UInt8Array) -> str | None:
    """Return the format of a file's bytes if its suffix belongs to another format; else None, or if unknown."""
    name = path.rpartition(b"/")[2]
    said = FORMAT_OF_SUFFIX.get(b"." + name.rpartition(b".")[2].lower()) if b"." in name else None
    found = format_of(data[:HEAD_BYTES].tobytes())
    return None if said is None or found is None or said == found.name else found.name


def _digest(data: UInt8Array) -> bytes:
    from hashlib import blake2b  # loads OpenSSL, which importing standpipe needn't

    return blake2b(data.data, digest_size=DIGEST_BYTES).digest()
