"""A training script that is well, with arguments, a validation and a checkpoint of its own."""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Crop(torch.nn.Module):
    def forward(self, image):
        top, left = torch.randint(4, (2,)).tolist()
        return image[:, top : top + 8, left : left + 8]


def mirrored(image):
    return image.flip(2) if torch.rand(()) < 0.5 else image


class Photos(Dataset):
    def __init__(self, transform=None):
        self.names = [f"photos/{number}.jpg" for number in range(512)]
        self.labels = np.arange(512) % 10
        self.transform = transform

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        image = torch.full((3, 12, 12), float(index))
        return self.transform(image) if self.transform else image, int(self.labels[index])


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        yield from (torch.rand(3, 8, 8) for _ in range(info.id, 256, info.num_workers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--lr", type=float, required=True)
    args = parser.parse_args()
    model = torch.nn.Linear(192, 10)
    augment = Compose(Crop(), mirrored)
    photos = Photos(augment)
    train = DataLoader(Subset(photos, range(256)), 8, shuffle=True, num_workers=1, persistent_workers=True)
    more = DataLoader(Stream(), 8, num_workers=1, persistent_workers=True)
    validation = DataLoader(Photos(Crop()), 16)
    for epoch in range(9):
        for images, _ in train:
            model(images.flatten(1)).sum().backward()
            time.sleep(0.02)
        for _ in more:
            time.sleep(0.02)
        with torch.no_grad():
            for images, _ in validation:
                model(images.flatten(1))
        torch.save(model.state_dict(), args.checkpoint)
        print("epoch", epoch, flush=True)
