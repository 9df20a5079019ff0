"""The engine: the only code that knows two places at once, and that starts threads."""

from penstock.engine.run import Run
from penstock.engine.workers import Stats

__all__ = ["Run", "Stats"]
