"""How one sample is made where Python code takes part: dataset, native kernels and functions, then its row.

The same code runs in the caller's thread, in worker threads and in worker processes, so that all give the same
bytes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import GeneratorType
from typing import Any, TypeVar

import numpy as np

from penstock import _native
from penstock.batch import Collate
from penstock.contracts import Records
from penstock.engine.board import IDLE, IN_TURN, READING, ROW, SINCE, STEP, Desk, new_desk
from penstock.engine.checks import Checks
from penstock.engine.collating import numbered
from penstock.engine.draws import Drew, GlobalGenerators, OwnGenerators
from penstock.engine.workers import Failure, Flaws
from penstock.faults import faultpoint
from penstock.read import read_policy
from penstock.sizing import READ_BYTES
from penstock.source import NAMES, Stream, StreamEnded
from penstock.spec import AnyArray, Decoding, Listed, Reads, Spec, UInt8Array
from penstock.transform import DATASET_OP, BatchFunction, FunctionStep, NativeStep, SampleProgram
from penstock.transform.foreign import Undecodable, decode_foreign
from penstock.transform.function import Function
from penstock.transform.values import as_array, in_form, is_picture, is_tensor, out_of_form

Sample = dict[str, Any]
Result = TypeVar("Result")
TARGETS = frozenset(("image", "images", "mask", "masks", "bboxes", "keypoints"))  # albumentations' names
MOST_DEPTH, MOST_PARTS = 8, 100  # of what a value holds, that are looked at for its size
KEPT_PROGRAMS = 256  # compiled kernels for images of different sizes

_EXACT: Mapping[type, type] = {int: np.int64, float: np.float64, bool: np.bool_}

END = "end"  # the place of a failure that is none: a stream of unknown length has ended

Place = str  # "source", "read", "decode", "transform" or "batch"


class RowFailed(Exception):
    """A sample can't be made. ``cause``: what the user's code raised, if that is why."""

    def __init__(self, place: Place, reason: str, cause: BaseException | None = None) -> None:
        super().__init__(place, reason)
        self.place, self.reason, self.cause = place, reason, cause

    def failure(self, row: int) -> Failure:
        """As a row's fate."""
        return Failure(row, self.place, self.reason, self.cause)


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """Where a sample's encoded bytes are, as one row of ``contracts.Files``."""

    path: bytes
    offset: int
    length: int


class Inputs:
    """What the source says of each row of a batch, as values by field.

    instead  values of rows whose record was exchanged
    """

    def __init__(self, records: Records) -> None:
        self._files = {
            name: (files, files.offset.tolist(), files.length.tolist())
            for name, files in records.files.items()
        }
        self._rows = [
            (name, part.array, part.rows.tolist())
            for name, rows in records.rows.items()
            for part in rows.parts
        ]
        self._plain = {
            name: values.tolist() if values.ndim == 1 and values.dtype == np.int64 else values
            for name, values in records.plain.items()
        }
        self._any = bool(records.files or records.rows or records.plain)
        self.instead: dict[int, dict[str, Any]] = {}

    def part(self, first: int, stop: int) -> Inputs:
        """Those of rows [first, stop) alone, with arrays of their own: to be sent to another process."""
        part = Inputs(Records(np.zeros(0, np.int64)))
        part._any = self._any
        rows = slice(first, stop)
        chosen = np.arange(first, stop)
        part._plain = {name: values[rows] for name, values in self._plain.items()}
        part._files = {
            name: (replace(files, paths=files.paths.take(chosen)), offsets[rows], lengths[rows])
            for name, (files, offsets, lengths) in self._files.items()
        }
        part._rows = [(name, *_own_rows(array, numbers[rows])) for name, array, numbers in self._rows]
        part.instead = {row - first: self.instead[row] for row in self.instead if first <= row < stop}
        return part

    def row(self, row: int) -> dict[str, Any]:
        """The values of one row."""
        if not self._any:
            return {}
        if row in self.instead:
            return dict(self.instead[row])
        inputs: dict[str, Any] = {name: values[row] for name, values in self._plain.items()}
        for name, (files, offsets, lengths) in self._files.items():
            inputs[name] = EncodedFile(files.paths[row], offsets[row], lengths[row])
        for name, array, rows in self._rows:
            if rows[row] >= 0:  # else it lies in another array
                inputs[name] = array[rows[row]]
        return inputs


