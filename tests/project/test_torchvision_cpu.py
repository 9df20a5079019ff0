import torch

from torchvision_cpu import torchvision


def test_transforms_work_beside_any_build_of_torch() -> None:
    image = torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2)
    assert torch.equal(torchvision.transforms.v2.functional.hflip(image), image.flip(-1))
