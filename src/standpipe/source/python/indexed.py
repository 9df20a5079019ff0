"""The source of a Python dataset: an object with ``__len__`` and ``__getitem__``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from standpipe.contracts import Encoded, OpenSource, Records
from standpipe.errors import FIRST_KEY, PlanError, key_name
from standpipe.source.python.opened import OpenPython
from standpipe.source.targets import FORMS, BoxForm, BoxFormat, Invalid
from standpipe.spec import BATCH_FIELDS, KEY, NAMES, AnyArray, ArraySpec, Int64Array, RaggedSpec


@dataclass(frozen=True, slots=True, eq=False)
class MapSource:
    """A dataset of Python objects: a torch ``Dataset``, a Hugging Face dataset, a list, your own class.

    ``HuggingFace`` reads images of Hugging Face's datasets from their files, without Python code for each.

    ``plan()`` calls ``len(dataset)``. Only workers call ``dataset[index]``: several threads at once, or, with
    ``executor="process"``, processes that each have a copy of the dataset.

    A sample's values may be NumPy arrays, Pillow images, torch tensors or numbers, which batches have as
    arrays. Of other values a batch has a list. ``random``, NumPy and torch are seeded for each sample by
    (seed, epoch, position).

    The digest covers the dataset's class and length, and a Hugging Face dataset's fingerprint. It doesn't
    cover the content, which would have to be read.

    Parameters
    ----------
    dataset : object
        Has ``len(dataset)`` and ``dataset[index]`` for 0 ≤ index < len.
    fields : tuple of str or str, default ("image", "label")
        Names of the values of a sample that is a tuple or list, or name of a sample that is a single value.
        Dicts and named tuples have names of their own.
    spec : mapping of str to ArraySpec, optional
        Shape and dtype of every field of a sample. Default: measured on one sample when a loader starts.
    columns : mapping of str to array, optional
        Numbers per record, (records,) each, that are known without reading a sample: for ``filter``,
        ``split``, weights and ``batch(budget=…)``. They aren't fields of a batch.
    share_lists : bool, default True
        True: long lists inside the dataset become ``SharedList`` for worker processes: read-only, and in
        memory only once. It applies to lists of 1,000 or more strings, byte strings, numbers, or tuples of
        these.
    keys : mapping of int to object, optional
        Keys for ``dataset[key]``, by record number. This process looks them up when it hands records to
        workers. Records without a key use their numbers. For record numbers from ``FIRST_KEY`` on, messages
        show only the key.
    encoded : str or tuple of str, optional
        The fields with encoded images (JPEG, PNG, WebP, …), such as ``"image"`` or ``("left", "right")``, which the
        workers decode with native code, as they decode files. Their values are ``bytes``, ``bytearray``,
        ``memoryview`` or uint8 arrays (n,); a path, or a tuple (path, offset, length) in bytes; or a dict
        ``{"bytes": …, "path": …}``, as Hugging Face's ``Image(decode=False)`` has it;
        ``decode(orientation="apply")`` turns photos as ``Image()`` does. Such bytes, a path or such a tuple may
        also be the whole sample, of one field. Other fields are as without ``encoded``.
        Default: images are pixels.
    instances : tuple of str or mapping of str to ArraySpec, optional
        The values of objects in the image: ``("boxes", "labels")``, and any of ``"area"``, ``"iscrowd"``, ``"id"``,
        ``"score"`` and ``"scores"``. They are fields of a sample, or of a dict in it, as in torchvision's targets and
        Hugging Face's ``objects``: boxes (M, 4), which may be named ``bbox``, labels (M,), which may be named
        ``category`` or ``category_id``. A mapping has shape and dtype of one instance's value, such as
        ``{"keypoints": ArraySpec((17, 3), …)}``. The batch needs a limit:
        ``batch(instances=sp.Ragged(max_values=…))`` or ``sp.Pad(length=…)``.
    box_format : {"xyxy", "xywh", "cxcywh"}, optional
        The four numbers of a box. Default: that of torchvision's ``BoundingBoxes``; else ``"xywh"`` for boxes named
        ``bbox``, as COCO and Hugging Face have them, and ``"xyxy"`` for ``boxes``.
    normalized : bool, default False
        True: boxes and keypoints are fractions of the image's sides. False: they are in pixels of the image as the
        dataset gives it.
    invalid : {"error", "clip", "drop"}, default "error"
        The treatment of a box that is empty or isn't finite, or leads out of its image by more than a pixel.
        ``"error"``: the sample is bad, and ``on_error`` says what happens. ``"clip"`` and ``"drop"`` are as for
        ``Coco``; what they drop isn't counted, as no index has a dataset's boxes.
    instance_masks : bool, default False
        Whether instances have masks, whose form ``batch(masks=…)`` says. A sample's ``masks`` are (M, H, W), of bool or
        integers, as torchvision's targets have them: each picture is of the image's size, and not 0 inside of its
        instance. Or ``segmentation`` is a list, as COCO has it.

    Raises
    ------
    PlanError
        By ``plan()``, if the dataset has no length or ``__getitem__`` or is empty, and for invalid fields,
        specs or columns.

    Examples
    --------
    >>> source = sp.MapSource([{"text": "a b", "length": 2}, {"text": "c", "length": 1}])
    >>> with sp.Pipeline(source).batch(2).loader(executor="thread") as loader:
    ...     batch = loader.peek()
    >>> batch["text"], batch["length"].tolist()
    (['a b', 'c'], [2, 1])

    Encoded images of any dataset are decoded like files:

    >>> import pathlib
    >>> photos = [(path.read_bytes(), path.stem) for path in sorted(pathlib.Path("photos/cat").iterdir())]
    >>> source = sp.MapSource(photos, fields=("image", "name"), encoded="image")
    >>> pipeline = sp.Pipeline(source).map(sp.RandomResizedCrop(32), sp.Normalize()).batch(4)
    >>> with pipeline.loader(executor="thread") as loader:
    ...     batch = loader.peek()
    >>> batch["image"].shape, batch["name"][0]
    ((4, 3, 32, 32), '000')
    """

    dataset: Any
    fields: tuple[str, ...] | str | None = None
    spec: Mapping[str, ArraySpec] | None = None
    columns: Mapping[str, Any] | None = None
    share_lists: bool = True
    keys: Mapping[int, Any] | None = None
    encoded: str | tuple[str, ...] | None = None
    instances: tuple[str, ...] | Mapping[str, ArraySpec] | None = None
    box_format: BoxFormat | None = None
    normalized: bool = False
    invalid: Invalid = "error"
    instance_masks: bool = False

    FIRST_KEY: ClassVar = FIRST_KEY

    def open(self) -> OpenSource:
        """Get the dataset's length, and check all arguments.

        Raises ``PlanError`` if the dataset has no length or ``__getitem__`` or is empty, and for invalid
        names, specs or columns.
        """
        kind = type(self.dataset).__name__
        more = "; for a stream use IterableSource(factory)" if hasattr(self.dataset, "__iter__") else ""
        if isinstance(self.dataset, type):
            raise PlanError(
                f"MapSource({self.dataset.__name__}) got a class. Write {self.dataset.__name__}(…)"
            )
        if isinstance(self.dataset, Mapping) and self.dataset:
            more = f". Give one of its parts, such as dataset[{next(iter(self.dataset))!r}]"
        if isinstance(self.dataset, str | bytes):
            raise PlanError(
                f"MapSource({self.dataset!r}) got a path. For a folder of images, write ImageFolder(path)"
            )
        if not hasattr(self.dataset, "__getitem__") or isinstance(self.dataset, Mapping):
            raise PlanError(
                f"MapSource({kind}): the dataset must support dataset[index] with a number as index{more}"
            )
        try:
            length = len(self.dataset)
        except Exception as error:
            raise PlanError(
                f"MapSource({kind}): len(dataset) fails: {type(error).__name__}: {error}{more}"
            ) from error
        if length < 1:
            raise PlanError(f"MapSource({kind}): the dataset is empty")
        names = sample_names("MapSource", self.fields)
        if self.spec is not None:
            check_spec("MapSource", self.spec)
        encoded = _encoded_names(kind, self.encoded, self.spec)
        known = _columns(kind, self.columns, length)
        ragged = _instances(kind, self.instances)
        form = BoxForm(self.box_format, self.normalized, self.invalid, self.instance_masks).check("MapSource")
        if form.instance_masks and not ragged:
            raise PlanError(
                f"MapSource({kind}, instance_masks=True) needs instances=: give instances=('boxes', 'labels')"
            )
        return OpenIndexed(
            self.dataset, length, names, self.spec, known, self.share_lists, self.keys, encoded, ragged, form
        )

    def describe(self) -> str:
        """Return the dataset's class, for ``explain()``."""
        return f"MapSource({_class_name(self.dataset)})"