def _own_rows(array: AnyArray, numbers: list[int]) -> tuple[AnyArray, list[int]]:
    """A copy of the rows that are in an array, and which of them each number is, or −1 for one that isn't."""
    inside = [number for number in numbers if number >= 0]
    places = iter(range(len(inside)))
    return array[inside], [next(places) if number >= 0 else -1 for number in numbers]


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that a worker has to know to make samples; goes to worker processes once.

    program     what happens to a sample
    functions   what happens to a batch of them
    dataset     an object with ``__getitem__`` that gives samples, or None for sources that say where bytes are
    names       fields of samples that are no dicts
    collate     of fields that differ in shape, how they are put together
    checks      what is asked of the values of a finished sample
    side_bytes  cap of what images may take beside their rows
    """

    program: SampleProgram
    functions: tuple[BatchFunction, ...]
    dataset: Any
    names: tuple[str, ...]
    seed: int
    decoding: Decoding
    reads: Reads
    simd: str | None
    collate: Collate
    checks: Checks
    side_bytes: int


@dataclass(slots=True)
class RowKey:
    """Which sample: its record, and what its draws hang on.

    attempt  1 and more for a sample that takes a bad one's place
    """

    index: int
    epoch: int
    position: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class PartOfRows:
    """Some rows, as they are sent to another process; ``Rows`` says what each field is."""

    epoch: int
    indices: Sequence[int]
    positions: Sequence[int]
    attempts: Sequence[int]
    inputs: Inputs


@dataclass(slots=True)
class Rows:
    """Rows to fill.

    indices     (rows) record numbers
    positions   (rows) places in the epoch's global order
    attempts    (rows) 0; 1 and more for a record that takes a bad one's place
    inputs      what the source says of each
    views       (rows, …) by field, of fields of a sample that lie in the slot
    lists       (rows) values by field, of fields that lie in none
    given       (rows, …) by field, of what every batch has of its own: ``index``, ``valid``
    known_from  who says what a sample looks like: ``"in record 7"``
    """

    epoch: int
    indices: list[int]
    positions: list[int]
    attempts: list[int]
    inputs: Inputs
    views: Mapping[str, AnyArray]
    lists: Mapping[str, list[Any]]
    given: Mapping[str, AnyArray]
    known_from: str

    def key(self, row: int) -> RowKey:
        """Which sample a row is."""
        return RowKey(self.indices[row], self.epoch, self.positions[row], self.attempts[row])

    @property
    def batch_key(self) -> RowKey:
        """What draws for the whole batch hang on: its first row, whatever took that one's place."""
        return replace(self.key(0), attempt=0)

    def cut(self, rows: int) -> Rows:
        """The first ``rows`` rows."""
        return replace(
            self,
            indices=self.indices[:rows],
            positions=self.positions[:rows],
            attempts=self.attempts[:rows],
            views={name: array[:rows] for name, array in self.views.items()},
            lists={name: values[:rows] for name, values in self.lists.items()},
            given={name: array[:rows] for name, array in self.given.items()},
        )


@dataclass(frozen=True, slots=True)
class PythonCall:
    """One call of the user's code for a sample.

    call       takes a value and the key of its draws
    takes_key  whether it makes use of that
    name       what an error calls it
    """

    call: Callable[[Any, int], Sample]
    takes_key: bool
    op: int
    place: Place
    name: str


@dataclass(frozen=True, slots=True)
class Supplies:
    """What the makers of one process share.

    reader  reads files
    side    memory for whole frames
    """

    reader: _native.Reader
    side: _native.SideArena

    @classmethod
    def of(cls, recipe: Recipe, makers: int = 1) -> Supplies:
        """As the recipe says, for so many makers."""
        reader = _native.Reader(read_policy(recipe.reads), 2 * READ_BYTES * makers, READ_BYTES)
        return cls(reader, _native.SideArena(recipe.side_bytes))

    @property
    def met(self) -> Flaws:
        """What reads met so far."""
        reader = self.reader
        return Flaws(retries=reader.retries, hedged=reader.hedged, slowest_read_s=reader.slowest_s)

    def close(self, patience_s: float = 0) -> None:
        """End waits for memory, and for files: they fail. Threads that read end, as far as they do so in time."""
        self.reader.close(int(patience_s * 1000))
        self.side.close()


