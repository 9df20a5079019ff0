"""The methods of a pipeline that carry it elsewhere: as data, as its transforms alone, as a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from standpipe.contracts import Source
from standpipe.pipeline.recipe import NoSource, as_dict, described_by
from standpipe.pipeline.running import runner
from standpipe.spec import AnyArray, UInt8Array

if TYPE_CHECKING:
    from standpipe.jobs.show import Sheet
    from standpipe.pipeline.pipeline import Pipeline


class Portable:
    """The methods of a pipeline that carry it elsewhere."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the pipeline's settings as plain data, which JSON can store.

        A checkpoint or a model card can contain it. It has the transforms with all parameters, ``decode``,
        ``shuffle`` or ``sample``, ``repeat_each``, checks, ``batch``, ``map_batch`` and ``on_error``. It doesn't have
        the source and selections of its records, ``cache`` and ``shard``, which belong to one machine or run.

        Returns
        -------
        dict
            With the key ``version``, the number of the format: 1.

        Raises
        ------
        PlanError
            If the pipeline has Python functions: a recipe contains no code. Or if ``sample`` has an array of weights.

        Examples
        --------
        >>> recipe = sp.Pipeline(sp.ImageFolder("photos")).map(sp.Resize(48), sp.CenterCrop(32)).to_dict()
        >>> recipe["transforms"][1]
        {'name': 'CenterCrop', 'size': 32, 'mask_fill': 255}
        """
        return as_dict(cast("Pipeline", self))

    @classmethod
    def from_dict(cls, recipe: Mapping[str, Any], *, source: Source | None = None) -> Self:
        """Return the pipeline that a recipe of ``to_dict`` describes.

        Nothing in the recipe is run as code. Without a source, the pipeline can only ``apply`` its transforms.

        Parameters
        ----------
        recipe : mapping
            The dict that ``to_dict`` returned, or its copy from a JSON file.
        source : Source, optional
            The source of records.

        Raises
        ------
        PlanError
            For an unknown version, name or parameter, or an invalid value.

        Examples
        --------
        >>> import json
        >>> text = json.dumps(sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8).to_dict())
        >>> pipeline = sp.Pipeline.from_dict(json.loads(text), source=sp.ImageFolder("photos"))
        >>> with pipeline.loader() as loader:
        ...     print(loader.peek()["image"].shape)
        (8, 32, 32, 3)
        """
        empty = cast("Any", cls)(NoSource() if source is None else source)
        return cast(Self, described_by(empty, recipe))

    def apply(
        self, images: Sequence[str | os.PathLike[str] | bytes | bytearray | memoryview | UInt8Array]
    ) -> dict[str, AnyArray]:
        """Apply the transforms to given images, and return the batch that a loader would deliver.

        For serving a model with the preprocessing of its evaluation. It runs in the calling thread, one image
        after another, and reads nothing of the pipeline's source. Values are those of a loader, bit for bit.

        Parameters
        ----------
        images : sequence of path, bytes or array
            Files, encoded images, and decoded images, (H, W, 3) uint8.

        Returns
        -------
        dict of str to array
            ``image``, or the fields of ``Views``, with a row for each input.

        Raises
        ------
        PlanError
            If a transform is random, has a ``Schedule``, or is a Python function.
        ReadError
            For a file that can't be read.
        DecodeError
            For an image that can't be decoded. ``index`` is its place in ``images``.

        Examples
        --------
        >>> evaluation = sp.Pipeline(sp.ImageFolder("photos")).map(sp.Resize(48), sp.CenterCrop(32), sp.Normalize())
        >>> evaluation.apply(["photos/cat/000.jpg"])["image"].shape
        (1, 3, 32, 32)
        """
        return runner().apply(cast("Pipeline", self), images)

    def show(self, n: int = 8, *, steps: bool = False, epoch: int | Sequence[int] = 0) -> Sheet:
        """Draw the first samples of an epoch, as training gets them. Notebooks display the result.

        Each sample has a row: its image, or its views side by side. A field ``mask`` is drawn over the image: half
        transparent, with a colour per class number. Class 0 has no colour, and 255 is white. ``Normalize`` is undone.
        Other floats are drawn as if 1 were white, or 255 after ``ToDtype(scale=False)``. If some are outside of that
        range, their smallest number is black and their largest is white. Python functions run in the calling thread.
        ``cache`` isn't used, and the CPU decodes.

        Parameters
        ----------
        n : int, default 8
            Number of samples, at most 1000.
        steps : bool, default False
            True: draw the image from the source and after each transform of ``map``, with the same random numbers.
            Each view of ``Views`` has a row of its own. A step of it that leaves images of different sizes is empty.
        epoch : int or sequence of int, default 0
            The epoch, from 0. Other epochs have other random numbers. Several, such as ``range(6)``, have a column
            each. A pipeline with ``shuffle`` has other samples in each epoch, so give one.

        Returns
        -------
        standpipe.reports.Sheet
            With the Pillow image ``image``, and ``save(path)``.

        Raises
        ------
        PlanError
            If there is no field of images, if several epochs have other samples, or for a pipeline that can't work.
        SampleError
            For a sample that can't be read, decoded or transformed.

        Examples
        --------
        >>> train = sp.Pipeline(sp.ImageFolder("photos")).shuffle(seed=7)
        >>> train = train.map(sp.RandomResizedCrop(64), sp.RandomHorizontalFlip(), sp.Normalize())
        >>> train.show(4, steps=True).save("steps.png")
        """
        return runner().show(cast("Pipeline", self), n, steps, epoch)
