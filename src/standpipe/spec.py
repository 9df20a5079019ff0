"""Shape and dtype of a field, and small types that several places share."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

RESERVED = "index"  # a field that the batch place adds to every batch
VALID = "valid"  # the field that is False for rows of padding
MASKS = "instance_masks"  # masks of instances
BATCH_FIELDS = (RESERVED, VALID)  # fields that a batch may have beside those of its samples
NAMES = ("image", "label")  # of a dataset's values without names
SIDES = ("height", "width")  # columns of sources that know their images' sizes, in pixels
KEY = "dataset[key]"  # the field that sends a dataset's keys to the workers
BOXES_PX = "boxes in pixels"  # those that decide crops, on their way to the workers
SIZE = "size of image"  # the height and width that annotations say an image has, on its way to the workers
NUMBER_KINDS = "biufc"  # NumPy's kinds of dtypes that are numbers

UInt8Array = NDArray[np.uint8]
Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]
AnyArray = NDArray[np.generic]

PIXEL_CONTRACT = 2  # version of "these pixels from these bytes"; enters the recipe's digest


class StreamEnded(Exception):
    """A stream ended before the requested sample. ``position``: the stream's number of samples."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class Layout(Enum):
    """The order of the axes of a batch of images: N rows, C channels, H height, W width."""

    NCHW = "NCHW"
    NHWC = "NHWC"


class LastBatch(Enum):
    """The treatment of an epoch's last rows when they don't fill a whole global batch."""

    DROP = "drop"
    PAD = "pad"
    PARTIAL = "partial"


class DecodeMode(Enum):
    """EXACT gives Pillow's pixels. FAST decodes large JPEGs at 1/2, 1/4 or 1/8 scale where the crop allows."""

    EXACT = "exact"
    FAST = "fast"


ExecutorName = Literal["process", "thread", "inline"]
DtypeName = Literal["uint8", "float16", "float32"]  # of images in a batch
# The channels of decoded images, as native code numbers them.
ChannelsName = Literal["RGB", "L", "luma", "RGBA", "as_stored"]

DECODED: Mapping[ChannelsName, int | None] = {"RGB": 3, "L": 1, "luma": 1, "RGBA": 4, "as_stored": None}
KINDS = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's modes of images of bytes, by number of channels


class Executor(Enum):
    """The place where Python code runs: threads, processes, or the thread that asks for a batch."""

    THREAD = "thread"
    PROCESS = "process"
    INLINE = "inline"


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The shape and dtype of one sample's value of a field.

    Parameters
    ----------
    shape : tuple of int
        Shape without the batch axis; ``()`` for a scalar such as a label.
    dtype : numpy.dtype
        A NumPy dtype.

    Examples
    --------
    >>> sp.ArraySpec((3, 224, 224), np.dtype("float32")).row_bytes
    602112
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def row_bytes(self) -> int:
        """The size of one row in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.shape))}) {self.dtype.name}"


@dataclass(frozen=True, slots=True)
class RaggedSpec:
    """The shape and dtype of one instance's value of a field with a number of instances that differs by sample.

    Parameters
    ----------
    shape : tuple of int
        Shape of one instance's value: ``(4,)`` for boxes, ``()`` for labels.
    dtype : numpy.dtype
        A NumPy dtype.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def __str__(self) -> str:
        return f"({', '.join(('M', *map(str, self.shape)))}{',' * (not self.shape)}) {self.dtype.name}"