class SampleMaker:
    """Makes samples for one thread, inside ``with maker.own``.

    supplies  what it shares with others of its process
    catches   what the user's code may raise without ending the thread: in a worker everything, also ``SystemExit``
              and the panics of other languages; in the caller's thread an interrupt is the caller's
    desk      where it writes down what it is at
    group     stands for all makers of a loader; default: it is alone
    """

    def __init__(
        self,
        recipe: Recipe,
        shared: GlobalGenerators,
        supplies: Supplies,
        *,
        catches: type[BaseException] = Exception,
        desk: Desk | None = None,
        group: object = None,
    ) -> None:
        self.own = OwnGenerators(shared, self if group is None else group)
        self.desk: Desk = new_desk() if desk is None else desk
        self._catches = catches
        self._reader = supplies.reader
        self.recipe, self._shared = recipe, shared
        self._native = _native.SampleMaker(supplies.side, READ_BYTES)
        self._foreign_truncated = 0  # rows of files other than JPEG
        self._told = Flaws()
        self._gives: type = dict  # what the dataset's last sample was: dict, tuple, or any other object
        self._programs: dict[tuple[int, int, int], tuple[_native.Program, Spec]] = {}
        self._dataset = (
            None
            if recipe.dataset is None
            else PythonCall(self._item, False, DATASET_OP, "source", "the dataset")
        )
        self._steps = [
            _python_call(step, self.own) if isinstance(step, FunctionStep) else step
            for step in recipe.program.steps
        ]
        # A kernel makes numbers of bytes: all are finite.
        self._made_natively = "image" if self._steps and isinstance(self._steps[-1], NativeStep) else None

    def measure(self, key: RowKey, inputs: Inputs) -> Mapping[str, Spec | Listed] | Failure:
        """What each field of a sample looks like, or why it can't be made."""

        def make(seeded: bool) -> Mapping[str, Spec | Listed] | Failure:
            self.at(0)
            try:
                return _measured(numbered(self.make(key, inputs.row(0), {}, seeded), self.recipe.collate))
            except RowFailed as failed:
                return failed.failure(0)
            finally:
                self.desk[STEP] = IDLE

        return self.run(make)

    def at(self, row: int, step: int = 0) -> None:
        """Write down that a row begins, or a step with the whole batch."""
        desk = self.desk
        desk[SINCE] = time.monotonic_ns()
        desk[ROW] = row
        desk[STEP] = step

    def fill(self, rows: Rows, first: int, stop: int) -> list[Failure]:
        """Make rows [first, stop); which of them can't be made."""
        return self.run(lambda seeded: self.filled(rows, first, stop, seeded))

    def filled(self, rows: Rows, first: int, stop: int, seeded: bool) -> list[Failure]:
        """Likewise, inside ``run``."""
        image = rows.views.get("image")
        bad = []
        for row in range(first, stop):
            out = {} if image is None else {"image": image[row]}
            self.at(row)
            try:
                sample = self.make(rows.key(row), rows.inputs.row(row), out, seeded)
                write_row(sample, row, rows, out)
            except RowFailed as failed:
                bad.append(failed.failure(row))
                if failed.place == END:
                    break
        return bad

    def new_flaws(self) -> Flaws:
        """Rows that were made of files that aren't whole, since the last call."""
        native = self._native
        now = Flaws(native.damaged, native.truncated + self._foreign_truncated)
        before, self._told = self._told, now
        return now - before

    def run(self, make: Callable[[bool], Result]) -> Result:
        """``make(False)``, or ``make(True)`` where calls have to be seeded; ``draws`` says why."""
        return self._shared.run(self.own, make)

    def make(self, key: RowKey, sample: Sample, out: Mapping[str, AnyArray], seeded: bool) -> Sample:
        """The sample of a record, its values by field. Raises ``RowFailed``.

        sample  what the source says of the record, by field; an image's encoded bytes as ``EncodedFile``
        out     rows to write into, by field, where the last step can do that without a copy: then the sample's
                value is that row
        """
        faultpoint("worker.row", key.index)
        if self._dataset is not None:
            sample |= self.call(self._dataset, key, key, seeded)
        for number, step in enumerate(self._steps):
            self.desk[STEP] = 1 + number
            if isinstance(step, PythonCall):
                sample = self.call(step, key, sample, seeded)
            else:
                row = out.get("image") if number == len(self._steps) - 1 else None
                sample = {**sample, "image": self._image(number, step, key, sample.get("image"), row)}
        if problem := self.recipe.checks.problem(sample, self._made_natively):
            raise RowFailed("batch", problem)
        return sample

    def as_given(self, sample: Sample) -> Any:
        """A sample in the dataset's own form: a dict, a tuple, or its only value."""
        if self._gives is dict or sample.keys() - set(self.recipe.names):
            return sample
        return tuple(sample.values()) if self._gives is tuple else next(iter(sample.values()))

    def _item(self, key: RowKey, _: int) -> Sample:
        """The dataset's values by field."""
        dataset, names = self.recipe.dataset, self.recipe.names
        item = dataset.sample(key.epoch, key.index) if isinstance(dataset, Stream) else dataset[key.index]
        if item is None:
            raise RowFailed("source", f"dataset[{key.index}] returned None; return the sample")
        self._gives = dict
        if type(item) is dict:
            return item.copy()
        if isinstance(item, Mapping):
            return dict(item)
        if isinstance(item, tuple) and hasattr(item, "_asdict"):
            return dict(item._asdict())
        self._gives = tuple if isinstance(item, tuple | list) else object
        values = item if isinstance(item, tuple | list) else (item,)
        if len(values) > len(names):
            fields = (*names, *(f"field{number}" for number in range(len(names), len(values))))
            raise RowFailed("source", f"a sample of {len(values)} values; name them, as fields={fields!r}")
        if len(values) < len(names) and names != NAMES:
            raise RowFailed("source", f"a sample of {len(values)} values, and fields={names!r} are more")
        return dict(zip(names, values, strict=False))

    def call(self, step: PythonCall, key: RowKey, argument: Any, seeded: bool) -> Sample:
        """Call Python code with its random numbers set."""
        number = 0
        if seeded or step.takes_key or self.own.watches_torch:  # a quarter of what calling costs
            number = _native.sample_key(self.recipe.seed, key.epoch, key.position, key.attempt, step.op)
            self.own.set(number)
        try:
            result: Sample = (
                self._shared.seeded(self.own, self._in_turn(step.call), argument, number)
                if seeded
                else step.call(argument, number)
            )
        except (Drew, RowFailed):
            raise
        except StreamEnded as ended:
            raise _end_of(self.recipe.dataset, ended) from None
        except self._catches as error:
            raise RowFailed(step.place, f"{step.name}: {said(error)}", error) from error
        for name in result:
            if type(result[name]) is GeneratorType:
                raise RowFailed(
                    step.place, f"{step.name}: {name!r} is a generator; return the value, don't yield it"
                )
        return result

    def _in_turn(self, call: Callable[[Any, int], Sample]) -> Callable[[Any, int], Sample]:
        """The call, for which it has to wait: that others take their time isn't its slowness."""
        desk, begin = self.desk, time.monotonic_ns()
        desk[STEP] += IN_TURN

        def called(argument: Any, number: int) -> Sample:
            desk[SINCE] += time.monotonic_ns() - begin
            desk[STEP] -= IN_TURN
            return call(argument, number)

        return called

    def _image(
        self, number: int, step: NativeStep, key: RowKey, image: Any, row: AnyArray | None
    ) -> AnyArray:
        """An image through a native kernel."""
        try:
            return self._made(number, step, key, image, row)
        finally:
            self._native.release()  # now that what it took of the side arena is gone

    def _made(self, number: int, step: NativeStep, key: RowKey, image: Any, row: AnyArray | None) -> AnyArray:
        rgb: UInt8Array | None = None
        data: UInt8Array | None = None
        if isinstance(image, EncodedFile):
            self.desk[STEP] = READING
            data = self._read(image)
            self.desk[STEP] = 1 + number
            if step.kernel is not None:
                size = (0, 0)  # whatever it is, the result's is known
            else:
                limits = self.recipe.decoding.limits
                height, width, wrong = _native.jpeg_size(data, limits.max_pixels, limits.max_scans)
                size = (height, width)
                if wrong == "foreign":
                    rgb = self._foreign(number, step, key, data)
                    size = (rgb.shape[0], rgb.shape[1])
                elif wrong:
                    raise RowFailed("decode", wrong)
        else:
            rgb = _as_rgb(image, step)
            size = (rgb.shape[0], rgb.shape[1])
        program, spec = self._program(number, step, size[0], size[1])
        out = row if row is not None and row.shape == spec.shape and row.dtype == spec.dtype else None
        if out is None:
            out = np.empty(spec.shape, spec.dtype)
        seeds = self._seeds(key)
        into = out.reshape(-1).view(np.uint8)
        wrong = "foreign"
        if rgb is None:
            assert data is not None
            wrong = self._native.from_encoded(program, data, *seeds, into)
            if wrong == "foreign":
                rgb = self._foreign(number, step, key, data)
        if rgb is not None:
            wrong = self._native.from_pixels(program, rgb, *seeds, into)
        if wrong:
            raise RowFailed("decode", wrong)
        return out

    def _seeds(self, key: RowKey) -> tuple[int, int, int, int]:
        return self.recipe.seed, key.epoch, key.position, key.attempt

    def _read(self, file: EncodedFile) -> UInt8Array:
        data, wrong = self._native.read(self._reader, file.path, file.offset, file.length)
        if wrong:
            raise RowFailed("read", wrong)
        return data

    def _foreign(self, number: int, step: NativeStep, key: RowKey, data: UInt8Array) -> UInt8Array:
        def reserve(height: int, width: int, frame_bytes: int) -> str:
            program, _ = self._program(number, step, height, width)
            return self._native.reserve(program, height, width, *self._seeds(key), frame_bytes)

        try:
            frame = decode_foreign(data, self.recipe.decoding, reserve)
        except Undecodable as error:
            raise RowFailed("decode", str(error)) from error
        self._foreign_truncated += frame.truncated
        return frame.rgb

    def _program(
        self, number: int, step: NativeStep, height: int, width: int
    ) -> tuple[_native.Program, Spec]:
        at = (number, height, width) if step.kernel is None else (number, 0, 0)
        found = self._programs.get(at)
        if found is None:
            kernel = step.for_size(height, width)
            compiled = kernel.compile(self.recipe.decoding, self.recipe.simd)
            found = compiled, kernel.output
            if len(self._programs) == KEPT_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            self._programs[at] = found
        return found


