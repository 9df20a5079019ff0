"""A training script for several processes; the comment says what the doctor finds with two ranks."""

import os

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Samples(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((4,), float(index))


class Stream(IterableDataset):
    def __init__(self, first, step):
        self.first, self.step = first, step

    def __iter__(self):
        yield from (torch.full((4,), float(number)) for number in range(self.first, 64, self.step))


def train(loader, sampler=None):
    for epoch in range(2):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for _ in loader:
            pass


if __name__ == "__main__":
    part, same = (DistributedSampler(Samples(), WORLD, RANK) for _ in range(2))
    # finds:
    train(DataLoader(Samples(), 4, sampler=part), part)
    # finds: order-repeated
    train(DataLoader(Samples(), 4, sampler=same))
    # finds: ranks-duplicated
    train(DataLoader(Samples(), 4, shuffle=True))
    # finds: iterable-duplicated-ranks
    train(DataLoader(Stream(0, 1), 4))
    # finds:
    train(DataLoader(Stream(RANK, WORLD), 4))
