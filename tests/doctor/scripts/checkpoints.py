"""A script with short epochs that saves a checkpoint after each and copies it, as pytorch/examples' imagenet does."""

# ruff: noqa: PTH105, PTH107, PTH110, PTH202 (scripts call these)

import os
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
        shutil.copy("checkpoint.pth.tar", "last")
        shutil.copy2(src="checkpoint.pth.tar", dst="kept")
        torch.save(obj={"epoch": epoch}, f="new.part")
        os.replace("new.part", "new.pt")
        assert torch.load(f="new.pt")["epoch"] == torch.load("last/checkpoint.pth.tar")["epoch"] == epoch
        assert os.path.getsize("new.pt") > 0
        os.remove("new.pt")
        assert not os.path.exists("new.pt")
        torch.save(epoch, f"{epoch}.pt")
        if epoch > 1:
            os.remove(f"{epoch - 2}.pt")
            assert torch.load(f"{epoch - 1}.pt") == epoch - 1
        print("epoch", epoch, flush=True)
