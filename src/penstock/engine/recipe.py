"""What workers in Python have to know to make samples, and what those of one process share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock import _native
from penstock.batch import Collate
from penstock.engine.checks import Checks
from penstock.engine.workers import Flaws
from penstock.read import read_policy
from penstock.sizing import READ_BYTES
from penstock.spec import Decoding, Reads
from penstock.transform import BatchFunction, SampleProgram


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that a worker has to know to make samples; goes to worker processes once.

    program     what happens to a sample
    functions   what happens to a batch of them
    dataset     an object with ``__getitem__`` that gives samples, or None for sources that say where bytes are
    names       fields of samples that are no dicts
    collate     of fields that differ in shape, how they are put together
    checks      what is asked of the values of a finished sample
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


@dataclass(frozen=True, slots=True)
class Supplies:
    """What the makers of one process share.

    reader  reads files
    side    memory for whole frames
    """

    reader: _native.Reader
    side: _native.SideArena

    @classmethod
    def of(cls, recipe: Recipe, side: _native.SideArena, makers: int = 1) -> Supplies:
        """As the recipe says, for so many makers."""
        reader = _native.Reader(read_policy(recipe.reads), 2 * READ_BYTES * makers, READ_BYTES)
        return cls(reader, side)

    @property
    def met(self) -> Flaws:
        """What reads met so far."""
        reader = self.reader
        return Flaws(retries=reader.retries, hedged=reader.hedged, slowest_read_s=reader.slowest_s)

    def close(self, patience_s: float = 0) -> None:
        """End waits for memory, and for files: they fail. Threads that read end, as far as they do so in time."""
        self.reader.close(int(patience_s * 1000))
        self.side.close()
