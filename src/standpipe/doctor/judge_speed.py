"""Judgements of time: workers, their start, transforms, collate. Facts in, findings out, nothing is measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from standpipe.doctor.facts import Host, LoaderFacts
from standpipe.doctor.finding import Finding, Severity
from standpipe.system.thresholds import THRESHOLDS
from standpipe.units import several, show_seconds

WORTH_WAIT_S = 5e-3  # for a batch, above which workers are worth their cost
MOST_OF_IT = 0.4  # of a sample's time
COLLATE = 0.3  # of a batch's time
STARTUP = 0.1  # of an epoch's time
STARTUP_S = 0.5
SLOW_SAMPLE_S = 1.0
SLOW_SAMPLE = 20.0  # times the median


def judge_speed(host: Host, loader: LoaderFacts) -> list[Finding]:
    """Return all findings on lost time."""
    judges = (_above_cores, _waiting, _slow_transform, _slow_collate, _slow_startup, _slow_sample)
    return [finding for judge in judges for finding in judge(host, loader)]


def waits(host: Host, loader: LoaderFacts) -> bool:
    """Return True if the script waits for this loader, long enough to do something about it.

    A wait that making a batch doesn't explain isn't the loader's: another process may use the CPUs.
    """
    wait_s = min(loader.wait_s, _explained_s(host, loader))
    return len(loader.steady) >= 4 and wait_s > max(WORTH_WAIT_S, THRESHOLDS.waits * (wait_s + loader.step_s))


def _explained_s(host: Host, loader: LoaderFacts) -> float:
    """Return the seconds of waiting per step that the time to make a batch explains."""
    if not loader.workers:
        return loader.batch_s
    steps = [step.step_s or 0.0 for step in loader.steady]
    at_once = min(loader.workers, host.cores)
    return loader.batch_s / at_once - (statistics.median(steps) if steps else 0.0)


def busy_share(loader: LoaderFacts) -> float:
    """Return the fraction of a worker's time spent on batches, while steps were seen."""
    elapsed = sum(step.wait_s + (step.step_s or 0.0) for step in loader.steps)
    spent = sum(made.seconds + made.collate_s for made in loader.made)
    return min(spent / (elapsed * max(loader.workers, 1)), 1.0) if elapsed else 0.0


def busy_cores(loader: LoaderFacts) -> float:
    """Return the mean number of CPUs that the script and this loader's workers keep busy."""
    elapsed = used = 0.0
    for epoch in {step.epoch for step in loader.steps}:
        steps = [step for step in loader.steps if step.epoch == epoch]
        elapsed += steps[-1].at - steps[0].at
        used += steps[-1].cpu_s - steps[0].cpu_s
    if not elapsed:
        return 0.0
    makers = {maker.worker for maker in loader.makers}
    if makers - {-1}:
        whole = sum(step.wait_s + (step.step_s or 0.0) for step in loader.steps)
        used += sum(made.cpu_s for made in loader.made) * elapsed / max(whole, elapsed)
    return used / elapsed


def _storage_share(loader: LoaderFacts) -> float:
    spent = sum(made.seconds + made.collate_s for made in loader.made)
    return 1 - sum(made.cpu_s + made.queued_s for made in loader.made) / spent if spent else 0.0


