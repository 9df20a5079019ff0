"""A process that has imported what datasets need, from which servers of worker processes are forked: its program.

Importing torch takes seconds; a fork of a process that has done it takes milliseconds. It holds no dataset: each server
loads the one of its run, as it is then. Where a dataset holds objects that a process can only inherit, it is a fork of
the trainer.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import socket
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from standpipe import _native
from standpipe.engine.processes.messages import Ended, receive, send
from standpipe.engine.processes.server import forked, ignore_interrupts, other_threads, serve, status_of
from standpipe.engine.watchdog.where import show_stacks_on_signal

GIVEN = 7  # descriptors of a server
NAME = "standpipe-forks"  # of the process, for whoever looks at /proc


@dataclass(frozen=True, slots=True)
class Order:
    """Import modules, and fork a server.

    modules      that it needs; one that can't be imported is the server's trouble
    path         to look for them
    folder       working directory of the trainer
    environment  likewise its variables
    idle_s       without an order and a server, after which to end; None: never
    forks        whether descriptors follow, and a server is forked; else the modules are all
    """

    modules: Sequence[str]
    path: Sequence[str]
    folder: str
    environment: dict[str, str]
    idle_s: float | None = None
    forks: bool = True


def main() -> None:
    """Fork servers until the trainer's end. Descriptors and the trainer's number are the program's arguments."""
    control, pipe, stacks, trainer = map(int, sys.argv[1:5])
    fork_on_demand((control, pipe, stacks), trainer)
    os._exit(0)


def fork_on_demand(given: tuple[int, int, int], trainer: int) -> None:
    """Fork servers until the channel or the trainer ends, or nothing was to do for long.

    given    descriptors, which it takes over: of its channel, of the pipe that ends with the trainer, of its stacks
    trainer  process number
    """
    control, pipe, stacks = given
    ignore_interrupts()
    _native.end_with(pipe, trainer)
    show_stacks_on_signal(stacks)  # of imports that hang
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME)  # which stays when it has ended, as its command doesn't
    servers: set[int] = set()
    idle_s: float | None = None
    with contextlib.suppress(Ended), socket.socket(fileno=control) as channel:
        while True:
            _await_message(channel, servers, idle_s)
            asked = receive(channel)
            if not isinstance(asked, Order):
                send(channel, status_of(asked))
                continue
            idle_s = asked.idle_s
            descriptors: list[int] = []
            if asked.forks:
                _, descriptors, _, _ = socket.recv_fds(channel, 1, GIVEN)
                if not descriptors:  # the trainer has ended
                    return
            _prepare(asked)
            if descriptors:
                _fork(channel, descriptors, trainer, servers)
            for descriptor in descriptors:
                os.close(descriptor)


def _await_message(channel: socket.socket, servers: set[int], idle_s: float | None) -> None:
    """Wait for something to receive. When nothing comes in ``idle_s`` and no server lives, the channel ends.

    servers  descriptors of those that live; of others they are closed
    """
    while True:
        waiting = select.poll()
        for each in (channel.fileno(), *servers):
            waiting.register(each, select.POLLIN)
        ready = {each for each, _ in waiting.poll(None if servers or idle_s is None else idle_s * 1000)}
        for ended in ready & servers:
            servers.remove(ended)
            os.close(ended)
        if channel.fileno() in ready:
            return
        if not ready:
            channel.shutdown(
                socket.SHUT_RD
            )  # the trainer can't send any more; what it has sent is received yet
            return


def _prepare(asked: Order) -> None:
    """Be where the trainer is, and have imported what it asks for."""
    sys.path[:] = asked.path
    with contextlib.suppress(OSError):
        os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.environment)
    new = [name for name in asked.modules if name not in sys.modules]
    if not new:
        return
    importlib.invalidate_caches()
    gc.disable()  # modules are made to stay
    for name in new:
        with contextlib.suppress(BaseException):  # the server meets it again, and says so
            importlib.import_module(name)
    gc.freeze()  # without looking for garbage: that takes long after so many imports, and frees little
    gc.enable()


def _fork(channel: socket.socket, given: Sequence[int], trainer: int, servers: set[int]) -> None:
    if threads := other_threads():
        with socket.socket(fileno=os.dup(given[0])) as answers:
            send(answers, ("ready", threads))
        return

    def work() -> None:
        channel.close()
        for each in servers:
            os.close(each)
        serve(given, trainer)

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the other thread only waits for the trainer's end
        process = forked(work)
    with contextlib.suppress(OSError):
        servers.add(os.pidfd_open(process))
