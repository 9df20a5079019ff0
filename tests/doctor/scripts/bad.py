"""Samples that end a run, or that never come: the first argument says which."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset, Subset


class Photos(Dataset):
    def __init__(self, kind):
        self.kind = kind
        self.samples = [(f"photos/{number}.jpg", number % 10) for number in range(64)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        if index == 13 and self.kind == "broken":
            raise OSError("image file is truncated (7 bytes not processed)")
        if index == 13 and self.kind == "grey":
            return torch.zeros(1, 8, 8), index
        if index == 13 and self.kind == "hangs":
            torch.multiprocessing.Event().wait()
        return torch.zeros(3, 8, 8), index


if __name__ == "__main__":
    print("it begins", flush=True)
    photos = Photos(sys.argv[1])
    if sys.argv[1] == "broken":
        photos = Subset(photos, range(3, 64))  # makes all samples of a batch at once
    for _ in DataLoader(photos, batch_size=8, num_workers=1):
        pass
