"""The engine: the only code that knows two places at once, and that starts threads."""

from standpipe.engine.reading import ReadFigures, measure_reads

__all__ = ["ReadFigures", "measure_reads"]
