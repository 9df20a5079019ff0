from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, overload

import numpy
import numpy.typing
from numpy.typing import NDArray

def simd_paths() -> list[str]:
    """
    Return the names of the instruction sets that this build and processor have, narrowest first.
    """

def jpeg_library_version() -> str:
    """
    Return the version of libjpeg-turbo that this was compiled with, such as '2.1.5'.
    """

def has_entropy_decoder() -> bool:
    """
    Return whether this was built with our entropy decoder, which needs the static libjpeg-turbo.
    """

def shuffled_indices(
    seed: int, epoch: int, n: int, start: int, stop: int
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """
    Return the records at positions [start, stop) of an epoch's shuffled order, (stop - start,) int64.
    """

def shuffled_at(
    seed: int,
    epoch: int,
    n: int,
    positions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """
    Return the records at ``positions`` of an epoch's shuffled order, (len(positions),) int64.
    """

def stratified_points(
    seed: int, epoch: int, n: int, total: int, start: int, stop: int
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]
]:
    """
    Cut a line of ``total`` units into n strata, equal to within a unit, one for each position.
    Returns the strata of positions [start, stop), and a random point in each, (stop - start,)
    int64.
    """

def marked_at(
    words: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ranks: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """
    Return the number of the places[i]-th set bit, counted from 0, (len(places),) int64. ``words``:
    lowest bits first. ``ranks``: set bits before each 8 words, and last the number of all set bits.
    """

def mix(key: int, word: int) -> int:
    """
    Return a 64-bit key that depends on ``key`` and then on ``word``: their order matters.
    """

LONGEST_LINE_BYTES: int = 65535

LENGTH_SHIFT: int = 48

class Texts:
    """Reads texts of a packed list in mapped memory."""

    def __init__(
        self,
        data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        ends: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        decodes: bool,
    ) -> None:
        """
        ``ends``: where each text ends in ``data``, int64 each, as bytes.
        ``decodes``: True for texts of UTF-8 that are returned as str, False for bytes.
        """

    def item(self, number: int) -> Any:
        """
        Return a text. Raises ``IndexError`` for a number that the list hasn't.
        """

class ListLines:
    """Splits the lines of a file list into paths and labels, by chunk."""

    def __init__(self, labels: bool, image_suffixes: Sequence[str]) -> None:
        """
        ``labels``: whether lines may have labels. ``image_suffixes``: in lower case.
        A label that ends with one of them is a fault, because it looks like a file name.
        """

    def take(
        self,
        text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offset: int,
        last: bool,
    ) -> int:
        """
        Take the whole lines of ``text`` in place of those before; return how many bytes they are.
        ``offset``: of ``text`` in the list. ``last``: whether the list ends with it.
        """

    @property
    def places(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), writable=False)]:
        """
        (n,) where the chunk's paths are in the list: offset in bytes, and length from bit 48 on.
        """

    @property
    def labels(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """
        (n,) labels of the chunk's records: integers, or positions in ``names``; empty without labels.
        """

    @property
    def paths(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """Bytes of the chunk's paths, joined."""

    @property
    def line_that_leads_out(self) -> int:
        """
        Number, from 1, of the first line whose path is absolute or has a '..'; 0 while there is none.
        """

    @property
    def has_labels(self) -> bool: ...
    @property
    def has_names(self) -> bool: ...
    @property
    def names(self) -> list[bytes]:
        """Class names, in the order in which the list first has them."""

    @property
    def fault(self) -> tuple[str, int, str, str, int, bytes] | None:
        """
        The line that can't be read, as (kind of fault, line, kind of its label, kind of the first
        record's label, line of the first record, label); None while there is none.
        """

def sealed(
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    key: int,
    first: int,
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """
    Return blocks that hold ``data``, each with its checksum, uint8. ``first``: number of the first block.
    """

BLOCK_DATA_BYTES: int = 508

def sealed_size(size: int) -> int:
    """
    Return how many bytes of a file hold ``size`` bytes of data in sealed blocks.
    """

def settle(file: int) -> None:
    """
    Wait until every later change of an open file gives it another time stamp. This takes some
    milliseconds after the file's last change, and at most a second.
    """

def packed_part(
    section: tuple[int, int, int, int | None], begin: int, end: int
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """
    Return the bytes [begin, end) of a section's data. ``section``: see ``packed_rows``.
    """

def packed_rows(
    section: tuple[int, int, int, int | None],
    row_bytes: int,
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    stride: int = 0,
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """
    Return rows of a column, one after another. ``stride``: bytes from one row to the next; 0:
    ``row_bytes``; 1: indices are the rows' first bytes. ``section``: (descriptor, first byte, bytes
    of data, key of its checksums or None).
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
    Return the paths of records as (blob, ends): path i ends at byte ends[i] of blob.
    ``places``, ``text``: sections; see ``packed_rows``. ``around``: bytes that stand before a
    path, after it, and never in it. ``base``: goes before relative paths. ``stays``: whether a
    path that leads out of ``base`` is an error.
    """

TAR_BLOCK_BYTES: int = 512

def tar_members(
    file: int, size: int, at: int, most: int
) -> tuple[list[tuple[int, int, int, bool, bytes]], tuple[str, int, bytes, int, int] | None]:
    """
    Return up to ``most`` members of a tar archive, and the fault that ends them: see
    ``TarRecords``. Each is (byte of its first header, byte of its data, bytes of data, whether it
    is a file, name). ``size``: bytes of the archive. ``at``: byte of the first member's header.
    """

class TarRecords:
    """Groups the members of tar shards into records."""

    def __init__(
        self, fields: Sequence[tuple[Sequence[str], bool]], unexpected: Sequence[str], pickles: Sequence[str]
    ) -> None:
        """
        ``fields``: extensions of each field, and whether it is an integer as text; first the image.
        Members with ``unexpected`` extensions are errors, and so are ``pickles`` and arrays of
        objects, unless ``pickles`` is empty.
        """

    def begin(self, file: int, size: int) -> None:
        """Begin another shard, which is a file of ``size`` bytes."""

    def take(self, most: int) -> bool:
        """
        Take up to ``most`` records in place of those before. Returns False at the end or for a
        ``fault``. Raises what a signal handler raises.
        """

    @property
    def headers(self) -> Annotated[NDArray[numpy.uint16], dict(shape=(None,), writable=False)]:
        """(n,) blocks of 512 bytes from an image's first header to its data."""

    def offsets(self, field: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n,) first byte of a field's data in the shard; empty for integers."""

    def lengths(self, field: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n,) bytes of a field's data, or empty."""

    def numbers(self, field: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n,) values of a field of integers; empty for other fields."""

    @property
    def names(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """Bytes of the images' names, joined."""

    @property
    def name_lengths(self) -> Annotated[NDArray[numpy.uint16], dict(shape=(None,), writable=False)]:
        """(n,) bytes of each image's name in ``names``."""

    @property
    def skipped(self) -> bytes:
        """
        Name of one member of each group without an image; a NUL byte ends each name.
        """

    @property
    def num_skipped(self) -> int:
        """Number of groups without an image."""

    def duplicates(self) -> list[tuple[int, int]]:
        """
        Return (record, earlier record) for records of the finished shard that have the same key.
        """

    @property
    def unmarked(self) -> bool:
        """
        True if the finished shard lacks the zeros that mark the end of an archive.
        """

    @property
    def left_out(self) -> dict[bytes, int]:
        """
        Number of members that no field takes, over all shards so far, by extension.
        """

    @property
    def fault(self) -> tuple[str, int, bytes, int, int] | None:
        """
        The fault that ends the records, as (kind of fault, byte of the header, name of the member,
        its bytes or the number of the field, errno); None without one.
        """

class ExampleRecords:
    """Reads the messages tf.train.Example of TFRecord files."""

    def __init__(self, names: Sequence[str]) -> None:
        """``names``: of the features that are taken."""

    def begin(self, file: int, size: int) -> None:
        """Begin another file, of ``size`` bytes."""

    def take(self, most: int) -> bool:
        """
        Take up to ``most`` records in place of those before. Returns False at the end or for a
        ``fault``. Raises what a signal handler raises.
        """

    @property
    def sums(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,), writable=False)]:
        """(n,) masked CRC-32C of each record."""

    def kind(self, field: int) -> tuple[str, int]:
        """
        Return what a feature is, 'bytes', 'floats' or 'integers', and its number of values.
        """

    def offsets(self, field: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n,) first byte of a value in the file."""

    def lengths(self, field: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n,) bytes of a value."""

    def ints(self, field: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """(n · values,) integers, or empty."""

    def floats(self, field: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), writable=False)]:
        """(n · values,) floats, or empty."""

    @property
    def features(self) -> list[tuple[bytes, str]]:
        """Name and kind of each feature of the record that was read last."""

    @property
    def fault(self) -> tuple[str, int, int, int, int] | None:
        """
        The fault that ends the records, as (kind of fault, number of the record in its file,
        its first byte, number of the feature, errno); None without one.
        """

MOST_PX: int = 65535

MOST_ZOOM: int = 256

MOST_SHUFFLED: int = 64

MOST_CHAINS: int = 16

MOST_CHANNELS: int = 4

def other_kind(channels: int, first: int) -> str:
    """Return the error of an image that isn't of the first record's kind."""

MOST_KERNEL_PX: int = 255

class GeometryStage:
    """Adjacent geometric transforms, done in a single pass."""

    def __init__(self) -> None: ...
    def zoom_out(self, op: int, p: float, times: tuple[float, float], fill: Sequence[int]) -> None:
        """
        Put the picture at a random place of a larger one. ``times``: the range of its sides.
        """

    def crop(self, op: int, scale: tuple[float, float], ratio: tuple[float, float]) -> None: ...
    def crop_by_boxes(
        self,
        op: int,
        scale: tuple[float, float],
        ratio: tuple[float, float],
        overlaps: Sequence[float],
        trials: int,
    ) -> None:
        """
        Crop a window that boxes decide: ``trace`` draws it, and rows are made with it.
        """

    def resize(self, height: int, width: int, filter: int) -> None: ...
    def resize_shorter(self, op: int, first: int, end: int, max_size: int, filter: int) -> None:
        """
        Resize the shorter side to a random length from ``first`` to ``end`` - 1, in pixels.
        ``max_size``: most of the longer one; 0: no limit.
        """

    def resize_jitter(
        self, op: int, height: int, width: int, scale: tuple[float, float], filter: int
    ) -> None:
        """
        Resize both sides by one factor: what fits into the target, times a random number in ``scale``.
        """

    def resize_listed(self, op: int, lengths: Sequence[int], max_size: int, filter: int) -> None:
        """
        Resize the shorter side to one of ``lengths``. ``max_size``: most of the longer one; 0: no limit.
        """

    def resize_to_fit(
        self, height: int, width: int, only_smaller: bool, round_up: bool, nearest: bool
    ) -> None:
        """
        Resize as OpenCV does to what fits into a size. ``round_up``: fractions of a pixel, else to
        the nearest integer.
        """

    def random_filter(self, op: int) -> None:
        """
        Choose the resize's filter at random: bilinear or bicubic. ``op`` must be above 0.
        """

    def window(
        self,
        place: int,
        op: int = 0,
        size: tuple[int, int] = (0, 0),
        sides: tuple[int, int, int, int] = (0, 0, 0, 0),
        pad_if_needed: bool = False,
        mode: int = 0,
        fill: Sequence[int] = [0, 0, 0, 0],
    ) -> None:
        """
        Cut out a window of ``size``, (height, width), of the picture padded by ``sides``: left, top,
        right and bottom, in pixels. ``place``: as ``WindowPlace`` numbers it.
        """

    def sized_window(self, op: int, low: int, high: int) -> None:
        """
        Cut out a random window, with sides of ``low`` to ``high`` pixels as far as they fit.
        """

    def perhaps(self, op: int, p: float) -> None:
        """
        Do nothing with probability 1 - ``p``; stages with one ``op`` do nothing together.
        """

    def mirror(self, op: int, p: float) -> None: ...

class PixelStage:
    """Changes the pixels of a whole picture in place."""

    def __init__(
        self, kind: str, op: int, p: float, parameters: Sequence[float], height: int = 0, width: int = 0
    ) -> None:
        """
        ``height``, ``width``: of the result of a random_affine with OpenCV's pixels; 0: the picture's.
        """

    @staticmethod
    def choice(
        op: int, p: float, weights: Sequence[float], lists: Sequence[Sequence[PixelStage]]
    ) -> PixelStage:
        """
        Apply the first list whose cumulative weight in ``weights`` is above a random number.
        """

    @staticmethod
    def shuffle(op: int, p: float, lists: Sequence[Sequence[PixelStage]]) -> PixelStage:
        """Apply all lists in random order."""

    @staticmethod
    def mixture(
        op: int, p: float, alpha: float, chains: int, depth: int, list: Sequence[PixelStage]
    ) -> PixelStage:
        """
        Mix the picture with ``chains`` copies of itself. The list has changed each copy ``depth``
        times; 0: 1 to 3 times at random.
        """

class RowFormat:
    """
    Size, element type and layout of a slot's image rows. Without a size, 0 × 0, it differs
    from row to row, and each job has its rows' areas.
    """

    @staticmethod
    def uint8(height: int, width: int, planar: bool, channels: int = 3) -> RowFormat: ...
    def pad_with(self, element: bytes) -> None:
        """
        Set what is beside a picture that is smaller than its canvas: the bytes of an element.
        """

    @staticmethod
    def float32(
        height: int,
        width: int,
        planar: bool,
        table: Annotated[
            NDArray[numpy.float32], dict(shape=(None, 256), order="C", device="cpu", writable=False)
        ],
    ) -> RowFormat:
        """``table``: (channels, 256)."""

    @staticmethod
    def float16(
        height: int,
        width: int,
        planar: bool,
        table: Annotated[
            NDArray[numpy.uint16], dict(shape=(None, 256), order="C", device="cpu", writable=False)
        ],
    ) -> RowFormat:
        """``table``: float16 bits, by channel and byte."""

class Erasing:
    """Rectangles of a finished row that RandomErasing overwrites."""

    def __init__(
        self,
        op: int,
        p: float,
        scale: tuple[float, float],
        ratio: tuple[float, float],
        count: tuple[int, int],
        mode: str,
        value: Sequence[float],
    ) -> None: ...

class Input:
    """A field of the records of which a program makes rows."""

    def __init__(
        self,
        kind: int,
        channels: int,
        grid: int,
        decoded: int,
        fast: bool,
        max_pixels: int,
        max_scans: int,
        allow_truncated: bool = False,
        only_libjpeg: bool = False,
        upright: bool = False,
    ) -> None:
        """
        ``kind``: its number; 0: an image. ``channels``: before the stages. ``grid``: pixels of
        which sizes and places are multiples; inputs' sizes differ as their grids do. ``decoded``:
        how files get them, by its number in ``ChannelsName``. ``fast``: decode at 1/2, 1/4 or 1/8
        where that suffices. ``upright``: apply EXIF orientation. ``only_libjpeg``: don't use our
        entropy decoder.
        """

class Head:
    """One output of a program: the stages that make a row of an input."""

    def __init__(
        self,
        input: int,
        stages: Sequence[GeometryStage | PixelStage],
        format: RowFormat,
        erasing: Erasing | None = None,
        salt: int = 0,
        twin: int | None = None,
    ) -> None:
        """
        ``input``: its number. ``salt``: of its random numbers; 0: they are the sample's own.
        ``twin``: number of the head whose row it writes where it mirrors pixels; None: its own.
        """

class Program:
    """Image transforms, fused into one kernel that makes rows."""

    def __init__(self, inputs: Sequence[Input], heads: Sequence[Head], simd: str | None = None) -> None:
        """
        ``heads``: in the order of their inputs. ``simd``: of ``simd_paths``; None: the fastest.
        """

    @property
    def windows(self) -> int:
        """Number of crops that boxes decide."""

    @property
    def simd(self) -> str: ...
    def trace(
        self,
        head: int,
        sizes: Annotated[
            NDArray[numpy.int64], dict(shape=(None, 2), order="C", device="cpu", writable=False)
        ],
        seed: int,
        epoch: int,
        positions: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        attempts: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        boxes: Annotated[
            NDArray[numpy.float32], dict(shape=(None, 4), order="C", device="cpu", writable=False)
        ]
        | None = None,
        ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> tuple[
        Annotated[NDArray[numpy.float64], dict(shape=(None,))],
        Annotated[NDArray[numpy.int32], dict(shape=(None,))],
    ]:
        """
        Return what a head's geometric transforms do to n pictures, (n, moves, 12) float64, flat; and
        left, top, width and height of the crops that boxes decide, (n, windows, 4) int32, flat, in
        which those of other heads are 0.

        A move is a matrix of three rows, from a place in the picture before it to one in the result, in
        pixels from the upper left corner; the result's height and width; and 1 if boxes whose centre isn't
        in the result become empty. A picture that can't be made into a row has a result of 0 × 0 pixels.
        ``sizes``: (height, width) of each picture before all
        transforms, in pixels. ``boxes``, ``ends``: (total, 4) float32 xyxy in pixels of these pictures, and
        (n,) int64 where each row's end. ``positions``, ``attempts``: (n,) uint64, keys of the random numbers.
        """

class Composition:
    """A way of putting several pictures together."""

    @staticmethod
    def mosaic(op: int, p: float, height: int, width: int, fill: Sequence[int]) -> Composition:
        """
        Put four pictures around a random place of a canvas of twice ``height`` × ``width`` pixels, with
        probability ``p``; else the first one stays alone.
        """

    @staticmethod
    def mix_up(op: int, p: float, alpha: float) -> Composition:
        """Blend two pictures of one size, with weights of a beta distribution."""

    @staticmethod
    def paste(op: int, p: float, mirrored: bool) -> Composition:
        """
        Paste parts of another picture of one size, or of the picture itself, mirrored.
        """

class ImageFrame:
    """An image in memory, of which rows are made."""

SLACK: int = 64

class FrameStore:
    """Memory for frames, which is used again."""

    def __init__(self, usual_bytes: int) -> None: ...
    def take(
        self,
        sizes: Annotated[
            NDArray[numpy.int64], dict(shape=(None, 2), order="C", device="cpu", writable=False)
        ],
    ) -> list[ImageFrame]:
        """
        Return a frame for each (height, width) in pixels. ``sizes``: (n, 2) int64.
        """

    @property
    def bytes(self) -> int:
        """Bytes of all frames, those that nobody has included."""

class Composer:
    """Makes rows of frames."""

    def __init__(self, levels: Sequence[tuple[Composition, Program]]) -> None:
        """
        ``levels``: compositions one after another, each with the program of the transforms behind it.
        """

    @property
    def frames(self) -> int:
        """Number of frames of a row, if all compositions take place."""

    def memory_bytes(self, height: int, width: int) -> int:
        """Return the bytes of a thread's memory for frames of at most this size."""

    def draw(
        self,
        seed: int,
        epoch: int,
        positions: numpy.typing.NDArray[numpy.uint64],
        attempts: numpy.typing.NDArray[numpy.uint64],
    ) -> tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.uint64]]:
        """
        Return which frames n rows are made of, (n, frames) uint8, flat, 1 for those; and a random word for
        the choice of each, (n, frames) uint64, flat.
        """

    @property
    def pasted_pictures(self) -> int:
        """
        Number of pictures of a row on which something is pasted, if all compositions take place.
        """

    def trace(
        self,
        sizes: Annotated[
            NDArray[numpy.int64], dict(shape=(None, 2), order="C", device="cpu", writable=False)
        ],
        seed: int,
        epoch: int,
        positions: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        attempts: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        levels: int | None = None,
        mirrored: bool = False,
        areas: Annotated[NDArray[numpy.int64], dict(shape=(None, 4), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]:
        """
        Return the moves of frames to n rows, (n × frames, moves, 12) float64, flat, as ``Program.trace``
        does. ``sizes``: (n × frames, 2) int64, height and width in pixels. ``levels``: up to the pictures
        behind so many, or behind all. ``mirrored``: of what is pasted mirrored. ``areas``: (n × pictures, 4)
        int64 xyxy, where pictures are pasted, which are cut off there; without them, they aren't.
        """

def move_boxes(
    boxes: Annotated[NDArray[numpy.float64], dict(shape=(None, 4), order="C", device="cpu", writable=False)],
    rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    moves: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None, 12), order="C", device="cpu", writable=False)
    ],
    cut: bool,
) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]:
    """
    Return where boxes are after the moves of their rows, (n, 4) float64, flat: the hull of their
    corners. ``boxes``: (n, 4) float64 xyxy. ``rows``: (n,). ``moves``: (rows, moves, 12), like
    those of ``trace``. ``cut``: cut off at the edges of each result.
    """