def said(error: BaseException) -> str:
    """Kind and words of an error, also of one whose words can't be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def unforeseen(row: int, error: BaseException) -> Failure:
    """The fate of rows whose worker met an error outside of the user's code: it goes on, and nobody waits for it."""
    return Failure(row, "batch", said(error), error)


def _measured(sample: Sample) -> dict[str, Spec | Listed]:
    """What each field of a sample looks like. Raises ``RowFailed`` for a sample without any."""
    if not sample:
        raise RowFailed("batch", "the sample has no fields")
    for name in sample:
        if not isinstance(name, str):
            raise RowFailed("batch", f"the sample has a field {name!r}; fields have names, such as 'image'")
    specs: dict[str, Spec | Listed] = {}
    for name, value in sample.items():
        array = as_array(value)
        specs[name] = (
            Listed(type(value).__name__, _bytes_of(value))
            if array is None
            else Spec(array.shape, array.dtype.newbyteorder("="))
        )
    return specs


def _bytes_of(value: Any, depth: int = 0) -> int:
    """About what a value takes, with what it holds."""
    if isinstance(value, dict | list | tuple | set) and value and depth < MOST_DEPTH:
        parts = [*value, *(value.values() if isinstance(value, dict) else ())]
        some = parts[:MOST_PARTS]
        return sys.getsizeof(value) + sum(_bytes_of(part, depth + 1) for part in some) * len(parts) // len(
            some
        )
    array = as_array(value)
    return max(sys.getsizeof(value), 0 if array is None else array.nbytes)


