"""The program of a fork server: a process that imports a dataset's modules, and forks worker servers.

Importing torch takes seconds. A fork of a process that has imported torch takes milliseconds. The fork server has no
dataset: each worker server loads the dataset of its run. If a dataset has objects that a process can only inherit, the
fork server is itself a fork of the trainer.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from standpipe import _native
from standpipe.carried import Report
from standpipe.engine.processes.messages import Ended, channel_of, receive, send
from standpipe.engine.processes.server import forked, serve, status_of
from standpipe.engine.watchdog.where import show_stacks_on_signal
from standpipe.system.threads import ignore_interrupts, import_all, other_threads
from standpipe.system.workers import be_helper

GIVEN = 7  # number of descriptors that a worker server gets
NAME = "standpipe-forks"  # the process's name, as ps and /proc show it


@dataclass(frozen=True, slots=True)
class ForkServerRequest:
    """A message from the trainer to a fork server: import modules, and fork a worker server.

    modules      modules to import; if one can't be imported, the worker server raises the error later
    path         the trainer's ``sys.path``
    folder       the trainer's working directory
    environment  environment variables for the fork server
    idle_s       the fork server ends after so many seconds without a message and a worker server; None: never
    forks        True: descriptors follow this message, and a worker server is forked; False: only import modules
    """

    modules: Sequence[str]
    path: Sequence[str]
    folder: str
    environment: dict[str, str]
    idle_s: float | None = None
    forks: bool = True


def main() -> None:
    """Fork worker servers until the trainer ends.

    The program's arguments are descriptors, and the trainer's process number.
    """
    control, pipe, stacks, trainer = map(int, sys.argv[1:5])
    fork_on_demand((control, pipe, stacks), trainer)
    os._exit(0)


def fork_on_demand(given: tuple[int, int, int], trainer: int) -> None:
    """Run the fork server's loop until the channel or the trainer ends, or it was idle for ``idle_s`` seconds.

    given    descriptors, which this function closes: of the channel to the trainer, of the pipe that ends with the
             trainer, of the file for this process's stacks
    trainer  the trainer's process number
    """
    control, pipe, stacks = given
    ignore_interrupts()
    be_helper()
    _native.end_with(pipe, trainer)
    show_stacks_on_signal(stacks)  # of imports that hang
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME)  # a zombie keeps it, but not its command line
    servers: set[int] = set()
    starting: list[str] = []
    idle_s: float | None = None
    with contextlib.suppress(Ended), channel_of(control) as channel:
        while True:
            _await_message(channel, servers, idle_s)
            asked = receive(channel)
            if not isinstance(asked, ForkServerRequest):
                send(channel, status_of(asked))
                continue
            idle_s = asked.idle_s
            descriptors: list[int] = []
            if asked.forks:
                _, descriptors, _, _ = socket.recv_fds(channel, 1, GIVEN)
                if not descriptors:  # the trainer has ended
                    return
            starting += _prepare(asked)
            if threads := descriptors and other_threads():
                with channel_of(os.dup(descriptors[0])) as answers:
                    send(answers, ("ready", Report(starting=starting, threads=threads)))
            elif descriptors:
                _fork(channel, descriptors, trainer, servers)
            for descriptor in descriptors:
                os.close(descriptor)


def _await_message(channel: socket.socket, servers: set[int], idle_s: float | None) -> None:
    """Wait for a message. Close the channel if none comes in ``idle_s`` seconds and no worker server runs.

    servers  pidfds of worker servers; those of ended servers are closed and removed
    idle_s   None: no limit
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
            # The trainer can't send any more. Messages that it has already sent are still received.
            channel.shutdown(socket.SHUT_RD)
            return


def _prepare(asked: ForkServerRequest) -> list[str]:
    """Set the path, folder and environment of an order in this process, and import the order's modules.

    Return the modules whose import started threads.
    """
    sys.path[:] = asked.path
    with contextlib.suppress(OSError):
        os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.environment)
    new = [name for name in asked.modules if name not in sys.modules]
    if not new:
        return []
    importlib.invalidate_caches()
    gc.disable()  # modules stay, so a collection would free little
    starting = import_all(new)  # the worker server meets the same errors, and reports them
    gc.freeze()  # without a collection, which takes long after many imports and frees little
    gc.enable()
    return starting


def _fork(channel: socket.socket, given: Sequence[int], trainer: int, servers: set[int]) -> None:
    def work() -> None:
        channel.close()
        for each in servers:
            os.close(each)
        serve(given, trainer)

    process = forked(work)
    with contextlib.suppress(OSError):
        servers.add(os.pidfd_open(process))
