"""Every native transform keeps its contract for pixels, on images of every kind and odd size.

A contract names the transform, and what makes the same of a Pillow image: Pillow, torchvision or timm. A transform that
chooses has several right results. The tables of files and sizes are the same for all. Where random numbers matter, the
tests of each transform compare them one by one: ``tests/transform/``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

import standpipe as sp
from draws import Sample, crop_box, crop_filter
from jpegs import kinds, photo, saved
from letter_boxes import letter_boxed
from model.pictures import FILTERS, centred, resized
from reference import SAMPLE, decoded, delivered, in_order, listed, needs_sample
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform.image import ImageTransform

pytest.importorskip("torch")
from mixed import mixed
from torchvision_cpu import torchvision
from uncompiled import without_the_compiler

with without_the_compiler():  # timm would import it
    timm = pytest.importorskip("timm.data.auto_augment")

v1, v2 = torchvision.transforms, torchvision.transforms.v2
F = v2.functional
Picture = Image.Image
Results = Iterable[AnyArray]
NEAREST, BILINEAR = v2.InterpolationMode.NEAREST, v2.InterpolationMode.BILINEAR
WINDOW = (20, 17)
FILL = (9, 80, 200)
SIZES = ((1, 1), (1, 9), (11, 1), (2, 2), (7, 5), (23, 37))


@dataclass(frozen=True)
class Contract:
    """What a transform makes of an image.

    results  the right results, of an image and the sample that random numbers belong to
    fixed    the transform needs images of one size, or comes after all crops
    least    smallest side in pixels
    levels   largest difference to a right result
    part     fraction of pixels that may differ more
    every    a peer that is slow gets each so many-th file only
    """

    transform: Any
    results: Callable[[Picture, Sample], Results]
    fixed: bool = False
    least: int = 1
    levels: float = 0.0
    part: float = 0.0
    every: int = 1

    def __str__(self) -> str:
        return repr(self.transform)


def one(change: Callable[[Picture], Any]) -> Callable[[Picture, Sample], Results]:
    return lambda image, _: [np.asarray(change(image))]


def filled(image: Picture, sides: tuple[int, int, int, int], mode: str) -> Picture:
    return F.pad(image, list(sides), list(FILL) if mode == "constant" else None, mode)


def randomly_cropped(image: Picture, sample: Sample) -> Results:
    """torchvision's rule: padding, then a uniform place."""
    padded = filled(image, (13, 13, 13, 13), "edge")
    draws = sample.draws(sp.RandomCrop.draw_kind << 16)
    top, left = draws.below(padded.height - 14 + 1), draws.below(padded.width - 15 + 1)
    return [np.asarray(padded.crop((left, top, left + 15, top + 14)))]


def zoomed_out(image: Picture, sample: Sample) -> Results:
    """torchvision's own code, with standpipe's random numbers."""
    draws, peer = sample.draws(sp.RandomZoomOut.draw_kind << 16), v2.RandomZoomOut(FILL)
    if draws.uniform() >= 0.7:
        return [np.asarray(image)]
    times = draws.uniform(1.5, 3.5)
    across, down = (int(side * times) - side for side in image.size)
    left, top = int(across * draws.uniform()), int(down * draws.uniform())
    padding = [left, top, across - left, down - top]
    return [np.asarray(peer.transform(image, {"padding": padding}))]


def by_factor(image: Picture, factor: float) -> Results:
    size = max(int(image.height * factor), 1), max(int(image.width * factor), 1)
    return [np.asarray(v2.ScaleJitter((1, 1)).transform(image, {"size": size}))]


def jittered(image: Picture, sample: Sample) -> Results:
    scale = sample.draws(sp.ScaleJitter.draw_kind << 16).uniform(0.1, 2.0)
    return by_factor(image, min(30 / image.height, 20 / image.width) * scale)


def of_a_length(image: Picture, sample: Sample) -> Results:
    length = (9, 13)[sample.draws(sp.RandomShortestSize.draw_kind << 16).below(2)]
    return by_factor(image, min(length / min(image.size), 30 / max(image.size)))


def cut_to_size(image: Picture, sample: Sample) -> Results:
    """The rule of torchvision's references: one random number for both places, and padding behind."""
    share = sample.draws(sp.FixedSizeCrop.draw_kind << 16).uniform()
    top, left = (
        int(max(side - wanted, 0) * share) for side, wanted in ((image.height, 14), (image.width, 15))
    )
    part = F.crop(image, top, left, min(image.height, 14), min(image.width, 15))
    return [np.asarray(filled(part, (0, 0, 15 - part.width, 14 - part.height), "constant"))]


