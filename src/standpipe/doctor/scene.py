"""The observations of a process and its descendants over a few seconds, and what each one waits for."""

from __future__ import annotations

from dataclasses import dataclass, field

from standpipe.doctor.processes import Process, Thread
from standpipe.system.thresholds import THRESHOLDS

CALLERS = (  # code that calls the dataset, of torch and of standpipe
    "torch/utils/data/_utils/fetch.py",
    "standpipe/torch/samples.py",
    "standpipe/engine/python/",
)
STARTERS = ("resource_tracker", "forkserver", "torch_shm_manager", "standpipe-forks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A process and its surroundings, in a few seconds.

    processes    the examined process first, then its descendants
    throttled_s  seconds for which the CPU quota held the container back
    kills        number of processes of its container killed for lack of memory so far
    peers        processes of the same distributed run on this machine, by rank
    loaders      what standpipe's loaders of the process say of themselves, a line each
    delivers     whether one of these delivers batches
    no_stacks    why there are no stacks of Python functions, and how to get them; "" if there are
    """

    seconds: float
    processes: tuple[Process, ...]
    throttled_s: float = 0.0
    kills: int = 0
    shm_free: int = 1 << 40
    shm: int = 1 << 40
    rank: int = 0
    world_size: int = 1
    local_world: int = 1
    peers: dict[int, int] = field(default_factory=dict)
    loaders: tuple[str, ...] = ()
    delivers: bool = False
    no_stacks: str = ""

    @property
    def script(self) -> Process:
        """The examined process."""
        return self.processes[0]

    @property
    def workers(self) -> tuple[Process, ...]:
        """Processes that make samples, as far as can be told: forks of the script, and those of multiprocessing."""
        return tuple(each for each in self.processes[1:] if self.is_worker(each))

    def is_worker(self, process: Process) -> bool:
        """Return True if a process is a worker; an ended one without a command may have been."""
        if process.parent != self.script.number and "forkserver" not in process.command:
            return False
        if any(name in (process.command + process.main.name) for name in STARTERS):
            return False
        return process.dead or process.command == self.script.command or "multiprocessing" in process.command

    @property
    def works(self) -> bool:
        """True if a process computes, or a loader delivers."""
        return self.delivers or any(self.is_busy(process) for process in self.processes)

    def is_busy(self, process: Process) -> bool:
        """Return True if a process computes most of the time, or would if it had a CPU."""
        return process.cpu_s >= THRESHOLDS.most * self.seconds or process.main.state == "R"


def waits_for(process: Process, thread: Thread) -> str:
    """Describe in a few words what a thread does or waits for."""
    if process.dead:
        return "has ended" + (f", by signal {process.status}" if process.status else "")
    if thread.state == "R":
        return "runs"
    if thread.state in "Tt":
        return "is stopped"
    if thread.state == "D":
        return f"waits for storage{_at(thread)}"
    waits = {
        "futex": "waits for a lock",
        "poll": "waits for something to read",
        "select": "waits for something to read",
        "sleep": "sleeps",
        "wait": "waits for a process to end",
        "flock": f"waits for a file lock{_at(thread)}",
        "receive": f"waits for the network{_at(thread)}",
        "send": f"waits for the network{_at(thread)}",
        "connect": "waits for a connection",
        "accept": "waits for a connection",
        "open": "opens a file",
    }
    if thread.call in waits:
        return waits[thread.call]
    if thread.call:
        return f"{thread.call}s{_at(thread)}"
    return f"waits in {thread.where}" if thread.where else "waits"


def _at(thread: Thread) -> str:
    return f" ({thread.at})" if thread.at else ""


def describe_process(process: Process) -> str:
    """Describe a process and what it waits for, with its innermost Python function if that is known."""
    at = f", in {process.main.stack[0]}" if process.main.stack else ""
    if (own := sample_frame(process)) is not None and own != process.main.stack[0]:
        at += f", for a sample of {own}"
    return f"{process.number} {waits_for(process, process.main)}{at}"


def sample_frame(process: Process) -> str | None:
    """Return the dataset's function and line where a worker makes a sample; None where it makes none."""
    stack = process.main.stack
    calling = next(
        (place for place, frame in enumerate(stack) if any(caller in frame for caller in CALLERS)), 0
    )
    return stack[calling - 1] if calling > 0 else None
