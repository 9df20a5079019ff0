"""Judge samples: delivered twice, with the same random numbers, bad, or made where they can't be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from standpipe.doctor.facts import Bad, Host, LoaderFacts, RunFacts, WorkerFacts
from standpipe.doctor.finding import Finding, Severity
from standpipe.units import several

FEW_SAMPLES = 4  # samples of a worker, below which nothing is compared
DISTINCT = 0.9  # share of a part's values that differ within a worker: less tells no samples apart
SHARED_SAMPLES = 0.5  # share of a worker's samples that another one gave too


def judge_samples(host: Host, loader: LoaderFacts) -> list[Finding]:
    """Return all findings on wrong batches, or on what ends a run."""
    judges = (_duplicated, _alike_in_workers, _alike_in_epochs, _same_order, _bad, _mixed, _died, _forked)
    return [finding for judge in judges for finding in judge(host, loader)]


def judge_own(run: RunFacts) -> list[Finding]:
    """Return findings on standpipe loaders whose batches a seed doesn't reproduce."""
    return [
        Finding(
            code="randomness-of-the-process",
            severity=Severity.PROBLEM,
            title="code in threads uses the training process's own generators",
            where=where,
            evidence=(f"one sample, made in another process: {', '.join(code)}",),
            fix="take the numbers from a generator that is seeded for each sample",
            standpipe="a parameter rng, which is keyed for each sample, or executor='process'",
            numbers={"code": list(code)},
        )
        for where, code in run.drawing
    ]


def judge_ranks(loaders: Sequence[LoaderFacts]) -> list[Finding]:
    """Return findings on samples that several ranks get; ``loaders`` is one loader as seen by each rank."""
    first = loaders[0]
    world_size = max(first.world_size, len(loaders))
    if world_size < 2:
        return []
    if first.iterable:
        ranks = {loader.rank: list(_epoch(loader.makers, 0)) for loader in loaders}
        return list(_twice(first, {rank: _prints(makers) for rank, makers in ranks.items()}, "rank"))
    if not first.samples or first.sampled != first.samples:
        return []
    ordered = first.sampler == "SequentialSampler"
    return [
        Finding(
            code="ranks-duplicated",
            severity=Severity.NOTE if ordered else Severity.PROBLEM,
            title=f"each of {world_size} ranks goes over all {first.samples:,} samples",
            where=first.site,
            evidence=(
                f"{first.sampler} gives {first.sampled:,} of {first.samples:,} samples in every rank; "
                f"a rank's share is {-(-first.samples // world_size):,}",
                *(("in order, so perhaps an evaluation that is meant so",) if ordered else ()),
            ),
            numbers={"world_size": world_size, "samples": first.samples, "sampled": first.sampled},
            fix="DataLoader(..., sampler=DistributedSampler(dataset)), and sampler.set_epoch(epoch) in every epoch",
            standpipe="standpipe.torch.loader(pipeline) gives each rank its own rows; standpipe audit proves it",
        )
    ]


