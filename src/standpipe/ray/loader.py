"""Make a loader whose batches come from a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import standpipe as sp
from standpipe.contracts import Fallback
from standpipe.ray.actors import Actors, check_ray, described


def loader(
    pipeline: sp.Pipeline,
    actors: int | Actors = 8,
    *,
    cpus_per_actor: float = 1,
    memory_per_actor: int | str = "1GiB",
    fallback: Fallback = "local",
    ray_options: Mapping[str, Any] | None = None,
    **settings: Unpack[sp.LoaderArguments],
) -> sp.Loader:
    """Return a loader whose batches actors of a Ray cluster make.

    The batches are the same, byte for byte, as without Ray, whatever the number of actors, and whichever of them end
    and come back. So are the state and the bad samples: a run may resume with other actors, or without any. Data must
    be reachable for the actors by the same paths, such as in a shared file system.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline. Streams (``IterableSource``) are refused.
    actors : int or Actors, default 8
        Number of actors, which start and end with the loader; or running actors from ``standpipe.ray.start``.
    cpus_per_actor, memory_per_actor, fallback, ray_options
        See ``standpipe.ray.start``. They have no effect on running actors.
    **settings
        Arguments of ``Pipeline.loader``. ``memory=`` counts this process; ``prefetch=`` is the number of batches that
        are asked for ahead, by default two per actor.

    Returns
    -------
    Loader

    Raises
    ------
    PlanError
        Without a connection to a cluster, or for a pipeline that actors can't run. When the loader starts: for an
        actor with other files, or other versions of standpipe or of its decoder, with its node's name.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4)
    >>> with standpipe.ray.loader(pipeline, actors=1, memory="256MiB") as loader:
    ...     print([batch["x"].tolist() for batch in loader])
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    check_ray()
    if not isinstance(actors, Actors):
        actors = described(
            pipeline, actors, cpus_per_actor, memory_per_actor, fallback, ray_options, settings
        )
    if "fleet" in settings:
        raise sp.PlanError(
            "the actors are the fleet of standpipe.ray.loader: give actors=, and leave fleet= out"
        )
    settings["fleet"] = actors
    return pipeline.loader(**settings)
