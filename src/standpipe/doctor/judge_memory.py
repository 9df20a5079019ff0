"""Judgements of memory: what workers copy, what grows, and what goes through shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from standpipe.doctor.facts import Holding, Host, LoaderFacts, Memory, WorkerFacts
from standpipe.doctor.finding import Finding, Severity
from standpipe.units import several, show_bytes

WORTH_BYTES = 64 << 20  # copied by all workers together, above which it is worth a finding
MUCH = 0.05  # of the memory there is
TOO_MUCH = 0.8  # of what was free
SHM_NEEDED_SHARE = 0.8  # of what is free
GROWING_BATCHES = 6  # of a worker, that must each have made it larger
GROWING_BYTES = 256 << 10  # by at least so much


def judge_memory(host: Host, loader: LoaderFacts) -> list[Finding]:
    """Return all findings on memory."""
    judges = (_copied, _grows, _shared_memory, _unpinned)
    return [finding for judge in judges for finding in judge(host, loader)]


def copied_bytes(loader: LoaderFacts) -> int:
    """Return the bytes that each worker copies: with fork, pages of Python objects; with spawn, arrays too."""
    arrays = loader.method != "fork"
    return sum(each.bytes + arrays * each.arrays for each in loader.holdings)


def per_worker(loader: LoaderFacts) -> tuple[int, int]:
    """Return the mean PSS of a worker in bytes: at its start, and after its last batch. 0 without workers."""
    known = _known(loader)
    return _mean([each[0].pss for each in known]), _mean([each[-1].pss for each in known])


def _known(loader: LoaderFacts) -> list[tuple[Memory, ...]]:
    """Return the measurements of each worker's memory."""
    return [maker.memories for maker in loader.makers if maker.worker >= 0 and maker.memories]


def _mean(numbers: list[int]) -> int:
    return sum(numbers) // len(numbers) if numbers else 0


