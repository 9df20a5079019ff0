"""``penstock explain``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.cli.terminal import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = subparsers.add_parser("explain", help="not there yet")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from penstock.errors import PenstockError

    raise PenstockError("penstock explain is not there yet")
