"""The public ``Pipeline``: a description, with the methods that plan and run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal, Never, Self, Unpack

from standpipe.answers import answering
from standpipe.contracts import Device, Fleet, Source
from standpipe.hints import OTHERS, unknown_argument
from standpipe.jobs.audit import AuditReport, audit
from standpipe.jobs.fill_cache import loader_of
from standpipe.jobs.filter_scan import scan
from standpipe.loader.loader import Loader
from standpipe.pipeline.description import Description
from standpipe.pipeline.serialized import NoSource, as_dict, described_by
from standpipe.plan.build import make_plan
from standpipe.plan.options import DEFAULTS, JobArguments, LoaderArguments, LoaderOptions, MakerOptions
from standpipe.plan.plan import Plan
from standpipe.plan.remote_images import sent
from standpipe.source import turns_photos
from standpipe.spec import AnyArray, Decoding, ExecutorName, ReadOptions, UInt8Array
from standpipe.system.workers import WorkerContext

if TYPE_CHECKING:
    from PIL.Image import Image

    from standpipe.engine.remote.maker import BatchMaker
    from standpipe.jobs.show import Sheet

    AnyImage = str | os.PathLike[str] | bytes | bytearray | memoryview | UInt8Array | Image | IO[bytes]


@answering
class Pipeline(Description):
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

    __slots__ = ()

    def __init__(self, source: Source, *, seed: int = 0, **described: Any) -> None:
        if described and {"source", "seed"} | described.keys() != self.__dataclass_fields__.keys():
            # Only dataclasses.replace gives settings, all of them.
            raise unknown_argument("Pipeline()", described, ("source", "seed"), OTHERS)
        if not described and turns_photos(source):
            described = {"decoding": Decoding(upright=True)}
        super().__init__(source, seed=seed, **described)

    def __dir__(self) -> list[str]:
        """Return the methods; the settings that they store are for the engine, and may change in any version."""
        return [name for name in super().__dir__() if callable(getattr(type(self), name, None))]

    def plan(
        self,
        *,
        memory: int | str | None = DEFAULTS.memory,
        num_workers: int | Literal["auto"] = DEFAULTS.num_workers,
        executor: ExecutorName | None = DEFAULTS.executor,
        prefetch: int | Literal["auto"] = DEFAULTS.prefetch,
        autotune: bool = DEFAULTS.autotune,
        large_image_memory: int | str | None = DEFAULTS.large_image_memory,
        memory_per_worker: int | str | None = DEFAULTS.memory_per_worker,
        batch_release_timeout_s: float = DEFAULTS.batch_release_timeout_s,
        reads: ReadOptions = DEFAULTS.reads,
        slow_sample_s: float = DEFAULTS.slow_sample_s,
        stall_timeout_s: float | None = DEFAULTS.stall_timeout_s,
        start_timeout_s: float | None = DEFAULTS.start_timeout_s,
        mp_context: WorkerContext = DEFAULTS.mp_context,
        initializer: Callable[[], object] | None = DEFAULTS.initializer,
        round_robin: bool = DEFAULTS.round_robin,
        check_generators: bool = DEFAULTS.check_generators,
        error_log: str | os.PathLike[str] | None = DEFAULTS.error_log,
        device: Device | None = DEFAULTS.device,
        fleet: Fleet | None = DEFAULTS.fleet,
        **unknown: Never,
    ) -> Plan:
        """Check the pipeline, compute all sizes, and forecast memory.

        It reads metadata, and the headers of up to 16 files that aren't JPEGs by their names. It decodes no
        sample.

        Parameters
        ----------
        memory : int or str, optional
            Most bytes that standpipe may allocate, as a number or text such as ``"2GiB"``. Default: half of
            the memory that is free and that no other loader may still take, divided equally among the
            processes that a launcher started on this machine.
        num_workers : int or "auto", default "auto"
            Number of threads or processes that make samples. ``"auto"`` begins with one per CPU that this
            process may use, or fewer if memory is short. A running loader then finds the best number.
        executor : {"process", "thread", "inline"}, optional
            The place where Python code of data sets and transforms runs. ``"process"``: worker processes, in
            which global random numbers depend only on the sample. ``"thread"``: worker threads.
            ``"inline"``: the thread that asks for a batch, so that a debugger can stop there. Default:
            ``"process"`` on Linux where there is such code, else ``"thread"``.
        prefetch : int or "auto", default "auto"
            Number of batches that are made ahead of the one that the loop has. ``"auto"`` is 1, or more if all
            workers together have more than a batch in work. It doesn't change while a loader runs.
        autotune : bool, default True
            Tune ``num_workers="auto"`` while a loader runs, within ``memory`` and the available CPUs. False: it
            keeps its first value.
        large_image_memory : int or str, optional
            Bytes (or text) for images that need a whole frame at once: progressive JPEGs, other formats.
            Default: 256 MiB, less if ``memory`` is short, and enough for each of the first samples that
            aren't JPEGs by their names.
        memory_per_worker : int or str, optional
            Bytes (or text) that a worker process may have of its own. A process with more is replaced by a
            new one between two tasks; batches stay the same. Default: an equal part of half of what
            ``memory`` leaves.
        batch_release_timeout_s : float, default 0
            Seconds to wait for a batch to be released, when the program holds as many as fit into memory.
            For programs that hand batches to other threads. 0: ``BudgetError`` at once.
        reads : ReadOptions, default ReadOptions()
            Retries of files that can't be read at once: ``ReadOptions(retries=…, backoff_s=…, hedge_after_s=…)``.
        slow_sample_s : float, default 5
            Seconds after which the log ``standpipe`` names the sample that a worker is making, and the line
            of code.
        stall_timeout_s : float or None, default 120
            Seconds after which a sample is bad, with ``StalledError``. A worker process that makes it is
            killed, and the sample is tried once more. None: never.
        start_timeout_s : float, optional
            Seconds that worker processes have to start, including all imports and the data set, if that is
            more than ``stall_timeout_s``.
        mp_context : {"spawn", "forkserver", "fork"} or ForkServer, default "spawn"
            The way in which worker processes start, as in multiprocessing. ``"spawn"``: each loader starts a
            new interpreter, which imports what they need. ``"forkserver"``: from a process that has already
            imported it. All loaders of this process share it, so only the first one waits; it ends five
            minutes after its last use. ``"fork"``: from this process, with its data set, without pickling;
            memory is copied page by page as they write to it. It is refused while standpipe has threads here.
            Or a ``ForkServer()`` of your own.
        initializer : callable, optional
            A function without arguments that each worker process calls once, before its first sample: to open
            connections, or to change what the workers' libraries do. It is sent by cloudpickle. With native
            workers, threads and ``"inline"``, this process calls it once, when the loader starts. Default: none.
        round_robin : bool, default False
            True: worker ``k % num_workers`` makes all of batch k. For code that keeps generators in each
            worker process: no sample is made twice, and the code itself controls global generators. It
            needs ``batch(…, batch_sampler=True)``, worker processes and a number for ``num_workers``.
        check_generators : bool, default True
            Make one sample in a separate process beside the first batches, if Python code runs in this
            process, and warn of code that uses global random generators.
        error_log : path, optional
            A file to which a line of JSON is added for every bad sample that was replaced. Several ranks may
            use one file.
        device : Device, optional
            The place of batches, from an adapter: ``standpipe.torch.loader(…, device="cuda")``. Default:
            NumPy arrays in host memory.
        fleet : Fleet, optional
            Processes outside this one that make the batches, from an adapter: ``standpipe.ray.start(pipeline)``.
            Batches stay the same. Default: this loader's own workers.
        **unknown
            Any other argument raises ``TypeError``, which names the right one, such as for ``drop_last``.

        Returns
        -------
        Plan

        Raises
        ------
        PlanError
            For a pipeline or options that can't work.
        BudgetError
            If the pipeline doesn't fit into ``memory``.
        TypeError
            For an unknown argument.

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32), sp.Normalize()).batch(8)
        >>> plan = pipeline.plan(memory="256MiB")
        >>> plan.steps.per_epoch, str(plan.fields["image"])
        (3, '(3, 32, 32) float32')
        """
        options = LoaderOptions.of(
            unknown,
            memory=memory,
            num_workers=num_workers,
            executor=executor,
            prefetch=prefetch,
            autotune=autotune,
            large_image_memory=large_image_memory,
            memory_per_worker=memory_per_worker,
            batch_release_timeout_s=batch_release_timeout_s,
            reads=reads,
            slow_sample_s=slow_sample_s,
            stall_timeout_s=stall_timeout_s,
            start_timeout_s=start_timeout_s,
            mp_context=mp_context,
            initializer=initializer,
            round_robin=round_robin,
            check_generators=check_generators,
            error_log=error_log,
            device=device,
            fleet=fleet,
        )
        return make_plan(self, options)

    def loader(self, **options: Unpack[LoaderArguments]) -> Loader:
        """Make a plan, and return a loader of it: an iterable of batches.

        Parameters and errors are those of ``plan``. ``run_filters`` comes first if a filter function has no
        answers yet. So does ``standpipe.fill_cache`` with ``Cache(scope="node")``, if several machines train
        and the rows aren't kept yet.

        Returns
        -------
        Loader

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
        >>> with pipeline.loader(memory="256MiB", num_workers=1) as loader:
        ...     print(sum(len(batch["label"]) for batch in loader))
        24
        """
        return loader_of(self, LoaderOptions.of(options))

    def audit(
        self,
        *,
        ranks: int = 1,
        epochs: int = 1,
        executor: ExecutorName | None = None,
    ) -> AuditReport:
        """Count the records that data ranks would get, without reading a sample.

        It counts every record in every step of every rank. It needs 2 bytes of memory per record, or 8 if the
        order samples. With an ``executor`` that runs Python code in the training process, it also makes one
        sample in another process. The audit fails if that sample uses global random generators.

        Parameters
        ----------
        ranks : int, default 1
            Number of data ranks.
        epochs : int, default 1
            Number of epochs to count, from the first.
        executor : {"process", "thread", "inline"}, optional
            See ``plan``.

        Returns
        -------
        standpipe.reports.AuditReport

        Examples
        --------
        >>> report = sp.Pipeline(sp.Arrays(x=np.arange(16))).shuffle(seed=7).batch(4).audit(ranks=2, epochs=3)
        >>> report.ok, report.steps
        (True, (2, 2))
        """
        return audit(self, ranks=ranks, epochs=epochs, executor=executor)

    def run_filters(self, **options: Unpack[JobArguments]) -> None:
        """Call the functions of ``filter`` for all records, unless the user's cache folder has the answers.

        Afterwards ``plan()`` knows the selected records. One process of a machine calls the functions, the
        others wait. Answers are kept even if the process ends early, so the next one continues from there.
        Progress goes to the log ``standpipe`` every few seconds.

        Parameters
        ----------
        **options
            ``memory``, ``num_workers``, ``executor``, ``large_image_memory``, ``reads``, ``slow_sample_s``,
            ``stall_timeout_s``, ``start_timeout_s``, ``mp_context`` and ``initializer``; see ``plan``. Other
            options have no effect.

        Raises
        ------
        SampleError
            For the first sample that can't be read or for which a function fails.
        PlanError
            If the cache folder can't be written.

        Examples
        --------
        >>> def is_large(sample):
        ...     return sample["x"] > 3
        >>> is_large._fingerprint = "1"  # a console's function has no source file by which a change could be seen
        >>> pipeline = sp.Pipeline(sp.MapSource([{"x": n} for n in range(6)])).filter(is_large)
        >>> pipeline.run_filters(executor="thread", num_workers=1)
        >>> pipeline.batch(1).plan().steps.per_epoch
        2
        """
        scan(self, LoaderOptions.of(options))

    def apply(
        self,
        images: Sequence[AnyImage] | Mapping[str, Sequence[Any]],
    ) -> dict[str, AnyArray]:
        """Apply the transforms to given images, and return the batch that a loader would deliver.

        For serving a model with the preprocessing of its evaluation. It runs in the calling thread, one image
        after another, and reads nothing of the pipeline's source. Values are those of a loader, bit for bit.

        Parameters
        ----------
        images : sequence of path, bytes, file object, Pillow image or array; or a mapping of str to these
            Files, encoded images, and decoded images: (H, W, C) uint8, or Pillow's. If transforms leave images of
            different sizes, such as ``Resize(520)``, all must have one size in the end: give one at a time. A
            mapping has the images of each field, such as ``left`` and ``right``. With ``boxes``, an (M, 4) array xyxy
            for each image, it has ``image``, fields that ``decode`` names, and values of the instances, (M, …) for each
            image: ``labels``, ``keypoints`` or others.

        Returns
        -------
        dict of str to array
            ``image``, the fields of the mapping, or the fields of ``Views``, with a row for each input. With ``boxes``,
            also the fields of a loader's batch with instances. Without, there are ``orig_size`` and ``to_original`` if
            the pipeline is for instances: it has a source of annotations, ``batch(instances=…)``, or
            ``SanitizeBoundingBoxes``. By these, ``sp.boxes_to_original`` takes predictions back.

        Raises
        ------
        PlanError
            If a transform is random, has a ``Schedule``, or is a Python function; for values of another form.
        ReadError
            For a file that can't be read.
        DecodeError
            For an image that can't be decoded. ``index`` is its place in ``images``.
        TransformError
            For an image with more instances than ``batch(instances=sp.Pad(…))`` has room for.

        Examples
        --------
        >>> evaluation = sp.Pipeline(sp.ImageFolder("photos")).map(sp.Resize(48), sp.CenterCrop(32), sp.Normalize())
        >>> evaluation.apply(["photos/cat/000.jpg"])["image"].shape
        (1, 3, 32, 32)
        """
        from standpipe.jobs.apply import apply  # training doesn't need it

        return apply(self, images)

    def show(self, n: int = 8, *, steps: bool = False, epoch: int | Sequence[int] = 0) -> Sheet:
        """Draw the first samples of an epoch, as training gets them. Notebooks display the result.

        Each sample has a row: its image, or its views side by side. A field ``mask`` is drawn over the image, and
        ``a_mask`` over the view ``a``: half transparent, with a colour per class number. Class 0 has no colour, and 255
        is white. Boxes have the colour of their class, and its name, or its number where it has no name. Keypoints with
        visibility 0 aren't drawn, nor are empty boxes; lines between keypoints are those of COCO's ``skeleton``.
        ``Normalize`` is undone.
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
        from standpipe.jobs.show import show  # training doesn't need it

        return show(self, n, steps, epoch)

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
        return as_dict(self)

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
        return described_by(cls(NoSource() if source is None else source), recipe)

    def maker(self, **options: Unpack[LoaderArguments]) -> BatchMaker:
        """Start workers that make batches for loaders in other processes.

        An adapter for a cluster calls it in the processes of its ``contracts.Fleet``. The result has the methods
        ``make(task)``, ``facts()`` and ``close()``. Parameters and errors are those of ``plan``.

        Returns
        -------
        BatchMaker

        Examples
        --------
        >>> maker = sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4).maker(memory="64MiB", executor="thread")
        >>> maker.facts()["rows"]
        4
        >>> maker.close()
        """
        from standpipe.engine.remote.maker import BatchMaker  # training doesn't need it

        return BatchMaker(sent(make_plan(self, MakerOptions.of(options))))
