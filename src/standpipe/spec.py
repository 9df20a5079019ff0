"""Shape and dtype of a field, and small types that several places share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

UInt8Array = NDArray[np.uint8]
Float32Array = NDArray[np.float32]
Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]
AnyArray = NDArray[np.generic]

GPU_THREADS = 4  # of the GPU's decoder; each has an image in hand, and memory of its own for it
# Of the GPU, for each pixel of the largest image in a thread's hand: its pixels in two buffers and once more while one
# grows (9), coefficients without subsampling (6), planes (3), and 6 for what nvJPEG doesn't say. Read off the source of
# nvImageCodec, not measured: benchmarks/gpu_decode.py prints what is taken beside the cap.
GPU_BYTES_PER_PIXEL = 24
FRAME_BYTES = 16 << 20  # of the host, for images that are decoded together, at least

PIXEL_CONTRACT = 1  # version of "these pixels from these bytes"; enters the recipe's digest


class Layout(Enum):
    """The order of an image's axes. A batch adds its rows in front."""

    NCHW = "NCHW"
    NHWC = "NHWC"


class Interpolation(Enum):
    """Resampling filters, antialiased as Pillow's of the same name."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class LastBatch(Enum):
    """What happens to the rows of an epoch that don't fill a whole global batch."""

    DROP = "drop"
    PAD = "pad"
    PARTIAL = "partial"


class DecodeMode(Enum):
    """EXACT gives Pillow's pixels. FAST decodes large JPEGs at 1/2, 1/4 or 1/8 scale where the crop allows."""

    EXACT = "exact"
    FAST = "fast"


class Executor(Enum):
    """Where Python code runs: in threads, processes, or the thread that asks for a batch."""

    THREAD = "thread"
    PROCESS = "process"
    INLINE = "inline"


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of one sample's value of a field.

    shape  without the batch axis; () for a scalar such as a label
    dtype  a NumPy dtype
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.shape))}) {self.dtype.name}"


@dataclass(frozen=True, slots=True)
class Listed:
    """A field that isn't stored in a slot: a batch has a Python list with a value per row.

    kind    name of the values' type
    nbytes  size of the measured value, roughly
    """

    kind: str
    nbytes: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"list of {self.kind}, in no slot"


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Caps that are checked from a file's header, before anything is allocated.

    max_pixels  width × height of the encoded image; the default is where Pillow refuses too, twice its
                ``PIL.Image.MAX_IMAGE_PIXELS``, which goes on to hold for formats other than JPEG
    max_scans   scans of a progressive JPEG
    """

    max_pixels: int = 178_956_970
    max_scans: int = 100


@dataclass(frozen=True, slots=True)
class Reads:
    """What happens when a file isn't read at once.

    retries        how often a read is tried again after an error that may pass, such as EIO, ESTALE or EMFILE, and
                   when the file ended too soon or changed meanwhile; never for a file that isn't there
    backoff_s      seconds before the second try; each later pause is twice as long, give or take a half
    hedge_after_s  seconds after which a read that the system hasn't answered gets a second one beside it: the first
                   to succeed counts. None: never
    """

    retries: int = 3
    backoff_s: float = 0.05
    hedge_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Raise:
    """A bad sample raises its ``SampleError``; nothing is left out and nothing replaced."""

    def describe(self) -> str:
        """One line for ``explain()``."""
        return "a bad sample raises"


def plain(number: Any) -> Any:
    """A number of NumPy's as Python's, which prints as one and goes into a state; anything else as it is."""
    return number.item() if isinstance(number, np.number) else number


@dataclass(frozen=True, slots=True)
class Replace:
    """A bad sample gives way to another one, drawn as a function of (seed, epoch, position, attempt).

    at_most  bad rows of an epoch, over all ranks; one more, and the run ends with ``TooManyBadSamples``. A share of
             the epoch's rows, a float in (0, 1], rounded up to whole rows and at least one; or a number of rows, an
             int from 0 on. Each rank counts its own against its part, ``at_most`` ÷ ranks, rounded up
    """

    at_most: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_most", plain(self.at_most))

    def rows(self, epoch_rows: int, world_size: int) -> int:
        """Bad rows of an epoch that one rank may meet."""
        share = isinstance(self.at_most, float)
        most = max(math.ceil(self.at_most * epoch_rows), 1) if share else int(self.at_most)
        return -(-most // world_size)

    def describe(self) -> str:
        """One line for ``explain()``."""
        many = f"{self.at_most:.4g} of" if isinstance(self.at_most, float) else f"{self.at_most:,} of"
        return f"bad samples are replaced, at most {many} an epoch's rows"


@dataclass(frozen=True, slots=True)
class GpuDecode:
    """Which JPEGs the GPU decodes.

    share   fraction of the records, in (0, 1]
    memory  bytes of the GPU's memory for decoding
    """

    share: float
    memory: int

    @property
    def most_pixels(self) -> int:
        """Width × height of the largest image that it decodes."""
        return self.memory // (GPU_THREADS * GPU_BYTES_PER_PIXEL)

    @property
    def frame_bytes(self) -> int:
        """Host memory for what is decoded at once."""
        return max(FRAME_BYTES, 3 * self.most_pixels)

    def describe(self) -> str:
        """One phrase for ``explain()`` and the recipe."""
        which = "baseline JPEGs" if self.share == 1 else f"baseline JPEGs of {self.share!r} of the records"
        return f"{which} up to {self.most_pixels:,} pixels on the GPU, else exact"


@dataclass(frozen=True, slots=True)
class Decoding:
    """How images become pixels.

    limits           limits above which an image is refused
    allow_truncated  True if files that end too soon are decoded as far as they go
    gpu              the GPU's part; None: nothing
    """

    mode: DecodeMode
    limits: DecodeLimits
    allow_truncated: bool
    gpu: GpuDecode | None = None

    def describe(self) -> str:
        """One phrase for ``explain()`` and the recipe, without the limits."""
        how = self.mode.value if self.gpu is None else self.gpu.describe()
        return how + (", truncated files too" if self.allow_truncated else "")


@dataclass(frozen=True, slots=True)
class Labels:
    """A field of class numbers.

    classes  number of classes: valid numbers are 0 to ``classes`` − 1
    ignore   a further valid number, or None
    """

    field: str
    classes: int
    ignore: int | None = None

    def wrong(self, numbers: AnyArray) -> NDArray[np.bool_]:
        """Return a mask of the invalid numbers, of the same shape."""
        wrong: NDArray[np.bool_] = np.asarray((numbers < 0) | (numbers >= self.classes))  # type: ignore[operator]
        return wrong if self.ignore is None else wrong & (numbers != self.ignore)

    def describe(self) -> str:
        """One phrase for errors and ``explain()``."""
        beside = "" if self.ignore is None else f", or {self.ignore}"
        return f"labels are from 0 to {self.classes - 1:,}{beside}"


def shape_text(*sides: object) -> str:
    """A shape for people, as Python writes a tuple; sides may be texts such as ``≤512``."""
    return f"({', '.join(map(str, sides))}{',' if len(sides) == 1 else ''})"
