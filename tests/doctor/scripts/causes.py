"""A training script with one cause of trouble in each DataLoader; the comment says what the doctor finds there."""

import os
import random
import threading
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

STEP_S = 0.02
CPUS = len(os.sched_getaffinity(0))


class Samples(Dataset):
    """The base of the other datasets: 256 samples that cost nothing."""

    def __init__(self, rows=256):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return torch.full((4,), float(index)), index


class Listed(Samples):
    def __init__(self):
        super().__init__()
        self.annotations = {"texts": [f"{number:064d}" for number in range(400_000)]}


class Tabled(Samples):
    def __init__(self):
        super().__init__()
        self.texts = np.array([b"%064d" % number for number in range(400_000)])


class Grows(Samples):
    def __init__(self):
        super().__init__(10**9)
        self.kept = {}

    def __getitem__(self, index):
        self.kept[index] = np.full(200_000, index, np.int32)
        return super().__getitem__(index)


class Counts(IterableDataset):
    def __iter__(self):
        yield from ((torch.full((2,), number), number) for number in range(256))


class Augments(IterableDataset):
    def __iter__(self):
        yield from ((torch.rand(2), f"{number}.jpg") for number in range(256))


class Shares(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        yield from ((torch.rand(2), f"{number}.jpg") for number in range(info.id, 256, info.num_workers))


class Noise(Samples):
    def __init__(self):
        super().__init__()
        self.generator = np.random.default_rng(7)

    def __getitem__(self, index):
        return self.generator.normal()


class Draws(Samples):
    def __getitem__(self, index):
        return np.random.normal() + random.random() + torch.rand(1)  # noqa: NPY002


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Dawdle:
    def __call__(self, value):
        time.sleep(0.01)
        return value


class Transformed(Samples):
    def __init__(self, transform):
        super().__init__()
        self.transform = transform

    def __getitem__(self, index):
        return self.transform(index)


def double(value):
    return 2 * value


def seed_all_alike(worker):
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002


def seed_by_worker(worker):
    np.random.seed(worker)  # noqa: NPY002


def dawdling_collate(samples):
    time.sleep(0.05)
    return torch.tensor([number for _, number in samples])


class Held(Samples):
    """Takes its time, so that not many batches are made; each is large."""

    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.zeros(1 << 18)


def train(loader):
    for _ in range(2):
        for _ in loader:
            time.sleep(STEP_S)


def main():
    keep = {"batch_size": 4, "persistent_workers": True}
    # finds:
    train(DataLoader(Samples(), num_workers=1, shuffle=True, **keep))
    # finds: workers-above-cores
    train(DataLoader(Samples(), num_workers=CPUS + 1, **keep))
    # finds: copy-on-write
    train(DataLoader(Listed(), num_workers=2, **keep))
    # finds:
    train(DataLoader(Tabled(), num_workers=2, **keep))
    # finds:
    train(DataLoader(Listed(), 4))
    # finds: memory-grows
    train(DataLoader(Grows(), num_workers=1, **keep))
    # finds: iterable-duplicated
    train(DataLoader(Counts(), num_workers=2, **keep))
    # finds: iterable-duplicated
    train(DataLoader(Augments(), num_workers=2, **keep))
    # finds:
    train(DataLoader(Shares(), num_workers=2, **keep))
    # finds: randomness-repeated-workers
    train(DataLoader(Noise(), num_workers=2, **keep))
    # finds:
    train(DataLoader(Draws(), num_workers=2, **keep))
    # finds:
    train(DataLoader(Draws(), 4, num_workers=2))
    # finds: randomness-repeated-workers randomness-repeated-epochs
    train(DataLoader(Draws(), 4, num_workers=2, worker_init_fn=seed_all_alike))
    # finds: randomness-repeated-epochs
    train(DataLoader(Draws(), 4, num_workers=2, worker_init_fn=seed_by_worker))
    # finds: workers-too-few slow-transform
    train(DataLoader(Transformed(Compose([double, Dawdle(), double])), 4))
    # finds:
    train(DataLoader(Transformed(Compose([double, double])), 4))
    # finds: workers-too-few slow-collate
    train(DataLoader(Samples(), 4, collate_fn=dawdling_collate))
    shm = os.statvfs("/dev/shm")
    batches = 2 * shm.f_bavail * shm.f_frsize >> 20
    # finds: shm-small
    train(DataLoader(Held(batches), batch_size=1, num_workers=1, prefetch_factor=batches))
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="metrics", daemon=True)
    thread.start()
    # finds: fork-after-threads
    train(DataLoader(Samples(), num_workers=1, **keep))
    stop.set()
    thread.join()
    # finds:
    train(DataLoader(Samples(), num_workers=1, **keep))


if __name__ == "__main__":
    main()