def cut_as_detr(image: Picture, sample: Sample) -> Results:
    """DETR's rule: a width and a height, each from the least to the picture's own, and then the place."""
    draws = sample.draws(sp.RandomSizeCrop.draw_kind << 16)
    ranges = [(min(8, side), min(side, 30)) for side in image.size]
    width, height = (least + draws.below(most - least + 1) for least, most in ranges)
    top, left = draws.below(image.height - height + 1), draws.below(image.width - width + 1)
    return [np.asarray(F.crop(image, top, left, height, width))]


def distorted(image: Picture, sample: Sample) -> Results:
    """torchvision's own code, with standpipe's random numbers."""
    draws, peer = sample.draws(sp.RandomPhotometricDistort.draw_kind << 16), v2.RandomPhotometricDistort()
    draws.uniform()
    first = draws.uniform() < 0.5
    names = ["brightness", "contrast", "saturation", "hue"]
    order = names if first else [names[0], *names[2:], names[1]]
    drawn = {
        f"{name}_factor": draws.uniform(*getattr(peer, name)) if draws.uniform() < 0.5 else None
        for name in order
    }
    permutation = None
    if draws.uniform() < 0.5:
        permutation = [0, 1, 2]
        for place in (0, 1):
            other = place + draws.below(3 - place)
            permutation[place], permutation[other] = permutation[other], permutation[place]
    drawn |= {"contrast_before": first, "channel_permutation": permutation}
    return [np.asarray(peer.transform(image, drawn))]


def boxed(crop: sp.RandomResizedCrop) -> Callable[[Picture, Sample], Results]:
    def results(image: Picture, sample: Sample) -> Results:
        box = crop_box(crop, image.size, sample.draws(sp.RandomResizedCrop.draw_kind << 16))
        height, width = crop.output_px
        resample = FILTERS[crop_filter(crop, sample)]
        return [np.asarray(image.crop(box).resize((width, height), resample))]

    return results


def policy(
    transform: Any, operations: Callable[[Any, Picture], list[list[tuple[str, float]]]], peer: Any
) -> Any:
    """All pictures that a policy of torchvision can make."""

    def results(image: Picture, _: Sample) -> Results:
        for steps in operations(peer, image):
            made = image
            for step in steps:
                made = peer._apply_image_or_video_transform(made, *step, NEAREST, {Image.Image: FILL})
            yield np.asarray(made)

    return Contract(transform, results, fixed=True, every=4)


def mixed_by_torchvision(image: Picture, sample: Sample) -> Results:
    return [mixed(MIXED, image, sample.draws(sp.AugMix.draw_kind << 16))]


def with_signs(
    peer: Any, image: Picture, name: str, levels: slice | int | None, bins: int
) -> list[tuple[str, float]]:
    found, signed = peer._AUGMENTATION_SPACE[name]
    magnitudes = found(bins, image.height, image.width)
    if magnitudes is None or magnitudes.ndim == 0 or levels is None:
        return [(name, 0.0)]
    chosen = np.atleast_1d(magnitudes.numpy()[levels]).tolist()
    return [(name, sign * each) for each in chosen for sign in ((-1, 1) if signed else (1,))]


def of_rand_augment(peer: Any, image: Picture) -> list[list[tuple[str, float]]]:
    names = peer._AUGMENTATION_SPACE
    return [[step] for name in names for step in with_signs(peer, image, name, 20, 31)]


def of_trivial_augment(peer: Any, image: Picture) -> list[list[tuple[str, float]]]:
    names = peer._AUGMENTATION_SPACE
    return [[step] for name in names for step in with_signs(peer, image, name, slice(None), 3)]


def of_auto_augment(peer: Any, image: Picture) -> list[list[tuple[str, float]]]:
    made: set[tuple[tuple[str, float], ...]] = set()
    for pair in peer._policies:
        steps = [
            ([()] if p < 1 else []) + [(step,) for step in with_signs(peer, image, name, number, 10)]
            for name, p, number in pair
        ]
        made |= {first + second for first, second in itertools.product(*steps)}
    return [list(each) for each in made]


def three(image: Picture, sample: Sample) -> Results:
    draws = sample.draws(sp.ThreeAugment.draw_kind << 16)
    draws.uniform()
    chosen = min(int(draws.uniform() * 3), 2)
    draws.uniform()
    if chosen == 2:
        return [np.asarray(image.filter(ImageFilter.GaussianBlur(draws.uniform(0.1, 2.0))))]
    return [np.asarray(image.convert("L").convert("RGB") if chosen == 0 else ImageOps.solarize(image, 128))]