class Bell:
    """Wakes threads that wait for a change of slots or jobs."""

    def __init__(self) -> None: ...
    def ring(self) -> None:
        """Wake all threads that wait."""

    def wait(self, seen: int) -> int:
        """
        Wait for a ring after the call that returned ``seen``. Returns a new ``seen``.
        """

    def wait_for(self, seen: int, patience_s: float) -> int:
        """
        Wait like ``wait``, at most ``patience_s`` seconds. Returns ``seen`` if there was no ring.
        """

    def wait_among(
        self, seen: int, descriptors: Sequence[int], patience_s: float | None = None
    ) -> tuple[int, list[int]]:
        """
        Wait like ``wait``, or until one of ``descriptors`` is readable. Returns these too, and
        ``seen`` unchanged if nothing happened in ``patience_s``; None: no limit. For one thread at
        a time.
        """

class SlotRing:
    """Slots of equal size in one sparse memfd, and the state of each."""

    def __init__(self, slot_bytes: int, base: int, most: int, bell: Bell, keeps: bool = False) -> None:
        """
        ``base``: slots that may exist at first. ``most``: slots that may ever exist.
        ``keeps``: whether slots keep their memory until ``retire``.
        """

    def take(self, grow: bool) -> int:
        """
        Return the number of a slot to fill, or -1 if none is free. ``grow``: allow one slot more.
        """

    def mark_ready(self, slot: int) -> None:
        """Mark a slot as filled."""

    def quarantine(self, slot: int) -> None:
        """
        Give up a slot that a stuck thread may still write into. Call ``release`` when that thread has ended.
        """

    def release(self, slot: int) -> None:
        """End the use of a slot."""

    def release_ready(self) -> None:
        """Release every slot that is ready."""

    def reclaim(self) -> None:
        """Take back slots that no forked child holds."""

    def trim(self) -> None:
        """Return the memory of slots beyond ``base`` to the system."""

    def retire(self) -> None:
        """
        Return the memory of all slots to the system: of lent slots when they come back.
        """

    @property
    def descriptor(self) -> int:
        """Descriptor of the memfd. The ring closes it."""

    @property
    def used(self) -> int:
        """Number of slots that have memory."""

    @property
    def peak(self) -> int:
        """Largest value that ``used`` has had."""

    @property
    def stride_bytes(self) -> int:
        """Bytes from the start of a slot to the start of the next."""

    def view(self, slot: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """Return the slot's bytes, to fill."""

    def lend(self, slot: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """
        Return the slot's bytes, and release the slot when the last view of them is dropped.
        """

    def count(self, state: str) -> int: ...
    def is_taken(self, slot: int) -> bool:
        """Return whether a slot is in use or given up."""

class ReadPolicy:
    """Says how often a read is tried, and when."""

    def __init__(self, retries: int, backoff_s: float, hedge_after_s: float) -> None:
        """
        ``retries``: tries after the first one. ``hedge_after_s``: time until a slow read gets a
        second one beside it; 0: never.
        """

class ReadTimes:
    """Durations and counts of reads."""

    @property
    def took_s(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), writable=False)]:
        """(n,) seconds of each read that succeeded, without buffer waits."""

    @property
    def bytes(self) -> int: ...
    @property
    def blocked(self) -> int:
        """Number of these reads that waited for storage."""

    @property
    def failed(self) -> int: ...
    @property
    def error(self) -> str:
        """Error message of the last read that failed; empty without one."""

    @property
    def hung(self) -> int:
        """Number of reads that had not ended when the others had."""

    @property
    def seconds(self) -> float:
        """Seconds from the beginning to the end of all reads."""

