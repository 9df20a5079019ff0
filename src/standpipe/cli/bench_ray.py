"""``standpipe bench --ray``: let actors of a Ray cluster make the batches."""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import standpipe as sp

if TYPE_CHECKING:
    from standpipe.ray import Actors

ADDRESS = re.compile(r"[^/]+:[0-9]{1,5}")
CONNECT_S = 5.0  # that a cluster's head node may take to accept a connection


def add_ray_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which cluster makes the batches."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="let actors of a Ray cluster make the batches: auto for the cluster of this machine, or HOST:PORT",
    )
    parser.add_argument("--actors", type=int, metavar="N", help="with --ray, number of actors (default: 8)")


def check_ray_address(address: str | None) -> None:
    """Raise ``PlanError`` unless an address is that of a cluster; None: there is none."""
    if address not in (None, "auto") and not ADDRESS.fullmatch(str(address)):
        raise sp.PlanError(f"--ray must be auto or HOST:PORT of a cluster's head node, got {address!r}")


@contextlib.contextmanager
def fleet_of(args: argparse.Namespace, pipeline: sp.Pipeline) -> Iterator[Actors | None]:
    """Start the actors; yield None without ``--ray``. They end, and so does the connection, with the context."""
    if args.ray is None:
        yield None
        return
    if args.ray != "auto":
        _check_answers(args.ray)
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
        reason = str(error).partition("\n")[0].rstrip(".")
        raise _no_cluster(args.ray, reason) from error
    try:
        with standpipe.ray.start(pipeline, 8 if args.actors is None else args.actors) as actors:
            yield actors
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise ``PlanError`` if nothing answers at HOST:PORT, which Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error


def _no_cluster(address: str, reason: str) -> sp.PlanError:
    return sp.PlanError(
        f"no Ray cluster answers at {address!r}: {reason}. Start one with ray start --head, and more nodes with "
        "ray start --address=HOST:PORT"
    )
