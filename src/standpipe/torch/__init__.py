"""standpipe for PyTorch: loaders that deliver tensors, and that torch's frameworks accept as a ``DataLoader``.

::

    import standpipe as sp
    import standpipe.torch

    train = sp.Pipeline(sp.ImageFolder("photos")).shuffle(seed=7).map(…).batch(256)
    for images, labels in standpipe.torch.loader(train, memory="2GiB"):
        step(images, labels)

    for images, labels in standpipe.torch.DataLoader(dataset, batch_size=256, shuffle=True, num_workers=4):
        step(images, labels)
"""

from standpipe.torch.batches import BatchDataset
from standpipe.torch.dataloader import DataLoader
from standpipe.torch.folders import image_folder_loaders
from standpipe.torch.loader import TorchLoader, loader

__all__ = ["BatchDataset", "DataLoader", "TorchLoader", "image_folder_loaders", "loader"]


def __dir__() -> list[str]:
    """Return the public names, without the modules that define them."""
    return __all__