def most_kept_open() -> int:
    """
    Return how many files a process may keep open at once, for samples that are parts of files.
    """

def crc32c_of_ranges(
    blob: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    offset: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    length: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    file_bytes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    | None,
    mtime_ns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    | None,
    crc32c: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    | None,
) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,))], list[tuple[int, str]]]:
    """
    Read parts of files, and return their CRC-32C, (n,), and (number, error message) of each part that
    can't be read, whose CRC is -1. The arrays are those of ``Job.files``.
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
    Read files with ``threads`` threads, once, or with ``again`` until ``seconds`` are over.
    ``patience_s``: wait for reads that have begun. Raises what a signal handler raises.
    """

def latency_bucket(nanoseconds: int) -> int:
    """
    Return the bucket in which standpipe.stats.latency.Latency counts a duration.
    """

class Durations:
    """Counts durations."""

    def __init__(self) -> None: ...
    def add(self, nanoseconds: int) -> None: ...
    @property
    def latency(self) -> tuple[int, ...]:
        """Number of durations in each bucket of standpipe.stats.latency.Latency."""

class PlaceCounter:
    """Counts what one thread does at a place, batch by batch."""

    def __init__(self) -> None: ...
    def begin(self) -> None:
        """Note the begin of a batch."""

    def end(self, rows: int) -> None:
        """Note the end of a batch of ``rows`` rows."""

    @property
    def rows(self) -> int: ...
    @property
    def busy_s(self) -> float: ...
    @property
    def latency(self) -> tuple[int, ...]:
        """Number of durations in each bucket of standpipe.stats.latency.Latency."""

