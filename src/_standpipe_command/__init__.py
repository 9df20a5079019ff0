"""The ``standpipe`` command until its code is imported.

A package of its own: importing ``standpipe`` takes a good part of a second, and Ctrl-C may come in that.
"""

import os
import signal
from types import FrameType

INTERRUPTED = 130


def main() -> int:
    """Run the command; its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as by nohup
        signal.signal(signal.SIGINT, _leave)
    from standpipe.cli import main as run

    return run()


def _leave(number: int, frame: FrameType | None) -> None:
    """End now: an exception would be dropped in some callbacks of imports."""
    os.write(2, b"\nstandpipe: interrupted\n")
    os._exit(INTERRUPTED)