@dataclass(frozen=True, slots=True, eq=False)
class OpenIndexed(OpenPython):
    """An opened Python dataset with a length. Satisfies ``contracts.OpenSource`` and ``PythonSource``.

    known    columns by name, (num_records,) each
    keys     keys for ``dataset[key]`` by record number, or None
    encoded  names of the fields that have encoded bytes
    ragged   the fields of instances
    form     the form of their boxes
    """

    dataset: Any
    num_records: int
    names: tuple[str, ...]
    declared: Mapping[str, ArraySpec] | None
    known: Mapping[str, AnyArray]
    shares_lists: bool
    keys: Mapping[int, Any] | None = None
    encoded: tuple[str, ...] = ()
    ragged: Mapping[str, RaggedSpec] = field(default_factory=dict)
    form: BoxForm = field(default_factory=BoxForm)

    @property
    def fields(self) -> Mapping[str, ArraySpec | Encoded | RaggedSpec]:
        """The declared fields, the encoded images, and the fields of instances."""
        return {**(self.declared or {}), **dict.fromkeys(self.encoded, Encoded()), **self.ragged}

    @property
    def has_masks(self) -> bool:
        """True if instances have masks."""
        return self.form.instance_masks

    @property
    def digest(self) -> str:
        """A digest of the class, the length, the columns, and Hugging Face's fingerprint."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        fingerprint = getattr(self.dataset, "_fingerprint", None)
        stands_for = f"indexed 1, {_class_name(self.dataset)}, {self.num_records}, {self.names}"
        if isinstance(fingerprint, str):
            stands_for += f", {fingerprint}"
        if self.encoded:
            stands_for += ", encoded" + ("" if self.encoded == ("image",) else f" {self.encoded}")
        if self.ragged:
            stands_for += f", {[*self.ragged.items()]} {self.form}"
        digest = blake2b(stands_for.encode(), digest_size=16)
        for name, column in self.known.items():
            digest.update(f", {name!r} {column.dtype.str} ".encode())
            digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()

    @property
    def index_note(self) -> str:
        """A hint for ``explain()`` at Hugging Face's data sets in files; else nothing."""
        in_files = hasattr(self.dataset, "features") and getattr(self.dataset, "cache_files", None)
        return (
            "images in the data set's files are read without Python by sp.HuggingFace(dataset)"
            if in_files
            else ""
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the given columns."""
        return tuple(self.known)

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Return a column for the records [start, stop)."""
        if not 0 <= start <= stop <= self.num_records:
            raise IndexError(f"records [{start}, {stop}) of {self.num_records}")
        return self.known[name][start:stop]

    def locate(self, indices: Int64Array) -> Records:
        """Return the record numbers, and their keys if there are any."""
        if not self.keys:
            return Records(indices)
        keys = np.empty(len(indices), object)  # of tuples: NumPy would make an axis of a key that is a list
        for place, number in enumerate(indices.tolist()):
            keys[place] = (self.keys.get(number, number),)
        return Records(indices, plain={KEY: keys})

    def name(self, index: int) -> str | None:
        """Return the record's key, if it has one."""
        return key_name(self.keys[index]) if self.keys and index in self.keys else None


def _class_name(dataset: object) -> str:
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}"


