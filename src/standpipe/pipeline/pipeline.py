"""The description of a training input: frozen, with one field per place. It only stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Never, NoReturn, TypeGuard, cast

from standpipe.batch import Collate, checked_collate
from standpipe.cache import Cache, Cached
from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.habits import BATCH, unknown_argument
from standpipe.order import Budget
from standpipe.pipeline.records import Ordered
from standpipe.pipeline.running import Runnable
from standpipe.plan.options import check_at_most, checked_gpu
from standpipe.spec import (
    ArraySpec,
    DecodeLimits,
    DecodeMode,
    Decoding,
    GpuDecode,
    Labels,
    LastBatch,
    Raise,
    Replace,
)
from standpipe.system.launcher import DeviceMesh, data_rank
from standpipe.transform import BatchFunction, Function
from standpipe.transform.function import InputFormat

BATCH_ARGUMENTS = (
    *("batch_size", "budget", "length_column", "max_batch_size", "packing"),
    *("batch_sampler", "collate", "collate_fn", "last_batch"),
)
MOST_SHOWN = 600  # characters of a pipeline's repr


@dataclass(frozen=True, slots=True)
class Pipeline(Ordered, Runnable):
    """A description of the batches that a loader delivers: source → order → transform → batch.

    A pipeline is frozen: every method returns a new one. It opens no file and starts nothing before
    ``plan()`` or ``loader()``.

    Parameters
    ----------
    source : Source
        The source of records: ``ImageFolder``, ``FileList``, ``Arrays``, ``MapSource``, … ``Concat`` and
        ``Mixture`` combine several.
    seed : int, default 0
        The seed of all random numbers, together with epoch and position. ``shuffle`` and ``sample``
        replace it.

    Examples
    --------
    >>> train = (
    ...     sp.Pipeline(sp.ImageFolder("photos"))
    ...     .shuffle(seed=7)
    ...     .map(sp.RandomResizedCrop(32), sp.RandomHorizontalFlip(), sp.Normalize())
    ...     .batch(8)
    ... )
    >>> with train.loader() as loader:
    ...     for batch in loader:
    ...         print(batch["image"].shape, batch["label"].shape)
    (8, 3, 32, 32) (8,)
    (8, 3, 32, 32) (8,)
    (8, 3, 32, 32) (8,)
    """

    transforms: tuple[Transform, ...] = field(default=(), kw_only=True)
    batch_functions: tuple[BatchFunction, ...] = field(default=(), kw_only=True)
    batch_size: int | None = field(default=None, kw_only=True)
    budget: Budget | None = field(default=None, kw_only=True)
    batch_sampler: bool = field(default=False, kw_only=True)
    collate: Collate = field(default_factory=dict, kw_only=True, hash=False)
    last_batch: LastBatch | None = field(default=None, kw_only=True)
    rank: int = field(default=0, kw_only=True)
    world_size: int = field(default=1, kw_only=True)
    decode_mode: DecodeMode = field(default=DecodeMode.EXACT, kw_only=True)
    gpu: GpuDecode | None = field(default=None, kw_only=True)
    limits: DecodeLimits = field(default=DecodeLimits(), kw_only=True)
    allow_truncated: bool = field(default=False, kw_only=True)
    bad: Raise | Replace = field(default=Raise(), kw_only=True)
    finite: tuple[str, ...] | None = field(default=None, kw_only=True)
    labels: tuple[Labels, ...] = field(default=(), kw_only=True)
    cached: Cached | None = field(default=None, kw_only=True)

    def __iter__(self) -> NoReturn:
        """Raise ``TypeError``: a pipeline has no batches, a loader has."""
        raise TypeError(
            "a Pipeline is only a description and has no batches. Iterate over its loader: "
            "'with pipeline.loader() as loader: for batch in loader: …'"
        )

    def __repr__(self) -> str:
        """Return one line with the steps in the order in which they happen; long text lacks its middle."""
        steps = [f"Pipeline({_described(self.source)})", *map(_described, self.selections)]
        if self.shuffled:
            steps.append(f"{'shuffle' if self.sampling is None else 'sample'}(seed={self.seed})")
        if self.repeats != 1:
            steps.append(f"repeat_each({self.repeats})")
        transforms = [_described(each) for each in self.transforms]
        first = transforms if self.cached is None else transforms[: self.cached.after]
        then = transforms[len(first) :]
        steps += [f"map({', '.join(first)})"] if first else []
        steps += [] if self.cached is None else [f"cache({self.cached.cache.name!r})"]
        steps += [f"map({', '.join(then)})"] if then else []
        how = [each.describe() for each in self.batch_functions if each.collates]
        how += [] if self.last_batch is None else [f"last_batch={self.last_batch.value!r}"]
        if self.batch_size is not None:
            steps.append(f"batch({', '.join([str(self.batch_size), *how])})")
        elif self.budget is not None:
            within = f"budget={self.budget.most}", f"length_column={self.budget.length_column!r}"
            steps.append(f"batch({', '.join([*within, *how])})")
        steps += ["map_batch(…)"] if any(not each.collates for each in self.batch_functions) else []
        steps += [f"shard({self.rank}, {self.world_size})"] if self.world_size != 1 else []
        steps += [f"on_error({self.bad!r})"] if self.bad != Raise() else []
        text = ".".join(steps)
        half = MOST_SHOWN // 2
        return text if len(text) <= MOST_SHOWN else f"{text[: half - 1]} … {text[2 - half :]}"

    def map(
        self,
        *transforms: Transform | Callable[..., Any],
        field: str | None = None,
        input_format: InputFormat | None = None,
        spec: ArraySpec | Mapping[str, ArraySpec] | None = None,
    ) -> Pipeline:
        """Append transforms, which are applied in the order in which they are written.

        standpipe's own transforms are native, and adjacent ones run as one. Other callables are Python code,
        which workers run (see ``executor`` of ``plan``): functions, torchvision and albumentations
        transforms. A function takes a sample, a dict of values by field, and returns the new sample. With
        ``field`` it takes that field's value and returns the new value. torchvision and albumentations
        transforms take the image, unless ``field`` names another field; albumentations transforms also take
        the sample's ``mask``, ``bboxes`` and ``keypoints``.

        Images between transforms are (H, W, 3) uint8 arrays. A function with a parameter named ``rng`` gets a
        ``numpy.random.Generator``. The global generators of ``random``, NumPy and torch are seeded too. All
        these seeds depend only on seed, epoch and position, so results don't depend on the worker.

        Parameters
        ----------
        *transforms : Transform or callable
            Transforms of standpipe, or Python code.
        field : str, optional
            For Python code: the field that it takes and returns.
        input_format : {"numpy", "pil", "tensor"}, optional
            For Python code: the form of images that it takes. ``"tensor"`` is (3, H, W) uint8. Default:
            ``"numpy"``, and ``"pil"`` for torchvision transforms.
        spec : ArraySpec or mapping of str to ArraySpec, optional
            For Python code: shape and dtype of the value that it returns with ``field``, or of all fields by
            name. Default: measured on one sample when a loader starts.

        Examples
        --------
        >>> def brighten(image, rng):
        ...     return np.minimum(image + rng.integers(50), 255).astype(np.uint8)
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).map(brighten, field="image")
        >>> with pipeline.batch(8).loader(executor="thread", num_workers=1) as loader:
        ...     print(next(iter(loader))["image"].shape)
        (8, 32, 32, 3)
        """
        appended = [
            Function.of(each, field=field, input_format=input_format, spec=spec)
            if _is_python(each)
            else cast(Transform, each)
            for each in transforms
        ]
        if any(option is not None for option in (field, input_format, spec)) and not any(
            map(_is_python, transforms)
        ):
            raise PlanError(
                "map(): field=, input_format= and spec= apply to Python callables only. Leave them out "
                "for standpipe's own transforms"
            )
        return replace(self, transforms=(*self.transforms, *appended))

    def cache(self, cache: Cache | Literal["auto"], *, place: Literal["here", "auto"] = "here") -> Pipeline:
        """Keep the intermediate result at this place for later epochs and for other jobs on this machine.

        Directly after the source, the cache keeps the bytes of files. After deterministic transforms, it
        keeps their result: images as (H, W, 3) uint8, which take a quarter of their float32 size.
        ``Normalize``, ``ToDtype`` and ``ToLayout`` are applied when rows are read from the cache, wherever
        they are written. Batches are the same as without a cache, bit for bit.

        Parameters
        ----------
        cache : Cache or "auto"
            The settings: where rows are kept, how many bytes, and when rows are compared with their files.
            ``"auto"`` is ``Cache("auto")`` at the place that the plan chooses.
        place : {"here", "auto"}, default "here"
            ``"auto"``: the plan chooses the place, from the available room and from the cost of reading and
            decoding. ``explain()`` gives the reason.

        Raises
        ------
        PlanError
            By ``plan()``, if the place is after a random transform: all epochs would get the same random
            numbers.

        Examples
        --------
        >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).cache(cache)
        >>> with pipeline.map(sp.RandomHorizontalFlip()).batch(8).loader(num_workers=1) as loader:
        ...     rows = [sum(len(batch["label"]) for batch in loader) for _ in range(2)]
        >>> rows
        [24, 24]
        """
        if cache == "auto":
            cache, place = Cache("auto"), "auto"
        if place not in ("here", "auto"):
            raise PlanError(f"cache: place must be 'here' or 'auto', got {place!r}")
        if not isinstance(cache, Cache):
            raise PlanError(
                f"cache() takes a Cache, such as sp.Cache('imagenet', memory='8GiB'), got {cache!r}"
            )
        if self.cached is not None:
            raise PlanError(
                "a pipeline can have only one .cache(). Keep the last one: it saves the work of all steps before it"
            )
        return replace(self, cached=Cached(cache, len(self.transforms), chosen=place == "here"))

    def batch(
        self,
        batch_size: int | None = None,
        *,
        budget: int | None = None,
        length_column: str | None = None,
        max_batch_size: int | None = None,
        packing: bool = False,
        batch_sampler: bool = False,
        collate: Collate | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        last_batch: Literal["drop", "pad", "partial"] | None = None,
        **unknown: Never,
    ) -> Pipeline:
        """Set the batch size per rank and step, or a length budget for batches of varying size.

        With ``budget``, the batches are planned once. Each epoch shuffles anew which records are batched
        together and in which order the batches come. Without ``shuffle`` the longest records come first.

        Parameters
        ----------
        batch_size : int, optional
            Number of samples in a batch, on each rank.
        budget : int, optional
            Instead of ``batch_size``: the largest cost of a batch, in the unit of ``length_column``, such as
            tokens or pixels.
        length_column : str, optional
            With ``budget``: the source's column of lengths, integers from 0 to ``budget``.
        max_batch_size : int, optional
            With ``budget``: the largest number of samples in a batch. Default: as many as the budget allows.
        packing : bool, default False
            With ``budget``: the cost of a batch. False: its number of samples × its longest length, for
            padded batches; samples of similar length are batched together. True: the sum of its lengths, for
            batches without padding; long and short samples are batched together.
        batch_sampler : bool, default False
            With ``batch_size``: your program names the records of each batch, as torch's ``batch_sampler``
            does. The pipeline then has no order, and ``loader.from_batches(batches)`` takes lists of records,
            each of at most ``batch_size``.
        collate : mapping of str to Pad, Ragged or list, optional
            The form in a batch of each field whose samples differ in shape: ``Pad(…)``, ``Ragged(…)``, or
            ``list``, a Python list with a value per row. Values that aren't arrays of numbers always come in
            lists.
        collate_fn : callable, optional
            Instead of ``collate``: a function that makes the batch from the list of its samples, like torch's
            ``collate_fn``. One worker makes each batch as a whole, in its own memory. Results and ``rng``
            follow the rules of ``map_batch``.
        last_batch : {"drop", "pad", "partial"}, optional
            The treatment of samples that don't fill a whole step of all ranks. ``"drop"`` leaves them out
            (default when shuffled). ``"pad"`` repeats the epoch's first samples, and adds a field ``valid``,
            (batch_size,) bool, that is False for the repeats (default otherwise). ``"partial"`` makes the
            last batch smaller (one rank only). With ``budget`` it applies to whole batches that don't fill a
            step.
        **unknown
            Any other argument raises ``TypeError``, which names the right one, such as for ``drop_last``.

        Raises
        ------
        PlanError
            For an invalid combination; by ``plan()``, for values that don't fit the source.
        TypeError
            For an unknown argument.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(5))).batch(3).loader() as loader:
        ...     for batch in loader:
        ...         print(batch["x"], batch["valid"])
        [0 1 2] [ True  True  True]
        [3 4 0] [ True  True False]

        Batches that hold at most 6 tokens after padding:

        >>> texts = sp.Arrays(length=np.array([5, 1, 3, 3, 1, 2]))
        >>> with sp.Pipeline(texts).batch(budget=6, length_column="length").loader() as loader:
        ...     print([batch["length"].tolist() for batch in loader])
        [[5], [3, 3], [2, 1, 1]]
        """
        if unknown:
            raise unknown_argument("batch()", unknown, BATCH_ARGUMENTS, BATCH)
        if last_batch is not None and last_batch not in (each.value for each in LastBatch):
            raise PlanError(f"batch: last_batch must be 'drop', 'pad' or 'partial', got {last_batch!r}")
        within = _within(batch_size, budget, length_column, max_batch_size, packing)
        if batch_sampler and within is not None:
            raise PlanError(
                "batch(batch_sampler=True) takes a batch_size, which is the largest number of samples "
                "in a batch. Leave out budget="
            )
        later = tuple(each for each in self.batch_functions if not each.collates)
        return replace(
            self,
            batch_functions=(*_collating(collate, collate_fn), *later),
            batch_size=batch_size,
            budget=within,
            batch_sampler=batch_sampler,
            collate=checked_collate(collate or {}),
            last_batch=None if last_batch is None else LastBatch(last_batch),
        )

    def map_batch(self, *functions: Callable[..., Any]) -> Pipeline:
        """Append Python functions of whole batches, which workers run in the order in which they are written.

        A function takes the batch, a dict of (rows, …) arrays by field, which it may change. It returns the
        new batch, or one value or a tuple of values, which get the names that a sample's values have. Arrays
        that keep their field's shape and dtype stay in the slot; a batch has other values as they were
        returned, with tensors as arrays. ``index`` and ``valid`` are always in the batch. A parameter named
        ``rng`` gets a ``numpy.random.Generator`` that depends on the batch's first row. ``MixUp`` and
        ``CutMix`` are such functions.

        Parameters
        ----------
        *functions : callable
            Functions of a batch.

        Examples
        --------
        >>> def double(batch):
        ...     return {**batch, "x": 2 * batch["x"]}
        >>> pipeline = sp.Pipeline(sp.Arrays(x=np.arange(4))).batch(4).map_batch(double)
        >>> with pipeline.loader(executor="thread", num_workers=1) as loader:
        ...     print(next(iter(loader))["x"])
        [0 2 4 6]
        """
        for function in functions:
            if not callable(function) or isinstance(function, type):
                raise PlanError(f"map_batch takes functions of a batch, got {function!r}")
        return replace(self, batch_functions=(*self.batch_functions, *map(BatchFunction, functions)))

    def shard(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        replicate: int = 1,
        mesh: DeviceMesh | None = None,
        dims: Sequence[str] = ("dp",),
    ) -> Pipeline:
        """Deliver one data rank's rows of every step. All ranks have the same number of steps.

        Parameters
        ----------
        rank, world_size : int, optional
            The number of this process, and the number of processes. Default: the values that torchrun, MPI or
            SLURM's srun set in the environment; 0 and 1 without any of them.
        replicate : int, default 1
            Number of consecutive ranks that get the same rows: those of one tensor-, pipeline- or
            context-parallel group.
        mesh : torch.distributed.device_mesh.DeviceMesh, optional
            Instead of the arguments above. Ranks that differ only in its other dimensions get the same rows.
        dims : sequence of str, default ("dp",)
            Names of the mesh's data-parallel dimensions, slowest first.

        Raises
        ------
        PlanError
            If arguments contradict each other or the environment's values are invalid.

        Examples
        --------
        >>> numbers = sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2)
        >>> for rank in (0, 1):
        ...     with numbers.shard(rank, 2).loader() as loader:
        ...         print([batch["x"].tolist() for batch in loader])
        [[0, 1], [4, 5]]
        [[2, 3], [6, 7]]
        """
        rank, world_size = data_rank(rank, world_size, replicate=replicate, mesh=mesh, dims=dims)
        return replace(self, rank=rank, world_size=world_size)

    def decode(
        self,
        mode: Literal["exact", "fast", "gpu", "hybrid"] = "exact",
        *,
        share: float | None = None,
        gpu_memory: int | str = "256MiB",
        limits: DecodeLimits | None = None,
        allow_truncated: bool = False,
    ) -> Pipeline:
        """Choose how images are decoded.

        Parameters
        ----------
        mode : {"exact", "fast", "gpu", "hybrid"}, default "exact"
            ``"exact"``: Pillow's pixels, bit for bit. ``"fast"``: large JPEGs at 1/2, 1/4 or 1/8 of their
            size, if the crop still has enough pixels; its error is documented. ``"gpu"``: the GPU decodes
            baseline JPEGs (``standpipe[gpu]``), whose pixels differ from Pillow's. ``"hybrid"``: the GPU decodes
            those of a fraction of the records. All other images are decoded exactly.
        share : float, optional
            For ``"hybrid"``: the fraction of the records, between 0 and 1. A record's number determines
            whether it is one of them.
        gpu_memory : int or str, default "256MiB"
            Bytes (or text) of the GPU's memory for decoding. Larger images than fit, above 2.8 million pixels
            by default, are decoded exactly.
        limits : DecodeLimits, optional
            Limits that are checked from a file's header.
        allow_truncated : bool, default False
            Decode a file that ends too soon, after its header, as far as it goes. Missing pixels are grey in
            a JPEG and black in other formats, as with Pillow's ``LOAD_TRUNCATED_IMAGES``. ``loader.stats()``
            counts such rows. Other damage that Pillow refuses is still an error.

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).decode("fast", allow_truncated=True)
        >>> with pipeline.map(sp.RandomResizedCrop(32)).batch(8).loader() as loader:
        ...     print(next(iter(loader))["image"].shape)
        (8, 32, 32, 3)
        """
        gpu = checked_gpu(mode, share, gpu_memory)
        if gpu is None and mode not in (each.value for each in DecodeMode):
            raise PlanError(f"decode: mode must be 'exact', 'fast', 'gpu' or 'hybrid', got {mode!r}")
        if not isinstance(allow_truncated, bool):
            raise PlanError(f"decode: allow_truncated must be True or False, got {allow_truncated!r}")
        return replace(
            self,
            decode_mode=DecodeMode.EXACT if gpu is not None else DecodeMode(mode),
            gpu=gpu,
            limits=self.limits if limits is None else limits,
            allow_truncated=allow_truncated,
        )

    @property
    def decoding(self) -> Decoding:
        """The settings of ``decode``, as one value.

        Examples
        --------
        >>> sp.Pipeline(sp.ImageFolder("photos")).decode("fast").decoding.mode.value
        'fast'
        """
        return Decoding(self.decode_mode, self.limits, self.allow_truncated, self.gpu)

    def on_error(self, policy: Raise | Replace) -> Pipeline:
        """Choose what happens to samples that can't be read, decoded or transformed.

        The samples of a stream (``IterableSource``) can't be replaced: the place of its other samples is
        unknown.

        Parameters
        ----------
        policy : Raise or Replace
            ``Raise()``, the default: the first bad sample ends the loop over the epoch with its
            ``SampleError``. ``Replace(at_most=…)``: another sample of the epoch takes its place, the same one
            in every run, so that every rank keeps its steps and every batch its rows. ``loader.bad_samples``
            lists the replaced ones.

        Examples
        --------
        >>> import pathlib
        >>> _ = pathlib.Path("photos/cat/000.jpg").write_bytes(b"not an image")
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
        >>> with pipeline.on_error(sp.Replace(at_most=0.05)).loader() as loader:
        ...     print(sum(len(batch["index"]) for batch in loader), len(loader.bad_samples))
        24 1
        """
        if isinstance(policy, type) and policy in (Raise, Replace):
            raise PlanError(f"on_error({policy.__name__}) got a class. Write {policy.__name__}(…)")
        if not isinstance(policy, Raise | Replace):
            raise PlanError(f"on_error takes Raise() or Replace(at_most=…), got {policy!r}")
        if isinstance(policy, Replace):
            check_at_most(policy.at_most)
        return replace(self, bad=policy)

    def check_finite(self, *fields: str) -> Pipeline:
        """Treat samples with NaN or infinity as bad. By default they pass.

        The check comes after all transforms of a sample and before functions of whole batches. It covers
        floats and complex numbers, arrays and tensors of them, and lists, tuples and dicts of these. Images
        that native code makes from bytes are always finite.

        Parameters
        ----------
        *fields : str
            Names of the fields to check. Default: all fields of a sample.

        Examples
        --------
        >>> source = sp.MapSource([{"x": 1.0}, {"x": float("nan")}])
        >>> with sp.Pipeline(source).check_finite().batch(2).loader(executor="thread") as loader:
        ...     next(iter(loader))
        Traceback (most recent call last):
            ...
        standpipe.errors.TransformError: ...
        """
        if wrong := [name for name in fields if not isinstance(name, str)]:
            raise PlanError(f"check_finite takes names of fields, got {wrong[0]!r}")
        return replace(self, finite=fields)

    def check_labels(self, num_classes: int, *, field: str = "label", ignore: int | None = None) -> Pipeline:
        """Refuse labels outside 0 to ``num_classes`` − 1.

        If the labels are a column of the source, ``plan()`` checks all selected records and raises
        ``PlanError`` with the first invalid one. Labels that Python code makes or changes are checked per
        sample: a sample with an invalid label is bad.

        Parameters
        ----------
        num_classes : int
            Number of classes, such as the number of a model's outputs.
        field : str, default "label"
            The field of the labels, one or many per sample, such as a mask.
        ignore : int, optional
            A further valid number, such as a loss function's ``ignore_index``.

        Examples
        --------
        >>> sp.Pipeline(sp.Arrays(label=np.array([0, 1, 5]))).check_labels(3).batch(1).plan()
        Traceback (most recent call last):
            ...
        standpipe.errors.PlanError: ...
        """
        if (
            not isinstance(num_classes, int)
            or isinstance(num_classes, bool)
            or not 1 <= num_classes <= 1 << 62
        ):
            raise PlanError(f"check_labels: num_classes must be an integer from 1 on, got {num_classes!r}")
        if ignore is not None and (not isinstance(ignore, int) or isinstance(ignore, bool)):
            raise PlanError(f"check_labels: ignore must be an integer or None, got {ignore!r}")
        others = tuple(labels for labels in self.labels if labels.field != field)
        return replace(self, labels=(*others, Labels(field, num_classes, ignore)))


def _within(
    batch_size: int | None,
    budget: int | None,
    length_column: str | None,
    max_batch_size: int | None,
    packing: bool,
) -> Budget | None:
    """Return the length budget of ``Pipeline.batch``'s arguments, or None with a ``batch_size``.

    Raise ``PlanError`` for arguments that don't go together.
    """
    if batch_size is None and budget is not None and length_column is not None:
        return Budget(budget, length_column, max_batch_size, packing)
    alone = budget is None and length_column is None and max_batch_size is None and not packing
    if batch_size is None or not alone:
        raise PlanError(
            "batch() takes a batch_size, or budget= and length_column=. max_batch_size= and packing= apply "
            "only with budget="
        )
    return None


def _collating(
    collate: Collate | None, collate_fn: Callable[[list[Any]], Any] | None
) -> tuple[BatchFunction, ...]:
    if collate_fn is None:
        return ()
    if not callable(collate_fn) or isinstance(collate_fn, type):
        raise PlanError(f"batch: collate_fn must be a function of a list of samples, got {collate_fn!r}")
    if collate:
        raise PlanError(
            "batch() takes collate= or collate_fn=, not both: the collate_fn makes the whole batch"
        )
    return (BatchFunction(collate_fn, collates=True),)


def _described(part: object) -> str:
    """Return one line about a source, selection or transform, also one that ``plan()`` refuses."""
    described = None if isinstance(part, type) else getattr(part, "describe", None)
    return " ".join((repr(part) if described is None else str(described())).split())


def _is_python(transform: object) -> TypeGuard[Callable[..., Any]]:
    """Return True for a user's callable; classes and standpipe's own transforms aren't."""
    return callable(transform) and not isinstance(transform, type) and not isinstance(transform, Transform)
