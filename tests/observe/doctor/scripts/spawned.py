"""Workers started by spawn, anew for each of many short epochs; the comment says what the doctor finds."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Arrays(Dataset):
    def __init__(self, rows):
        self.table = np.zeros((rows, 1 << 20), np.uint8)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((4,), int(self.table[0, index])), torch.rand(4)


if __name__ == "__main__":
    # finds: workers-restarted copies-of-the-dataset
    loader = DataLoader(Arrays(80), 8, num_workers=1, multiprocessing_context="spawn")
    for _ in range(3):
        for _ in loader:
            pass
