"""Describe which records come and in which order: source, selections, order. It only stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from standpipe.contracts import Source
from standpipe.errors import PlanError
from standpipe.order import (
    Balance,
    Filter,
    OfColumns,
    Sampling,
    Select,
    Selection,
    Skip,
    Split,
    SplitByColumn,
    Take,
    Weights,
    exclusion,
)
from standpipe.pipeline.content_filter import ByContent
from standpipe.spec import plain
from standpipe.transform.function import InputFormat


@dataclass(frozen=True, slots=True)
class Ordered:
    """The part of a ``Pipeline`` that a mixture's components have of their own. Every method returns a new value."""

    source: Source
    seed: int = field(default=0, kw_only=True)
    selections: tuple[Selection | OfColumns | ByContent, ...] = field(default=(), kw_only=True)
    shuffled: bool = field(default=False, kw_only=True)
    block: int | None = field(default=None, kw_only=True)
    window: int = field(default=64, kw_only=True)
    sampling: Sampling | None = field(default=None, kw_only=True)
    repeats: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", plain(self.seed))

    def take(self, number: int) -> Self:
        """Use the first ``number`` records only, or all where there are fewer. Written before ``shuffle``."""
        return self._selected(Take(number))

    def skip(self, number: int) -> Self:
        """Use all records but the first ``number``. Written before ``shuffle``."""
        return self._selected(Skip(number))

    def select(self, indices: object) -> Self:
        """Use the records ``indices``, (n,) integers, in that order; one named twice comes twice.

        They are records of what was selected before, counted from 0. Written before ``shuffle``.
        """
        return self._selected(Select.of(indices))

    def exclude(self, records: object) -> Self:
        """Use all records but these: those that ``check_files`` found bad, say.

        records  numbers of the source's records, as a batch's ``index`` and errors have them, whatever was selected
                 before; or the path of a file that lists them, a JSON object with ``index`` and ``path`` or a plain
                 number a line, as ``FileCheckReport.write`` and ``error_log=`` write them. ``plan()`` reads it, and
                 compares the paths with the source's

        ``PlanError`` when the file is another source's, when a record doesn't exist, and when nothing is
        left. Which records are left out is part of the recipe, where they are listed isn't. Written before
        ``shuffle``.
        """
        return self._selected(exclusion(records))

    def filter(
        self,
        condition: str | Callable[..., Any],
        *,
        field: str | None = None,
        input_format: InputFormat | None = None,
    ) -> Self:
        """Use the records for which a condition holds: on columns, as text, or on samples, as a function.

        Text, such as ``"label < 10 and length <= 512"``: columns are ``label``, further columns of an index,
        and the fields of ``Arrays`` with one number per record. A condition has comparisons (also chained),
        ``in [...]``, ``and``, ``or``, ``not``, ``+ - * // %``, numbers and columns; ``label`` compares with
        class names in quotes, by ``==``, ``!=`` and ``in``. Integers are 64-bit, others float64.
        ``plan()`` looks at the columns once.

        A function takes a sample as the source has it, a dict of values by field, images decoded to (H, W, 3)
        uint8, and returns True or False. ``loader()`` calls it on every record once, in its workers
        (``scan``), and the answers are kept in the user's cache folder: under what the source is, what was
        selected before, ``decode()``, and the function's name and code, with all that it refers to but
        installed packages. So a changed function is asked anew. ``plan()`` asks nobody: without answers it
        raises ``PlanError``.

        ``PlanError`` when nothing is left. Written before ``shuffle``.

        field         for a function: the field whose value it takes instead of a sample
        input_format  for a function: how images come to it, as in ``map``
        """
        if callable(condition) and not isinstance(condition, type):
            return self._selected(ByContent.of(condition, field=field, input_format=input_format))
        if field is not None or input_format is not None:
            raise PlanError(
                "filter(field=, input_format=) are for functions; a condition on columns names them itself"
            )
        return self._selected(Filter(cast(str, condition)))

    def split(
        self, share: float, *, seed: int, by: str | None = None, stratify: str | None = None
    ) -> tuple[Self, Self]:
        """Cut the records at random in two: ``share`` of them, and the rest, as two pipelines.

        by        a column: records with the same value in it (a patient, a scene) are on the same side, and the
                  cut is as near to ``share`` of the records as that allows
        stratify  instead of ``by``, a column of integers, at most 65,536 different: of each value ``share``
                  of its records, to the nearest integer or the one beside it, and of all ``share`` exactly

        Who is on which side depends on ``share``, ``seed`` and the number of records only, or on the column
        too. Without ``shuffle`` each side comes in a random order that is the same in every epoch. Written
        before ``shuffle``.
        """
        if by is not None and stratify is not None:
            raise PlanError(f"split(by={by!r}, stratify={stratify!r}): one of them")
        if by is not None:
            return (
                self._selected(SplitByColumn(share, seed, "first", "by", by)),
                self._selected(SplitByColumn(share, seed, "rest", "by", by)),
            )
        if stratify is not None:
            return (
                self._selected(SplitByColumn(share, seed, "first", "stratify", stratify)),
                self._selected(SplitByColumn(share, seed, "rest", "stratify", stratify)),
            )
        return self._selected(Split(share, seed, "first")), self._selected(Split(share, seed, "rest"))

    def shuffle(
        self,
        *,
        seed: int,
        block: int | None = None,
        window: int = 64,
    ) -> Self:
        """Deliver the records of each epoch in a new random order, fixed by ``seed``.

        block   for media that are quick to read in sequence: this many neighbouring records stay near each
                other. Blocks come in random order, and the records of ``window`` blocks are mixed. Default: the
                order is random over all records
        window  blocks that are mixed; without ``block`` it means nothing

        ``sample`` draws records by weight or class instead.
        """
        return replace(self, shuffled=True, seed=seed, block=block, window=window, sampling=None)

    def sample(
        self,
        *,
        seed: int,
        weights: object = None,
        balance: str | None = None,
        num_samples: int | None = None,
        replacement: bool = True,
    ) -> Self:
        """Draw the records of each epoch at random, by weight or by class, fixed by ``seed``; instead of ``shuffle``.

        weights      a column, or one number per selected record, (n,), from 0 on. Each position draws record i with
                     probability weight i / sum of weights, with replacement. In an epoch a record comes as often as
                     that says, give or take less than two, so nearer than independent draws would come. A weight
                     below 2^-31 of the largest may count as 0
        balance      instead of ``weights``: a column of integers, at most 65,536 different. Each value comes
                     equally often, give or take one, in each epoch and over all. Its records come in a random order,
                     each once before any comes again, and an epoch goes on where the one before stopped
        num_samples  positions of an epoch; default: as many as records
        replacement  True: a record may come several times in an epoch. Nothing else is there: without replacement,
                     write ``shuffle``, and ``take`` for fewer records

        Up to 2^29 − 1 records and samples. A record that comes again has other random draws. Raises
        ``PlanError`` unless one of ``weights`` and ``balance`` is given.
        """
        if (weights is None) == (balance is None):
            raise PlanError(
                "sample() takes one of weights= and balance=; for a random order write .shuffle(seed=…)"
            )
        if replacement is not True:
            raise PlanError(
                f"sample(replacement={replacement!r}): records are drawn with replacement only; without it write "
                ".shuffle(seed=…), and .take(n) for fewer records"
            )
        sampling = Weights.of(weights, num_samples) if balance is None else Balance(balance, num_samples)
        return replace(self, shuffled=True, seed=seed, block=None, sampling=sampling)

    def repeat_each(self, times: int) -> Self:
        """Deliver every record ``times`` times in a row, each with random draws of its own.

        The repeats lie in one step of all ranks as far as they fit: repeated augmentation.
        """
        return replace(self, repeats=times)

    def _selected(self, selection: Selection | OfColumns | ByContent) -> Self:
        if self.shuffled or self.repeats != 1:
            raise PlanError(
                f"{selection.describe()} says which records of the source take part: write it before .shuffle(), "
                ".sample() and .repeat_each(), which say when they come"
            )
        return replace(self, selections=(*self.selections, selection))