class StepCounter:
    """Counts the training loop's steps, and its waits for batches."""

    def __init__(self) -> None: ...
    def asks(self) -> None:
        """Note that the loop asks for a batch and has done the one before."""

    def gets(self, rows: int, ready: int) -> None:
        """
        Note that the loop gets a batch. ``ready``: batches that were ready when it asked.
        """

    def leaves(self) -> None:
        """
        Note that the loop ends its last step of an epoch: the time until it asks again is no step.
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
        """Number of durations in each bucket of standpipe.stats.latency.Latency."""

    @property
    def wait_latency(self) -> tuple[int, ...]:
        """Number of durations in each bucket of standpipe.stats.latency.Latency."""

class PoolStats:
    """Counters of a loader's native threads since they started."""

    @property
    def rows(self) -> int:
        """Rows that were made."""

    @property
    def bytes(self) -> int:
        """Bytes of files that were read."""

    @property
    def decode_s(self) -> float:
        """Seconds of work of all threads that make rows."""

    @property
    def decode_wait_s(self) -> float:
        """Seconds without work of all decoding threads."""

    @property
    def decode_latency(self) -> tuple[int, ...]:
        """Number of durations in each bucket of standpipe.stats.latency.Latency."""

    @property
    def foreign(self) -> int:
        """Rows that Pillow decoded."""

    @property
    def damaged(self) -> int:
        """Rows of damaged files."""

    @property
    def truncated(self) -> int:
        """Rows of files that end too soon."""

    @property
    def redecoded(self) -> int:
        """Rows that libjpeg-turbo decoded again."""

    @property
    def read_s(self) -> float:
        """Seconds of work of all reads."""

    @property
    def read_wait_s(self) -> float:
        """Seconds without work of all threads that read ahead."""

    @property
    def read_latency(self) -> tuple[int, ...]:
        """Number of durations in each bucket of standpipe.stats.latency.Latency."""

    @property
    def threads(self) -> list[tuple[str, int, int, float]]:
        """(kind, number, rows, seconds of work) of every thread."""

    @property
    def decoders(self) -> int:
        """Number of decoding threads that may work at once."""

    @property
    def readers(self) -> int:
        """Number of threads that read ahead, while that pays."""

    @property
    def retries(self) -> int:
        """Number of retries of reads."""

    @property
    def hedged(self) -> int:
        """Number of reads that got a second one."""

    @property
    def slowest_read_s(self) -> float:
        """Seconds of the slowest try that has ended."""

    @property
    def opens(self) -> int:
        """Number of files that were opened."""

    @property
    def ranges(self) -> int:
        """Number of ranges that were read; neighbours are one."""

    @property
    def side_bytes(self) -> int:
        """Bytes of the side arena in use."""

    @property
    def side_peak_bytes(self) -> int:
        """Largest value of ``side_bytes``."""

    @property
    def read_ahead_bytes(self) -> int:
        """Bytes of buffers for encoded samples."""

    @property
    def read_ahead_peak_bytes(self) -> int:
        """Largest value of that."""

    @property
    def reading_ahead(self) -> bool:
        """True while threads read ahead."""

