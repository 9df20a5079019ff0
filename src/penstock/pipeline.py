"""The description of a training input: frozen, with one field per place. It only stores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from penstock.contracts import Source, Transform
from penstock.errors import PlanError
from penstock.spec import DecodeLimits, DecodeMode, Tail

if TYPE_CHECKING:
    from penstock.loader import Loader
    from penstock.plan import Plan


class Settings(TypedDict, total=False):
    """What ``plan()`` and ``loader()`` take; ``Pipeline.plan`` says what each means."""

    memory: int | str | None
    workers: int | Literal["auto"]
    depth: int | None
    side_memory: int | str | None
    lend_wait_s: float


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a loader shall deliver: source → order → transform → batch. Every method returns a new value.

    source  where records come from: ``ImageFolder``, ``FileList``, ``Arrays``
    seed    what random draws are keyed by, beside epoch and position, where ``shuffle`` gives no other

    Nothing is touched or started before ``plan()`` or ``loader()``.
    """

    source: Source
    seed: int = field(default=0, kw_only=True)
    shuffled: bool = field(default=False, kw_only=True)
    transforms: tuple[Transform, ...] = field(default=(), kw_only=True)
    rows: int | None = field(default=None, kw_only=True)
    tail: Tail | None = field(default=None, kw_only=True)
    rank: int = field(default=0, kw_only=True)
    world: int = field(default=1, kw_only=True)
    decode_mode: DecodeMode = field(default=DecodeMode.EXACT, kw_only=True)
    limits: DecodeLimits = field(default=DecodeLimits(), kw_only=True)

    def shuffle(self, *, seed: int) -> Pipeline:
        """Deliver the records of each epoch in a new random order over the whole source, fixed by ``seed``."""
        return replace(self, shuffled=True, seed=seed)

    def map(self, *transforms: Transform) -> Pipeline:
        """Append transforms, which are applied in the order of writing. Adjacent native ones become one."""
        return replace(self, transforms=(*self.transforms, *transforms))

    def batch(self, rows: int, *, tail: Literal["drop", "pad", "short"] | None = None) -> Pipeline:
        """Deliver ``rows`` records per rank and step.

        tail  what happens to rows that fill no whole step of all ranks: ``"drop"`` leaves them out (default
              when shuffled), ``"pad"`` repeats the epoch's first rows and adds a field ``valid``, (rows,) bool,
              that is False for them (default otherwise), ``"short"`` makes the last batch smaller (one rank
              only)
        """
        if tail is not None and tail not in (each.value for each in Tail):
            raise PlanError(f"batch(tail={tail!r}): 'drop', 'pad' or 'short'")
        return replace(self, rows=rows, tail=None if tail is None else Tail(tail))

    def shard(self, rank: int, world: int) -> Pipeline:
        """Deliver rank ``rank``'s rows of every step of ``world`` ranks. Every rank has the same steps."""
        return replace(self, rank=rank, world=world)

    def decode(
        self, mode: Literal["exact", "fast"] = "exact", *, limits: DecodeLimits | None = None
    ) -> Pipeline:
        """Choose how images are decoded.

        mode    ``"exact"``: Pillow's pixels, bit for bit. ``"fast"``: large JPEGs at 1/2, 1/4 or 1/8 of their
                size where the crop still has the pixels that are asked for; its error is documented
        limits  caps checked from a file's header
        """
        if mode not in (each.value for each in DecodeMode):
            raise PlanError(f"decode({mode!r}): 'exact' or 'fast'")
        return replace(self, decode_mode=DecodeMode(mode), limits=self.limits if limits is None else limits)

    def plan(self, **settings: Unpack[Settings]) -> Plan:
        """Check the description, size everything and forecast memory. Reads metadata, no sample.

        memory       ceiling in bytes of what penstock allocates, or text such as ``"2GiB"``; default: half of
                     the memory that is free
        workers      decoding threads; ``"auto"`` (default): one per CPU that this process may use, fewer when
                     memory is short
        depth        slots in turn: one lent, the others filling; default: 2, more for batches smaller than
                     what the workers have in hand
        side_memory  bytes (or text) for rows that need a whole frame at once: progressive JPEGs, other
                     formats; default: 256 MiB, less when ``memory`` is short
        lend_wait_s  seconds to wait for a batch to be dropped when the caller holds as many as fit the memory,
                     for consumers that hand batches to other threads; default 0: ``BudgetError`` at once

        Raises ``PlanError`` for what can't work, ``BudgetError`` when it can't within ``memory``.
        """
        from penstock.plan import make_plan  # a plan is made of a pipeline: its module imports this one

        if unknown := settings.keys() - Settings.__annotations__:
            known = ", ".join(f"{name}=" for name in Settings.__annotations__)
            raise TypeError(
                f"no setting of a plan or loader: {', '.join(sorted(unknown))}; there are {known}"
            )
        return make_plan(self, **settings)

    def loader(self, **settings: Unpack[Settings]) -> Loader:
        """Plan, then run: an iterable of batches. Arguments and errors as of ``plan()``."""
        from penstock.loader import Loader  # likewise

        return Loader(self.plan(**settings))
