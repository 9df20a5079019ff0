"""The engine: the only code that knows two places at once, and that starts threads."""

from penstock._native import PoolStats as Stats
from penstock.engine.run import Run

__all__ = ["Run", "Stats"]