class Job:
    """The rows of one slot that a pool makes."""

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
        ``outputs``: (offset, stride) in bytes, for each head of the program, of its rows in the
        slot. ``program``: None to copy only. ``slot_rows``: rows of the slot to write; None: the
        first ones. ``attempts``: of samples that replace bad ones; None: 0.
        """

    def areas(
        self,
        head: int,
        areas: Annotated[
            NDArray[numpy.int64], dict(shape=(None, 5), order="C", device="cpu", writable=False)
        ],
    ) -> None:
        """
        Set where a head without a fixed size writes the rows of the slot. ``areas``: (rows, 5) int64:
        the first byte from the head's own first one on, height and width of the picture, and of the
        canvas in whose upper left it is.
        """

    def files(
        self,
        input: int,
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
        crc32c: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> None:
        """
        Make an input of the rows from files. ``blob``, ``ends``: paths; path i ends at byte
        ends[i]. ``offset``, ``length``: of the sample, in bytes; length -1: to the end.
        ``file_bytes``, ``mtime_ns``: of the whole file when it was indexed; ``crc32c``: of the
        sample's bytes then; -1 or None: unknown.
        """

    def sizes(
        self,
        sizes: Annotated[
            NDArray[numpy.int64], dict(shape=(None, 2), order="C", device="cpu", writable=False)
        ],
    ) -> None:
        """
        Refuse rows whose first input has another (height, width) in pixels. ``sizes``: (rows, 2) int64.
        """

    def windows(
        self,
        windows: Annotated[
            NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
    ) -> None:
        """
        Make the rows with crops that boxes have decided. ``windows``: (rows, 4 × windows) int32 of ``trace``.
        """

    def frames(self, frames: Sequence[ImageFrame]) -> None:
        """
        Make frames instead of rows of the slot. ``frames``: of each row of the slot, in the size
        that the program makes.
        """

    def compose(
        self,
        composer: Composer,
        frames: Sequence[ImageFrame],
        numbers: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None:
        """
        Make the rows of frames, by ``composer``, whose last program the job has. ``numbers``: in
        ``frames``, of each row's, (rows × composer.frames,) int32; -1 for those that aren't used.
        """

    def paste(
        self,
        points: Annotated[
            NDArray[numpy.float32], dict(shape=(None, 2), order="C", device="cpu", writable=False)
        ],
        ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        pictures: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None:
        """
        Paste shapes on pictures of the composer. ``points``, (n, 2) float32, in pixels of the pictures that
        they are taken from; the end of each shape; and the end of each picture's shapes, row by row.
        """

    def pixels(
        self,
        input: int,
        array: Annotated[NDArray[numpy.uint8], dict(order="C", device="cpu", writable=False)],
        rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        partial: bool = False,
    ) -> None:
        """
        Make an input of the rows from an array, (records, H, W, C) or (records, H, W).
        ``partial``: a row -1 is in another array.
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
        Copy rows of an array into the slot. ``partial``: a row -1 is in another array.
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
        Take rows from a cache, and store those that it lacks; ``store``: None without a cache.
        ``before``: program whose pixels are stored, from which the job's program continues; None:
        files' bytes are stored. ``checks``: whether to compare a row with its file before use.
        """

    @property
    def done(self) -> bool: ...
    def has(self, row: AtWork) -> bool:
        """Return whether a row at work is one of this job's."""

    def failures(self) -> list[tuple[int, int, str, str]]:
        """
        Return (row, number of the input, kind of error, message) of each row that failed.
        """

