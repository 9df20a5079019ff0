"""The engine: the only code that knows two places at once, and that starts threads."""

from penstock.engine.reading import ReadFigures, measure_reads
from penstock.engine.workers import Stats

__all__ = ["ReadFigures", "Stats", "measure_reads"]