@dataclass(frozen=True, slots=True)
class Listed:
    """A field that isn't stored in a slot: a batch has a Python list with a value per row.

    kind    name of the values' type; ``"str"`` for the texts of a source
    nbytes  size of the measured value, or of the mean text, roughly
    """

    kind: str
    nbytes: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"list of {self.kind}, outside the slots"


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits that are checked from a file's header, before memory is allocated.

    Parameters
    ----------
    max_pixels : int, default 178,956,970
        Largest width × height of an encoded image. The default is Pillow's limit, twice its
        ``PIL.Image.MAX_IMAGE_PIXELS``. For formats other than JPEG, Pillow's own limit applies too.
    max_scans : int, default 100
        Largest number of scans of a progressive JPEG.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).decode(limits=sp.DecodeLimits(max_pixels=50_000_000))
    >>> pipeline.limits.max_pixels
    50000000
    """

    max_pixels: int = 178_956_970
    max_scans: int = 100

    def __post_init__(self) -> None:
        set_plain(self)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Settings for files that can't be read at once: retries, and a second read in parallel.

    Parameters
    ----------
    retries : int, default 3
        Further attempts after an error that may pass, such as EIO, ESTALE or EMFILE. A file that ended
        too soon or changed while it was read is tried again too; a missing file isn't.
    backoff_s : float, default 0.05
        Seconds before the second attempt. Each later pause is twice as long, at random up to a half
        longer or shorter.
    hedge_after_s : float, optional
        Seconds after which a read without an answer gets a second one in parallel; the first to succeed
        counts. Default: never.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(64)).batch(8)
    >>> plan = pipeline.plan(reads=sp.ReadOptions(retries=5, hedge_after_s=2.0))
    """

    retries: int = 3
    backoff_s: float = 0.05
    hedge_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """The place of objects with URLs such as ``s3://bucket/train-000.tar``, and the way to ask for them.

    What isn't given comes from the environment, such as ``AWS_REGION``. No digest, state or name of a cache depends on
    it.

    Parameters
    ----------
    endpoint : str, optional
        The server, such as ``"https://minio.example.com:9000"``, for stores other than the provider's own.
    region : str, optional
        The region of the bucket.
    path_style : bool, optional
        True: the bucket is in the path of requests, as servers without wildcards in their DNS need it. False: it is in
        the host's name. Default: in the path if there is an endpoint.
    requester_pays : bool, default False
        True: the account that reads pays, as some public data sets want it.
    anonymous : bool, default False
        True: ask without credentials, and look for none.
    profile : str, optional
        The profile of the provider's configuration file that has the credentials. It can't be used yet.
    credentials : callable, optional
        A function without arguments that returns the credentials, such as ``{"access_key_id": …,
        "secret_access_key": …, "token": …, "expires_at": …}``. The process that fetches calls it, again before they
        expire. It travels there, so it doesn't see objects of this process.
    ca : str, optional
        A file of certificates, in PEM, that the server's certificate is verified by. Default: those of the system.

    Examples
    --------
    >>> store = sp.Store(endpoint="https://minio.example.com:9000", region="eu-west-1")
    >>> sp.TarShards("s3://bucket/train-{000..146}.tar", store=store).describe()
    "TarShards('s3://bucket/train-{000..146}.tar', store=Store(endpoint, region))"
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    requester_pays: bool = False
    anonymous: bool = False
    profile: str | None = None
    credentials: Callable[[], Mapping[str, Any]] | None = None
    ca: str | None = None

    def __repr__(self) -> str:
        """Return the names of what is given. Values may be secret."""
        given = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return f"Store({', '.join(given)})"


@dataclass(frozen=True, slots=True)
class Raise:
    """A policy for ``on_error``: a bad sample raises its ``SampleError``. This is the default.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).on_error(sp.Raise())
    """

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return "a bad sample raises"


def plain(value: Any, sequence: type[list[Any]] | type[tuple[Any, ...]] = tuple) -> Any:
    """Convert a parameter to the one form that its value has; return values that aren't plain data unchanged.

    NumPy numbers become Python numbers. Lists, tuples and arrays become ``sequence``, and those inside become tuples.
    Values of a mapping or of a ``Schedule`` are converted as if each were the parameter.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return sequence(map(plain, value))
    if isinstance(value, Mapping):
        return {plain(key): plain(each, sequence) for key, each in value.items()}
    if isinstance(values := getattr(value, "values", None), Mapping):
        return replace(value, values=plain(values, sequence))
    return value


def set_plain(parameters: Any, *names: str) -> None:
    """Convert the parameters of a frozen dataclass by ``plain``, in its ``__post_init__``.

    So equal parameters have one repr, which is part of the recipe's digest, however they were written. Parameters
    that are annotated as ``Sequence`` become lists, as people write them.

    names  names of the parameters; none: all of them
    """
    for each in fields(parameters):
        if not names or each.name in names:
            sequence = list if "Sequence" in str(each.type) else tuple
            value = plain(getattr(parameters, each.name), sequence)
            object.__setattr__(parameters, each.name, value)