def sample_names(kind: str, fields: tuple[str, ...] | str | None) -> tuple[str, ...]:
    """Return the field names of a sample that is a tuple, from the argument ``fields``.

    Raises ``PlanError`` for invalid names.
    """
    names = (fields,) if isinstance(fields, str) else NAMES if fields is None else fields
    check_names(kind, names)
    return tuple(names)


def check_names(kind: str, names: object, argument: str = "fields") -> None:
    """Raise ``PlanError`` unless the names are distinct and none is that of a field which every batch has."""
    if (
        not isinstance(names, tuple | list)
        or not names
        or len(set(names)) < len(names)
        or not all(isinstance(name, str) and name and name not in BATCH_FIELDS for name in names)
    ):
        raise PlanError(
            f"{kind}(…, {argument}={names!r}): names must be different texts, and none may be "
            f"{' or '.join(map(repr, BATCH_FIELDS))}"
        )


def check_spec(kind: str, spec: object) -> None:
    """Raise ``PlanError`` unless ``spec`` has an ``ArraySpec`` for every field."""
    if not isinstance(spec, Mapping) or not all(isinstance(each, ArraySpec) for each in spec.values()):
        raise PlanError(
            f"{kind}(…, spec={spec!r}): spec must be a dict with the ArraySpec(shape, dtype) of every field"
        )
    check_names(kind, tuple(spec))


