"""``standpipe bench --ray``: let actors of a Ray cluster make the batches."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import standpipe as sp

if TYPE_CHECKING:
    from standpipe.ray import Actors


def add_ray_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which cluster makes the batches."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="let actors of a Ray cluster make the batches: auto for the cluster of this machine, or HOST:PORT",
    )
    parser.add_argument("--actors", type=int, metavar="N", help="with --ray, number of actors (default: 8)")


def check_ray_arguments(args: argparse.Namespace) -> None:
    """Raise ``PlanError`` for arguments that don't go together."""
    if args.actors is not None and args.ray is None:
        raise sp.PlanError("--actors works only with --ray. Add --ray auto, or the cluster's address")
    if args.ray is not None and (args.io or args.cache or args.digest):
        raise sp.PlanError("--ray can't be combined with --io, --cache or --digest. Leave one out")


@contextlib.contextmanager
def fleet_of(args: argparse.Namespace, pipeline: sp.Pipeline) -> Iterator[Actors | None]:
    """Start the actors; yield None without ``--ray``. They end, and so does the connection, with the context."""
    if args.ray is None:
        yield None
        return
    try:
        import ray

        import standpipe.ray
    except ImportError as error:
        raise sp.PlanError(
            f"--ray needs Ray, which can't be imported: {error}. Run pip install ray"
        ) from error
    try:
        ray.init(address=args.ray, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise sp.PlanError(
            f"no Ray cluster answers at {args.ray!r}: {reason}. Start one with ray start --head, and more nodes with "
            "ray start --address=HOST:PORT"
        ) from error
    try:
        with standpipe.ray.start(pipeline, 8 if args.actors is None else args.actors) as actors:
            yield actors
    finally:
        ray.shutdown()
