"""Published compositions of torchvision.

The list has the compositions of torchvision's references (classification, segmentation, similarity), of its gallery,
documentation and tutorials, and of SimCLR, BYOL, MoCo, DINO, SwAV and MAE. Each has the parts and arguments of its
source, in words of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from PIL import ImageFilter, ImageOps

import standpipe as sp
from torchvision_cpu import torchvision

import timm.data  # isort: skip  # it imports torchvision

V1, V2 = torchvision.transforms, torchvision.transforms.v2
VERSIONS = {"v1": V1, "v2": V2}
BILINEAR, BICUBIC = V1.InterpolationMode.BILINEAR, V1.InterpolationMode.BICUBIC
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET = [V1.ToTensor(), V1.Normalize(MEAN, STD)]
MASK = torchvision.tv_tensors.Mask
POLICIES: dict[str, Callable[[Any], list[Any]]] = {
    "no policy": lambda v: [],
    "ra": lambda v: [v.RandAugment(interpolation=BILINEAR, magnitude=9)],
    "ta_wide": lambda v: [v.TrivialAugmentWide(interpolation=BILINEAR)],
    "augmix": lambda v: [v.AugMix(interpolation=BILINEAR, severity=3)],
    "imagenet": lambda v: [v.AutoAugment(V1.AutoAugmentPolicy.IMAGENET, interpolation=BILINEAR)],
}


# Classes that recipes define themselves: each calls Pillow.
class GaussianBlur:
    """MoCo's and DINO's blur, with a probability."""

    def __init__(self, low: float, high: float, p: float = 1.0) -> None:
        self.radius, self.p = (low, high), p

    def __call__(self, image: Any) -> Any:
        generator = np.random.default_rng()
        if generator.random() > self.p:
            return image
        return image.filter(ImageFilter.GaussianBlur(generator.uniform(*self.radius)))


class PILRandomGaussianBlur(GaussianBlur):
    """SwAV's."""


class Solarization:
    """DINO's, and MoCo v3's Solarize."""

    def __init__(self, p: float) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        return ImageOps.solarize(image) if np.random.default_rng().random() < self.p else image


class RandomResizedCrop(V1.RandomResizedCrop):  # type: ignore[misc]
    """MAE's, which chooses the crop without retries."""


class PadIfSmaller(V2.Transform):  # type: ignore[misc, name-defined]
    """Pad the right and the bottom, as torchvision's segmentation references do."""


class Joint:
    """A transform of (image, target), as in the v1 segmentation references. Its classes have torchvision's names."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __call__(self, image: Any, target: Any) -> Any:
        return image, target


class Compose(Joint):
    """Theirs too."""


def joint(*names: str) -> Any:
    return Compose([type(name, (Joint,), {})() for name in names])


@dataclass(frozen=True)
class Row:
    """A composition of the list.

    source   where it is published
    made     its parts, or the object that has them
    refused  what the report or error says of the first part that stays Python; empty: all parts are native
    instead  the parts with the native form that this names; empty: there is none
    """

    source: str
    made: Any
    refused: str = ""
    instead: tuple[Any, ...] = ()

    def composed(self) -> Any:
        """The composition as a user has it."""
        if not isinstance(self.made, list):
            return self.made
        two = any(type(each).__module__.startswith("torchvision.transforms.v2") for each in self.made)
        return (V2 if two else V1).Compose(self.made)


def floats(v: Any) -> list[Any]:
    """The references' ending of classification."""
    return [*(
        [v.ToDtype(torch.float, scale=True)] if v is V2 else [v.ConvertImageDtype(torch.float)]
    ), v.Normalize(MEAN, STD)]  # fmt: skip


def pure(v: Any) -> list[Any]:
    return [V2.ToPureTensor()] if v is V2 else []


