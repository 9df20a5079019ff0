"""Objects of multiprocessing inside a dataset, which worker processes can only inherit."""

from __future__ import annotations

from photos import WAIT_S
from programs import output, run, wait_for_end

BEGIN = """
    import multiprocessing
    from multiprocessing import sharedctypes
    import torch
    import standpipe.torch
    from standpipe.engine.processes.fork_server import SHARED

    class Shares:
        def __init__(self, **objects): self.objects = objects
        def __len__(self): return 8
        def __getitem__(self, index): return index + self.objects["counter"].value

    def loader(dataset, **more):
        more = {"num_workers": 2, "memory": "2GiB", "slow_sample_s": 60.0, **more}
        return standpipe.torch.DataLoader(dataset, 4, **more)

    def taken(loader):
        return [number for batch in loader for number in batch.tolist()]
"""


def test_workers_see_what_this_process_writes() -> None:
    """The process that was forked stays: a later epoch needs no fork, when other loaders have threads here."""
    told = output(
        BEGIN
        + """
    counter = multiprocessing.Value("i", 0)
    curriculum = loader(Shares(counter=counter))
    other = loader(Shares(counter=counter), persistent_workers=True)
    for epoch in range(2):
        counter.value = 100 * epoch
        print(taken(curriculum))
        taken(other)
    assert [each.name for each in threading.enumerate() if each.name.startswith("standpipe")]
    batches = iter(loader(Shares(counter=counter), prefetch_factor=1, num_workers=1))
    first = next(batches)
    counter.value = 7
    print(list(batches)[-1].max().item() in (107, 14))
    """
    )
    assert told == "[0, 1, 2, 3, 4, 5, 6, 7]\n[100, 101, 102, 103, 104, 105, 106, 107]\nTrue\n"


def test_every_kind_of_object() -> None:
    told = output(
        BEGIN
        + """
    class Puts(Shares):
        def __getitem__(self, index):
            with self.objects["lock"], self.objects["array"].get_lock():
                self.objects["array"][index] += 1
                self.objects["raw"][index] += 1
                self.objects["tensor"][index] += 1
            self.objects["queue"].put(("queue", index))
            self.objects["pipe"].send(("pipe", index))
            assert self.objects["event"].is_set()
            return index

    ours, theirs = multiprocessing.Pipe()
    queue, event = multiprocessing.Queue(), multiprocessing.Event()
    event.set()
    queue.put("begun")  # a thread of this process writes to it
    assert queue.get() == "begun"
    array, raw = multiprocessing.Array("i", 8), sharedctypes.RawArray("i", 8)
    tensor = torch.zeros(8, dtype=torch.int64).share_memory_()
    lock = multiprocessing.Lock()
    dataset = Puts(array=array, raw=raw, tensor=tensor, queue=queue, pipe=theirs, event=event, lock=lock)
    made = taken(loader(dataset))
    calls = sum(array)
    assert calls >= 8 and list(array) == list(raw) == tensor.tolist()
    print(sorted({queue.get()[1] for _ in range(calls)}), sorted({ours.recv()[1] for _ in range(calls)}))
    queue.close()
    """
    )
    assert told == f"{list(range(8))} {list(range(8))}\n"


def test_a_stream_that_shares_itself_out() -> None:
    """Each of its workers has a loader, and so a server, of its own: all come from one fork."""
    told = output(
        BEGIN
        + """
    class Parts(torch.utils.data.IterableDataset):
        def __init__(self, epoch): self.epoch = epoch
        def __iter__(self):
            worker = torch.utils.data.get_worker_info()
            yield from range(100 * self.epoch.value + worker.id, 100 * self.epoch.value + 8, worker.num_workers)

    epoch = multiprocessing.Value("i", 0)
    batches = loader(Parts(epoch), persistent_workers=True)
    print(sorted(taken(batches)))
    epoch.value = 1
    print(sorted(taken(batches)))
    """
    )
    assert told == f"{list(range(8))}\n{list(range(100, 108))}\n"


def test_a_loader_without_torch() -> None:
    told = output(
        """
    import multiprocessing
    class Shares:
        def __init__(self): self.counter = multiprocessing.Value("i", 3)
        def __len__(self): return 4
        def __getitem__(self, index): return index + self.counter.value
    for server in ("spawn", sp.ForkServer()):
        with sp.Pipeline(sp.MapSource(Shares(), fields="x")).batch(4).loader(
            executor="process", num_workers=2, memory="1GiB", mp_context=server
        ) as batches:
            print([batch["x"].tolist() for batch in batches])
    """
    )
    assert told == "[[3, 4, 5, 6]]\n" * 2


def test_what_cant_be_forked_now_is_named_with_the_ways_out() -> None:
    told = output(
        BEGIN
        + """
    class Hidden(Shares):
        def __init__(self): self.inner = [Shares(counter=multiprocessing.Value("i", 0))]
        def __getstate__(self): return self.__dict__  # nobody looks through what is pickled in its own way

    other = iter(loader(Shares(counter=multiprocessing.Value("i", 0))))
    next(other)
    try:
        iter(loader(Hidden()))
    except sp.PlanError as error:
        print(error)
    """
    )
    assert told.startswith(
        "the dataset.inner[0].objects['counter'], a multiprocessing.Value, can be shared only with forks of this "
        "process, which can't be forked now: standpipe runs "
    )
    assert "before other loaders with workers begin" in told
    assert "executor='thread'" in told


def test_a_managers_proxies_travel() -> None:
    told = output(
        BEGIN
        + """
    class Counts(Shares):
        def __getitem__(self, index):
            self.objects["seen"][index] = True
            return index

    with multiprocessing.Manager() as manager:
        seen = manager.dict()
        made = loader(Counts(seen=seen))
        print(taken(made), sorted(seen.keys()))
        del made
    """
    )
    assert told == f"{list(range(8))} {list(range(8))}\n"


def test_what_was_forked_ends_with_the_loader_and_with_this_process() -> None:
    told = output(
        BEGIN
        + """
    from programs import children, wait_for_end
    made = loader(Shares(counter=multiprocessing.Value("i", 0)))
    processes = children()
    taken(made)
    assert children() == processes
    del made
    gc.collect()
    print(len(processes), wait_for_end(processes, 60.0))
    """
    )
    assert told == "1 []\n"
    done = run(
        BEGIN
        + """
    batches = iter(loader(Shares(counter=multiprocessing.Value("i", 0))))
    next(batches)
    from programs import children
    print(*children(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    )
    processes = [int(process) for process in done.stdout.split()]
    assert len(processes) == 4
    assert wait_for_end(processes, WAIT_S) == []
