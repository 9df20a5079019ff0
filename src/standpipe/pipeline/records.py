"""The description of a pipeline's records and their order: source, selections, order. It only stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, cast

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
from standpipe.spec import set_plain
from standpipe.transform.python.function import InputFormat


@dataclass(frozen=True, slots=True)
class Ordered:
    """The part of a ``Pipeline`` that a mixture's components have too. Every method returns a new value."""

    source: Source
    seed: int = field(default=0, kw_only=True)
    selections: tuple[Selection | OfColumns | ByContent, ...] = field(default=(), kw_only=True)
    shuffled: bool = field(default=False, kw_only=True)
    block: int | None = field(default=None, kw_only=True)
    window: int = field(default=64, kw_only=True)
    sampling: Sampling | None = field(default=None, kw_only=True)
    repeats: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        set_plain(self, "seed", "block", "window", "repeats", "batch_rows")

    def take(self, number: int) -> Self:
        """Use only the first ``number`` records, or all if there are fewer.

        Write it before ``shuffle``.

        Parameters
        ----------
        number : int
            Number of records, at least 1.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(10))).take(3).batch(3).loader() as loader:
        ...     print(loader.peek()["x"])
        [0 1 2]
        """
        return self._selected(Take(number))

    def skip(self, number: int) -> Self:
        """Leave out the first ``number`` records.

        Write it before ``shuffle``. ``plan()`` raises ``PlanError`` if no record remains.

        Parameters
        ----------
        number : int
            Number of records to leave out.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(10))).skip(7).batch(3).loader() as loader:
        ...     print(loader.peek()["x"])
        [7 8 9]
        """
        return self._selected(Skip(number))

    def select(self, indices: object) -> Self:
        """Use only the records ``indices``, in that order.

        Write it before ``shuffle``.

        Parameters
        ----------
        indices : array of int, (n,)
            Numbers of records, from 0, among those that earlier selections left. A number that is listed
            twice gives its record twice.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(10))).select([4, 1, 4]).batch(3).loader() as loader:
        ...     print(loader.peek()["x"])
        [4 1 4]
        """
        return self._selected(Select.of(indices))

    def exclude(self, records: object) -> Self:
        """Leave out the listed records, such as those that ``check_files`` found bad.

        Write it before ``shuffle``. The recipe contains which records are left out, but not where they are
        listed.

        Parameters
        ----------
        records : array of int, or path
            Numbers of records in the source, like ``index`` in batches and errors; earlier selections don't
            change them. Or the path of a file with one record per line: a JSON object with ``index`` and
            ``path``, or a plain number. ``FileCheckReport.write`` and ``error_log=`` write such files.
            ``plan()`` reads the file and compares its paths with the source's.

        Raises
        ------
        PlanError
            By ``plan()``, if the file belongs to another source, a record doesn't exist, or no record remains.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(5))).exclude([1, 3]).batch(3).loader() as loader:
        ...     print(loader.peek()["x"])
        [0 2 4]
        """
        return self._selected(exclusion(records))

    def filter(
        self,
        condition: str | Callable[..., Any],
        *,
        field: str | None = None,
        input_format: InputFormat | None = None,
    ) -> Self:
        """Use only the records for which a condition holds.

        The condition is text about columns, or a function of samples. Write it before ``shuffle``.

        Text such as ``"label < 10 and length <= 512"`` is parsed and never run as Python. Its columns are
        ``label``, further columns of an index file, and fields of ``Arrays`` with one number per record. It
        may have comparisons (also chained), ``in [...]``, ``and``, ``or``, ``not``, ``+ - * // %``, numbers
        and columns. ``label`` can be compared with class names in quotes by ``==``, ``!=`` and ``in``.
        Integers have 64 bits, other numbers are float64. ``plan()`` evaluates the text once.

        A function takes a sample as the source has it: a dict of values by field, with images decoded to
        (H, W, 3) uint8. It returns True or False. ``loader()`` first calls it for every record, in its
        workers, and keeps the answers in the user's cache folder (see ``run_filters``). The answers belong to
        the source, earlier selections, ``decode()``, and the function's name, its source file with the user's
        modules that this file imports, and the values bound to it. So a changed function is called again. A
        function in a notebook or console has no file: give it an attribute ``_fingerprint``, a text that changes
        with what it does. ``plan()`` doesn't call the function: it raises ``PlanError`` if there are no answers
        yet.

        Parameters
        ----------
        condition : str or callable
            Text about columns, or a function that returns a bool.
        field : str, optional
            For a function: the field whose value it takes instead of the sample.
        input_format : {"numpy", "pil", "tensor"}, optional
            For a function: the form of images that it takes; see ``map``.

        Raises
        ------
        PlanError
            For an invalid condition; by ``plan()``, if no record remains.

        Examples
        --------
        >>> numbers = sp.Pipeline(sp.Arrays(x=np.arange(10)))
        >>> with numbers.filter("x % 3 == 0").batch(4).loader() as loader:
        ...     print(loader.peek()["x"])
        [0 3 6 9]
        """
        if callable(condition) and not isinstance(condition, type):
            return self._selected(ByContent.of(condition, field=field, input_format=input_format))
        if field is not None or input_format is not None:
            raise PlanError(
                "filter(): field= and input_format= apply to functions only. Leave them out for a "
                "condition on columns"
            )
        return self._selected(Filter(cast(str, condition)))

    def split(
        self, share: float, *, seed: int, by: str | None = None, stratify: str | None = None
    ) -> tuple[Self, Self]:
        """Divide the records at random into two pipelines: ``share`` of them, and the rest.

        A record's side depends only on ``share``, ``seed`` and the number of records, or on the column too.
        Without ``shuffle`` each side has a random order, the same in every epoch. Write it before
        ``shuffle``.

        Parameters
        ----------
        share : float
            Fraction of the records in the first pipeline, between 0 and 1.
        seed : int
            Seed of the random choice.
        by : str, optional
            A column, such as a patient or a scene. Records with the same value are on the same side; the
            first side's size is as near to ``share`` as that allows.
        stratify : str, optional
            Instead of ``by``: a column of integers with at most 65,536 different values. Of each value's
            records, the first side gets ``share``, to within one record; of all records exactly ``share``.

        Returns
        -------
        tuple of two Pipelines

        Examples
        --------
        >>> train, validation = sp.Pipeline(sp.ImageFolder("photos")).split(0.75, seed=1, stratify="label")
        >>> with validation.map(sp.CenterCrop(32)).batch(6).loader() as loader:
        ...     print(np.bincount(loader.peek()["label"]))
        [3 3]
        """
        if by is not None and stratify is not None:
            raise PlanError(
                f"split() takes by= or stratify=, not both, got by={by!r} and stratify={stratify!r}"
            )
        sides: tuple[Literal["first"], Literal["rest"]] = ("first", "rest")
        column = stratify if by is None else by
        if column is None:
            first, rest = (self._selected(Split(share, seed, side)) for side in sides)
        else:
            kind: Literal["by", "stratify"] = "stratify" if by is None else "by"
            first, rest = (self._selected(SplitByColumn(share, seed, side, kind, column)) for side in sides)
        return first, rest

    def shuffle(
        self,
        *,
        seed: int,
        block: int | None = None,
        window: int = 64,
    ) -> Self:
        """Deliver the records of each epoch in a new random order.

        The order is a function of ``seed`` and epoch. It is computed, not stored, so it takes no memory.
        To sample records by weight or class, use ``sample`` instead.

        Parameters
        ----------
        seed : int
            Seed of the order, and of all random transforms.
        block : int, optional
            Number of neighbouring records that stay near each other, for media that are quick to read in
            sequence. Blocks come in random order, and the records of ``window`` blocks are mixed. Default:
            the order is random over all records.
        window : int, default 64
            Number of blocks that are mixed. It has no effect without ``block``.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(6))).shuffle(seed=7).batch(6).loader() as loader:
        ...     first, second = (next(iter(loader))["x"].tolist() for _ in range(2))
        >>> sorted(first) == sorted(second), first == second
        (True, False)
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
        """Sample the records of each epoch at random, by weight or by class, instead of ``shuffle``.

        The order is a function of ``seed`` and epoch. A record that comes several times gets different random
        numbers each time. There may be up to 2^29 − 1 records and samples.

        Parameters
        ----------
        seed : int
            Seed of the order, and of all random transforms.
        weights : str or array of float, (n,), optional
            A column, or one number of at least 0 per selected record. Each position has record i with
            probability weight i / sum of weights, with replacement. In an epoch, a record's count differs
            from its expected count by less than two, which is closer than independent samples come. A weight
            below 2^-31 of the largest may count as 0.
        balance : str, optional
            Instead of ``weights``: a column of integers with at most 65,536 different values, such as
            ``"label"``. Each value comes equally often, to within one, in each epoch and over all epochs. Its
            records come in a random order, each once before any comes again; an epoch continues where the
            last one ended.
        num_samples : int, optional
            Number of positions in an epoch. Default: the number of records.
        replacement : bool, default True
            Only True is supported. To sample without replacement, use ``shuffle``, and ``take`` for fewer
            records.

        Raises
        ------
        PlanError
            If both or neither of ``weights`` and ``balance`` are given.

        Examples
        --------
        >>> skewed = sp.Pipeline(sp.Arrays(x=np.arange(8), label=np.array([0, 0, 0, 0, 0, 0, 1, 1])))
        >>> with skewed.sample(seed=7, balance="label").batch(8).loader() as loader:
        ...     print(np.bincount(loader.peek()["label"]))
        [4 4]
        """
        if (weights is None) == (balance is None):
            raise PlanError(
                "sample() takes weights= or balance=, not both and not neither. For a random order, "
                "write .shuffle(seed=…)"
            )
        if replacement is not True:
            raise PlanError(
                f"sample(replacement={replacement!r}) isn't supported: sample() always samples with "
                "replacement. To sample without it, write .shuffle(seed=…), and .take(n) for fewer "
                "records"
            )
        sampling = Weights.of(weights, num_samples) if balance is None else Balance(balance, num_samples)
        return replace(self, shuffled=True, seed=seed, block=None, sampling=sampling)

    def repeat_each(self, times: int) -> Self:
        """Deliver every record ``times`` times in a row, each with different random numbers.

        This is repeated augmentation. As far as they fit, all repeats of a record are in one step of all
        ranks.

        Parameters
        ----------
        times : int
            Number of samples of each record, at least 1.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(3))).repeat_each(2).batch(6).loader() as loader:
        ...     print(loader.peek()["x"])
        [0 0 1 1 2 2]
        """
        return replace(self, repeats=times)

    def _selected(self, selection: Selection | OfColumns | ByContent) -> Self:
        if self.shuffled or self.repeats != 1:
            raise PlanError(
                f"{selection.describe()} selects records. Write it before .shuffle(), .sample() and "
                ".repeat_each(), which order them"
            )
        return replace(self, selections=(*self.selections, selection))
