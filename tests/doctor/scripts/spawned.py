"""Workers started by spawn, anew for each of many short epochs; the comment says what the doctor finds."""

import multiprocessing

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Arrays(Dataset):
    def __init__(self, rows):
        self.table = np.zeros((rows, 1 << 20), np.uint8)
        self.generator = np.random.default_rng(7)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((4,), int(self.table[0, index])), self.generator.normal()


if __name__ == "__main__":
    lock = multiprocessing.get_context("spawn").Lock()  # of which nobody shall say that it was forgotten
    # finds: workers-restarted copies-of-the-dataset randomness-repeated-epochs
    loader = DataLoader(Arrays(80), 8, num_workers=1, multiprocessing_context="spawn")
    for _ in range(3):
        for _ in loader:
            pass
