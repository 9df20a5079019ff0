"""The ``Diagnosis`` of a run: the place that limits it, what to do, and the rate that this would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from standpipe.units import show_clock

WIDTH = 78
MINUTE = 60.0

Bound = Literal["input", "step", "unknown"]
Place = Literal["order", "read", "transform", "batch", "device", "slots", "worker", "step", "unknown"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The place that limits a run, and what to do. ``loader.diagnose()`` returns it; ``str()`` of it is a
    text.

    Attributes
    ----------
    bound : str
        ``"input"``, ``"step"``, or ``"unknown"`` while there are too few figures.
    place : str
        ``"order"``, ``"read"``, ``"transform"``, ``"batch"`` or ``"device"``; ``"slots"`` if there is no room to
        work ahead; ``"worker"`` if one of several is slow; ``"step"``; ``"unknown"``.
    seconds : float
        The length of the measured period.
    num_workers : int
        The number of workers, without those that tuning only tries.
    wait_share : float
        The fraction of its time that the training loop waits, from 0 to 1.
    rows_per_s : float
        The rows per second that the training loop took.
    upper_rows_per_s : float or None
        The rate that the next limit allows at most; None if that isn't known.
    fixed_rows_per_s : float or None
        The forecast rate after the first advice; None if that isn't known.
    what : str
        The diagnosis as a sentence.
    advice : tuple of str
        What to do, the best first.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     batches = list(loader)
    ...     diagnosis = loader.diagnose()
    >>> diagnosis.bound in ("input", "step", "unknown")
    True
    """

    bound: Bound
    place: Place
    seconds: float
    num_workers: int
    wait_share: float
    rows_per_s: float
    upper_rows_per_s: float | None
    fixed_rows_per_s: float | None
    what: str
    advice: tuple[str, ...]

    @property
    def gain(self) -> float | None:
        """The highest possible speed-up without this limit, as a factor (1.5 is 50% faster); None if unknown."""
        upper = self.upper_rows_per_s
        return upper / self.rows_per_s if upper is not None and self.rows_per_s else None

    @property
    def period(self) -> str:
        """The length of the measured period, for people: ``"9.6 s"``, ``"1:02:03"``."""
        return f"{self.seconds:.1f} s" if self.seconds < MINUTE else show_clock(self.seconds)

    @property
    def forecasts(self) -> dict[str, float]:
        """The forecast rates in rows per second, by a phrase for people; empty if none is known."""
        fixed = self.fixed_rows_per_s
        return {} if fixed is None or self.bound != "input" else {"after the first advice": fixed}

    def __str__(self) -> str:
        import textwrap  # not for who only asks for numbers

        lines = textwrap.wrap(
            f"{self.bound}-bound: {self.what}" if self.bound != "unknown" else self.what, WIDTH
        )
        if self.bound == "input":
            rates = [f"now {self.rows_per_s:,.0f} rows/s"]
            rates += [f"{name} {rate:,.0f}" for name, rate in self.forecasts.items()]
            lines += textwrap.wrap("; ".join(rates), WIDTH, initial_indent="  ", subsequent_indent="  ")
        for each in self.advice:
            lines += textwrap.wrap(f"- {each}", WIDTH, initial_indent="  ", subsequent_indent="    ")
        return "\n".join(lines)