def _copied(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    each = copied_bytes(loader)
    workers = loader.workers * host.ranks
    total = each * workers
    if not loader.workers or total < WORTH_BYTES:
        return
    forked = loader.method == "fork"
    most = max(loader.holdings, key=lambda held: held.bytes + (0 if forked else held.arrays))
    evidence = [_told(held, forked) for held in loader.holdings[:4] if held.bytes or not forked]
    if known := _known(loader):
        begin, end = _mean([each[0].private for each in known]), _mean([each[-1].private for each in known])
        evidence.append(
            f"memory that a worker alone has: {show_bytes(begin)} at its start, {show_bytes(end)} at the end"
        )
    fix = f"hold {most.path} as one NumPy array, an Arrow column or a tensor, not as Python objects"
    if not forked:
        fix = f"start workers by fork, or hold {most.path} as a tensor or a mapped file, which workers share"
    how = "copied page by page as reference counts change" if forked else "a copy of each from the start"
    evidence.append(
        f"forecast: {show_bytes(each)} × {several(workers, 'worker')} = {show_bytes(total)}, {how}; "
        f"the machine has {show_bytes(host.memory)}"
    )
    severity = Severity.NOTE
    if total > MUCH * host.memory:
        severity = Severity.PROBLEM if total > TOO_MUCH * host.memory_free else Severity.WARNING
    yield Finding(
        code="copy-on-write" if forked else "copies-of-the-dataset",
        severity=severity,
        title=f"{most.path} will be copied by every worker",
        where=loader.site,
        evidence=tuple(evidence),
        numbers={
            "attribute": most.path,
            "objects": most.objects,
            "bytes": most.bytes,
            "workers": workers,
            "forecast_bytes": total,
        },
        fix=fix,
        standpipe=f"standpipe.torch.DataLoader packs long lists into memory that workers share; {most.path} "
        "= sp.share_list(...) does it by hand",
    )


def _told(held: Holding, forked: bool) -> str:
    arrays = f", {show_bytes(held.arrays)} of arrays" if held.arrays and not forked else ""
    return f"{held.path}: a {held.kind}, about {held.objects:,} objects, {show_bytes(held.bytes)}{arrays}"


def _grows(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    growing = [rate for maker in loader.makers if (rate := _growth(maker)) > 0]
    if not growing or not loader.batches:
        return
    if loader.workers * (loader.prefetch or 0) >= loader.batches:
        return  # they may do all of an epoch ahead, and hold it
    rate = sum(growing) / len(growing)
    total = int(rate * loader.batches * host.ranks)
    if total <= MUCH * host.memory:
        return
    who = "workers grow" if loader.workers else "the process grows"
    yield Finding(
        code="memory-grows",
        severity=Severity.PROBLEM if total > TOO_MUCH * host.memory_free else Severity.WARNING,
        title=f"{who} by {show_bytes(rate)} with every batch",
        where=loader.site,
        evidence=(
            f"each batch but the first two made its process larger, for {GROWING_BATCHES} batches and more",
            f"forecast: {show_bytes(total)} after {loader.batches:,} batches, an epoch; "
            f"{show_bytes(host.memory_free)} were free",
        ),
        numbers={"bytes_per_batch": rate, "batches": loader.batches, "forecast_bytes": total},
        fix="find what the dataset keeps: a dict or list filled in __getitem__, open files, an unbounded lru_cache",
        standpipe="pipeline.cache(sp.Cache(..., memory=...)) keeps samples within a bound, once for all workers",
    )


def _growth(maker: WorkerFacts) -> float:
    """Return the mean bytes by which a process grew with a batch; 0 if it didn't grow with every batch."""
    # Pages that are copied were there before, and batches on their way to the script are no growth: neither counts.
    at = [made.anonymous for made in maker.made][2:]
    steps = [later - before for before, later in pairwise(at)]
    if len(steps) < GROWING_BATCHES or min(steps) < GROWING_BYTES:
        return 0.0
    return sum(steps) / len(steps)


def _shared_memory(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    ahead = loader.workers * (loader.prefetch or 0)
    ahead = min(ahead, loader.batches) if loader.batches else ahead
    need = ahead * loader.batch_bytes * host.ranks
    if not need or need < SHM_NEEDED_SHARE * host.shm_free:
        return
    yield Finding(
        code="shm-small",
        severity=Severity.PROBLEM if need > host.shm_free else Severity.WARNING,
        title=f"/dev/shm has {show_bytes(host.shm_free)} free, batches ahead need {show_bytes(need)}",
        where=loader.site,
        evidence=(
            f"{several(loader.workers, 'worker')} × {loader.prefetch} ahead: "
            f"{ahead:,} batches of {show_bytes(loader.batch_bytes)}",
            f"/dev/shm: {show_bytes(host.shm)}, {show_bytes(host.shm_free)} free; "
            "when it is full workers die of a bus error",
        ),
        numbers={"need_bytes": need, "free_bytes": host.shm_free, "batch_bytes": loader.batch_bytes},
        fix="a smaller prefetch_factor or fewer workers; in a container: docker run --shm-size, or --ipc=host",
        standpipe="batches are in memory of standpipe's own, within memory=; the size of /dev/shm doesn't matter",
    )


def _unpinned(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    if not host.cuda or loader.pinned or not loader.batch_bytes:
        return
    yield Finding(
        code="unpinned",
        severity=Severity.WARNING,
        title="batches for the GPU are in memory that isn't pinned",
        where=loader.site,
        evidence=(f"pin_memory=False, {show_bytes(loader.batch_bytes)} a batch, and torch sees a GPU",),
        numbers={"batch_bytes": loader.batch_bytes},
        fix="DataLoader(..., pin_memory=True), and batch.to(device, non_blocking=True)",
        standpipe='standpipe.torch.loader(pipeline, device="cuda"): pinned slots, a stream of their own',
    )