def _end_of(stream: Stream, ended: StreamEnded) -> RowFailed:
    if stream.length is None:
        return RowFailed(END, f"the stream ends after {ended.position} samples")
    return RowFailed("source", f"the stream ends after {ended.position} of length={stream.length} samples")


def write_row(sample: Sample, row: int, rows: Rows, out: Mapping[str, AnyArray]) -> None:
    """Write a sample's values into its row. Raises ``RowFailed`` for one that doesn't fit.

    out  rows of ``rows.views`` that were given to ``SampleMaker.make``
    """
    arrays, lists = rows.views, rows.lists
    for name, value in sample.items():
        if out.get(name) is value:
            continue  # it was made there
        array = arrays.get(name)
        if array is None:
            if name not in lists:
                raise RowFailed("batch", f"a field {name!r}, and none {rows.known_from}")
            lists[name][row] = value
            continue
        if array.ndim == 1 and _EXACT.get(type(value)) is array.dtype.type:
            try:
                array[row] = value
            except OverflowError as error:
                raise RowFailed("batch", f"{name!r} is {value}, beyond 64 bits") from error
            continue
        if type(value) is not np.ndarray:
            value = as_array(value)
        target = array[row]
        if (
            value is None
            or value.shape != target.shape
            or (value.dtype != target.dtype and not np.can_cast(value.dtype, target.dtype, "safe"))
        ):
            raise RowFailed("batch", _misfit(name, sample[name], target, rows.known_from))
        array[row] = value
    if len(sample) != len(arrays) + len(lists):
        missing = ", ".join(name for name in (*arrays, *lists) if name not in sample)
        raise RowFailed("batch", f"no field {missing}, and there is one {rows.known_from}")