def _above_cores(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    together = loader.workers * host.ranks
    if together <= host.cores:
        return
    evidence = [
        f"{several(loader.workers, 'worker')}"
        + (f" in each of {host.ranks} ranks" if host.ranks > 1 else "")
        + f", and {several(host.cores, 'CPU')} by affinity and the container's quota"
    ]
    severity = Severity.WARNING
    if loader.batch_s > WORTH_WAIT_S and _storage_share(loader) > THRESHOLDS.most:
        severity = Severity.NOTE
        evidence.append(
            f"samples spend {_storage_share(loader):.0%} of their time waiting for storage: that may be why"
        )
    yield Finding(
        code="workers-above-cores",
        severity=severity,
        title=f"{together} workers on {several(host.cores, 'CPU')}",
        where=loader.site,
        evidence=tuple(evidence),
        numbers={"workers": loader.workers, "ranks": host.ranks, "cores": host.cores},
        fix=f"DataLoader(..., num_workers={host.cores_each}); os.sched_getaffinity(0) has the CPUs, not the quota",
        standpipe='num_workers="auto" counts CPUs by affinity and quota; its threads share one memory',
    )


def _waiting(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    """Return a finding if the script waits because it lacks CPUs or workers."""
    if not waits(host, loader):
        return
    busy, most = busy_cores(loader), host.cores_each
    wait = f"the script waits {loader.wait_share:.0%} of its time for batches"
    evidence = [
        f"a step takes {show_seconds(loader.step_s)}, then it waits {show_seconds(loader.wait_s)}",
        f"a batch takes {show_seconds(loader.batch_s)} to make, a sample {show_seconds(loader.sample_s)}, by "
        f"{several(loader.workers, 'worker') if loader.workers else 'the script itself (num_workers=0)'}",
        f"{busy:.1f} of {several(most, 'CPU')} busy",
    ]
    if busy >= THRESHOLDS.processors * most:
        code, title = "input-bound", f"{wait}, and the CPUs are busy"
        fix = "make samples cheaper: smaller files, images resized once and stored, less work per sample"
        ours = (
            "Pipeline(ImageFolder(...)).cache(...) keeps what was made; decoding needs only the crop's part"
        )
    else:
        storage = _storage_share(loader)
        is_enough = loader.workers >= most and storage <= THRESHOLDS.most
        if is_enough or (loader.workers and busy_share(loader) < THRESHOLDS.most):
            return
        if loader.workers >= most:
            evidence.append(
                f"samples spend {storage:.0%} of their time waiting for storage, with no use for a CPU"
            )
        # The number of workers that together make a batch in the time of a step.
        needed = round(loader.batch_s / max(loader.step_s, 1e-3) + 0.5)
        wanted = min(max(most, 2 * loader.workers), max(loader.workers + 1, needed))
        code, title = "workers-too-few", wait
        fix = f"DataLoader(..., num_workers={wanted}, persistent_workers=True)"
        ours = 'standpipe.torch.DataLoader, or a Pipeline with num_workers="auto": decoding in native threads'
    numbers = {
        "wait_share": round(loader.wait_share, 3),
        "step_s": loader.step_s,
        "wait_s": loader.wait_s,
        "batch_s": loader.batch_s,
        "sample_s": loader.sample_s,
        "workers": loader.workers,
        "busy_cores": round(busy, 2),
        "cores": most,
    }
    yield Finding(
        code=code,
        severity=Severity.WARNING,
        title=title,
        where=loader.site,
        evidence=tuple(evidence),
        numbers=numbers,
        fix=fix,
        standpipe=ours,
    )


def _slow_transform(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    whole = sum(loader.transforms.values())
    named = [(name, took) for name, took in loader.transforms.items() if name]
    if not waits(host, loader) or not named or named[0][1] < MOST_OF_IT * whole:
        return
    name, took = named[0]
    others = ", ".join(f"{other} {show_seconds(each)}" for other, each in named[1:4])
    yield Finding(
        code="slow-transform",
        severity=Severity.WARNING,
        title=f"{name} takes {took / whole:.0%} of a sample's time",
        where=loader.site,
        evidence=(
            f"a sample takes {show_seconds(whole)}, of which {name} {show_seconds(took)}",
            *((f"the next: {others}",) if others else ()),
        ),
        numbers={"transform": name, "seconds": took, "sample_s": whole},
        fix=f"make {name} cheaper, apply it to a smaller image, or do it once and store what it gives",
        standpipe="native transforms by sp.from_torchvision, or .cache() behind what isn't random",
    )


def _slow_collate(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    if not waits(host, loader) or loader.collate_share < COLLATE or loader.collate_s < WORTH_WAIT_S:
        return
    yield Finding(
        code="slow-collate",
        severity=Severity.WARNING,
        title=f"{loader.collate} takes {loader.collate_share:.0%} of a batch's time",
        where=loader.site,
        evidence=(f"{show_seconds(loader.collate_s)} for every batch, in the median",),
        numbers={
            "collate": loader.collate,
            "collate_s": loader.collate_s,
            "share": round(loader.collate_share, 3),
        },
        fix="do it per sample in the dataset, on arrays rather than lists; np.stack once, not piece by piece",
        standpipe="rows are written where the batch has them; ragged fields: sp.Pad, sp.Ragged",
    )


def _slow_startup(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    if not loader.workers or loader.persistent or loader.epochs < 2 or not loader.batches:
        return
    epoch_s = loader.startup_s + (loader.batches - 1) * (loader.wait_s + loader.step_s)
    if loader.startup_s < max(STARTUP * epoch_s, STARTUP_S):
        return
    yield Finding(
        code="workers-restarted",
        severity=Severity.WARNING,
        title=f"starting workers takes {loader.startup_s / epoch_s:.0%} of every epoch",
        where=loader.site,
        evidence=(
            f"{show_seconds(loader.startup_s)} to the first batch, of an epoch of {show_seconds(epoch_s)} "
            f"({loader.batches:,} batches)",
            f"{several(loader.workers, 'worker')} started anew each epoch, by {loader.method}",
        ),
        numbers={"startup_s": loader.startup_s, "epoch_s": epoch_s, "method": loader.method},
        fix="DataLoader(..., persistent_workers=True)",
        standpipe="a loader's workers stay, and make the next epoch's first batches while this one ends",
    )


def _slow_sample(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    stuck = [
        Finding(
            code="stuck-sample",
            severity=Severity.PROBLEM,
            title=f"sample {index} wasn't done after {show_seconds(took)}",
            where=loader.site,
            evidence=(f"{_worker(worker)} was still making dataset[{index}] when the time was over",),
            numbers={"index": index, "seconds": took, "worker": worker},
            fix=f"call dataset[{index}] by itself; give what it waits for a time limit, or DataLoader(timeout=...)",
            standpipe="stall_timeout_s= names such a sample with its stack; .on_error(sp.Replace(...)) goes on",
        )
        for worker, index, took in loader.stuck
        if took > SLOW_SAMPLE_S
    ]
    # A process's first samples import, open and allocate what others find there.
    later = [made for maker in loader.makers for made in maker.made[1:]]
    medians = [made.median_s for made in later]
    index, slowest = max(
        ((made.slowest[0], made.slowest[1] - made.queued_s) for made in later),
        key=lambda each: each[1],
        default=(None, 0.0),
    )
    if stuck or slowest < max(SLOW_SAMPLE_S, SLOW_SAMPLE * statistics.median(medians or [0.0])):
        yield from stuck
        return
    yield Finding(
        code="slow-sample",
        severity=Severity.WARNING,
        title=f"sample {index} took {show_seconds(slowest)}",
        where=loader.site,
        evidence=(f"a sample takes {show_seconds(statistics.median(medians))} in the median",),
        numbers={"index": index, "seconds": slowest},
        fix=f"look at dataset[{index}]: one such sample holds up its whole batch",
        standpipe="all workers make a batch's rows, so that one slow row delays no others; slow_sample_s= names it",
    )


def _worker(worker: int) -> str:
    return "the script itself" if worker < 0 else f"worker {worker}"