def _duplicated(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    if not loader.iterable:
        return
    makers = [maker for maker in _epoch(loader.makers, 0) if maker.worker >= 0]
    yield from _twice(loader, {maker.worker: _prints([maker]) for maker in makers}, "worker")


def _twice(loader: LoaderFacts, prints: dict[int, list[dict[str, str]]], what: str) -> Iterator[Finding]:
    """Return a finding if two workers or ranks gave the same samples, or samples with an equal part.

    prints  fingerprints of samples by number of the worker or rank
    what    ``"worker"`` or ``"rank"``
    """
    parts = dict.fromkeys(path for each in prints.values() for sample in each for path in sample)
    for part in parts:
        values = {
            number: [sample[part] for sample in each if part in sample] for number, each in prints.items()
        }
        worst = max(_overlaps(values), key=lambda found: found[2] / found[3], default=None)
        if worst is not None and worst[2] >= SHARED_SAMPLES * worst[3]:
            one, other, same, of = worst
            yield _told_twice(loader, part, (one, other, same, of), len(prints), what)
            return


def _overlaps(values: dict[int, list[str]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (one, other, number of common values, number of values of the shorter) for each two entries."""
    for (one, ours), (other, theirs) in combinations(values.items(), 2):
        few = min(len(ours), len(theirs))
        told_apart = all(len(set(some)) >= DISTINCT * len(some) for some in (ours, theirs))
        if few >= FEW_SAMPLES and told_apart:
            yield one, other, len(set(ours) & set(theirs)), few


def _told_twice(
    loader: LoaderFacts, part: str, worst: tuple[int, int, int, int], number: int, what: str
) -> Finding:
    one, other, same, of = worst
    share = "" if not part else f" by their part {part}; the rest differs, as augmentation makes it"
    split = (
        "in __iter__, ask get_worker_info(), and give islice(samples, info.id, None, info.num_workers)"
        if what == "worker"
        else "in __iter__, split by rank too: islice(samples, rank * workers + worker, None, world_size * workers)"
    )
    return Finding(
        code=f"iterable-duplicated-{what}s" if what == "rank" else "iterable-duplicated",
        severity=Severity.WARNING if part else Severity.PROBLEM,
        title=f"every {what} gives the same samples: each comes {number} times an epoch",
        where=loader.site,
        evidence=(f"{same} of the {of} samples of {what} {one} came from {what} {other} too{share}",),
        numbers={what: [one, other], "same": same, "of": of, "part": part},
        fix=split,
        standpipe="standpipe.torch.DataLoader refuses such a dataset; sp.IterableSource reads it once",
    )


def _alike_in_workers(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    for epoch in sorted({maker.epoch for maker in loader.makers}):
        makers = [maker for maker in _epoch(loader.makers, epoch) if maker.worker >= 0]
        for name in _drawn(makers):
            states = Counter(maker.random[name] for maker in makers if _draws(maker, name))
            state, same = max(states.items(), key=lambda item: item[1])
            if same > 1:
                who = [maker.worker for maker in makers if maker.random.get(name) == state]
                yield _told_alike(loader, name, "workers", f"workers {_listed(who)} began an epoch")
                return


def _alike_in_epochs(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    first, second = (list(_epoch(loader.makers, epoch)) for epoch in (0, 1))
    for one in first:
        for other in second:
            if one.worker != other.worker:
                continue
            for name in _drawn([one, other]):
                if _draws(one, name) and _draws(other, name) and one.random[name] == other.random[name]:
                    who = "the script" if one.worker < 0 else f"worker {one.worker}"
                    yield _told_alike(loader, name, "epochs", f"{who} began epochs 0 and 1")
                    return


def _told_alike(loader: LoaderFacts, name: str, what: str, who: str) -> Finding:
    own = name.startswith("dataset")
    fix = (
        f"seed {name} anew in each worker and epoch: worker_init_fn=... with torch.initial_seed(), or use torch"
        if own
        else "no fixed seed in worker_init_fn: torch.initial_seed() % 2**32 differs by worker and by epoch"
    )
    return Finding(
        code=f"randomness-repeated-{what}",
        severity=Severity.PROBLEM if what == "workers" else Severity.WARNING,
        title=f"random numbers repeat across {what}",
        where=loader.site,
        evidence=(f"{who} with the same state of {name}, and samples use it",),
        numbers={"generator": name},
        fix=fix,
        standpipe="random numbers depend on (seed, epoch, position): no two samples share them, in any worker",
    )


def _same_order(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    if "Distributed" not in loader.sampler:
        return
    orders = []
    for epoch in (0, 1):
        makers = sorted(_epoch(loader.makers, epoch), key=lambda maker: maker.worker)
        orders.append([maker.made[0].indices for maker in makers if maker.made])
    first = orders[0][0] if orders[0] else ()
    if orders[0] != orders[1] or len(first) < FEW_SAMPLES or list(first) == sorted(first):
        return
    yield Finding(
        code="order-repeated",
        severity=Severity.WARNING,
        title="every epoch has the same order",
        where=loader.site,
        evidence=(f"epochs 0 and 1 both begin with samples {_listed(first[:6])}, ...",),
        numbers={"indices": list(first[:6])},
        fix="sampler.set_epoch(epoch) at the begin of every epoch",
        standpipe="each epoch has its own order by itself",
    )


def _bad(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    found = {(str(bad.index), bad.message): bad for bad in loader.bad if bad.where == "sample"}
    yield from [
        Finding(
            code="bad-sample",
            severity=Severity.PROBLEM,
            title=f"sample {bad.index} can't be made: {bad.type}",
            where=loader.site,
            evidence=(
                f"dataset[{bad.index}]" + (f", {bad.path}" if bad.path else ""),
                f"{bad.type}: {bad.message.splitlines()[0] if bad.message else ''}",
            ),
            numbers={"index": bad.index, "path": bad.path, "type": bad.type},
            fix="repair or drop it; standpipe scan PATH finds all bad images of a folder or list at once",
            standpipe=".on_error(sp.Replace(at_most=0.001)): another sample in its place, counted and listed",
        )
        for bad in found.values()
        if not _is_cuda(bad)
    ]


def _mixed(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    if loader.bad and loader.bad[0].where == "collate":
        yield _told_mixed(loader, loader.bad[0])


def _told_mixed(loader: LoaderFacts, bad: Bad) -> Finding:
    kinds = Counter(shape for _, shape in bad.shapes)
    evidence = [f"{bad.type}: {bad.message.splitlines()[0][:200] if bad.message else ''}"]
    odd: list[object] = []
    if len(kinds) > 1:
        usual, often = kinds.most_common(1)[0]
        evidence.append(f"{often} of {len(bad.shapes)} samples are {usual}")
        paths = dict(zip((index for index, _ in bad.shapes), bad.paths, strict=False))
        for index, shape in [each for each in bad.shapes if each[1] != usual][:3]:
            odd.append(index)
            at = f", {paths[index]}" if paths.get(index) else ""
            evidence.append(f"sample {index}{at}: {shape}")
    title = f"{loader.collate} can't put the samples of a batch together"
    return Finding(
        code="mixed-samples",
        severity=Severity.PROBLEM,
        title=title,
        where=loader.site,
        evidence=tuple(evidence),
        numbers={"odd": odd, "type": bad.type},
        fix="the same shape and type for every sample: a fixed crop, .convert('RGB'), padding in a collate_fn",
        standpipe="images are RGB always; sp.Pad or sp.Ragged for fields that differ in size",
    )


def _died(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    if loader.failure is None or loader.bad:
        return
    kind, message = loader.failure
    if "killed by signal" not in message and "exited unexpectedly" not in message:
        return
    cause = "out of memory, by the kernel's choice" if "Killed" in message else "a crash in native code"
    if "Bus error" in message:
        cause = "/dev/shm was full"
    yield Finding(
        code="worker-died",
        severity=Severity.PROBLEM,
        title="a worker process died",
        where=loader.site,
        evidence=(f"{kind}: {message.splitlines()[0][:300]}", f"the likely cause: {cause}"),
        numbers={"cause": cause},
        fix="fewer workers or smaller batches if memory ran out; num_workers=0 shows where native code crashes",
        standpipe="a worker that dies is replaced, its work done again; a sample that kills two is named",
    )


def _forked(host: Host, loader: LoaderFacts) -> Iterator[Finding]:
    forked = [start for start in loader.starts if start.method == "fork"]
    threads = dict.fromkeys(name for start in forked for name in start.threads)
    if threads:
        yield Finding(
            code="fork-after-threads",
            severity=Severity.WARNING,
            title="workers are forked while other threads run",
            where=loader.site,
            evidence=(
                f"{several(len(threads), 'thread')} at the fork: {_listed(list(threads)[:5])}",
                "a lock that one of them held stays locked in the worker for ever",
            ),
            numbers={"threads": list(threads)},
            fix="start threads after the workers, or DataLoader(..., multiprocessing_context='forkserver')",
            standpipe="workers are forked from a process that has no other thread",
        )
    used = [bad for bad in loader.bad if _is_cuda(bad)]
    if any(start.cuda for start in forked) and (used or loader.cuda_path):
        said = f"{used[0].type}: {used[0].message.splitlines()[0]}" if used else None
        yield Finding(
            code="fork-after-cuda",
            severity=Severity.PROBLEM,
            title="workers use CUDA, and were forked after it was initialised",
            where=loader.site,
            evidence=(said or f"{loader.cuda_path} is a tensor on a GPU",),
            numbers={"attribute": loader.cuda_path},
            fix="keep tensors of the dataset on the CPU; move batches in the script's loop",
            standpipe='standpipe.torch.loader(pipeline, device="cuda") moves batches in a stream of its own',
        )


def _is_cuda(bad: Bad) -> bool:
    return "CUDA" in bad.message and "fork" in bad.message


def _epoch(makers: Iterable[WorkerFacts], epoch: int) -> Iterator[WorkerFacts]:
    return (maker for maker in makers if maker.epoch == epoch)


def _prints(makers: Iterable[WorkerFacts]) -> list[dict[str, str]]:
    return [sample for maker in makers for made in maker.made for sample in made.prints]


def _drawn(makers: Iterable[WorkerFacts]) -> list[str]:
    return list(dict.fromkeys(name for maker in makers for made in maker.made[:1] for name in made.drawn))


def _draws(maker: WorkerFacts, name: str) -> bool:
    return name in maker.random and any(name in made.drawn for made in maker.made[:1])


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
