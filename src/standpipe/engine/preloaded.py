"""A process that has imported what datasets need, from which servers of worker processes are forked: its program.

Importing torch takes seconds; a fork of a process that has done it takes milliseconds. It holds no dataset: each server
loads the one of its run, as it is then.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import signal
import socket
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from standpipe import _native
from standpipe.engine.messages import Ended, receive, send
from standpipe.engine.server import forked, other_threads, serve, status_of
from standpipe.engine.where import STACK_SIGNAL, show_stacks_on_signal

GIVEN = 7  # descriptors of a server


@dataclass(frozen=True, slots=True)
class Order:
    """Fork a server.

    modules      that it needs; one that can't be imported is the server's trouble
    path         to look for them
    folder       working directory of the trainer
    environment  likewise its variables
    """

    modules: Sequence[str]
    path: Sequence[str]
    folder: str
    environment: dict[str, str]


def main() -> None:
    """Fork servers until the trainer's end. Descriptors and the trainer's number are the program's arguments."""
    control, pipe, trainer = map(int, sys.argv[1:4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _native.end_with(pipe, trainer)
    channel = socket.socket(fileno=control)
    with contextlib.suppress(Ended):
        while True:
            asked = receive(channel)
            if not isinstance(asked, Order):
                send(channel, status_of(asked))
                continue
            _, given, _, _ = socket.recv_fds(channel, 1, GIVEN)
            try:
                _prepare(asked, stacks=given[-1])
                _fork(channel, given, trainer)
            finally:
                for descriptor in given:
                    os.close(descriptor)
    os._exit(0)


def _prepare(asked: Order, stacks: int) -> None:
    """Be where the trainer is, and have imported what it asks for."""
    sys.path[:] = asked.path
    with contextlib.suppress(OSError):
        os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.environment)
    new = [name for name in asked.modules if name not in sys.modules]
    if not new:
        return
    show_stacks_on_signal(stacks)  # while user code runs here
    importlib.invalidate_caches()
    gc.disable()  # modules are made to stay
    for name in new:
        with contextlib.suppress(BaseException):  # the server meets it again, and says so
            importlib.import_module(name)
    gc.enable()
    faulthandler.unregister(STACK_SIGNAL)
    gc.collect()
    gc.freeze()


def _fork(channel: socket.socket, given: Sequence[int], trainer: int) -> None:
    if threads := other_threads():
        with socket.socket(fileno=os.dup(given[0])) as answers:
            send(answers, ("ready", threads))
        return

    def work() -> None:
        channel.close()
        serve(given, trainer)

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the other thread only waits for the trainer's end
        forked(work)
