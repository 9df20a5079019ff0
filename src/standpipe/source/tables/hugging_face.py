"""The source of Hugging Face data sets, whose Arrow files are read in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.index.with_fields import shown_call
from standpipe.source.python.indexed import MapSource, OpenIndexed
from standpipe.source.tables.memory import mapped_files
from standpipe.source.tables.objects import with_objects
from standpipe.source.tables.opened import IMAGE, OpenTable, check_values
from standpipe.source.targets import BoxForm, BoxFormat, Invalid

PARTS = ("data", "features", "format", "_indices")  # what a ``datasets.Dataset`` is known by


@dataclass(frozen=True, slots=True, eq=False)
class HuggingFace:
    """A ``datasets.Dataset``, whose images native code reads from its Arrow files.

    A data set that ``load_dataset`` or ``load_from_disk`` returned is mapped from Arrow files. Its images are parts of
    these files, which are read and decoded like files of a folder: no Python code runs for a sample, and there are no
    worker processes. ``select``, ``shuffle``, ``filter``, ``train_test_split``, ``concatenate_datasets`` and
    ``rename_column`` keep that. Images that the data set has as paths are read as files.

    The fields are ``image``, all further columns of the feature ``Image``, columns of numbers without nulls, and texts,
    of which a batch has a list of str. A null text is an empty one, so that one gap doesn't cost all captions.
    ``classes`` are the names of a ``ClassLabel`` ``label``. Other columns, such as lists, are left out, and
    ``explain()`` names them; ``dataset.remove_columns`` leaves out more. Photos are turned as their EXIF orientation
    says, as ``Image()`` does; ``decode(orientation="ignore")`` leaves them as they are. For ``Image(mode=…)``, which
    isn't applied, write ``decode(channels=…)``. A null image is a bad sample.

    Where images aren't in mapped files, as those of ``Dataset.from_dict``, or the data set has a transform of its own
    (``set_transform``, ``with_transform``), this is ``MapSource(dataset)`` instead: Python workers get all columns from
    the data set, and decode the images natively if there is no transform. ``explain()`` says so, and why.

    The digest covers the numbers, and the lengths and places of images and texts in their files, but not the paths of
    the files.

    Parameters
    ----------
    dataset : datasets.Dataset
        A data set, not a dict of its splits, and not a stream.
    image : str, default "image"
        The column that becomes the field ``image``.
    instances : str, optional
        The column with the objects of each image, such as ``"objects"``: lists of boxes (``bbox`` or ``boxes``), of
        labels (``category``, ``category_id`` or ``labels``), and perhaps of ``keypoints``, x, y and visibility of each,
        and of further numbers, such as ``area``. Columns ``width`` and ``height`` have the images' sizes. Objects are
        held in memory.
    box_format, normalized, invalid, instance_masks
        As for ``TarShards``.

    Raises
    ------
    PlanError
        By ``plan()``, for another object, for an empty data set, and if there is no such column of images.

    Examples
    --------
    >>> from datasets import load_dataset
    >>> dataset = load_dataset("imagefolder", data_dir="photos", split="train")
    >>> pipeline = sp.Pipeline(sp.HuggingFace(dataset)).shuffle(seed=7).map(sp.CenterCrop(32)).batch(8)
    >>> pipeline.plan().classes
    ('cat', 'dog')
    """

    dataset: Any
    image: str = IMAGE
    instances: str | None = field(default=None, kw_only=True)
    box_format: BoxFormat | None = field(default=None, kw_only=True)
    normalized: bool = field(default=False, kw_only=True)
    invalid: Invalid = field(default="clip", kw_only=True)
    instance_masks: bool = field(default=False, kw_only=True)

    upright: ClassVar = True  # ``Image()`` turns photos as EXIF says

    def open(self) -> OpenSource:
        """Find where the data set's columns are; read nothing of them.

        Raises ``PlanError`` for another object, an empty or damaged data set, and if there is no such column of images.
        """
        dataset, kind = self.dataset, type(self.dataset).__name__
        if isinstance(dataset, Mapping) and dataset:
            raise PlanError(
                f"HuggingFace({kind}): give one of its splits, such as dataset[{next(iter(dataset))!r}]"
            )
        if not all(hasattr(dataset, name) for name in PARTS):
            raise PlanError(
                f"HuggingFace needs a datasets.Dataset, as load_dataset(…) returns, got {kind}; for a stream use "
                "IterableSource(lambda: dataset), for another data set MapSource(dataset)"
            )
        if dataset.format["type"] == "custom":
            return self._by_python("the data set has a transform of its own")
        table, indices = dataset.data.table.select(dataset.format["columns"]), None
        if dataset._indices is not None:
            indices = dataset._indices.column(0)
        check_values(self.describe(), table)
        features = dataset.features.to_dict()
        opened = OpenTable.of(
            self.describe(), table, mapped_files(), image=self.image, features=features, indices=indices
        )
        if opened.aside:
            why = f"{', '.join(opened.aside)} isn't in mapped files"
            return self._by_python(why, tuple(opened.images))
        if self.instances is None:
            return opened
        form = BoxForm(self.box_format, self.normalized, self.invalid, self.instance_masks).check(
            "HuggingFace"
        )
        if self.instances not in table.column_names:
            raise PlanError(f"{self.describe()}: there is no column {self.instances!r}")
        objects = table.column(self.instances)
        objects = objects if indices is None else objects.take(indices)
        return with_objects(self.describe(), opened, self.instances, objects, features, form)

    def describe(self) -> str:
        """Return the data set's class, and arguments, for ``explain()``."""
        kind = type(self.dataset)
        return shown_call(self, f"{kind.__module__}.{kind.__qualname__}")

    def _by_python(self, why: str, encoded: tuple[str, ...] | None = None) -> OpenSource:
        """Open the data set as a ``MapSource``. ``encoded``: fields that native code decodes; None: there are none."""
        if self.instances is not None:
            raise PlanError(
                f"{self.describe()}: {why}, so its objects can't be read in place either. Write MapSource(dataset, "
                "encoded='image', instances=('boxes', 'labels'))"
            )
        dataset = self.dataset
        if self.image != IMAGE and encoded is not None:
            dataset = dataset.rename_column(self.image, IMAGE)
        for name in encoded or ():
            if hasattr(dataset.features[name], "decode"):  # of ``datasets.Image``
                dataset = dataset.cast_column(name, replace(dataset.features[name], decode=False))
        opened = MapSource(dataset, encoded=encoded).open()
        assert isinstance(opened, OpenIndexed)
        values = {each.name: getattr(opened, each.name) for each in fields(opened)}
        return OpenDataset(**values, index_note=f"all columns by Python, as MapSource reads them: {why}")


@dataclass(frozen=True, slots=True, eq=False)
class OpenDataset(OpenIndexed):
    """An opened data set that can't be read in place. ``index_note``: why, for ``explain()``."""

    index_note: str = ""
