"""Let a Ray cluster make the batches: the same bytes, exactly once, whatever actors and nodes come and go.

Ray places, starts and restarts the actors, and moves their batches through its object store. The trainer's loader
keeps the order, the state and the error policy. See ``loader`` for one process, and ``start`` for several ranks that
share actors.
"""

from standpipe.ray.actors import Actors, start
from standpipe.ray.loader import loader

__all__ = ["Actors", "loader", "start"]


def __dir__() -> list[str]:
    """Return the public names, without the modules that define them."""
    return __all__
