"""The trainer's handle of a worker process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence

from standpipe import _native
from standpipe.carried import Report
from standpipe.engine.processes.messages import Ended, UnpicklableMessage, hang_up, receive, send
from standpipe.engine.processes.outside_slots import bytes_per_row
from standpipe.engine.processes.server_handle import ANSWER_S, WorkerServer, describe_exit
from standpipe.engine.rows import Inputs, RowKey
from standpipe.engine.watchdog.where import describe_kernel_state
from standpipe.engine.workers import Failure
from standpipe.errors import PlanError, WorkerDiedError, record_name
from standpipe.plan.parts import MeasuredSample
from standpipe.plan.plan import Plan
from standpipe.stats.counters import Counts

PATIENCE_S = 1.0  # seconds that a process has to end after the request
GRACE_S = 0.2  # seconds for a process to end by itself after its channel has ended


class WorkerProcess:
    """The trainer's handle of one worker process, which the constructor starts.

    number     the worker's number, which its successor gets too
    channel    the socket between trainer and worker
    process    the worker's process number
    heartbeat  shared memory with the worker's current work; it stays readable after the worker has ended
    server     the server that forked the worker
    handle     pidfd of the worker; None if the system has none
    """

    def __init__(self, server: WorkerServer, number: int) -> None:
        self.number = number
        self.channel, self.process = server.fork(number)
        self.heartbeat = server.board.heartbeat(number)
        self.server, self._closed = server, False
        try:
            self.handle: int | None = os.pidfd_open(self.process)
        except OSError:  # without pidfds, only the channel's end shows that it has ended
            self.handle = None

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.process})"

    def wait_until_loaded(self) -> tuple[Report, float]:
        """Wait until the worker, whose server is in late mode, has loaded the setup.

        Return what it has set, and the seconds that loading took. Raises ``PlanError`` if it can't load the setup,
        and ``WorkerDiedError`` if it ends.
        """
        try:
            send(self.channel, ("loaded",))
            answer: tuple[Report, float] | Failure = receive(self.channel, self.handle)
        except Ended as ended:
            raise WorkerDiedError(f"{self} {self.death()} while it loaded the dataset") from ended
        if isinstance(answer, Failure):
            raise answer.cause or PlanError(answer.reason)
        return answer

    def measure(self, key: RowKey, inputs: Inputs, segment: int) -> MeasuredSample | Failure:
        """Make a sample in the worker, and return what ``SampleMaker.measure`` returns.

        key     the key of the sample's random numbers
        inputs  what workers get of the sample's record
        segment the segment whose program makes it

        Raises ``WorkerDiedError`` if the worker ends.
        """
        try:
            send(self.channel, ("measure", key, inputs, segment))
            answer: MeasuredSample | Failure = receive(self.channel, self.handle)
        except UnpicklableMessage as error:
            return Failure(0, "batch", str(error), error.__cause__)
        except Ended as ended:
            message = (
                f"{self} {self.death()} while it made {record_name(key.index, inputs.name(0, key.index))}"
            )
            raise WorkerDiedError(message, index=key.index) from ended
        return answer

    def probe(self, key: RowKey, inputs: Inputs) -> Mapping[str, Sequence[str]]:
        """Make a sample in the worker, and return the names of global generators that it used, by function.

        Raises ``WorkerDiedError`` if the worker ends.
        """
        try:
            send(self.channel, ("probe", key, inputs))
            drawn: Mapping[str, Sequence[str]] = receive(self.channel, self.handle)
        except Ended as ended:
            raise WorkerDiedError(f"{self} {self.death()} while it was probed", index=key.index) from ended
        return drawn

    def map_slots(self, plan: Plan, ring: _native.SlotRing) -> None:
        """Send the worker the slots' memory and layout. Raises ``Ended`` if the worker has ended."""
        message = (
            "slots",
            plan.layouts,
            ring.stride_bytes,
            os.fstat(ring.descriptor).st_size // ring.stride_bytes,  # the plan may be newer than the slots
            plan.batch.sample_fields,
            plan.batch.made_apart,
            plan.batch.known_from,
            bytes_per_row(plan),
        )
        send(self.channel, message)
        try:
            socket.send_fds(self.channel, [b"f"], [ring.descriptor])
        except OSError as error:
            raise Ended(str(error)) from error

    def trim(self) -> None:
        """Make the idle worker return unused memory to the system, and wait for that. Raises ``Ended``."""
        send(self.channel, ("trim",))
        receive(self.channel, self.handle, ANSWER_S)

    def let_go(self, patience_s: float) -> None:
        """Send the idle worker the message to close its cache within ``patience_s``, and to report its counters.

        Raises ``Ended`` if the worker has ended.
        """
        send(self.channel, ("let go", patience_s))

    def has_let_go(self, patience_s: float) -> tuple[Counts, Sequence[str]]:
        """Wait until the worker has closed its cache, and return its last counters and notes.

        Raises ``Ended`` if the worker has ended, or doesn't answer in ``patience_s``.
        """
        kind, *met = receive(self.channel, self.handle, patience_s)
        if kind != "let go":
            raise Ended("the worker sent another answer")
        counters, notes = met
        return counters, notes

    def where(self) -> str:
        """Return the worker's stacks as text, or the reason why they can't be read."""
        return self.server.stacks.of(self.process)

    def death(self) -> str:
        """Kill the worker if it still runs, and return text about how it ended, as ``"was killed by SIGSEGV"``."""
        self._wait(GRACE_S)
        self.kill()  # it may have closed only its channel
        ended = self._wait(PATIENCE_S)
        code = self.server.status(self.process)
        if code is None:
            state = "" if ended else describe_kernel_state(str(self.process))
            return f"is {state}, where no signal ends it" if state else "has ended"
        return describe_exit(code)

    def close(self) -> None:
        """Close the worker's channel, and wait up to ``PATIENCE_S`` until the worker has ended."""
        self.channel.close()
        self._wait(PATIENCE_S)
        self._closed = True
        if self.handle is not None:
            handle, self.handle = self.handle, None
            os.close(handle)

    def retire(self) -> None:
        """Close the idle worker's channel, so that the worker ends; kill it if it doesn't end in ``PATIENCE_S``."""
        self.channel.close()
        self._wait(PATIENCE_S)
        if self.server.status(self.process) is None:
            self.kill()
        self.close()

    def kill(self) -> None:
        """Kill the worker, unless ``close`` was called before.

        The system gives its process number to no other process before ``death`` has read its status.
        """
        if self._closed:
            return  # its number may belong to another process now
        with contextlib.suppress(OSError):
            if self.handle is None:
                os.kill(self.process, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        hang_up(self.channel)  # so that nothing waits for a process that no signal can end

    def _wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until the worker ends; return True if the kernel reports that it has ended."""
        if self.handle is None:
            return False
        ended = select.poll()
        ended.register(self.handle, select.POLLIN)
        return bool(ended.poll(seconds * 1000))