def _encoded_names(kind: str, encoded: object, spec: Mapping[str, ArraySpec] | None) -> tuple[str, ...]:
    """Return the names of the encoded fields. Raises ``PlanError`` for other values, and for a field in ``spec``."""
    names = (encoded,) if isinstance(encoded, str) else () if encoded is None else encoded
    if encoded is not None:
        check_names("MapSource", names, "encoded")
    assert isinstance(names, tuple | list)
    if both := [name for name in names if name in (spec or {})]:
        raise PlanError(
            f"MapSource({kind}, encoded={encoded!r}): spec has the field {both[0]!r}, but encoded bytes have no shape. "
            f"Leave {both[0]!r} out of spec"
        )
    return tuple(sorted(names))


def _instances(kind: str, given: object) -> dict[str, RaggedSpec]:
    """Return the fields of instances. Raises ``PlanError`` for names without a form, and without boxes."""
    names = dict.fromkeys(given) if isinstance(given, tuple | list) else given or {}
    specs = (
        {name: spec or FORMS.get(name) for name, spec in names.items()} if isinstance(names, Mapping) else {}
    )
    found = {
        name: RaggedSpec(spec.shape, spec.dtype)
        for name, spec in specs.items()
        if isinstance(spec, ArraySpec)
    }
    if given is not None and ("boxes" not in found or len(found) < len(specs)):
        raise PlanError(
            f"MapSource({kind}, instances={given!r:.80}): name 'boxes', and any of {', '.join(FORMS)}; other names "
            "need a mapping to the ArraySpec of one instance's value"
        )
    return found


def _columns(kind: str, columns: object, length: int) -> dict[str, AnyArray]:
    if not isinstance(columns, Mapping | None):
        raise PlanError(f"MapSource({kind}, columns={columns!r}): columns must be a dict of arrays")
    if not columns:
        return {}
    check_names(kind, tuple(columns))
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    for name, array in arrays.items():
        if array.shape != (length,) or array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise PlanError(
                f"MapSource({kind}): the column {name!r} is {array.dtype} of shape {array.shape}; "
                f"it must have one number for each of {length} records"
            )
    return {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}
