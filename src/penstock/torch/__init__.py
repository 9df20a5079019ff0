"""penstock for PyTorch: batches as tensors, from what torch's own training loops and frameworks take for a DataLoader.

::

    import penstock as ps
    import penstock.torch

    train = ps.Pipeline(ps.ImageFolder("photos")).shuffle(seed=7).map(…).batch(256)
    for images, labels in penstock.torch.loader(train, memory="2GiB"):
        step(images, labels)

    for images, labels in penstock.torch.DataLoader(dataset, batch_size=256, shuffle=True, num_workers=4):
        step(images, labels)
"""

from penstock.torch.batches import Batches
from penstock.torch.dataloader import DataLoader
from penstock.torch.folders import image_folder_loaders
from penstock.torch.loader import TorchLoader, loader

__all__ = ["Batches", "DataLoader", "TorchLoader", "image_folder_loaders", "loader"]
