"""The thresholds that the tuner, the diagnosis and the doctor share, as fractions of time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Thresholds, as fractions from 0 to 1.

    tuned        fraction of time that the training loop waits, up to which the tuner changes nothing
    keeps_up     fraction of time that the training loop waits, up to which the diagnosis isn't "input-bound"
    waits        fraction of time that a consumer waits, above which the doctor reports it
    busy         fraction of time that a worker or place works, above which it may limit the run
    computes     fraction of its own time that code is on a processor, above which processors limit it
    most         fraction that counts as the larger part of the time, or of processors
    processors   fraction of busy processors, above which no processor counts as idle
    """

    tuned: float = 0.03
    keeps_up: float = 0.05
    waits: float = 0.2
    busy: float = 0.7
    computes: float = 0.7
    most: float = 0.5
    processors: float = 0.75


THRESHOLDS = Thresholds()