def classification() -> dict[str, Row]:
    rows = {}
    for (name, v), backend in product(VERSIONS.items(), ("pil", "tensor")):
        early, late = ([], [v.PILToTensor()]) if backend == "pil" else ([v.PILToTensor()], [])
        source = "vision/references/classification/presets.py"
        for policy, parts in POLICIES.items():
            crop = [
                v.RandomResizedCrop(224, interpolation=BILINEAR, antialias=True),
                v.RandomHorizontalFlip(0.5),
            ]
            made = [*early, *crop, *parts(v), *late, *floats(v), v.RandomErasing(0.1), *pure(v)]
            rows[f"training, {policy}, {name}, {backend}"] = Row(source, made)
        made = [
            *early,
            v.Resize(256, BILINEAR, antialias=True),
            v.CenterCrop(224),
            *late,
            *floats(v),
            *pure(v),
        ]
        rows[f"evaluation, {name}, {backend}"] = Row(source, made)
    return rows


def segmentation() -> dict[str, Row]:
    rows = {}
    padded = {MASK: 255, "others": 0}
    for backend in ("pil", "tensor", "tv_tensor"):
        source = "vision/references/segmentation/presets.py"
        early = {"pil": [], "tensor": [V2.PILToTensor()], "tv_tensor": [V2.ToImage()]}[backend]
        kind = torchvision.tv_tensors.Image if backend == "tv_tensor" else torch.Tensor
        dtype = {kind: torch.float32, MASK: torch.int64, "others": None}
        late = [*([V2.PILToTensor()] if backend == "pil" else [])]
        late += [V2.ToDtype(dtype, scale=True), V2.Normalize(MEAN, STD), V2.ToPureTensor()]
        first = [*early, V2.RandomResize(260, 1040), V2.RandomHorizontalFlip(0.5)]
        rows[f"segmentation, training, v2, {backend}"] = Row(
            source,
            [*first, PadIfSmaller(), V2.RandomCrop(480), *late],
            "PadIfSmaller: Python (it isn't a class of torchvision or timm: leave it out, and give RandomCrop "
            "pad_if_needed=True",
            (*first, V2.RandomCrop(480, pad_if_needed=True, fill=padded), *late),
        )
        rows[f"segmentation, evaluation, v2, {backend}"] = Row(source, [*early, V2.Resize((520, 520)), *late])
    ending = ("PILToTensor", "ToDtype", "Normalize")
    for name, parts, v2 in (
        ("training", ("RandomResize", "RandomHorizontalFlip", "RandomCrop"), "training"),
        ("evaluation", ("RandomResize",), "evaluation"),
    ):
        for backend in ("pil", "tensor"):
            other = rows[f"segmentation, {v2}, v2, {backend}"]
            rows[f"segmentation, {name}, v1, {backend}"] = Row(
                "vision/references/segmentation/presets.py",
                joint(*(parts + ending if backend == "pil" else ("PILToTensor", *parts, *ending[1:]))),
                "write the parts of your own Compose with torchvision's classes, or with standpipe's in map()",
                other.instead or tuple(other.made),
            )
    return rows


