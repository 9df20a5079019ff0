"""A script with short epochs that saves a checkpoint after each and copies it, as pytorch/examples' imagenet does."""

import shutil

import torch
from torch.utils.data import DataLoader, TensorDataset


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


if __name__ == "__main__":
    train = DataLoader(TensorDataset(torch.arange(12.0)), 4, shuffle=True)
    for epoch in range(40):
        for (numbers,) in train:
            numbers.sum()
        save_checkpoint({"epoch": epoch}, is_best=True)
        assert torch.load("model_best.pth.tar")["epoch"] == epoch
        print("epoch", epoch, flush=True)
