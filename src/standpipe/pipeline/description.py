"""The description of a training input: frozen, with one field per place. It only stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from standpipe.batch.collate import Collate, Pad, Ragged, checked_collate
from standpipe.batch.instances import checked_instances
from standpipe.batch.masks import BoxOrigin, MaskForm, MaskName
from standpipe.errors import PlanError
from standpipe.order import AspectGroups, Budget, GroupBy
from standpipe.pipeline.samples import Transformed
from standpipe.plan.options import check_at_most
from standpipe.spec import LastBatch, Raise, Replace
from standpipe.system.launcher import DeviceMesh, data_rank
from standpipe.transform import BatchFunction
from standpipe.units import as_html, without_middle


@dataclass(frozen=True, slots=True)
class Description(Transformed):
    """The settings that a ``Pipeline`` stores: all that plans, engine and jobs see of it."""

    batch_functions: tuple[BatchFunction, ...] = field(default=(), kw_only=True)
    batch_rows: int | None = field(default=None, kw_only=True)
    budget: Budget | None = field(default=None, kw_only=True)
    groups: AspectGroups | None = field(default=None, kw_only=True)
    batch_sampler: bool = field(default=False, kw_only=True)
    collate: Collate = field(default_factory=dict, kw_only=True, hash=False)
    instances: Pad | Ragged | None = field(default=None, kw_only=True)
    masks: MaskForm | None = field(default=None, kw_only=True)
    last_batch: LastBatch | None = field(default=None, kw_only=True)
    rank: int = field(default=0, kw_only=True)
    world_size: int = field(default=1, kw_only=True)
    bad: Raise | Replace = field(default=Raise(), kw_only=True)

    def __repr__(self) -> str:
        """Return one line with the steps in the order in which they happen; long text lacks its middle."""
        return without_middle(".".join(self._steps()), 600)

    def _repr_html_(self) -> str:
        return as_html("\n    .".join(self._steps()))

    def _steps(self) -> list[str]:
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
        how += [] if self.instances is None else [f"instances={self.instances.describe()}"]
        how += [] if self.masks is None else [f"{name}={value!r}" for name, value in self.masks.given.items()]
        how += [] if self.last_batch is None else [f"last_batch={self.last_batch.value!r}"]
        if self.groups is not None:
            how = [f"group_by={self.groups.by!r}, group_factor={self.groups.factor}", *how]
        if self.batch_rows is not None:
            steps.append(f"batch({', '.join([str(self.batch_rows), *how])})")
        elif self.budget is not None:
            within = f"budget={self.budget.most}", f"length_column={self.budget.length_column!r}"
            steps.append(f"batch({', '.join([*within, *how])})")
        steps += ["map_batch(…)"] if any(not each.collates for each in self.batch_functions) else []
        steps += [f"shard({self.rank}, {self.world_size})"] if self.world_size != 1 else []
        steps += [f"on_error({self.bad!r})"] if self.bad != Raise() else []
        return steps

    def batch(
        self,
        batch_size: int | None = None,
        *,
        budget: int | None = None,
        length_column: str | None = None,
        max_batch_size: int | None = None,
        packing: bool = False,
        group_by: GroupBy | None = None,
        group_factor: int = 3,
        batch_sampler: bool = False,
        collate: Collate | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        instances: Pad | Ragged | None = None,
        masks: MaskName = "index",
        mask_ratio: int = 1,
        boxes_from: BoxOrigin = "corners",
        last_batch: Literal["drop", "pad", "partial"] | None = None,
    ) -> Self:
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
            padded batches; samples of similar length are batched together. Lengths are rounded up to the
            ``to_multiple_of`` of ``collate``'s ``Pad``. True: the sum of its lengths, for batches without
            padding; long and short samples are batched together.
        group_by : {"aspect_ratio"}, optional
            With ``batch_size``: images of a batch have similar aspect ratios, so that little of it is padding. The
            source must know their sizes, or have columns ``height`` and ``width``. Every record comes once an epoch, in
            batches that are planned once and shuffled as those of ``budget``. The last batch of each group is smaller.
        group_factor : int, default 3
            With ``group_by``: the number of groups from ratio 1 to 2, as torchvision's
            ``--aspect-ratio-group-factor``, from 0 to 64. 0: one group of portraits, and one of all others.
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
        instances : Ragged or Pad, optional
            The form of boxes and other values of instances. ``Ragged()``, the default: those of all rows one after
            another. The batch also has ``batch_index``, (instances,) int64, the row of each, and ``instance_offsets``,
            (rows + 1,) int64, where each row's begin. ``Pad(length=100)``: 100 of each row, with zeros behind its own,
            and ``instance_valid``, (rows, 100) bool. A sample with more is bad, unless ``Pad(length=100, cut=True)``
            takes the first ones. Each batch with instances has ``orig_size``, (rows, 2) int64, height and width of the
            stored images, and ``to_original``, (rows, 3, 3) float64, matrices from pixels of the rows to pixels of
            the stored images.
        masks : {"index", "dense"}, default "index"
            The form of ``instance_masks``, where a source has masks. ``"index"``: (rows, H, W), 0 for the background
            and n for the row's n-th instance, from 1; where several are, the smallest. It is uint8, or int16 where an
            image may have more than 255. ``"dense"``: (instances, H, W) uint8, 1 inside of each; with ``Pad``,
            (rows, length, H, W). Slots have room for the masks of as many instances as for boxes, which
            ``Ragged(max_values=…)`` limits. Of images in a list, masks are in a list too.
        mask_ratio : int, default 1
            The sides of masks are those of the images ÷ this, rounded down. The YOLO family takes 4.
        boxes_from : {"corners", "shape"}, default "corners"
            ``"shape"``: ``boxes`` are those around the moved shapes, and not around the boxes' moved corners, which
            rotations and warps make too large.
        last_batch : {"drop", "pad", "partial"}, optional
            The treatment of samples that don't fill a whole step of all ranks. ``"drop"`` leaves them out
            (default when shuffled). ``"pad"`` repeats the epoch's first samples, and adds a field ``valid``,
            (batch_size,) bool, that is False for the repeats (default otherwise). ``"partial"`` makes the
            last batch smaller (one rank only). With ``budget`` or ``group_by`` it applies to whole batches that
            don't fill a step.

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
        if last_batch is not None and last_batch not in (each.value for each in LastBatch):
            raise PlanError(f"batch: last_batch must be 'drop', 'pad' or 'partial', got {last_batch!r}")
        if not isinstance(batch_sampler, bool):
            raise PlanError(
                f"batch: batch_sampler must be True or False, got {batch_sampler!r:.80}. Give the batches to "
                "loader.from_batches(batches)"
            )
        within = _within(batch_size, budget, length_column, max_batch_size, packing)
        groups = None
        if group_by is not None:
            if batch_size is None or batch_sampler:
                raise PlanError(
                    "batch(group_by=…) takes a batch_size, without budget= and batch_sampler=True"
                )
            groups = AspectGroups(batch_size, group_by, group_factor)
        if batch_sampler and within is not None:
            raise PlanError(
                "batch(batch_sampler=True) takes a batch_size, which is the largest number of samples "
                "in a batch. Leave out budget="
            )
        later = tuple(each for each in self.batch_functions if not each.collates)
        return replace(
            self,
            batch_functions=(*_collating(collate, collate_fn), *later),
            batch_rows=batch_size,
            budget=within,
            groups=groups,
            batch_sampler=batch_sampler,
            collate=checked_collate(collate or {}),
            instances=None if instances is None else checked_instances(instances),
            masks=None if (form := MaskForm(masks, mask_ratio, boxes_from)) == MaskForm() else form,
            last_batch=None if last_batch is None else LastBatch(last_batch),
        )

    def map_batch(self, *functions: Callable[..., Any]) -> Self:
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
        ...     print(loader.peek()["x"])
        [0 2 4 6]
        """
        for function in functions:
            if not callable(function) or isinstance(function, type):
                raise PlanError(
                    f"map_batch takes functions of a batch, got {function!r}. Write .map(…) for those of a sample"
                )
        return replace(self, batch_functions=(*self.batch_functions, *map(BatchFunction, functions)))

    def shard(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        replicate: int = 1,
        mesh: DeviceMesh | None = None,
        dims: Sequence[str] = ("dp",),
    ) -> Self:
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

    def on_error(self, policy: Raise | Replace) -> Self:
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