class ForeignRow:
    """A row whose bytes Pillow decodes, not the native decoder."""

    def make(self, decode: Callable) -> None:
        """Make the row. ``decode``: as for ``RowMaker``."""

class AtWork:
    """A row that a thread is making."""

    @property
    def kind(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def system_id(self) -> int:
        """Number of its thread in /proc."""

    @property
    def thread(self) -> int:
        """Number of its thread, as threading.get_ident() returns it."""

    @property
    def row(self) -> int: ...
    @property
    def rows_begun(self) -> int:
        """Rows that its thread has begun so far."""

    @property
    def phase(self) -> str: ...
    @property
    def begin_s(self) -> float:
        """Begin by time.monotonic(), plus waits for other rows, in s."""

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
    ) -> None: ...
    def submit(self, job: Job, first: bool = False) -> None: ...
    def cancel(self, job: Job) -> None: ...
    def employ(self, workers: int) -> None:
        """
        Let ``workers`` of the decoding threads work at once, at least one; the others wait.
        """

    def take_foreign(self) -> ForeignRow | None:
        """
        Wait for a row that Pillow decodes. Returns None when the pool is closed.
        """

    @property
    def foreign_waiting(self) -> int: ...
    @property
    def broken(self) -> str | None:
        """Description of the first thread that an error ended; None without one."""

    def at_work(self) -> list[AtWork]:
        """Return the rows that threads are making now."""

    def give_up(self, row: AtWork) -> bool:
        """
        Give up a row and its job; a new thread replaces the row's thread. Returns False if it has ended.
        """

    def close(self, patience_ms: int) -> bool:
        """End the threads. Returns False if some are inside a system call."""

    def stats(self) -> PoolStats: ...

def install_faults(
    rules: Sequence[tuple[int, int, int, float, float, int, int | None, int, int, str]], log: bytes
) -> None:
    """
    Install faults, as standpipe.system.faults has read them. ``log``: path of a file; empty: none.
    """

def faultpoint(point: int, key: int, attempt: int) -> int:
    """
    Pass a fault point. Returns the errno of an error to raise, 0 for none, or -1 for another error.
    """

def fault_hits() -> list[int]:
    """
    Return how often this process has passed each fault point since faults were installed.
    """

def fault_key(name: bytes) -> int:
    """Return the key of a file's path at fault points for files."""

def run_lengths(text: bytes) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """
    Return the lengths of runs of pixels that COCO has as text, (n,) int64.
    """

def outline_of_runs(
    runs: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    height: int,
    width: int,
) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]:
    """
    Return the outline of the pixels of every second run, as points x and y by turns, flat float32: rings
    between the pixels, each ended by NaN. Runs go down the columns.
    """

def turn_alike(
    points: Annotated[NDArray[numpy.float32], dict(shape=(None, 2), order="C", device="cpu")],
) -> None:
    """
    Turn rings around that wind the other way than the first rings of ``outline_of_runs``.
    """

def move_shapes(
    points: Annotated[NDArray[numpy.float32], dict(shape=(None, 2), order="C", device="cpu", writable=False)],
    ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    moves: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None, 12), order="C", device="cpu", writable=False)
    ],
    cut: bool,
) -> tuple[
    Annotated[NDArray[numpy.float32], dict(shape=(None,))],
    Annotated[NDArray[numpy.int64], dict(shape=(None,))],
    Annotated[NDArray[numpy.float32], dict(shape=(None,))],
]:
    """
    Return points and ends of shapes after the moves of their rows, and the box around each, (n, 4) float32;
    points and boxes are flat. ``cut``: at the edges of each result.
    """

@overload
def draw_shapes(
    points: Annotated[NDArray[numpy.float32], dict(shape=(None, 2), order="C", device="cpu", writable=False)],
    ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    pictures: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    layers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ratio: float,
    out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), order="C", device="cpu")],
) -> None:
    """
    Write zeros, and the value of each shape where the centre of a pixel is in it. Shapes of one picture come
    one after another. Higher layers are drawn over lower ones, and smaller shapes over larger ones of their
    layer. ``ratio``: pixels of the shapes' places in each pixel of ``out``, (pictures, H, W).
    """

@overload
def draw_shapes(
    points: Annotated[NDArray[numpy.float32], dict(shape=(None, 2), order="C", device="cpu", writable=False)],
    ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    pictures: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    layers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ratio: float,
    out: Annotated[NDArray[numpy.int16], dict(shape=(None, None, None), order="C", device="cpu")],
) -> None: ...
def left_of_shapes(
    points: Annotated[NDArray[numpy.float32], dict(shape=(None, 2), order="C", device="cpu", writable=False)],
    ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    layers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    sizes: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]:
    """
    Return the box around what shapes above leave of each shape's pixels, (n, 4) float32, flat: infinite where
    they take none, and with left beyond right where they take all. ``layers``: twice the number of the shape's
    picture, and 1 more for a shape above the others; they rise. ``sizes``: (n, 2) int64, of the pictures.
    """

ANY_SCANS: int = 16

MOST_BLOCKS: int = 33554432

FOR_MEMORY: int = 2097152

def sample_key(seed: int, epoch: int, position: int, attempt: int, op: int) -> int:
    """Return the 64-bit key of the random numbers of one op for one sample."""

def jpeg_size(
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    max_pixels: int,
    max_scans: int,
    upright: bool,
) -> tuple[int, int, str]:
    """
    Return (height, width, '') of a JPEG, in pixels, or (0, 0, 'foreign') for files that Pillow
    decodes, or (0, 0, error message).
    """

