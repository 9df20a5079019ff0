"""The description of a training input: frozen, with one field per place. It only stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn, TypeGuard, cast

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

if TYPE_CHECKING:
    pass

BATCH_ARGUMENTS = (
    *("batch_size", "budget", "length_column", "max_batch_size", "packing"),
    *("batch_sampler", "collate", "collate_fn", "last_batch"),
)
MOST_SHOWN = 600  # letters of a pipeline's text


@dataclass(frozen=True, slots=True)
class Pipeline(Ordered, Runnable):
    """What a loader shall deliver: source → order → transform → batch. Every method returns a new value.

    source  where records come from: ``ImageFolder``, ``FileList``, ``Arrays``, ``MapSource``, several in one by
            ``Concat`` and ``Mixture``
    seed    what random draws are keyed by, beside epoch and position, where ``shuffle`` gives no other

    Nothing is touched or started before ``plan()`` or ``loader()``.
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
        """Raise ``TypeError``: a loader has the batches."""
        raise TypeError(
            "a Pipeline is a description and has no batches itself: iterate over a loader of it, as in "
            "'with pipeline.loader() as loader: for batch in loader: …'"
        )

    def __repr__(self) -> str:
        """One line that shows what was written, in the order in which it happens; a long one lacks its middle."""
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
        """Append transforms, which are applied in the order of writing.

        Transforms of standpipe are native, and adjacent ones become one. Anything else that can be called is
        Python code, which workers run (``executor=`` of ``loader()``): a function, a torchvision transform,
        an albumentations transform. It takes a sample, a dict of values by field, and returns the new one;
        or, with ``field``, that field's value and its new one. torchvision's and albumentations' get the
        image, unless ``field`` says otherwise; albumentations' also ``mask``, ``bboxes`` and ``keypoints`` of
        the sample.

        Images between transforms are (H, W, 3) uint8 arrays. A parameter named ``rng`` gets a
        ``numpy.random.Generator``; ``random``, NumPy's and torch's global generators are seeded too: all by
        (seed, epoch, position), so that who calls it and when makes no difference.

        field         for Python code: the field it takes and returns
        input_format  how images come to Python code: ``"numpy"`` (default), ``"pil"`` (torchvision's default), or
                      ``"tensor"``: (3, H, W) uint8
        spec          shape and dtype of what it returns: of ``field``, or of all fields by name; default: measured on
                      one sample when a loader starts
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
                "map(field=, input_format=, spec=) are for Python callables; standpipe's own transforms need none"
            )
        return replace(self, transforms=(*self.transforms, *appended))

    def cache(self, cache: Cache | Literal["auto"], *, place: Literal["here", "auto"] = "here") -> Pipeline:
        """Keep what is there at this place of each record, for later epochs and for other jobs of this machine.

        Right after the source that is the bytes of its file. After transforms that draw nothing it is what
        they made of it: of images (H, W, 3) uint8, a quarter of what they take as float32; ``Normalize``,
        ``ToDtype`` and ``ToLayout`` come on the way out, wherever they stand. Batches are the same, bit for
        bit, as without a cache.

        cache  where rows are kept, how many bytes, and when they are compared with their files. ``"auto"`` is
               ``Cache("auto")``, at the place that the plan chooses
        place  ``"here"``, or ``"auto"``: the plan chooses, from the room there is and from what reading and decoding
               cost; ``explain()`` says why

        ``plan()`` raises ``PlanError`` after a transform that draws, since every epoch would see the same
        draws.
        """
        if cache == "auto":
            cache, place = Cache("auto"), "auto"
        if place not in ("here", "auto"):
            raise PlanError(f"cache(place={place!r}): 'here' or 'auto'")
        if not isinstance(cache, Cache):
            raise PlanError(f"cache({cache!r}): a Cache, such as sp.Cache('imagenet', memory='8GiB')")
        if self.cached is not None:
            raise PlanError("two cache() in one pipeline: one place keeps all that those before it would")
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
        """Deliver ``batch_size`` samples per rank and step, or as many as ``budget`` allows.

        batch_size      samples of a batch, on each rank
        budget          instead of ``batch_size``: what a batch may hold, in the unit of ``length_column``, such as
                        tokens or pixels
        length_column   with ``budget``: the source's column of lengths, integers from 0 to ``budget``
        max_batch_size  with ``budget``: no batch has more samples; default: as many as the budget allows
        packing         with ``budget``: what a batch costs. False (default): its samples × the longest of them, for
                        batches that are padded; samples of like length meet. True: the sum of its lengths, for batches
                        that aren't; long and short samples meet
        batch_sampler   with ``batch_size``: whether batches are named by somebody else, as by torch's
                        ``batch_sampler``: the pipeline has no order then, and ``loader.from_batches(batches)`` takes
                        lists of records, each of at most ``batch_size``; default: False
        collate         for fields whose samples differ in shape, how a batch holds them, by name: ``Pad(…)``,
                        ``Ragged(…)``, or ``list``, a Python list with a value per row. What is no array of numbers
                        comes in lists anyway
        collate_fn      instead of ``collate``: a function that makes the batch from the list of its samples, as the
                        data set gave them, as torch's ``collate_fn`` does. One worker makes each batch as a whole, in
                        memory of its own. What ``map_batch`` says of a function's result and of ``rng`` holds here
        last_batch      what happens to samples that fill no whole step of all ranks: ``"drop"`` leaves them out
                        (default when shuffled), ``"pad"`` repeats the epoch's first samples and adds a field ``valid``,
                        (batch_size,) bool, that is False for them (default otherwise), ``"partial"`` makes the last
                        batch smaller (one rank only). With ``budget`` it is about whole batches that fill no step

        With ``budget`` the batches are planned once, and shuffled anew each epoch: which records meet, and
        which batch comes when. Without ``shuffle`` the longest records come first.
        """
        if unknown:
            raise unknown_argument("batch()", unknown, BATCH_ARGUMENTS, BATCH)
        if last_batch is not None and last_batch not in (each.value for each in LastBatch):
            raise PlanError(f"batch(last_batch={last_batch!r}): 'drop', 'pad' or 'partial'")
        within = _within(batch_size, budget, length_column, max_batch_size, packing)
        if batch_sampler and within is not None:
            raise PlanError("batch(batch_sampler=True) takes a batch_size, the most that a batch has")
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
        """Append Python code on whole batches, which workers run, in the order of writing.

        A function takes the batch, a dict of (rows, …) arrays by field, which it may change, and returns the
        new one, or one value or a tuple of them, named as a sample's are. Arrays that keep their field's
        shape and dtype stay in the slot; anything else a batch has as it was returned, with tensors as
        arrays. ``index`` and ``valid`` are there whatever it returns. A parameter named ``rng`` gets a
        ``numpy.random.Generator``, keyed by the batch's first row. ``MixUp`` and ``CutMix`` are such
        functions.
        """
        for function in functions:
            if not callable(function) or isinstance(function, type):
                raise PlanError(f"map_batch({function!r}): a function of a batch")
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
        """Deliver one data rank's rows of every step of all ranks. Every rank has the same steps.

        rank, world_size  this process's number, and how many there are; default: what torchrun, MPI or SLURM's srun set
                          in the environment of the processes they start, and 0 of 1 without any of them
        replicate         this many consecutive ranks get the same rows: those of one tensor-, pipeline- or
                          context-parallel group
        mesh              instead of all these: a torch DeviceMesh. Ranks that differ only in its other dimensions get
                          the same rows
        dims              the names of the mesh's data-parallel dimensions, slowest first
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

        mode             ``"exact"``: Pillow's pixels, bit for bit. ``"fast"``: large JPEGs at 1/2, 1/4 or 1/8 of
                         their size where the crop still has the pixels that are asked for; its error is documented.
                         ``"gpu"``: baseline JPEGs by the GPU (``standpipe[gpu]``), with pixels of its own.
                         ``"hybrid"``: those of a share of the records. All else is exact
        share            for ``"hybrid"``: of the records, between 0 and 1. Which ones is a function of their numbers
        gpu_memory       bytes (or text) of the GPU that decoding may take; so larger images, above 2.8 million pixels
                         by default, are decoded exactly
        limits           caps checked from a file's header
        allow_truncated  whether a file that ends too soon, behind its header, is decoded as far as it goes: what is
                         missing is grey in a JPEG and black in other formats, as with Pillow's
                         ``LOAD_TRUNCATED_IMAGES``. ``loader.stats()`` counts such rows. Other damage that Pillow
                         refuses stays an error
        """
        gpu = checked_gpu(mode, share, gpu_memory)
        if gpu is None and mode not in (each.value for each in DecodeMode):
            raise PlanError(f"decode({mode!r}): 'exact', 'fast', 'gpu' or 'hybrid'")
        if not isinstance(allow_truncated, bool):
            raise PlanError(f"decode(allow_truncated={allow_truncated!r}): True or False")
        return replace(
            self,
            decode_mode=DecodeMode.EXACT if gpu is not None else DecodeMode(mode),
            gpu=gpu,
            limits=self.limits if limits is None else limits,
            allow_truncated=allow_truncated,
        )

    @property
    def decoding(self) -> Decoding:
        """The settings of ``decode``."""
        return Decoding(self.decode_mode, self.limits, self.allow_truncated, self.gpu)

    def on_error(self, policy: Raise | Replace) -> Pipeline:
        """Choose what happens to samples that can't be read, decoded or transformed.

        policy  ``Raise()``, the default: the ``SampleError`` of the first one ends the loop over the epoch.
                ``Replace(at_most=…)``: another sample of the epoch takes its place, the same whoever makes the
                batch, so that every rank keeps its steps and every batch its rows; ``loader.bad_samples`` says
                which ones they were

        The samples of a stream (``IterableSource``) can't be replaced: where others are is known to nobody.
        """
        if isinstance(policy, type) and policy in (Raise, Replace):
            raise PlanError(f"on_error({policy.__name__}): it is a class, write {policy.__name__}(…)")
        if not isinstance(policy, Raise | Replace):
            raise PlanError(f"on_error({policy!r}): Raise() or Replace(at_most=…)")
        if isinstance(policy, Replace):
            check_at_most(policy.at_most)
        return replace(self, bad=policy)

    def check_finite(self, *fields: str) -> Pipeline:
        """Make samples bad that hold NaN or an infinity; by default these pass.

        fields  those that are looked at; default: all of a sample

        Looked at is what transforms made of a sample, before functions of whole batches: floats and complex
        numbers, arrays and tensors of them, and lists, tuples and dicts of these. What image kernels make of
        bytes is finite anyway.
        """
        if wrong := [name for name in fields if not isinstance(name, str)]:
            raise PlanError(f"check_finite({wrong[0]!r}): names of fields")
        return replace(self, finite=fields)

    def check_labels(self, num_classes: int, *, field: str = "label", ignore: int | None = None) -> Pipeline:
        """Refuse labels that stand for no class, as a model with ``num_classes`` outputs has them.

        num_classes  labels are integers from 0 to ``num_classes`` − 1
        field        that has them, one or many in a sample, such as a mask's
        ignore       a number that is allowed too, such as a loss function's ``ignore_index``

        Where a column of the source tells, ``plan()`` looks at all selected records and raises ``PlanError``
        that names the first one. Else, for labels that Python code gives or changes, a sample with another
        label is bad.
        """
        if (
            not isinstance(num_classes, int)
            or isinstance(num_classes, bool)
            or not 1 <= num_classes <= 1 << 62
        ):
            raise PlanError(f"check_labels({num_classes!r}): how many classes there are, at least 1")
        if ignore is not None and (not isinstance(ignore, int) or isinstance(ignore, bool)):
            raise PlanError(f"check_labels(ignore={ignore!r}): an integer, or None")
        others = tuple(labels for labels in self.labels if labels.field != field)
        return replace(self, labels=(*others, Labels(field, num_classes, ignore)))


def _within(
    batch_size: int | None,
    budget: int | None,
    length_column: str | None,
    max_batch_size: int | None,
    packing: bool,
) -> Budget | None:
    """Return what cuts batches instead of ``batch_size``, if anything; ``Pipeline.batch`` says what each means."""
    if batch_size is None and budget is not None and length_column is not None:
        return Budget(budget, length_column, max_batch_size, packing)
    alone = budget is None and length_column is None and max_batch_size is None and not packing
    if batch_size is None or not alone:
        raise PlanError(
            "batch() takes a batch_size, or budget= and length_column=, and max_batch_size= and packing= only "
            "with these"
        )
    return None


def _collating(
    collate: Collate | None, collate_fn: Callable[[list[Any]], Any] | None
) -> tuple[BatchFunction, ...]:
    if collate_fn is None:
        return ()
    if not callable(collate_fn) or isinstance(collate_fn, type):
        raise PlanError(f"batch(collate_fn={collate_fn!r}): a function of a list of samples")
    if collate:
        raise PlanError("batch(collate=…, collate_fn=…): one of them; the function makes the whole batch")
    return (BatchFunction(collate_fn, collates=True),)


def _described(part: object) -> str:
    """A source, selection or transform on one line, also one that ``plan()`` refuses."""
    described = None if isinstance(part, type) else getattr(part, "describe", None)
    return " ".join((repr(part) if described is None else str(described())).split())


def _is_python(transform: object) -> TypeGuard[Callable[..., Any]]:
    """Return True for a callable of the user; classes and standpipe's own transforms aren't."""
    return callable(transform) and not isinstance(transform, type) and not isinstance(transform, Transform)