def gallery() -> dict[str, Row]:
    ending = [V2.ToDtype(torch.float32, scale=True), V2.Normalize(MEAN, STD)]
    crop = [V2.RandomResizedCrop((224, 224), antialias=True), V2.RandomHorizontalFlip(0.5)]
    rgb = V1.Lambda(lambda image: image.convert("RGB"))
    return {
        "similarity": Row(
            "vision/references/similarity/train.py", [rgb, V1.Resize((224, 224)), V1.ToTensor()]
        ),
        "recommended": Row(
            "vision/docs/source/transforms.rst, Performance considerations",
            [V2.ToImage(), V2.ToDtype(torch.uint8, scale=True), crop[0], *ending],
        ),
        "start here": Row("vision/docs/source/transforms.rst, Start here", [*crop, *ending]),
        "getting started": Row(
            "vision/gallery/transforms/plot_transforms_getting_started.py", [V2.ToImage(), *crop, *ending]
        ),
        "getting started, boxes": Row(
            "vision/gallery/transforms/plot_transforms_getting_started.py",
            [crop[0], V2.RandomPhotometricDistort(p=1), V2.RandomHorizontalFlip(p=1)],
        ),
        "CutMix and MixUp": Row(
            "vision/gallery/transforms/plot_cutmix_mixup.py", [V2.PILToTensor(), *crop, *ending]
        ),
        "end to end, boxes": Row(
            "vision/gallery/transforms/plot_transforms_e2e.py",
            [
                V2.ToImage(),
                V2.RandomPhotometricDistort(p=1),
                V2.RandomZoomOut(fill={torchvision.tv_tensors.Image: (123, 117, 104), "others": 0}),
                V2.RandomIoUCrop(),
                V2.RandomHorizontalFlip(p=1),
                V2.SanitizeBoundingBoxes(),
                V2.ToDtype(torch.float32, scale=True),
            ],
            "RandomZoomOut: Python (fill has several values for images)",
            (
                V2.ToImage(),
                V2.RandomPhotometricDistort(p=1),
                V2.RandomZoomOut(fill=(123, 117, 104)),
                V2.RandomIoUCrop(),
                V2.RandomHorizontalFlip(p=1),
                V2.SanitizeBoundingBoxes(),
                V2.ToDtype(torch.float32, scale=True),
            ),
        ),
        "scripted transforms": Row(
            "vision/gallery/others/plot_scripted_tensor_transforms.py, list(Sequential)",
            [V1.RandomCrop(224), V1.RandomHorizontalFlip(p=0.3)],
        ),
        "weights": Row(
            "vision/gallery/others/plot_scripted_tensor_transforms.py",
            torchvision.models.ResNet18_Weights.DEFAULT.transforms(),
        ),
    }


def tutorials() -> dict[str, Row]:
    half = V1.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    whole = [V1.Resize(256), V1.CenterCrop(224), *IMAGENET]
    return {
        "CIFAR-10": Row("tutorials/beginner_source/blitz/cifar10_tutorial.py", [V1.ToTensor(), half]),
        "transfer learning, training": Row(
            "tutorials/beginner_source/transfer_learning_tutorial.py",
            [V1.RandomResizedCrop(224), V1.RandomHorizontalFlip(), *IMAGENET],
        ),
        "transfer learning, evaluation": Row(
            "tutorials/beginner_source/transfer_learning_tutorial.py", whole
        ),
        "DCGAN": Row(
            "tutorials/beginner_source/dcgan_faces_tutorial.py",
            [V1.Resize(64), V1.CenterCrop(64), V1.ToTensor(), half],
        ),
        "neural style": Row(
            "tutorials/advanced_source/neural_style_tutorial.py", [V1.Resize(512), V1.ToTensor()]
        ),
        "DeiT": Row(
            "tutorials/beginner_source/vt_tutorial.py",
            [V1.Resize(256, interpolation=BICUBIC), V1.CenterCrop(224), *IMAGENET],
        ),
        "detection": Row(
            "tutorials/intermediate_source/torchvision_tutorial.py",
            [
                V2.ToImage(),
                V2.RandomHorizontalFlip(0.5),
                V2.ToDtype(torch.float, scale=True),
                V2.ToPureTensor(),
            ],
        ),
        "spatial transformer": Row(
            "tutorials/intermediate_source/spatial_transformer_tutorial.py",
            [V1.ToTensor(), V1.Normalize((0.1307,), (0.3081,))],
        ),
    }


def with_colours(v: Any, *strengths: float) -> list[Any]:
    return [v.RandomApply([v.ColorJitter(*strengths)], p=0.8), v.RandomGrayscale(p=0.2)]


OWN_BLUR = "it isn't a class of torchvision or timm: if it is Pillow's ImageFilter.GaussianBlur, write sp.P"
BLUR = f"GaussianBlur in it: {OWN_BLUR}"


def blurred(p: float) -> Any:
    return sp.RandomApply([sp.PillowGaussianBlur((0.1, 2.0))], p)