def inclined(image: Picture) -> Picture:
    return F.affine(image, 20.0, [0, 0], 1.3, [5.0, 0.0], BILINEAR, list(FILL))


def corners(image: Picture, sample: Sample) -> Results:
    """The perspective of corners that move by no pixel: what a distortion of 0 leaves."""
    return [np.asarray(image)]


def erased(image: Picture, sample: Sample) -> Results:
    """A rectangle that is smaller than the image in both directions, anywhere."""
    plain = np.asarray(image)
    height, width = plain.shape[:2]
    side_h, side_w = round((0.2 * height * width) ** 0.5), round((0.2 * height * width) ** 0.5)
    if side_h >= height or side_w >= width:
        return [plain]
    made = []
    for top in range(height - side_h + 1):
        for left in range(width - side_w + 1):
            made.append(plain.copy())
            made[-1][top : top + side_h, left : left + side_w] = 7
    return made


def normalized(image: Picture) -> AnyArray:
    steps = v1.Compose([v1.ToTensor(), v1.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    return steps(image).numpy()


def blurred(image: Picture) -> Picture:
    return F.gaussian_blur(image, [3, 3], [1.3, 1.3])


def there_and_back(image: Picture) -> UInt8Array:
    """Convert an image to OpenCV's 8-bit HSV and back, which changes levels by a few."""
    return np.asarray(
        cv2.cvtColor(cv2.cvtColor(np.asarray(image), cv2.COLOR_RGB2HSV), cv2.COLOR_HSV2RGB), np.uint8
    )


def turned(image: Picture, by: float) -> Picture:
    return F.rotate(image, by, BILINEAR, False, None, list(FILL))


CROPPED = sp.RandomResizedCrop((9, 14), scale=(0.1, 1.0), interpolation="bicubic")
RANDOMLY_CROPPED = sp.RandomResizedCrop((9, 14), scale=(0.1, 1.0), interpolation="random")
RESIZED = sp.Resize(13, interpolation="lanczos")
JITTERS = {
    "brightness": (1.6, ImageEnhance.Brightness),
    "contrast": (0.4, ImageEnhance.Contrast),
    "saturation": (1.9, ImageEnhance.Color),
}
MIXED = sp.AugMix(fill=FILL)
GROUP = [sp.RandomInvert(1), sp.RandomEqualize(1)]
MODES = ("constant", "edge", "symmetric")

CONTRACTS = [
    Contract(CROPPED, boxed(CROPPED)),
    Contract(RANDOMLY_CROPPED, boxed(RANDOMLY_CROPPED)),
    Contract(RESIZED, one(lambda image: image.resize(resized(RESIZED, image.size), FILTERS["lanczos"]))),
    Contract(sp.Resize((9, 30)), one(lambda image: image.resize((30, 9), FILTERS["bilinear"]))),
    Contract(
        sp.RandomResize(13, 14),
        one(lambda image: image.resize(resized(sp.Resize(13), image.size), FILTERS["bilinear"])),
    ),
    Contract(sp.RandomZoomOut(FILL, (1.5, 3.5), 0.7), zoomed_out),
    Contract(sp.ScaleJitter((20, 30)), jittered),
    Contract(sp.RandomShortestSize((9, 13), 30), of_a_length),
    Contract(sp.FixedSizeCrop((14, 15), FILL), cut_to_size),
    Contract(
        sp.LetterBox((14, 15), FILL), one(lambda image: letter_boxed(np.asarray(image), (14, 15), FILL))
    ),
    Contract(sp.RandomSizeCrop(8, 30), cut_as_detr),
    Contract(sp.RandomPhotometricDistort(), distorted),
    Contract(sp.CenterCrop((8, 25)), one(lambda image: centred(np.asarray(image), 8, 25))),
    Contract(sp.RandomCrop((14, 15), padding=13, padding_mode="edge"), randomly_cropped),
    *(
        Contract(
            sp.PadImage((1, 4, 2, 3), FILL, mode),
            one(lambda image, mode=mode: filled(image, (1, 4, 2, 3), mode)),
        )
        for mode in MODES
    ),
    Contract(sp.RandomHorizontalFlip(1), one(ImageOps.mirror)),
    Contract(sp.RandomVerticalFlip(1), one(ImageOps.flip)),
    Contract(sp.RandomInvert(1), one(ImageOps.invert)),
    Contract(sp.RandomPosterize(3, 1), one(lambda image: ImageOps.posterize(image, 3))),
    Contract(sp.RandomSolarize(100, 1), one(lambda image: ImageOps.solarize(image, 100))),
    Contract(sp.RandomAutocontrast(1), one(ImageOps.autocontrast)),
    Contract(sp.RandomEqualize(1), one(ImageOps.equalize)),
    Contract(sp.RandomGrayscale(1), one(lambda image: image.convert("L").convert("RGB"))),
    Contract(sp.Grayscale(), one(lambda image: np.asarray(image.convert("L"))[..., None])),
    Contract(sp.RandomAdjustSharpness(3, 1), one(lambda image: ImageEnhance.Sharpness(image).enhance(3))),
    *(
        Contract(
            sp.ColorJitter(**{name: (factor, factor)}),
            one(lambda image, kind=kind, factor=factor: kind(image).enhance(factor)),
        )
        for name, (factor, kind) in JITTERS.items()
    ),
    Contract(sp.ColorJitter(hue=(0.2, 0.2)), one(lambda image: F.adjust_hue(image, 0.2))),
    Contract(sp.RandomHSV(0, 0, 0), one(there_and_back), levels=1),
    Contract(sp.GaussianBlur(3, 1.3), one(blurred), fixed=True, least=2, levels=1, every=4),
    Contract(sp.PillowGaussianBlur(1.3), one(lambda image: image.filter(ImageFilter.GaussianBlur(1.3)))),
    Contract(sp.RandomRotation((33, 33), "bilinear", fill=FILL), one(lambda image: turned(image, 33))),
    Contract(
        sp.RandomAffine((20, 20), None, (1.3, 1.3), (5, 5), "bilinear", FILL), one(inclined), part=0.001
    ),
    Contract(sp.RandomPerspective(0, 1.0), corners, levels=1),
    Contract(sp.RandomApply(GROUP, p=1), one(lambda image: ImageOps.equalize(ImageOps.invert(image)))),
    Contract(
        sp.RandomChoice(GROUP),
        lambda image, _: [np.asarray(change(image)) for change in (ImageOps.invert, ImageOps.equalize)],
    ),
    Contract(
        sp.RandomOrder(GROUP),
        lambda image, _: [
            np.asarray(ImageOps.equalize(ImageOps.invert(image))),
            np.asarray(ImageOps.invert(ImageOps.equalize(image))),
        ],
    ),
    policy(sp.RandAugment(1, 20, fill=FILL), of_rand_augment, v2.RandAugment()),
    policy(sp.TrivialAugmentWide(3, fill=FILL), of_trivial_augment, v2.TrivialAugmentWide()),
    policy(sp.AutoAugment("svhn", fill=FILL), of_auto_augment, v2.AutoAugment(v2.AutoAugmentPolicy.SVHN)),
    Contract(MIXED, mixed_by_torchvision, fixed=True, every=4),
    Contract(
        sp.TimmRandAugment(1, 8, 0.0, p=1.0, operations=["PosterizeOriginal", "SolarizeAdd", "Desaturate"]),
        lambda image, _: [
            np.asarray(timm.NAME_TO_OP[name](image, *timm.LEVEL_TO_ARG[name](8, {})))
            for name in ("PosterizeOriginal", "SolarizeAdd", "Desaturate")
        ],
    ),
    Contract(sp.ThreeAugment(), three),
    Contract(sp.RandomErasing(1.0, (0.2, 0.2), (1, 1), value=7), erased, True),
    Contract(sp.Normalize(), one(normalized), True),
    Contract(sp.ToDtype("float32", scale=True), one(lambda image: v1.ToTensor()(image).numpy()), True),
    Contract(sp.ToLayout("NCHW"), one(lambda image: np.moveaxis(np.asarray(image), -1, 0)), True),
]
ELSEWHERE = {
    sp.Mosaic: "tests/engine/test_composing.py",
    sp.CopyPaste: "tests/engine/test_pasting.py",
    sp.CutMixInstances: "tests/engine/test_pasting.py",
    sp.MixUpInstances: "tests/engine/test_composing.py",
    sp.Views: "tests/transform/test_views.py compares each view with a pipeline of its own",
    sp.ClampBoundingBoxes: "it leaves pixels as they are",
    sp.SanitizeBoundingBoxes: "it leaves pixels as they are, and tests/transform/test_boxes.py has its boxes",
    sp.RandomIoUCrop: "tests/transform/test_iou_crop.py compares it with torchvision's code, boxes included",
}


def test_every_public_transform_has_a_contract() -> None:
    public = (getattr(sp, name) for name in sp.__all__)
    native = {each for each in public if isinstance(each, type) and issubclass(each, ImageTransform)}
    assert {type(each.transform) for each in CONTRACTS} | set(ELSEWHERE) == native


def png(pixels: UInt8Array, mode: str, **options: Any) -> bytes:
    return saved(pixels, "PNG", mode, **options)


@functools.cache
def files() -> dict[str, bytes]:
    """One file of each kind, of each size."""
    made = {}
    for height, width in SIZES:
        jpegs, rgb = kinds(height, width), photo(height, width)
        chosen = ("4:2:0", "4:2:0 progressive", "grey", "CMYK", "YCCK 4:2:0", "CMYK by hand", "EXIF rotated")
        for name, data in {
            **{f"JPEG {kind}": jpegs[kind] for kind in chosen},
            **{f"PNG {mode}": png(rgb, mode) for mode in ("RGB", "L", "1", "P", "RGBA", "LA")},
            "PNG P, transparent": png(rgb, "P", transparency=3),
            "GIF": saved(rgb, "GIF"),
            "WEBP": saved(rgb, "WEBP", lossless=True),
            "TIFF CMYK": saved(rgb, "TIFF", "CMYK"),
        }.items():
            made[f"{name}, {width} × {height}"] = data
    return made


def wrong(contract: Contract, row: AnyArray, image: Picture, position: int, after: bool) -> str:
    """Why a row isn't a right result; nothing if it is. ``after``: the window was cut after the transform."""
    fault = "there is no result"
    for each in contract.results(image, Sample(0, 0, position)):
        wanted = centred(each, *WINDOW) if after else each
        if wanted.shape != row.shape:
            return f"shape {row.shape}, not {wanted.shape}"
        away = np.abs(row.astype(float) - wanted)
        part = (away > contract.levels).mean()
        if part <= contract.part:
            return ""
        fault = f"{part:.1%} of values differ, by up to {away.max():g}"
    return fault


def check(contract: Contract, source: Any, images: Mapping[str, Picture], crop: bool) -> None:
    """Compare a row for each image. ``crop``: a window gives all of them one size."""
    window = [sp.CenterCrop(WINDOW)] if crop else []
    steps = [*window, contract.transform] if contract.fixed else [contract.transform, *window]
    rows = delivered(in_order(source, *steps))
    found = []
    for position, (row, (name, image)) in enumerate(zip(rows, images.items(), strict=True)):
        before = Image.fromarray(centred(np.asarray(image), *WINDOW)) if crop and contract.fixed else image
        if fault := wrong(contract, row, before, position, crop and not contract.fixed):
            found.append(f"{name}: {fault}")
    assert not found, "\n".join([f"{len(found)} of {len(rows)} images", *found[:10]])


def check_files(contract: Contract, chosen: Mapping[str, bytes], folder: Path) -> None:
    chosen = dict(itertools.islice(chosen.items(), 0, None, contract.every))
    images = {name: decoded(data) for name, data in chosen.items()}
    check(contract, listed(folder, list(chosen.values())), images, crop=True)


@pytest.mark.parametrize("contract", CONTRACTS, ids=str)
def test_files_of_every_kind_and_size(contract: Contract, tmp_path: Path) -> None:
    check_files(contract, files(), tmp_path)


@pytest.mark.parametrize("contract", [each for each in CONTRACTS if each.fixed], ids=str)
def test_odd_sizes_of_images_of_one_size(contract: Contract) -> None:
    """These get cropped files in the test before."""
    for height, width in SIZES[:-1]:
        if min(height, width) >= contract.least:
            pixels = np.stack([photo(height, width, seed=seed) for seed in range(12)])
            images = {f"{width} × {height}, {n}": Image.fromarray(each) for n, each in enumerate(pixels)}
            check(contract, sp.Arrays(image=pixels), images, crop=False)


@needs_sample
@pytest.mark.parametrize("contract", CONTRACTS, ids=str)
def test_real_photos(contract: Contract, tmp_path: Path) -> None:
    """Six photos of usual size, and the first grey one and the first that isn't RGB otherwise, if there are any."""
    check_files(contract, real_photos(), tmp_path)


@functools.cache
def real_photos() -> dict[str, bytes]:
    modes: dict[str, list[Path]] = {}
    for path in sorted(SAMPLE.glob("*/*")):
        with Image.open(path) as image:
            if image.width * image.height < 250_000:
                modes.setdefault(image.mode, []).append(path)
    paths = [path for mode, found in modes.items() for path in (found[::60] if mode == "RGB" else found[:1])]
    return {path.name: path.read_bytes() for path in paths[:8]}
