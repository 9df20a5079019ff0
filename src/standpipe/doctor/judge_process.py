"""Find out which known causes explain that a process seems stuck."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from standpipe.doctor.finding import Finding, Severity, by_severity
from standpipe.doctor.processes import Process
from standpipe.doctor.scene import Scene, describe_process, sample_frame, waits_for
from standpipe.units import several, show_bytes

THROTTLED = 0.25  # share of the time
SWAPPED = 0.1  # of a process's memory
SWAPPED_BYTES = 64 << 20
FAULTS_PER_S = 100
FULL_SHARE = 0.95  # of a limit
SHM_BYTES = 16 << 20
SHOWN = 4  # processes
COLLECTIVES = ("distributed", "nccl", "gloo", "all_reduce", "allreduce", "barrier", "broadcast", "all_gather")
ADVICE = {  # by code: in one's own code, and with standpipe
    "worker-dead": (
        "signal 9 is most often want of memory: fewer workers, smaller batches; DataLoader(timeout=60) notices",
        "a worker that dies is replaced, and its work is done again",
    ),
    "stopped": (
        "kill -CONT lets it go on; Ctrl-Z in its terminal stops a script, and so does a debugger",
        "a worker that is stopped is named after stall_timeout_s=",
    ),
    "worker-locked": (
        "a lock held by another thread at the fork stays locked: start threads later, make locks in worker_init_fn, or "
        "use multiprocessing_context='forkserver'",
        "workers are forked from a process that has no other thread",
    ),
    "storage-waits": (
        "look at the disk or the file server (dmesg, nfsstat, df): no signal ends such a wait",
        "sp.ReadOptions(hedge_after_s=...) asks again beside it; what hangs is named, and ended by stall_timeout_s=",
    ),
    "cpu-throttled": (
        "fewer workers, or a larger quota; one thread in each: OMP_NUM_THREADS=1 before the start, or "
        "torch.set_num_threads(1) and cv2.setNumThreads(0) in worker_init_fn",
        'num_workers="auto" counts the quota',
    ),
    "swapping": (
        "fewer workers, a smaller prefetch_factor; standpipe doctor SCRIPT.py says who copies what",
        "memory= is a ceiling on all that a loader takes, known before the first read",
    ),
    "shm-full": (
        "remove what dead processes left there; docker run --shm-size=8g or --ipc=host; a smaller prefetch_factor",
        "batches are in memory of standpipe's own; the size of /dev/shm doesn't matter",
    ),
    "files-exhausted": (
        "ulimit -n 65536; torch.multiprocessing.set_sharing_strategy('file_system') needs fewer",
        "batches don't travel as open files",
    ),
    "worker-busy": (
        "one sample may be far larger than the others, or never end: look at the line; DataLoader(timeout=...)",
        "slow_sample_s= names such a sample with its stack, stall_timeout_s= gives it up",
    ),
    "peer-missing": (
        "look for its error: its output, dmesg (out of memory); torchrun ends all ranks when one fails",
        "ranks that see other data are found before the first step: sp.check_ranks",
    ),
    "peer-waits": (
        "ranks must take the same number of steps: the one that is in no collective call is the cause; "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL names the calls",
        "every rank gets as many steps; standpipe audit --ranks N proves it",
    ),
    "all-wait": (
        "where the script waits is where to look; standpipe doctor SCRIPT.py watches it from the start",
        "whatever is waited for too long is named, with its stack; standpipe top PID shows its loaders' work",
    ),
}


def judge_process(scene: Scene) -> list[Finding]:
    """Return a finding for each cause, the most severe first; without a cause, a note on what processes do."""
    judges: tuple[Callable[[Scene], list[Finding]], ...] = (
        *(_dead, _stopped, _locked, _storage, _throttled, _swapping, _shm, _files),
        *(_spinning, _waiting_sample, _peer),
    )
    found = [finding for judge in judges for finding in judge(scene)]
    return by_severity(found) if found else _nothing_known(scene)


def _finding(
    scene: Scene, code: str, severity: Severity, title: str, evidence: Sequence[str]
) -> list[Finding]:
    fix, standpipe = ADVICE[code]
    return [
        Finding(
            code=code,
            severity=severity,
            title=title,
            where=f"process {scene.script.number}",
            evidence=tuple(evidence),
            fix=fix,
            standpipe=standpipe,
        )
    ]


def _dead(scene: Scene) -> list[Finding]:
    dead = [worker for worker in scene.workers if worker.dead]
    if not dead:
        return []
    evidence = [f"worker {describe_process(worker)}" for worker in dead[:SHOWN]]
    if scene.kills:
        evidence.append(f"processes of this container killed for want of memory so far: {scene.kills}")
    evidence.append(f"the script: {describe_process(scene.script)}")
    title = f"{several(len(dead), 'worker')} ended, and the script hasn't noticed"
    return _finding(scene, "worker-dead", Severity.PROBLEM, title, evidence)


def _stopped(scene: Scene) -> list[Finding]:
    stopped = [describe_process(process) for process in scene.processes if process.main.state in "Tt"]
    if not stopped:
        return []
    return _finding(scene, "stopped", Severity.PROBLEM, "stopped by a signal or a debugger", stopped[:SHOWN])


def _locked(scene: Scene) -> list[Finding]:
    locked = [worker for worker in scene.workers if _is_locked(worker, scene)]
    if not locked or scene.works:
        return []
    evidence = [f"worker {describe_process(worker)}" for worker in locked[:SHOWN]]
    evidence.append(f"the script: {describe_process(scene.script)}")
    title = f"a lock that nobody gives back: {several(len(locked), 'worker')} of {len(scene.workers)}"
    return _finding(scene, "worker-locked", Severity.PROBLEM, title, evidence)


def _is_locked(worker: Process, scene: Scene) -> bool:
    main = worker.main
    waits = main.call == "futex" or (not main.call and "futex" in main.where)
    serves = any(
        "multiprocessing/managers.py" in frame for frame in main.stack
    )  # for ever, until somebody asks
    return main.state == "S" and waits and not serves and not scene.is_busy(worker)


def _storage(scene: Scene) -> list[Finding]:
    waiting = [
        f"{process.number} {waits_for(process, thread)}, in {thread.where or 'the kernel'}"
        for process in scene.processes
        for thread in process.threads
        if thread.state == "D"
    ]
    if not waiting:
        return []
    title = f"storage doesn't answer {several(len(waiting), 'thread')}"
    return _finding(scene, "storage-waits", Severity.WARNING, title, waiting[:SHOWN])


def _throttled(scene: Scene) -> list[Finding]:
    if scene.throttled_s < THROTTLED * scene.seconds:
        return []
    evidence = [
        f"held back for {scene.throttled_s:.1f} of {scene.seconds:.1f} s, all CPUs together, by cpu.stat"
    ]
    return _finding(
        scene, "cpu-throttled", Severity.WARNING, "the container's CPU quota is used up", evidence
    )


def _swapping(scene: Scene) -> list[Finding]:
    slow = [
        f"{process.number}: {show_bytes(process.swapped)} swapped out, {process.faults / scene.seconds:,.0f} pages "
        "read back in a second"
        for process in scene.processes
        if process.swapped > max(SWAPPED * process.memory, SWAPPED_BYTES)
        and process.faults > FAULTS_PER_S * scene.seconds
    ]
    if not slow:
        return []
    title = "memory is short: pages are read back from swap"
    return _finding(scene, "swapping", Severity.PROBLEM, title, slow[:SHOWN])


def _shm(scene: Scene) -> list[Finding]:
    if scene.shm_free >= min(SHM_BYTES, scene.shm * (1 - FULL_SHARE)):
        return []
    title = f"/dev/shm is full: {show_bytes(scene.shm_free)} of {show_bytes(scene.shm)} free"
    evidence = ["workers put batches there; one that finds no room dies of a bus error, or waits"]
    return _finding(scene, "shm-full", Severity.PROBLEM, title, evidence)


def _files(scene: Scene) -> list[Finding]:
    full = [
        f"{process.number}: {process.files:,} open of {process.most_files:,} (ulimit -n)"
        for process in scene.processes
        if process.files >= FULL_SHARE * process.most_files
    ]
    if not full:
        return []
    return _finding(scene, "files-exhausted", Severity.PROBLEM, "no more files can be opened", full[:SHOWN])


def _spinning(scene: Scene) -> list[Finding]:
    makers = _makers(scene)
    busy = [worker for worker in makers if scene.is_busy(worker)]
    if not busy or scene.is_busy(scene.script) or len(busy) == len(makers) > 1:
        return []
    evidence = [
        f"worker {describe_process(worker)}: {worker.cpu_s:.1f} s of CPU in {scene.seconds:.1f} s"
        for worker in busy[:SHOWN]
    ]
    evidence.append(f"the script: {describe_process(scene.script)}")
    title = f"the script waits, and {len(busy)} of {several(len(makers), 'worker')} computes"
    return _finding(scene, "worker-busy", Severity.WARNING, title, evidence)


def _makers(scene: Scene) -> list[Process]:
    """Return the workers, and standpipe's that make a sample, which aren't children of the script."""
    own = [each for each in scene.processes[1:] if sample_frame(each) and not scene.delivers]
    return [*scene.workers, *(each for each in own if each not in scene.workers)]


def _waiting_sample(scene: Scene) -> list[Finding]:
    """Find workers whose sample waits, for example for a server, while no process computes."""
    stuck = [worker for worker in _makers(scene) if sample_frame(worker) and worker.main.state == "S"]
    if (
        scene.works
        or not stuck
        or any(_is_locked(worker, scene) for worker in stuck if worker in scene.workers)
    ):
        return []
    evidence = [f"worker {describe_process(worker)}" for worker in stuck[:SHOWN]]
    title = f"the script waits for a sample that {several(len(stuck), 'worker')} didn't finish"
    return _finding(scene, "worker-busy", Severity.WARNING, title, evidence)


def _peer(scene: Scene) -> list[Finding]:
    """Find a rank that waits in a call that all ranks must make; for the script's own process only."""
    if scene.world_size < 2:
        return []
    stack = scene.script.main.stack
    named = [frame for frame in stack if any(word in frame.lower() for word in COLLECTIVES)]
    here = set(range(scene.local_world)) if scene.world_size == scene.local_world else set()
    missing = sorted(here - set(scene.peers))
    evidence = [f"rank {scene.rank} of {scene.world_size}: {describe_process(scene.script)}"]
    if named:
        evidence.append(f"it is in {named[0]}")
    others = {rank: number for rank, number in sorted(scene.peers.items()) if rank != scene.rank}
    if others:
        listed = ", ".join(f"rank {rank} is {number}" for rank, number in others.items())
        evidence.append(f"the others can be looked at too: {listed}")
    if missing:
        evidence.append(f"no process of this machine has rank {', '.join(map(str, missing))}")
        return _finding(scene, "peer-missing", Severity.PROBLEM, "another rank has ended", evidence)
    if not named:
        return []
    return _finding(scene, "peer-waits", Severity.WARNING, "it waits for another rank", evidence)


def _nothing_known(scene: Scene) -> list[Finding]:
    if scene.works:
        return []
    evidence = [f"the script: {describe_process(scene.script)}"]
    evidence += [f"worker {describe_process(worker)}" for worker in scene.workers[:SHOWN]]
    title = "nobody computes, and it is none of the known causes"
    return _finding(scene, "all-wait", Severity.NOTE, title, evidence)