class ByteCount:
    """Counts the bytes that arrays of ``mapped`` have now."""

    def __init__(self) -> None: ...
    @property
    def now(self) -> int: ...

def mapped(
    file: int, bytes: int, count: ByteCount | None = None
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """
    Return the first ``bytes`` bytes of a file, writable and shared, mapped until the last view
    ends. Until then ``count`` counts them.
    """

def give_back_free_memory() -> None:
    """
    Let the C library return memory to the system that this thread has freed.
    """

def end_with(pipe: int, process: int) -> None:
    """
    Start a thread that ends this process when ``process`` has ended, or ``pipe``'s other end is closed.
    """

class Reader:
    """Reads files. Thread-safe."""

    def __init__(self, policy: ReadPolicy, hedged_bytes: int, most_hedged: int) -> None:
        """
        ``hedged_bytes``: buffers of all reads that may get a second read beside them.
        ``most_hedged``: bytes of the largest sample that may get one.
        """

    def close(self, patience_ms: int) -> bool:
        """
        End all waits, so that reads fail. Returns False if some are inside a system call then.
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
    """
    Counts processes' memory for whole frames under one cap, with an account for each.
    """

    def __init__(self, accounts: int) -> None:
        """
        ``accounts``: one per process. Nothing fits until ``cap_bytes`` is set.
        """

    @staticmethod
    def of(file: int) -> SharedSide:
        """Open the one in a file, which may be closed then."""

    @property
    def descriptor(self) -> int:
        """
        Descriptor of the file, for other processes to open; -1 if ``of`` opened it.
        """

    @property
    def cap_bytes(self) -> int: ...
    @cap_bytes.setter
    def cap_bytes(self, arg: int, /) -> None: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    def used_by(self, account: int) -> int:
        """Return the bytes that an account uses."""

    def clear(self, account: int) -> None:
        """Clear the account of a process that has ended."""

class SideArena:
    """Counts memory for whole frames, under one cap for all threads."""

    @overload
    def __init__(self, cap_bytes: int) -> None: ...
    @overload
    def __init__(self, shared: SharedSide, account: int) -> None:
        """Use one account of a ``SharedSide``, in one thread."""

    def acquire(self, bytes: int) -> bool:
        """
        Wait for ``bytes`` bytes, at most the cap. Returns False if the arena was closed.
        """

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
    Iterate over ``indices``, and write to a heartbeat when each row begins, from row ``first``
    on. ``then``: the step that is written after the last row.
    """

class RowMaker:
    """Makes rows of images and masks, for one thread."""

    def __init__(
        self,
        side: SideArena,
        read_bytes: int,
        heartbeat: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
        decode: Callable,
    ) -> None:
        """
        ``read_bytes``: ``side`` counts only larger files. ``heartbeat``: (8,) int64, for waits for
        memory. ``decode(data, kind, reserve)``: has Pillow decode what native code doesn't, and
        returns its pixels, and whether the file ends too soon. It calls ``reserve(height, width,
        bytes)`` before it takes memory, which returns '' or a reason to refuse.
        """

    def read(
        self,
        reader: Reader,
        path: bytes,
        offset: int,
        length: int,
        file_bytes: int = -1,
        mtime_ns: int = -1,
        crc32c: int = -1,
    ) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], str, Stamp]:
        """
        Read bytes [offset, offset + length) of a file; length < 0: to its end.
        Returns them, '' or an error message, and the file's stamp. ``file_bytes``, ``mtime_ns``: of
        the whole file when it was indexed; ``crc32c``: of the bytes then; -1: unknown.
        """

    def admit(self, bytes: int) -> bool:
        """
        Wait for the memory of a file that other code reads. Returns False if it doesn't fit.
        """

    def make(
        self,
        program: Program,
        input: int,
        data: Annotated[NDArray[numpy.uint8], dict(order="C", device="cpu", writable=False)],
        seed: int,
        epoch: int,
        position: int,
        attempt: int,
        outs: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")]],
        first_px: tuple[int, int] = (0, 0),
        windows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> str:
        """
        Make a row of one of the program's inputs; each head of that input writes its array of
        ``outs``. ``data``: encoded (n,), or pixels, (H, W, C) or (H, W). ``first_px``: (height,
        width) of the first input in pixels, which its own must fit. ``windows``: (4 × windows,) of
        ``trace``, for crops that boxes decide. Returns '' or an error message.
        """

    def make_many(
        self,
        program: Program,
        images: Sequence[
            tuple[
                Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
                int,
                int,
                int,
            ]
        ],
        seed: int,
        epoch: int,
        out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    ) -> list[str]:
        """
        Make rows of ``out``, (n, bytes of a row), and write each begin to the heartbeat. ``images``:
        (encoded bytes, position, attempt, row) of each. Returns '' or an error message for each.
        """

    @property
    def source_px(self) -> tuple[int, int]:
        """
        (height, width) of the last input before all stages, in pixels; (0, 0) if it isn't known.
        """

    @property
    def counts(self) -> tuple[int, int, int]:
        """
        Rows from JPEGs with damage that was decoded over, from files that end too soon, and rows that
        libjpeg-turbo decoded again.
        """

    def release(self) -> None:
        """
        Return the memory of the sample's file, once none of it is in use any more.
        """

def file_marks(
    blob: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]
]:
    """
    Return (sizes in bytes, modification times in ns) of n paths, each (n,); -1 for a file that
    can't be examined. Raises what a signal handler raises.
    """

class CheckedFile:
    """A file that was read and, if it is a JPEG, decoded."""

    @property
    def kind(self) -> str:
        """
        'whole'; 'read' or 'decode' for what failed; 'foreign' for files that Pillow decodes; or 'cancelled'.
        """

    @property
    def text(self) -> str:
        """Error message; empty without an error."""

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
        """The file's bytes, without a copy."""

    def reserve(self, frame_bytes: int) -> str:
        """
        Wait for the memory that Pillow needs, which this object then holds. Returns '' or an error message.
        """

class FileChecks:
    """Reads files and decodes them completely. Thread-safe."""

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
    def check(self, path: bytes, offset: int, length: int, crc32c: int = -1) -> CheckedFile:
        """
        Read and decode bytes [offset, offset + length) of a file; length < 0: to its end.
        ``crc32c``: what the bytes must have; -1: any.
        """

    def close(self) -> None:
        """End all waits. Files not decoded by then are 'cancelled'."""