def contrastive() -> dict[str, Row]:
    """SimCLR, BYOL, MoCo."""
    flip = V1.RandomHorizontalFlip()
    strong, mild = with_colours(V1, 0.8, 0.8, 0.8, 0.2), with_colours(V1, 0.4, 0.4, 0.2, 0.1)
    moco = with_colours(V1, 0.4, 0.4, 0.4, 0.1)
    kernel = V1.GaussianBlur(23, (0.1, 2.0))  # a tenth of the image's side, as the papers have it
    third = V1.RandomResizedCrop(224, scale=(0.08, 1.0))
    fifth = V1.RandomResizedCrop(224, scale=(0.2, 1.0))
    own = GaussianBlur(0.1, 2.0)
    solarize = V1.RandomApply([Solarization(1.0)], p=0.2)
    training = [V1.RandomResizedCrop(224), flip, *IMAGENET]
    evaluation = [V1.Resize(256), V1.CenterCrop(224), *IMAGENET]
    second = [third, *mild, V1.RandomApply([own], p=0.1), solarize, flip, *IMAGENET]
    return {
        "SimCLR": Row(
            "simclr/tf2/data_util.py, in torchvision's words",
            [V1.RandomResizedCrop(224), flip, *strong, V1.RandomApply([kernel], p=0.5), V1.ToTensor()],
        ),
        "SimCLR, evaluation": Row(
            "simclr/tf2/data_util.py, in torchvision's words",
            [V1.Resize(256, BICUBIC), V1.CenterCrop(224), V1.ToTensor()],
        ),
        "BYOL, first view": Row(
            "deepmind-research/byol/utils/augmentations.py, in torchvision's words",
            [third, flip, *mild, kernel, *IMAGENET],
        ),
        "BYOL, second view": Row(
            "deepmind-research/byol/utils/augmentations.py, in torchvision's words",
            [third, flip, *mild, V1.RandomApply([kernel], p=0.1), V1.RandomSolarize(128, p=0.2), *IMAGENET],
        ),
        "BYOL, evaluation": Row(
            "deepmind-research/byol/utils/dataset.py, in torchvision's words",
            [V1.Resize(256, BICUBIC), V1.CenterCrop(224), *IMAGENET],
        ),
        "MoCo v1": Row(
            "moco/main_moco.py",
            [fifth, V1.RandomGrayscale(p=0.2), V1.ColorJitter(0.4, 0.4, 0.4, 0.4), flip, *IMAGENET],
        ),
        "MoCo v2": Row(
            "moco/main_moco.py, --aug-plus",
            [fifth, *moco, V1.RandomApply([own], p=0.5), flip, *IMAGENET],
            f"RandomApply: Python ({BLUR}",
            (fifth, *moco, blurred(0.5), flip, *IMAGENET),
        ),
        "MoCo, linear training": Row("moco/main_lincls.py", training),
        "MoCo, linear evaluation": Row("moco/main_lincls.py", evaluation),
        "MoCo v3, first view": Row(
            "moco-v3/main_moco.py",
            [third, *mild, V1.RandomApply([own], p=1.0), flip, *IMAGENET],
            f"RandomApply: Python ({BLUR}",
            (third, *mild, V1.RandomApply([sp.PillowGaussianBlur((0.1, 2.0))], p=1.0), flip, *IMAGENET),
        ),
        "MoCo v3, second view": Row(
            "moco-v3/main_moco.py",
            second,
            f"RandomApply: Python ({BLUR}",
            (third, *mild, blurred(0.1), sp.RandomSolarize(128, 0.2), flip, *IMAGENET),
        ),
        "MoCo v3, linear training": Row("moco-v3/main_lincls.py", training),
        "MoCo v3, linear evaluation": Row("moco-v3/main_lincls.py", evaluation),
    }