@dataclass(frozen=True, slots=True)
class Replace:
    """A policy for ``on_error``: another sample of the epoch replaces a bad one.

    The replacement is a function of seed, epoch, position and attempt.

    Parameters
    ----------
    at_most : int or float
        Largest number of bad rows in an epoch, over all ranks. One more ends the run with
        ``TooManyBadSamples``. A float in (0, 1] is a fraction of the epoch's rows, rounded up to at least
        one row; an int of at least 0 is a number of rows. Each rank compares its own bad rows with
        ``at_most`` ÷ ranks, rounded up.

    Examples
    --------
    >>> import pathlib
    >>> _ = pathlib.Path("photos/cat/000.jpg").write_bytes(b"not an image")
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(4)
    >>> with pipeline.on_error(sp.Replace(at_most=0.05)).loader() as loader:
    ...     batch = next(iter(loader))
    ...     print(loader.bad_samples[0].index, 0 in batch["index"])
    0 False
    """

    at_most: float

    def __post_init__(self) -> None:
        set_plain(self)

    def rows(self, epoch_rows: int, world_size: int) -> int:
        """Return the largest number of bad rows that one rank may have in an epoch.

        epoch_rows  rows of the epoch, over all ranks
        """
        share = isinstance(self.at_most, float)
        most = max(math.ceil(self.at_most * epoch_rows), 1) if share else int(self.at_most)
        return -(-most // world_size)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        many = f"{self.at_most:.4g} of" if isinstance(self.at_most, float) else f"{self.at_most:,} of"
        return f"bad samples are replaced, at most {many} an epoch's rows"


@dataclass(frozen=True, slots=True)
class Pictures:
    """The fields that are pictures, where their names don't say it.

    named  (field, ``"images"``, ``"masks"``, …) of each field that ``decode`` names
    pairs  fields that swap where a row is mirrored; None: ``decode`` doesn't say
    scale  (field, its sides ÷ those of the reference) of fields of another size
    flip_pairs  numbers of left and right keypoints, which swap where a row is mirrored; None: as the source says
    """

    named: tuple[tuple[str, str], ...] = ()
    pairs: tuple[tuple[str, str], ...] | None = None
    scale: tuple[tuple[str, Fraction], ...] = ()
    flip_pairs: tuple[tuple[int, int], ...] | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The names of all fields, and the parameter of ``decode`` that names each."""
        pairs = dict.fromkeys((name for pair in self.pairs or () for name in pair), "pairs")
        return {**pairs, **dict.fromkeys(dict(self.scale), "scale"), **dict(self.named)}

    def grids(self, fields: Collection[str]) -> dict[str, int]:
        """Return, for each field, the pixels of which its sizes and places must be multiples to fit the others."""
        scales = {field: dict(self.scale).get(field, Fraction(1)) for field in fields}
        whole = math.lcm(*(scale.denominator for scale in scales.values()))
        pixels = {field: int(scale * whole) for field, scale in scales.items()}
        return {field: number // math.gcd(*pixels.values()) for field, number in pixels.items()}

    def describe(self) -> str:
        """Return text for ``explain()`` and the recipe; an empty one where names say all."""
        named = "".join(f", {plural} {field}" for field, plural in self.named)
        named += "".join(f", {field} at {scale}" for field, scale in self.scale)
        named += "" if self.pairs is None else f", pairs {self.pairs}"
        return named + ("" if self.flip_pairs is None else f", flip_pairs {self.flip_pairs}")


@dataclass(frozen=True, slots=True)
class Decoding:
    """The settings that determine which pixels an image's bytes become.

    limits           limits above which an image is refused
    allow_truncated  True if files that end too soon are decoded as far as they go
    upright          True if images are turned as their EXIF orientation says
    channels         the channels that images get
    pictures         the fields that are pictures, where their names don't say it
    """

    mode: DecodeMode = DecodeMode.EXACT
    limits: DecodeLimits = DecodeLimits()
    allow_truncated: bool = False
    upright: bool = False
    channels: ChannelsName = "RGB"
    pictures: Pictures = Pictures()

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe, without the limits."""
        how = self.mode.value + (", truncated files too" if self.allow_truncated else "")
        how += ", EXIF orientation applied" if self.upright else ""
        how += "" if self.channels == "RGB" else f", channels {self.channels}"
        return how + self.pictures.describe()


@dataclass(frozen=True, slots=True)
class Labels:
    """A field of class numbers, and the valid numbers.

    field    name of the field
    classes  number of classes: valid numbers are 0 to ``classes`` − 1
    ignore   a further valid number, or None
    """

    field: str
    classes: int
    ignore: int | None = None

    def __post_init__(self) -> None:
        set_plain(self)

    def wrong(self, numbers: AnyArray) -> NDArray[np.bool_]:
        """Return a mask with the shape of ``numbers`` that is True where a number isn't valid."""
        wrong: NDArray[np.bool_] = np.asarray((numbers < 0) | (numbers >= self.classes))  # type: ignore[operator]
        return wrong if self.ignore is None else wrong & (numbers != self.ignore)

    def describe(self) -> str:
        """Return one phrase for errors and ``explain()``."""
        beside = "" if self.ignore is None else f", or {self.ignore}"
        return f"labels are from 0 to {self.classes - 1:,}{beside}"


def shape_text(*sides: object) -> str:
    """Return a shape as Python writes a tuple, for messages; sides may be texts such as ``≤512``."""
    return f"({', '.join(map(str, sides))}{',' if len(sides) == 1 else ''})"