class Stamp:
    """The version of a file that was read; all zeros without a file."""

    def __init__(
        self, file_bytes: int = 0, mtime_ns: int = 0, ctime_ns: int = 0, racy: bool = False
    ) -> None: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def mtime_ns(self) -> int:
        """Time of modification, in ns; its owner can set it."""

    @property
    def ctime_ns(self) -> int:
        """Time of the last inode change, in ns, set by the system only."""

    @property
    def racy(self) -> bool:
        """True if a later change might have the same times."""

class CachedRow:
    """A row in a cache set: its place, and its properties."""

    @property
    def extent(self) -> int:
        """Number of the extent."""

    @property
    def offset(self) -> int:
        """First byte in the extent."""

    @property
    def length(self) -> int:
        """Bytes of the row."""

    @property
    def checksum(self) -> int:
        """See ``checksum``."""

    @property
    def spilled(self) -> bool:
        """True for an extent of the spill."""

    @property
    def damaged(self) -> bool:
        """True if its file was decoded over damage."""

    @property
    def truncated(self) -> bool:
        """True if its file ends too soon."""

    @property
    def stamp(self) -> Stamp:
        """Stamp of the file from which the row was made."""

class CacheStats:
    """
    Counts what this process did with a cache set, in rows unless a name says bytes.
    """

    @property
    def hits(self) -> int:
        """Rows that were found and read."""

    @property
    def misses(self) -> int:
        """Rows that weren't found, or were of no use."""

    @property
    def stored(self) -> int:
        """Rows that were stored."""

    @property
    def skipped(self) -> int:
        """
        Rows not stored: no room, a full queue, or another worker was storing it.
        """

    @property
    def stale(self) -> int:
        """Rows whose file had changed."""

    @property
    def errors(self) -> int:
        """Entries or rows that were damaged or couldn't be accessed."""

    @property
    def hit_bytes(self) -> int:
        """Bytes of the hits."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of the stored rows."""

    @property
    def spilled_hits(self) -> int:
        """Hits on the spill."""

    @property
    def spilled_stored(self) -> int:
        """Rows stored on the spill."""

class CacheWants:
    """The room that a store asks for: extents, which are parts of files."""

    @property
    def extent(self) -> bool:
        """True if the store wants an extent."""

    @property
    def row_bytes(self) -> int:
        """Bytes of the largest row so far; an extent needs as many."""

    @property
    def skipped(self) -> bool:
        """True if a row wasn't stored because there was no room."""

    @property
    def memory(self) -> bool:
        """True if the store takes extents in memory."""

    @property
    def spill(self) -> bool:
        """True if the store takes extents of the spill."""

CACHE_HEADER_BYTES: int = 4096

CACHE_ENTRY_BYTES: int = 48

CACHE_SPILLED: int = 1

MOST_EXTENTS: int = 16777216

MOST_CACHED_BYTES: int = 1073741824

class CacheStore:
    """Rows of a cache set, shared by local processes. Thread-safe."""

    def __init__(self, directory: int, records: int, salt: int, writes: bool, queue_bytes: int) -> None:
        """
        ``directory``: descriptor of the set's folder. ``salt``: the set's own number.
        ``queue_bytes``: of rows that wait for the spill. Raises ``ValueError`` if the table isn't
        this set's, ``RuntimeError`` if another version wrote it, and ``OSError``.
        """

    @staticmethod
    def table_header(records: int, salt: int) -> bytes:
        """Return a set's table header."""

    def set_spill(self, directory: int, patience_ms: int = 4000) -> None:
        """
        Store rows on a disk when memory is full. ``directory``: descriptor of its folder.
        The store stops using the disk when reading a row takes longer than ``patience_ms``.
        """

    def find(self, record: int) -> CachedRow | None:
        """Return where the record's row is stored, or None."""

    def get(self, record: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))] | None:
        """Return the record's row, (n,) uint8, or None. Counts a hit or a miss."""

    def take(
        self, record: int, path: bytes | None
    ) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))] | None, CachedRow | None]:
        """
        Return the record's row, or None, and where it was found, or None.
        A row that was found but isn't returned is unreadable, or its file at ``path`` has changed.
        Files are examined once until ``forget_checks``; with ``path`` None never.
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
        Store a row, or queue it for the spill, if the set has none or has the row ``stale``.
        Returns whether this was done. The row's file then counts as examined.
        """

    def have(self, first: int, stop: int) -> Annotated[NDArray[numpy.bool_], dict(shape=(None,))]:
        """
        Return for each record in [first, stop) whether the set has an entry, (stop - first,) bool.
        """

    def add_extent(self, number: int, file: int, begin: int, end: int, spilled: bool) -> bool:
        """
        Let the store write to bytes [begin, end) of a file, through a copy of its descriptor.
        Returns False if writing to memory, or to the spill, has failed before.
        """

    def wants(self) -> CacheWants: ...
    def wait(self, patience_ms: int) -> bool:
        """
        Wait until the store wants an extent or has a first error. Returns False when it is closed.
        """

    def forget_checks(self) -> None: ...
    def refuse(self) -> None:
        """Skip rows without room from now on, until ``ask_again``."""

    def ask_again(self) -> None:
        """Let the next row without room ask for an extent again."""

    def stats(self) -> CacheStats: ...
    def last_error(self) -> str:
        """Return the last error; empty without one."""

    def close(self, patience_ms: int) -> bool:
        """
        End ``wait``, and the queue for the spill. Returns False if the disk took longer than that.
        """

def checksum(
    bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> int:
    """
    Return the checksum of a row, with which it is stored and compared when it is read.
    """

def checksum_by(
    path: str,
    bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> int | None:
    """
    Return the checksum as ``table``, ``sse4.2`` or ``armv8`` computes it; None if this machine can't.
    """

def crc32c(
    bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    before: int = 0,
) -> int:
    """Return the CRC-32C of ``bytes``, continued from ``before``."""

def crc32c_of(
    bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    begins: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
    """Return the CRC-32C of n ranges of ``bytes``, (n,) uint32."""

def crc32c_of_file(
    file: int,
    begins: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
    """
    Return the CRC-32C of n ranges of a file, (n,) uint32. Raises ``OSError``, and ``EOFError``
    if the file ends too soon.
    """
