from collections.abc import Iterator, Sequence
from typing import Annotated, Any, overload

import numpy
from numpy.typing import NDArray

def simd_paths() -> list[str]:
    """Instruction sets this machine runs, narrowest first."""

def jpeg_library_version() -> str:
    """Version of the libjpeg-turbo in use."""

def has_entropy_decoder() -> bool:
    """
    Whether our entropy decoder was built in: it needs headers that only the static library has.
    """

def shuffled_indices(
    seed: int, epoch: int, n: int, start: int, stop: int
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """Records at positions [start, stop) of an epoch's shuffled order."""

def shuffled_at(
    seed: int,
    epoch: int,
    n: int,
    positions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """Records at any positions of an epoch's shuffled order."""

def stratified_points(
    seed: int, epoch: int, n: int, total: int, start: int, stop: int
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]
]:
    """
    Each position's stratum of a line of ``total`` units in n strata, and a random point in it.
    """

def marked_at(
    words: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ranks: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """Numbers of the bits that are set, by their place among them."""

def mix(key: int, word: int) -> int:
    """A new 64-bit key of a key and a word."""

LONGEST_LINE_BYTES: int = 65535

LENGTH_SHIFT: int = 48

class Texts:
    """The texts of a packed list."""

    def __init__(
        self,
        data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        ends: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        decodes: bool,
    ) -> None:
        """
        ``ends``: int64 each, as bytes. ``decodes``: whether items are strings, of UTF-8; else they are bytes.
        """

    def item(self, number: int) -> Any:
        """One of them. Raises ``IndexError`` where there is none."""

class ListLines:
    """Splits the lines of a list into paths and labels, chunk by chunk."""

    def __init__(self, labels: bool, image_suffixes: Sequence[str]) -> None:
        """
        ``image_suffixes``: in lower case. A label that ends with one is a fault, as it looks like a file's name.
        """

    def take(
        self,
        text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offset: int,
        last: bool,
    ) -> int:
        """Take whole lines; how many bytes they are."""

    @property
    def places(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), writable=False)]:
        """(n,) where the chunk's paths are: offset, and length from bit 48 on."""

    @property
    def labels(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n,) the chunk's labels: numbers, or places in ``names``."""

    @property
    def paths(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """The chunk's paths, one after another."""

    @property
    def line_that_leads_out(self) -> int:
        """The first line whose path is absolute or has a '..'; 0: none so far."""

    @property
    def has_labels(self) -> bool: ...
    @property
    def has_names(self) -> bool: ...
    @property
    def names(self) -> list[bytes]:
        """Class names in the order in which they came."""

    @property
    def fault(self) -> tuple[str, int, str, str, int, bytes] | None:
        """
        Why a line can't be read: (what, line, its label's kind, the first record's kind, the first record's line, label).
        """

def sealed(
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    key: int,
    first: int,
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """
    Blocks that hold ``data``, each with its checksum. ``first``: the number of the first one.
    """

BLOCK_DATA_BYTES: int = 508

def sealed_size(size: int) -> int:
    """How many bytes of a file hold ``size`` bytes of data in sealed blocks."""

def settle(file: int) -> None:
    """
    Wait until whatever changes an open file from now on gives it another time: up to some milliseconds after its last change.
    """

def packed_part(
    section: tuple[int, int, int, int | None], begin: int, end: int
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """The bytes [begin, end) of a section's data."""

def packed_rows(
    section: tuple[int, int, int, int | None],
    row_bytes: int,
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    stride: int = 0,
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """
    Rows of a column, packed. ``section``: (file, first byte, bytes of data, key of its seals, or None). ``stride``: bytes from one row's beginning to the next; 0: ``row_bytes``.
    """

def packed_paths(
    places: tuple[int, int, int, int | None],
    text: tuple[int, int, int, int | None],
    around: tuple[bytes, bytes, bytes],
    base: bytes,
    stays: bool,
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> tuple[
    Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]
]:
    """
    Paths of records, as (blob, ends). ``places``, ``text``: sections, as ``packed_rows`` takes them; ``around``: bytes before a path, after it, and never in it; ``stays``: no path may lead out of ``base``.
    """

TAR_BLOCK_BYTES: int = 512

def tar_members(
    file: int, size: int, at: int, most: int
) -> tuple[list[tuple[int, int, int, bool, bytes]], tuple[str, int, bytes, int, int] | None]:
    """
    Up to ``most`` members of a tar archive of ``size`` bytes from byte ``at`` on, as (first header, data, bytes of data, whether it is a file, name), and the fault at which they end, as that of ``TarRecords``.
    """

class TarRecords:
    """Groups the members of tar shards into records."""

    def __init__(
        self, fields: Sequence[tuple[Sequence[str], bool]], unexpected: Sequence[str], pickles: Sequence[str]
    ) -> None:
        """
        ``fields``: the extensions of each field, and whether it is a number as text; the first one is the image. ``unexpected``: extensions that are an error. ``pickles``: those of pickles, which are one too, as are arrays of objects if there are any.
        """

    def begin(self, file: int, size: int) -> None:
        """Begin with another shard, of ``size`` bytes."""

    def take(self, most: int) -> bool:
        """
        Take up to ``most`` records in the place of those before; False at the shard's end, and for a fault. Raises what a signal's handler does.
        """

    @property
    def headers(self) -> Annotated[NDArray[numpy.uint16], dict(shape=(None,), writable=False)]:
        """(n,) from an image's first header to its data, in blocks of 512 bytes."""

    def offsets(self, field: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n,) the first byte of a field's data."""

    def lengths(self, field: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n,) the bytes of a field's data."""

    def numbers(self, field: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n,) the numbers of a field."""

    @property
    def names(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """The names of the images, one after another."""

    @property
    def name_lengths(self) -> Annotated[NDArray[numpy.uint16], dict(shape=(None,), writable=False)]:
        """(n,) the bytes of each name."""

    @property
    def skipped(self) -> bytes:
        """A name of each group without an image, each ended by a NUL byte."""

    @property
    def num_skipped(self) -> int:
        """How many groups have no image."""

    def duplicates(self) -> list[tuple[int, int]]:
        """
        Of the shard that was taken: records, and earlier ones with the same key.
        """

    @property
    def unmarked(self) -> bool:
        """Whether the shard that was taken has no zeros that mark its end."""

    @property
    def left_out(self) -> dict[bytes, int]:
        """How many members of all shards so far no field takes, by extension."""

    @property
    def fault(self) -> tuple[str, int, bytes, int, int] | None:
        """
        Why records end: (what, byte of the header, member's name, its bytes or the field's number, the system's number).
        """

MOST_PX: int = 65535

MOST_SHUFFLED: int = 64

MOST_CHAINS: int = 16

MOST_KERNEL_PX: int = 255

class GeometryStage:
    """Adjacent geometric transforms that one pass does."""

    def __init__(self) -> None: ...
    def crop(self, op: int, scale: tuple[float, float], ratio: tuple[float, float]) -> None: ...
    def resize(self, height: int, width: int, filter: int) -> None: ...
    def resize_shorter(self, size: int, max_size: int, filter: int) -> None: ...
    def random_resize(self, op: int, first: int, end: int, filter: int) -> None:
        """
        Resizes the shorter side to a random length from ``first`` to ``end`` - 1.
        """

    def random_filter(self, op: int) -> None:
        """
        Makes the resize's filter random: bilinear or bicubic. ``op`` is above 0.
        """

    def window(self, height: int, width: int, fill: int = 0) -> None: ...
    def pad(self, sides: tuple[int, int, int, int], mode: int, fill: tuple[int, int, int]) -> None:
        """``sides``: left, top, right and bottom, in pixels."""

    def random_window(
        self,
        op: int,
        height: int,
        width: int,
        sides: tuple[int, int, int, int],
        pad_if_needed: bool,
        mode: int,
        fill: tuple[int, int, int],
    ) -> None:
        """``sides``: padding left, top, right and bottom, in pixels."""

    def mirror(self, op: int, p: float) -> None: ...

class PixelStage:
    """Changes the pixels of a whole picture where they are."""

    def __init__(self, kind: str, op: int, p: float, parameters: Sequence[float]) -> None: ...
    @staticmethod
    def choice(
        op: int, p: float, weights: Sequence[float], lists: Sequence[Sequence[PixelStage]]
    ) -> PixelStage:
        """
        Applies the first list whose cumulative weight in ``weights`` is above a random number.
        """

    @staticmethod
    def shuffle(op: int, p: float, lists: Sequence[Sequence[PixelStage]]) -> PixelStage:
        """Applies all lists in random order."""

    @staticmethod
    def mixture(
        op: int, p: float, alpha: float, chains: int, depth: int, list: Sequence[PixelStage]
    ) -> PixelStage:
        """
        Mixes the picture with ``chains`` copies of itself that the list has changed ``depth`` times; 0: 1 to 3 times at random.
        """

class RowFormat:
    """Size, element type and layout of a slot's image rows."""

    @staticmethod
    def uint8(height: int, width: int, planar: bool) -> RowFormat: ...
    @staticmethod
    def float32(
        height: int,
        width: int,
        planar: bool,
        table: Annotated[
            NDArray[numpy.float32], dict(shape=(3, 256), order="C", device="cpu", writable=False)
        ],
    ) -> RowFormat: ...
    @staticmethod
    def float16(
        height: int,
        width: int,
        planar: bool,
        table: Annotated[
            NDArray[numpy.uint16], dict(shape=(3, 256), order="C", device="cpu", writable=False)
        ],
    ) -> RowFormat:
        """``table``: float16 bit patterns."""

    @staticmethod
    def mask(height: int, width: int) -> RowFormat:
        """Of (height, width) bytes, which are class numbers."""

class Erasing:
    """Rectangles of a finished row that get another value."""

    def __init__(
        self,
        op: int,
        p: float,
        scale: tuple[float, float],
        ratio: tuple[float, float],
        count: tuple[int, int],
        mode: str,
        value: tuple[float, float, float],
    ) -> None: ...

class Program:
    """A fused kernel for image rows."""

    def __init__(
        self,
        stages: Sequence[GeometryStage | PixelStage],
        format: RowFormat,
        fast: bool,
        max_pixels: int,
        max_scans: int,
        allow_truncated: bool = False,
        only_libjpeg: bool = False,
        simd: str | None = None,
        erasing: Erasing | None = None,
        upright: bool = False,
    ) -> None: ...
    @staticmethod
    def together(programs: Sequence[Program], salts: Sequence[int]) -> Program:
        """
        One program with the head of each of several, which decode in the same way. ``salts``: of the random numbers of each.
        """

    @property
    def simd(self) -> str: ...

class Bell:
    """Wakes whoever watches slots and jobs."""

    def __init__(self) -> None: ...
    def ring(self) -> None: ...
    def wait(self, seen: int) -> int:
        """Wait for a ring after the call that returned ``seen``."""

    def wait_for(self, seen: int, patience_s: float) -> int:
        """Likewise; ``seen`` when nothing rang for so long."""

    def wait_among(
        self, seen: int, descriptors: Sequence[int], patience_s: float | None = None
    ) -> tuple[int, list[int]]:
        """
        Likewise, or until some of ``descriptors`` can be read: these too. One thread's.
        """

class SlotRing:
    """Equal slots in one sparse memfd arena, and who owns each."""

    def __init__(self, slot_bytes: int, base: int, most: int, bell: Bell, keeps: bool = False) -> None:
        """With ``keeps``, slots keep their memory until the ring is retired."""

    def take(self, grow: bool) -> int:
        """A slot to fill, or -1."""

    def mark_ready(self, slot: int) -> None: ...
    def quarantine(self, slot: int) -> None:
        """
        Give up a slot that a stuck thread may write into yet; ``release`` it when that is over.
        """

    def release(self, slot: int) -> None: ...
    def release_ready(self) -> None:
        """Release every ready slot."""

    def reclaim(self) -> None:
        """Take back slots that forked children don't hold any more."""

    def trim(self) -> None:
        """Give back the memory of slots beyond the base."""

    def retire(self) -> None:
        """
        Give back the memory of all slots that aren't lent, and of these as they come back.
        """

    @property
    def descriptor(self) -> int:
        """The memfd of the slots; it stays the ring's."""

    @property
    def used(self) -> int:
        """Slots that take memory."""

    @property
    def peak(self) -> int:
        """Most that took memory at once."""

    @property
    def stride_bytes(self) -> int:
        """From the start of one slot to that of the next."""

    def view(self, slot: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """The slot's bytes, to fill."""

    def lend(self, slot: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """The slot's bytes; dropping the last view gives the slot back."""

    def count(self, state: str) -> int: ...
    def is_taken(self, slot: int) -> bool:
        """Whether a slot is being filled, ready, lent or given up."""

class ReadPolicy:
    """How often a read is tried, and when."""

    def __init__(self, retries: int, backoff_s: float, hedge_after_s: float) -> None:
        """``hedge_after_s``: 0 for never."""

class ReadTimes:
    """How long reads took."""

    @property
    def took_s(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), writable=False)]:
        """(n,) of each that succeeded."""

    @property
    def bytes(self) -> int: ...
    @property
    def blocked(self) -> int:
        """Of these, how many storage made wait."""

    @property
    def failed(self) -> int: ...
    @property
    def error(self) -> str:
        """Of one that failed."""

    @property
    def hung(self) -> int:
        """How many had not ended when the others had."""

    @property
    def seconds(self) -> float:
        """Of all of it."""

def most_kept_open() -> int:
    """
    How many files a reader keeps open at most, of which samples are parts.
    """

def time_reads(
    blob: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    offset: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    length: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    max_bytes: int,
    again: bool,
    threads: int,
    seconds: float,
    patience_s: float,
    policy: ReadPolicy,
    buffer_bytes: int,
) -> ReadTimes:
    """
    Read files, ``threads`` at once, until all are read, or ``again`` and again, until ``seconds`` are over. Raises what a signal's handler does.
    """

def in_share(
    records: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    share: float,
) -> list[bool]:
    """Which records are among a share of all of them."""

class GpuBatch:
    """Rows of one slot whose JPEGs are decoded together."""

    def __len__(self) -> int: ...
    @property
    def encoded(self) -> list[NDArray[numpy.uint8]]:
        """
        Each row's file, (n,) uint8, no copy: there until the batch is handed back or failed.
        """

    @property
    def frames(self) -> list[NDArray[numpy.uint8]]:
        """Where each row's pixels go, (H, W, 3) uint8, for as long."""

    def hand_back(self, decoded: Sequence[bool]) -> None:
        """
        Make rows of the frames, and from the file where a row isn't ``decoded``.
        """

    def fail(self, text: str) -> None: ...

def latency_bucket(nanoseconds: int) -> int:
    """Where standpipe.stats.counters.Latency counts a duration."""

class Durations:
    """Counts durations."""

    def __init__(self) -> None: ...
    def add(self, nanoseconds: int) -> None: ...
    @property
    def latency(self) -> tuple[int, ...]:
        """As standpipe.stats.counters.Latency counts."""

class PlaceCounter:
    """Counts what one thread does at a place, batch by batch."""

    def __init__(self) -> None: ...
    def begin(self) -> None:
        """It begins with a batch."""

    def end(self, rows: int) -> None:
        """It is done with a batch of so many rows."""

    @property
    def rows(self) -> int: ...
    @property
    def busy_s(self) -> float: ...
    @property
    def latency(self) -> tuple[int, ...]:
        """As standpipe.stats.counters.Latency counts."""

class StepCounter:
    """Counts what the training loop does."""

    def __init__(self) -> None: ...
    def asks(self) -> None:
        """It asks for a batch, and so is done with the one before."""

    def gets(self, rows: int, ready: int) -> None:
        """It has a batch of so many rows; ``ready`` were there when it asked."""

    def leaves(self) -> None:
        """
        It asks for no more of this epoch: what it does until it asks again is no step.
        """

    @property
    def steps(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def ready(self) -> int: ...
    @property
    def step_s(self) -> float: ...
    @property
    def wait_s(self) -> float: ...
    @property
    def step_latency(self) -> tuple[int, ...]:
        """As standpipe.stats.counters.Latency counts."""

    @property
    def wait_latency(self) -> tuple[int, ...]:
        """Likewise."""

class PoolStats:
    """Counters of a loader's native threads since they started."""

    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def decode_s(self) -> float: ...
    @property
    def decode_wait_s(self) -> float: ...
    @property
    def decode_latency(self) -> tuple[int, ...]:
        """
        How many rows took how long, as standpipe.stats.counters.Latency counts.
        """

    @property
    def foreign(self) -> int: ...
    @property
    def gpu_rows(self) -> int: ...
    @property
    def gpu_refused(self) -> int: ...
    @property
    def damaged(self) -> int: ...
    @property
    def truncated(self) -> int: ...
    @property
    def redecoded(self) -> int: ...
    @property
    def read_s(self) -> float: ...
    @property
    def read_wait_s(self) -> float: ...
    @property
    def read_latency(self) -> tuple[int, ...]:
        """
        How many rows took how long, as standpipe.stats.counters.Latency counts.
        """

    @property
    def threads(self) -> list[tuple[str, int, int, float]]:
        """Kind, number, rows and seconds of work of every thread."""

    @property
    def decoders(self) -> int: ...
    @property
    def readers(self) -> int: ...
    @property
    def retries(self) -> int: ...
    @property
    def hedged(self) -> int: ...
    @property
    def slowest_read_s(self) -> float: ...
    @property
    def opens(self) -> int: ...
    @property
    def ranges(self) -> int: ...
    @property
    def side_bytes(self) -> int: ...
    @property
    def side_peak_bytes(self) -> int: ...
    @property
    def frame_bytes(self) -> int: ...
    @property
    def read_ahead_bytes(self) -> int: ...
    @property
    def read_ahead_peak_bytes(self) -> int: ...
    @property
    def reading_ahead(self) -> bool: ...

class Job:
    """The rows of one slot."""

    def __init__(
        self,
        ring: SlotRing,
        slot: int,
        positions: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        program: Program | None,
        outputs: Sequence[tuple[int, int]],
        seed: int,
        epoch: int,
        slot_rows: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | None = None,
        attempts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | None = None,
    ) -> None:
        """
        ``slot_rows``: where the rows are in the slot, for samples that take others' place as their ``attempts``.
        """

    def files(
        self,
        blob: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offset: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        length: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        file_bytes: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | None = None,
        mtime_ns: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | None = None,
    ) -> None:
        """
        ``file_bytes``, ``mtime_ns``: of each whole file when it was indexed, -1 for unknown.
        """

    def pixels(
        self,
        pictures: Annotated[
            NDArray[numpy.uint8], dict(shape=(None, None, None, 3), order="C", device="cpu", writable=False)
        ],
        rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        partial: bool = False,
    ) -> None:
        """
        Make rows from pixels of an array; with ``partial`` a row -1 is one of another array's.
        """

    def masks(
        self,
        masks: Annotated[
            NDArray[numpy.uint8], dict(shape=(None, None, None), order="C", device="cpu", writable=False)
        ],
        rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        partial: bool = False,
    ) -> None:
        """The same for masks."""

    def note_sizes(self) -> None:
        """Have ``sizes`` filled as rows are made."""

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """
        Height and width of each row's picture before all stages; (0, 0) where it is bad.
        """

    def copy(
        self,
        ring: SlotRing,
        slot: int,
        array: Annotated[NDArray, dict(order="C", device="cpu", writable=False)],
        rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        slot_offset: int,
        row_bytes: int,
        partial: bool = False,
    ) -> None:
        """
        Copy rows of an array; with ``partial`` a row -1 is one of another array's.
        """

    def for_gpu(
        self,
        records: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        share: float,
        most_pixels: int,
    ) -> None:
        """
        Have a share of the records decoded by the GPU, where any decoder takes the file.
        """

    def cache(
        self,
        store: CacheStore | None,
        records: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        before: Program | None,
        checks: bool,
    ) -> None:
        """
        Keep what is made of the rows, and take what is kept: the pixels that ``before`` makes, from which the job's program goes on, or the bytes of files where it is None. ``checks``: whether a row is compared with its file before it is used. Without a ``store`` nothing is kept or found.
        """

    @property
    def done(self) -> bool: ...
    def has(self, row: AtWork) -> bool:
        """Whether a row at work is one of its rows."""

    def failures(self) -> list[tuple[int, str, str]]:
        """(row, kind, text) of rows that failed."""

class ForeignRow:
    """A row whose bytes Pillow decodes."""

    @property
    def data(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """The row's bytes, no copy: there until it is finished or failed."""

    def reserve(self, height: int, width: int, frame_bytes: int) -> str:
        """
        Wait for the memory that decoding and transforming takes; an error text when it can't be had.
        """

    def finish(
        self,
        rgb: Annotated[
            NDArray[numpy.uint8], dict(shape=(None, None, 3), order="C", device="cpu", writable=False)
        ],
        truncated: bool,
    ) -> None: ...
    @property
    def is_mask(self) -> bool:
        """Whether it is a mask, which ``finish_mask`` finishes."""

    def finish_mask(
        self,
        mask: Annotated[
            NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def fail(self, text: str) -> None: ...
    def release(self) -> None:
        """Give back what was reserved, once nothing of it is in use any more."""

class AtWork:
    """A row at work."""

    @property
    def kind(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def system_id(self) -> int:
        """Of its thread, as /proc names it."""

    @property
    def thread(self) -> int:
        """As threading.get_ident() names it."""

    @property
    def row(self) -> int: ...
    @property
    def rows_begun(self) -> int:
        """By its thread so far."""

    @property
    def phase(self) -> str: ...
    @property
    def begin_s(self) -> float:
        """As time.monotonic() counts, later by what it waited for others."""

class Pool:
    """The native threads of a loader."""

    def __init__(
        self,
        workers: int,
        io_threads: int,
        read_ahead_bytes: int,
        side_bytes: int,
        reads: ReadPolicy,
        bell: Bell,
        frame_bytes: int = 0,
    ) -> None: ...
    def submit(self, job: Job, first: bool = False) -> None: ...
    def cancel(self, job: Job) -> None: ...
    def employ(self, workers: int) -> None:
        """
        From now on so many of the decoding threads work at once, at least one; the others wait.
        """

    def take_foreign(self) -> ForeignRow | None:
        """Wait for a row that Pillow decodes; None when the pool is closed."""

    @property
    def foreign_waiting(self) -> int: ...
    def take_for_gpu(self) -> GpuBatch | None:
        """
        Wait for rows whose JPEGs are for the GPU's decoder; None when the pool is closed.
        """

    @property
    def broken(self) -> str | None:
        """Which thread an error ended, and by which; None while there is none."""

    def at_work(self) -> list[AtWork]:
        """What every thread is at that has a row."""

    def give_up(self, row: AtWork) -> bool:
        """
        Give up the row and its job; another thread takes its thread's place. False when it has ended.
        """

    def close(self, patience_ms: int) -> bool:
        """End the threads; False when some are still inside a system call."""

    def stats(self) -> PoolStats: ...

def install_faults(text: str) -> None:
    """
    Say what shall go wrong where. Raises ValueError for a text that can't be read.
    """

def faultpoint(name: str, key: int, attempt: int) -> int:
    """
    Pass a point: 0, the system's number of an error to raise, or -1 for another one.
    """

def fault_hits() -> dict[str, int]:
    """
    Every point, and how often this process has passed it since faults were installed.
    """

def fault_key(name: bytes) -> int:
    """The key of a file, by its path, at points that are passed for files."""

ANY_SCANS: int = 16

MOST_BLOCKS: int = 33554432

FOR_MEMORY: int = 2097152

def sample_key(seed: int, epoch: int, position: int, attempt: int, op: int) -> int:
    """The 64-bit key of one op's draws for one sample."""

def jpeg_size(
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    max_pixels: int,
    max_scans: int,
) -> tuple[int, int, str]:
    """
    (height, width, '') from a header; (0, 0, 'foreign') for what Pillow decodes; else (0, 0, what is wrong).
    """

class ByteCount:
    """Bytes that are mapped, as ``mapped`` counts them."""

    def __init__(self) -> None: ...
    @property
    def now(self) -> int: ...

def mapped(
    file: int, bytes: int, count: ByteCount | None = None
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """
    The first bytes of a file, writable, mapped until the last view of them ends; so long they count.
    """

def give_back_free_memory() -> None:
    """Have the C library give back to the system what this thread has freed."""

def end_with(pipe: int, process: int) -> None:
    """
    Start a thread that ends this process once ``pipe``'s other end is closed or ``process`` has ended.
    """

class Reader:
    """Reads files, for any number of threads."""

    def __init__(self, policy: ReadPolicy, hedged_bytes: int, most_hedged: int) -> None:
        """
        ``hedged_bytes``: of all reads at work that may be hedged; ``most_hedged``: of one of them.
        """

    def close(self, patience_ms: int) -> bool:
        """
        End all waits: reads fail. False when some are still inside a system call.
        """

    @property
    def retries(self) -> int: ...
    @property
    def hedged(self) -> int: ...
    @property
    def opens(self) -> int: ...
    @property
    def ranges(self) -> int: ...
    @property
    def slowest_s(self) -> float: ...

class SharedSide:
    """A side arena for several processes, with an account for each."""

    def __init__(self, accounts: int) -> None:
        """A new one, whose cap is 0."""

    @staticmethod
    def of(file: int) -> SharedSide:
        """The one that lies in a file, which may be closed then."""

    @property
    def descriptor(self) -> int:
        """Of its file, to be handed to other processes."""

    @property
    def cap_bytes(self) -> int: ...
    @cap_bytes.setter
    def cap_bytes(self, arg: int, /) -> None: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    def used_by(self, account: int) -> int:
        """Of the bytes used, one account's."""

    def clear(self, account: int) -> None:
        """The process whose account it was is gone."""

class SideArena:
    """Memory for whole frames, under one cap for all threads."""

    @overload
    def __init__(self, cap_bytes: int) -> None: ...
    @overload
    def __init__(self, shared: SharedSide, account: int) -> None:
        """What one thread takes of an arena that processes share."""

    def acquire(self, bytes: int) -> bool:
        """Wait for so many, at most the cap; False when it was closed meanwhile."""

    def release(self, bytes: int) -> None: ...
    @property
    def cap_bytes(self) -> int: ...
    def close(self) -> None:
        """End all waits."""

    @property
    def used_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...

def in_turn(indices: list[int], first: int, heartbeat: Any, then: int) -> Iterator[int]:
    """
    Give ``indices``, and write on a heartbeat that the row of each begins, from ``first`` on. ``then``: the step after the last row.
    """

class SampleMaker:
    """Makes image rows for one thread. Not to be shared by threads."""

    def __init__(
        self,
        side: SideArena,
        read_bytes: int,
        heartbeat: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    ) -> None:
        """``heartbeat``: words in which waits for memory are written down."""

    def read(
        self, reader: Reader, path: bytes, offset: int, length: int, file_bytes: int = -1, mtime_ns: int = -1
    ) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], str, Stamp]:
        """
        Bytes [offset, offset + length) of a file, or to its end for length < 0; '' or what is wrong; and the file's stamp. ``file_bytes``, ``mtime_ns``: of the file when it was indexed.
        """

    def admit(self, bytes: int) -> bool:
        """
        Wait for the memory that a file of that size takes which is read from elsewhere. False when there will be none.
        """

    def from_encoded(
        self,
        program: Program,
        data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        seed: int,
        epoch: int,
        position: int,
        attempt: int,
        outs: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")]],
    ) -> str:
        """
        Write the row, each head into one of ``outs``; '' or 'foreign' or what is wrong.
        """

    def rows_from_encoded(
        self,
        program: Program,
        data: Sequence[
            Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)]
        ],
        seed: int,
        epoch: int,
        positions: Sequence[int],
        attempts: Sequence[int],
        rows: Sequence[int],
        out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    ) -> list[str]:
        """
        Write ``rows`` of ``out`` from one image each, and the row on the heartbeat when it begins; for each '' or 'foreign' or what is wrong.
        """

    @property
    def source_px(self) -> tuple[int, int]:
        """
        Height and width of the last row's picture before all stages; (0, 0) if it is bad.
        """

    @property
    def damaged(self) -> int:
        """Rows made of JPEGs that were decoded over damage."""

    @property
    def truncated(self) -> int:
        """Rows made of JPEGs that end too soon."""

    @property
    def redecoded(self) -> int:
        """Rows that libjpeg-turbo alone decoded again."""

    def reserve(
        self,
        program: Program,
        height: int,
        width: int,
        seed: int,
        epoch: int,
        position: int,
        attempt: int,
        frame_bytes: int,
    ) -> str:
        """
        Wait for the memory that decoding an image of that size and making its row take; an error text when it can't be had.
        """

    def from_pixels(
        self,
        program: Program,
        rgb: Annotated[
            NDArray[numpy.uint8], dict(shape=(None, None, 3), order="C", device="cpu", writable=False)
        ],
        seed: int,
        epoch: int,
        position: int,
        attempt: int,
        outs: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")]],
    ) -> str:
        """Likewise, from pixels."""

    def from_mask(
        self,
        program: Program,
        mask: Annotated[
            NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
        seed: int,
        epoch: int,
        position: int,
        attempt: int,
        outs: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")]],
    ) -> str:
        """Likewise, from a mask."""

    def release(self) -> None:
        """
        Give back what the sample held of the side arena, once nothing of it is in use any more.
        """

def file_marks(
    blob: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]
]:
    """
    (sizes, modification times in ns) of n paths, each (n,); -1 for files that can't be asked. Raises what a signal's handler does.
    """

class CheckedFile:
    """A file that was read and, if it is a JPEG, decoded."""

    @property
    def kind(self) -> str:
        """
        'whole'; 'read' or 'decode', where that failed; 'foreign': for Pillow; or 'cancelled'.
        """

    @property
    def text(self) -> str:
        """What is wrong."""

    @property
    def damaged(self) -> bool: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def smoothed(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def mtime_ns(self) -> int: ...
    @property
    def data(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """The file's bytes, no copy."""

    def reserve(self, frame_bytes: int) -> str:
        """
        Wait for the memory that decoding takes, until this file ends; an error text when it can't be had.
        """

class FileChecks:
    """Reads and decodes files, for any number of threads."""

    def __init__(
        self,
        reads: ReadPolicy,
        max_pixels: int,
        max_scans: int,
        allow_truncated: bool,
        only_libjpeg: bool,
        side_bytes: int,
        buffer_bytes: int,
    ) -> None: ...
    def check(self, path: bytes, offset: int, length: int) -> CheckedFile:
        """Read and decode a range of a file; see ``CheckedFile``."""

    def close(self) -> None:
        """End every wait: files are 'cancelled' from now on."""

class Stamp:
    """Of a file, as it was when it was read; zeros of none."""

    def __init__(
        self, file_bytes: int = 0, mtime_ns: int = 0, ctime_ns: int = 0, racy: bool = False
    ) -> None: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def mtime_ns(self) -> int:
        """When it was modified, as its owner says."""

    @property
    def ctime_ns(self) -> int:
        """When its inode was changed, as the system says."""

    @property
    def racy(self) -> bool:
        """Whether another change might bear the same times."""

class CachedRow:
    """A row that is stored."""

    @property
    def extent(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def checksum(self) -> int: ...
    @property
    def spilled(self) -> bool: ...
    @property
    def damaged(self) -> bool: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def stamp(self) -> Stamp:
        """Of the file that it was made of."""

class CacheStats:
    """What this process did with a set, in rows where nothing else is said."""

    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def stored(self) -> int: ...
    @property
    def skipped(self) -> int:
        """No room, a full queue, or another one that stores it."""

    @property
    def stale(self) -> int: ...
    @property
    def errors(self) -> int:
        """What was wrong, or couldn't be read or written."""

    @property
    def hit_bytes(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def spilled_hits(self) -> int: ...
    @property
    def spilled_stored(self) -> int: ...

class CacheWants:
    """What a store wants of whoever gives it extents."""

    @property
    def extent(self) -> bool:
        """Whether it wants one."""

    @property
    def row_bytes(self) -> int:
        """Of the largest row there was; less room is of no use."""

    @property
    def skipped(self) -> bool:
        """Whether a row wasn't stored for want of room."""

    @property
    def memory(self) -> bool:
        """Whether it takes an extent in memory."""

    @property
    def spill(self) -> bool:
        """Whether it takes one of the spill."""

CACHE_HEADER_BYTES: int = 4096

CACHE_ENTRY_BYTES: int = 48

CACHE_SPILLED: int = 1

MOST_EXTENTS: int = 16777216

MOST_CACHED_BYTES: int = 1073741824

class CacheStore:
    """Rows of a set that processes of this machine share."""

    def __init__(self, directory: int, records: int, salt: int, writes: bool, queue_bytes: int) -> None:
        """
        ``directory``: a descriptor of the set's folder. Raises ValueError for a table that isn't this set's, RuntimeError for another version's, and OSError.
        """

    @staticmethod
    def table_header(records: int, salt: int) -> bytes:
        """What a set's table begins with."""

    def set_spill(self, directory: int, patience_ms: int = 4000) -> None:
        """
        A descriptor of the folder of spilled extents; how long a row is waited for, until that disk is given up.
        """

    def find(self, record: int) -> CachedRow | None:
        """Where the record's row lies."""

    def get(self, record: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))] | None:
        """The record's row. Counts a hit or a miss."""

    def take(
        self, record: int, path: bytes | None
    ) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))] | None, CachedRow | None]:
        """
        Its row, or None; and what was found, which is wrong where there is no row: it can't be read, or its file has changed. The file of that path is looked at once until ``forget_checks``, and none for None.
        """

    def put(
        self,
        record: int,
        row: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        stamp: Stamp = ...,
        damaged: bool = False,
        truncated: bool = False,
        stale: CachedRow | None = None,
    ) -> bool:
        """
        Store a row, or queue it for the spill, where none is, or in the place of the one that was found ``stale``. Whether that was done; then its file counts as looked at.
        """

    def have(self, first: int, stop: int) -> Annotated[NDArray[numpy.bool_], dict(shape=(None,))]:
        """(stop - first,) whether there is an entry for each record."""

    def add_extent(self, number: int, file: int, begin: int, end: int, spilled: bool) -> bool:
        """
        Give it bytes [begin, end) of a file, by a descriptor, to write to. False in a tier that takes none, since writing to it failed.
        """

    def wants(self) -> CacheWants: ...
    def wait(self, patience_ms: int) -> bool:
        """
        Wait until it wants another extent or a first error is to be told. False when it is closed.
        """

    def forget_checks(self) -> None: ...
    def refuse(self) -> None:
        """There are no more extents."""

    def ask_again(self) -> None:
        """There may be some by now: the next row that needs one asks."""

    def stats(self) -> CacheStats: ...
    def last_error(self) -> str:
        """Empty without one."""

    def close(self, patience_ms: int) -> bool:
        """
        End wait() and the queue for the spill. False when the disk took longer than the patience.
        """

def checksum(
    bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> int:
    """What rows are known by when they are read."""

def checksum_by(
    path: str,
    bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> int | None:
    """
    Likewise, in one of the ways: ``table``, ``sse4.2``, ``armv8``. None where this machine hasn't it.
    """

def crc32c(
    bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    before: int = 0,
) -> int:
    """
    Return the CRC-32C of bytes that follow those whose CRC-32C is ``before``.
    """

def crc32c_of(
    bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    begins: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
    """Return the CRC-32C of n ranges of ``bytes``, (n,)."""

def crc32c_of_file(
    file: int,
    begins: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
    """
    Return the CRC-32C of n ranges of a file, (n,). Raises ``OSError``, and ``EOFError`` if the file ends too soon.
    """