def distilled() -> dict[str, Row]:
    """DINO, SwAV, MAE."""
    normal = V1.Compose(IMAGENET)
    colours = V1.Compose([V1.RandomHorizontalFlip(p=0.5), *with_colours(V1, 0.4, 0.4, 0.2, 0.1)])
    swav = [V1.ToTensor(), V1.Normalize(MEAN, (0.228, 0.224, 0.225))]
    rows = {}
    for name, size, scale, p in (
        ("first global", 224, (0.4, 1.0), 1.0),
        ("second global", 224, (0.4, 1.0), 0.1),
        ("local", 96, (0.05, 0.4), 0.5),
    ):
        crop = V1.RandomResizedCrop(size, scale=scale, interpolation=BICUBIC)
        late = [Solarization(0.2)] if name.startswith("second") else []
        there = [sp.RandomSolarize(128, 0.2)] if late else []
        rows[f"DINO, {name} crop"] = Row(
            "dino/main_dino.py",
            [crop, colours, GaussianBlur(0.1, 2.0, p), *late, normal],
            f"GaussianBlur: Python ({OWN_BLUR}",
            (crop, colours, blurred(p), *there, normal),
        )
    bicubic = [V1.Resize(256, interpolation=BICUBIC), V1.CenterCrop(224), *IMAGENET]
    rows |= {
        "DINO, linear evaluation": Row("dino/eval_linear.py", bicubic),
        "DINO, linear training": Row(
            "dino/eval_linear.py", [V1.RandomResizedCrop(224), V1.RandomHorizontalFlip(), *IMAGENET]
        ),
        "DINO, nearest neighbours": Row("dino/eval_knn.py", bicubic),
        "DINO, attention": Row("dino/visualize_attention.py", [V1.Resize((480, 480)), *IMAGENET]),
        "DINO, retrieval": Row("dino/eval_image_retrieval.py", IMAGENET),
        "DINO, copies": Row(
            "dino/eval_copy_detection.py", [V1.Resize((320, 320), interpolation=BICUBIC), *IMAGENET]
        ),
        "DINO, video": Row(
            "dino/video_generation.py, --resize", [V1.ToTensor(), V1.Resize(512), V1.Normalize(MEAN, STD)]
        ),
        "SwAV, linear training": Row(
            "swav/eval_linear.py", [V1.RandomResizedCrop(224), V1.RandomHorizontalFlip(), *swav]
        ),
        "SwAV, linear evaluation": Row("swav/eval_linear.py", [V1.Resize(256), V1.CenterCrop(224), *swav]),
    }
    for size, scale in ((224, (0.14, 1.0)), (96, (0.05, 0.14))):
        crop = [V1.RandomResizedCrop(size, scale=scale), V1.RandomHorizontalFlip(p=0.5)]
        distort = V1.Compose(with_colours(V1, 0.8, 0.8, 0.8, 0.2))
        rows[f"SwAV, crops of {size}"] = Row(
            "swav/src/multicropdataset.py",
            [*crop, V1.Compose([distort, PILRandomGaussianBlur(0.1, 2.0, 0.5)]), *swav],
            f"PILRandomGaussianBlur: Python ({OWN_BLUR}",
            (*crop, distort, blurred(0.5), *swav),
        )
    finetune = {"color_jitter": None, "auto_augment": "rand-m9-mstd0.5-inc1", "interpolation": "bicubic"}
    erase = {"re_prob": 0.25, "re_mode": "pixel", "re_count": 1}
    crop = V1.RandomResizedCrop(224, scale=(0.2, 1.0), interpolation=BICUBIC)
    rows |= {
        "MAE, pretraining": Row("mae/main_pretrain.py", [crop, V1.RandomHorizontalFlip(), *IMAGENET]),
        "MAE, fine-tuning": Row(
            "mae/util/datasets.py", timm.data.create_transform(224, is_training=True, **finetune, **erase)
        ),
        "MAE, evaluation": Row("mae/util/datasets.py", bicubic),
        "MAE, linear training": Row(
            "mae/main_linprobe.py",
            [RandomResizedCrop(224, interpolation=BICUBIC), V1.RandomHorizontalFlip(), *IMAGENET],
            "RandomResizedCrop: Python (it isn't a class of torchvision or timm: if torchvision's RandomResizedCrop "
            "does the same, write that",
            (V1.RandomResizedCrop(224, interpolation=BICUBIC), V1.RandomHorizontalFlip(), *IMAGENET),
        ),
        "MAE, linear evaluation": Row("mae/main_linprobe.py", bicubic),
    }
    return rows


LIST = {**classification(), **segmentation(), **gallery(), **tutorials(), **contrastive(), **distilled()}
