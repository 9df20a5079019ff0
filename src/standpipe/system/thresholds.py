"""Fractions of time above which the tuner, the diagnosis and the doctor act; all three use these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Fractions from 0 to 1.

    tuned        the training loop waits so much of its time at most, and the tuner leaves it alone
    keeps_up     the training loop waits so much of its time at most, and the diagnosis doesn't call it input-bound
    waits        a consumer waits more of its time, and the doctor reports it
    busy         a worker or a place works so much of the time, and may limit the run
    computes     code is on a processor for so much of its own time, and processors limit it
    most         the larger part of the time, or of processors
    processors   so many of the processors are busy, and none are idle
    """

    tuned: float = 0.03
    keeps_up: float = 0.05
    waits: float = 0.2
    busy: float = 0.7
    computes: float = 0.7
    most: float = 0.5
    processors: float = 0.75


THRESHOLDS = Thresholds()