def _misfit(name: str, value: Any, target: AnyArray, known_from: str) -> str:
    array = as_array(value)
    got = type(value).__name__ if array is None else str(Spec(array.shape, array.dtype))
    what = f"{name!r} is {got}, and {Spec(target.shape, target.dtype)} {known_from}; "
    if array is not None and array.shape == target.shape:
        return what + "give it the same dtype in every sample"
    return what + (
        f"where samples differ in shape, say .batch(…, collate={{{name!r}: …}}) with Pad(max_shape=…), "
        "Ragged(max_values=…) or list"
    )


def _python_call(step: FunctionStep, own: OwnGenerators) -> PythonCall:
    function = step.function
    takes_key = function.kind != "plain" or function.takes_rng
    return PythonCall(_bound(function, own), takes_key, step.op, "transform", step.describe())


def _bound(function: Function, own: OwnGenerators) -> Callable[[Sample, int], Sample]:
    """A call of the function on a sample, with the key of its draws."""
    if function.kind == "albumentations":
        return _albumentations(function, own)
    fn, name, form, takes_rng = function.fn, function.field, function.as_, function.takes_rng

    def on_field(sample: Sample, key: int) -> Sample:
        if name not in sample:
            raise RowFailed("transform", f"there is no field {name!r}; there are {', '.join(sample)}")
        value = in_form(sample[name], form)
        result = fn(value, rng=own.generator(key)) if takes_rng else fn(value)
        if result is None:
            raise RowFailed("transform", f"{function.describe()} returned None; return the new value")
        return {**sample, name: out_of_form(result, form)}

    def on_sample(sample: Sample, key: int) -> Sample:
        given = {each: _image_in_form(value, form) for each, value in sample.items()}
        result = fn(given, rng=own.generator(key)) if takes_rng else fn(given)
        if not isinstance(result, dict):
            raise RowFailed(
                "transform",
                f"{function.describe()} returned {type(result).__name__}; return the sample, a dict, or say "
                "which field it is for, as map(fn, field='image')",
            )
        return {each: out_of_form(value, form) for each, value in result.items()}

    return on_sample if name is None else on_field


def _image_in_form(value: Any, form: Any) -> Any:
    """Of a whole sample only images change their form; tensors and numbers stay what they are."""
    image = is_picture(value) or (
        isinstance(value, np.ndarray) and value.ndim >= 2 and value.dtype == np.uint8
    )
    return in_form(value, form) if image else value


def _albumentations(function: Function, own: OwnGenerators) -> Callable[[Sample, int], Sample]:
    import copy

    transform: Any = copy.deepcopy(function.fn)  # it keeps generators of its own: one for each thread
    keyed = hasattr(transform, "set_random_state")
    if keyed:
        transform.set_random_state(own.rng, own.python)

    def call(sample: Sample, key: int) -> Sample:
        if keyed:
            own.generator(key)
            own.python.seed(key)
        if function.field is not None:
            image = transform(image=in_form(sample[function.field], "numpy"))["image"]
            return {**sample, function.field: image}
        given = {name: in_form(value, "numpy") for name, value in sample.items() if name in TARGETS}
        return {**sample, **transform(**given)}

    return call


def _as_rgb(image: Any, step: NativeStep) -> UInt8Array:
    if is_picture(image) and image.mode != "RGB":
        image = image.convert("RGB")
    array = as_array(image) if is_picture(image) or is_tensor(image) else image
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        got = (
            type(image).__name__ if not isinstance(array, np.ndarray) else str(Spec(array.shape, array.dtype))
        )
        raise RowFailed(
            "transform",
            f"{step.describe()} takes a Pillow image or an array (H, W, 3) uint8; 'image' is {got}",
        )
    return np.ascontiguousarray(array)
