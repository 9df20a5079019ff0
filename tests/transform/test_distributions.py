"""Random numbers of transforms are distributed as torchvision's and timm's, by tests of Kolmogorov and Smirnov.

100,000 results of the loader are compared with 10,000 parameters of the peer. Pixels show the parameter: ``read`` finds
a number in them that rises with it. Both sides have fixed seeds, so no test can fail by chance.
``tests/transform/test_choices.py`` counts what is chosen among a few.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from distributions import COUNT, check_alike, check_counts, transformed, values
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform.image import ImageTransform
from standpipe.transform.kernels.composed import composed_kernel
from standpipe.transform.kernels.fuse import fuse
from standpipe.transform.kernels.heads import Input
from standpipe.transform.python.mixing import beta, cut_box

pytest.importorskip("torch")
import torch

from torchvision_cpu import torchvision

timm = pytest.importorskip("timm.data")

v2, tv_tensors = torchvision.transforms.v2, torchvision.tv_tensors
PEERS = 10_000
CHOICES = "tests/transform/test_choices.py"
HERE = "this file"
# Every native transform that draws, and the file that compares its distribution with the peer's.
COMPARED: dict[type, str] = {
    sp.RandomResizedCrop: f"{HERE}; its random filter: test_random_filter.py",
    sp.RandomHorizontalFlip: CHOICES,
    sp.RandomAdjustSharpness: CHOICES,
    sp.RandomInvert: CHOICES,
    sp.RandomPosterize: CHOICES,
    sp.RandomSolarize: CHOICES,
    sp.RandomAutocontrast: CHOICES,
    sp.RandomEqualize: CHOICES,
    sp.RandomGrayscale: CHOICES,
    sp.ColorJitter: f"{HERE}; its order: {CHOICES}",
    sp.RandomHSV: "test_opencv_pixels.py, bit for bit",
    sp.GaussianBlur: HERE,
    sp.PillowGaussianBlur: "test_pillow_blur.py, bit for bit",
    sp.RandomVerticalFlip: CHOICES,
    sp.RandomApply: CHOICES,
    sp.RandomChoice: CHOICES,
    sp.RandomOrder: CHOICES,
    sp.RandAugment: CHOICES,
    sp.TrivialAugmentWide: CHOICES,
    sp.AutoAugment: CHOICES,
    sp.RandomCrop: CHOICES,
    sp.TimmRandAugment: f"{CHOICES}; its magnitudes: test_timm_augment.py",
    sp.ThreeAugment: HERE,
    sp.RandomErasing: f"{HERE}; its values: test_erasing.py",
    sp.RandomResize: CHOICES,
    sp.RandomShortestSize: CHOICES,
    sp.RandomZoomOut: HERE,
    sp.ScaleJitter: HERE,
    sp.FixedSizeCrop: HERE,
    sp.RandomSizeCrop: HERE,
    sp.RandomIoUCrop: HERE,
    sp.RandomPhotometricDistort: f"{HERE}; what it applies: {CHOICES}",
    sp.RandomRotation: HERE,
    sp.RandomAffine: f"{HERE}; its translations: {CHOICES}",
    sp.RandomPerspective: CHOICES,
    sp.AugMix: f"{HERE}; what it chooses: {CHOICES}",
    sp.Mosaic: HERE,
    sp.MixUpInstances: "its weights are those of AugMix, of two pictures",
    sp.CutMixInstances: f"its rectangles are those of CutMix: {HERE}; which of them: tests/engine/test_pasting.py",
    sp.CopyPaste: "tests/engine/test_pasting.py",
}


def test_no_random_transform_is_forgotten() -> None:
    public = (getattr(sp, name) for name in sp.__all__)
    native = {each for each in public if isinstance(each, type) and issubclass(each, ImageTransform)}
    assert {each for each in native if each.draw_kind} == set(COMPARED)


def parameters(peer: Any, inputs: Any, count: int = PEERS) -> list[dict[str, Any]]:
    """What a transform of torchvision draws, again and again."""
    torch.manual_seed(11)
    return [peer.make_params([inputs]) for _ in range(count)]


def places(height: int, width: int) -> UInt8Array:
    """Red is a pixel's row and green its column, both from 1 on: black is outside."""
    picture = np.ones((height, width, 3), np.uint8)
    picture[..., 0], picture[..., 1] = np.mgrid[1 : height + 1, 1 : width + 1]
    return picture


HEIGHT, WIDTH = 48, 64
SIDE = WIDTH // 2 + 1  # so many outputs have the first and the last in the box's first and last pixel


@pytest.mark.parametrize(
    ("scale", "ratio"), [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.02, 0.3), (0.3, 3.0))], ids=["usual", "wide"]
)
def test_boxes_are_torchvisions(scale: Any, ratio: Any) -> None:
    crop = sp.RandomResizedCrop(SIDE, scale, ratio, "nearest")
    found = [batch[:, [0, -1], [0, -1], :2] for batch in transformed(places(HEIGHT, WIDTH), crop)]
    first, last = np.moveaxis(np.concatenate(found).astype(int), 1, 0)
    boxes = np.column_stack([first - 1, last - first + 1])  # top, left, height, width
    drawn = parameters(v2.RandomResizedCrop(1, scale, ratio), Image.new("1", (WIDTH, HEIGHT)))
    theirs = np.array([[each[name] for name in ("top", "left", "height", "width")] for each in drawn])
    assert boxes[:, 2:].min() > 0
    assert (boxes[:, :2] + boxes[:, 2:] <= (HEIGHT, WIDTH)).all()
    for read in (
        lambda box: box[:, 2] * box[:, 3],
        lambda box: box[:, 3] / box[:, 2],
        lambda box: box[:, 0] / (HEIGHT - box[:, 2] + 1),
        lambda box: box[:, 1] / (WIDTH - box[:, 3] + 1),
    ):
        check_alike(read(boxes), read(theirs), levels=100)


def test_canvases_are_torchvisions() -> None:
    """The canvas' width and height, and the picture's place in it."""
    zoom, white = sp.RandomZoomOut(side_range=(1.0, 3.0), p=1), np.full((31, 39, 3), 255, np.uint8)
    window = sp.FixedSizeCrop((93, 117), fill=7)  # larger than every canvas, which is in its corner
    found = []
    for batch in transformed(white, zoom, window):
        edge = [(batch[:, 0, :, 0] != 7).sum(axis=1), (batch[:, :, 0, 0] != 7).sum(axis=1)]
        is_white = batch[..., 0] == 255
        left, top = is_white.any(axis=1).argmax(axis=1), is_white.any(axis=2).argmax(axis=1)
        found.append(np.column_stack([*edge, left, top]))
    ours = np.concatenate(found)
    image = Image.new("RGB", (39, 31))
    drawn = [each["padding"] for each in parameters(v2.RandomZoomOut(p=1, side_range=(1, 3)), image)]
    theirs = np.array([[39 + left + right, 31 + top + below, left, top] for left, top, right, below in drawn])
    for number in range(4):
        check_alike(ours[:, number], theirs[:, number], levels=60)


def test_scales_are_torchvisions() -> None:
    white = np.full((100, 120, 3), 255, np.uint8)
    jitter = sp.ScaleJitter((45, 75), (0.1, 2.0), "nearest")
    found = [
        np.column_stack([(batch[:, 0, :, 0] > 0).sum(axis=1), (batch[:, :, 0, 0] > 0).sum(axis=1)])
        for batch in transformed(white, jitter, sp.FixedSizeCrop((76, 91)))
    ]
    ours = np.concatenate(found)
    drawn = [each["size"] for each in parameters(v2.ScaleJitter((45, 75)), Image.new("RGB", (120, 100)))]
    theirs = np.array([[width, height] for height, width in drawn])
    for number in range(2):
        check_alike(ours[:, number], theirs[:, number], levels=70)


def test_windows_are_those_of_torchvisions_references() -> None:
    """One uniform number for both places: the window's place is int(share x what is left over)."""
    found = np.concatenate(
        [batch[:, 0, 0, :2].astype(int) - 1 for batch in transformed(places(91, 171), sp.FixedSizeCrop(1))]
    )
    share = torch.rand(PEERS, generator=torch.Generator().manual_seed(11)).numpy()
    assert (np.abs(found[:, 1] - found[:, 0] / 90 * 170) <= 2).all()
    for number, left_over in enumerate((90, 170)):
        check_alike(found[:, number], (left_over * share).astype(int), levels=90)


def test_windows_of_random_size_are_detrs() -> None:
    """DETR's code: both ends of a range are in it, and the picture's sides end it."""
    crop, sizing = sp.RandomSizeCrop(20, 50), sp.FixedSizeCrop(60)
    found = []
    for batch in transformed(places(40, 90), crop, sizing):
        edges = [(batch[:, :, 0, 0] != 0).sum(axis=1), (batch[:, 0, :, 0] != 0).sum(axis=1)]
        found.append(np.column_stack([*edges, batch[:, 0, 0, :2].astype(int) - 1]))
    ours, draw = np.concatenate(found), random.Random(11)

    def of_detr() -> tuple[int, int, int, int]:
        width, height = draw.randint(20, min(90, 50)), draw.randint(20, min(40, 50))
        return height, width, draw.randint(0, 40 - height), draw.randint(0, 90 - width)

    drawn = [of_detr() for _ in range(PEERS)]
    for number, (low, high) in enumerate(((20, 40), (20, 50), (0, 20), (0, 70))):
        assert (ours[:, number].min(), ours[:, number].max()) == (low, high)
        check_alike(ours[:, number], np.array(drawn)[:, number], levels=20)


@pytest.mark.long  # torchvision's draws take half a minute each
@pytest.mark.parametrize(
    ("how", "boxes"),
    [({}, [(5, 8, 60, 90), (70, 20, 110, 50)]), ({"sampler_options": [0.3, 0.6]}, [(30, 30, 80, 95)])],
    ids=["usual", "two overlaps"],
)
def test_windows_by_boxes_are_torchvisions(how: Any, boxes: Any) -> None:
    kernel = fuse([sp.RandomIoUCrop(**how), sp.Resize((8, 8))], None)
    program = kernel.compile(sp.Pipeline(sp.Arrays(image=np.zeros((1, 1, 1, 3), np.uint8))).decoding)
    keys, ends = np.arange(COUNT, dtype=np.uint64), np.arange(1, COUNT + 1) * len(boxes)
    of_all = np.tile(np.array(boxes, np.float32), (COUNT, 1))
    _, windows = program.trace(
        0, np.array([(100, 120)] * COUNT), 5, 0, keys, np.zeros_like(keys), of_all, ends
    )
    ours = np.asarray(windows).reshape(COUNT, 4)
    given = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(100, 120), dtype=torch.float32)
    torch.manual_seed(11)
    peer, drawn = v2.RandomIoUCrop(**how), []
    for _ in range(PEERS):
        each = peer.make_params([Image.new("RGB", (120, 100)), given])
        drawn.append([each.get(name, whole) for name, whole in WHOLE.items()])
    for number in range(4):
        check_alike(ours[:, number], np.array(drawn)[:, number], levels=20)
    # The place and the size together.
    check_alike(ours[:, :2].sum(axis=1) + ours[:, 2] * 1.0, np.array(drawn)[:, :3].sum(axis=1), levels=50)


def test_the_centre_of_a_mosaic_is_uniform() -> None:
    kernel = composed_kernel([sp.Resize((32, 24)), sp.Mosaic((40, 20))], None, Input())
    _, composer, _ = kernel.compile(sp.Pipeline(sp.Arrays(image=np.zeros((1, 1, 1, 3), np.uint8))).decoding)
    keys = np.arange(COUNT, dtype=np.uint64)
    sizes = np.array([(32, 24)] * 4 * COUNT)
    moves = composer.trace(sizes, 5, 0, keys, np.zeros_like(keys)).reshape(COUNT, 4, -1, 12)[:, :, 0]
    across, down = (moves[..., 2] + [24, 0, 24, 0]).T, (moves[..., 5] + [32, 32, 0, 0]).T
    assert (across == across[0]).all()
    assert (down == down[0]).all()
    check_counts(Counter(across[0].tolist()), [(1 / 20, each) for each in range(10, 30)])
    check_counts(Counter(down[0].tolist()), [(1 / 40, each) for each in range(20, 60)])
    both = zip((across[0] // 5).tolist(), (down[0] // 10).tolist(), strict=True)
    check_counts(Counter(both), [(1 / 16, (x, y)) for x in range(2, 6) for y in range(2, 6)])


WHOLE = {"left": 0, "top": 0, "width": 120, "height": 100}


def spread(*colours: tuple[int, int, int]) -> UInt8Array:
    return np.array([colours], np.uint8)


JITTERED: dict[str, tuple[UInt8Array, Any, Callable[[AnyArray], AnyArray]]] = {
    "brightness": (spread((100, 100, 100)), (0.2, 1.8), lambda rows: rows[:, 0, 0, 0]),
    "contrast": (spread((0, 0, 0), (200, 200, 200)), (0.3, 1.5), lambda rows: rows[:, 0, 1, 0]),
    "saturation": (spread((200, 100, 60)), (0.0, 1.4), lambda rows: rows[:, 0, 0, 0] - rows[:, 0, 0, 2]),
    "hue": (spread((255, 0, 0)), (-0.16, 0.12), lambda rows: rows[:, 0, 0, 1] - rows[:, 0, 0, 2]),
}


@pytest.mark.parametrize("name", JITTERED)
def test_factors_of_jitter_are_torchvisions(name: str) -> None:
    picture, between, read = JITTERED[name]
    ours = values(picture, read, sp.ColorJitter(**{name: between}))
    change = getattr(v2.functional, f"adjust_{name}")
    drawn = parameters(v2.ColorJitter(**{name: between}), picture)
    image = Image.fromarray(picture)
    theirs = np.stack([np.asarray(change(image, each[f"{name}_factor"])) for each in drawn]).astype(int)
    check_alike(ours, read(theirs), levels=40)


@pytest.mark.long  # the same factors as in the test before, in another transform
@pytest.mark.parametrize("name", JITTERED)
def test_factors_of_distortions_are_torchvisions(name: str) -> None:
    picture, between, read = JITTERED[name]
    nothing: dict[str, Any] = {each: (0, 0) if each == "hue" else (1, 1) for each in JITTERED}
    # The order of channels has the same probability whatever the factor is.
    ours = values(picture, read, sp.RandomPhotometricDistort(**{**nothing, name: between}, p=1.0))
    peer = v2.RandomPhotometricDistort(**{**nothing, name: between}, p=1.0)
    image = Image.fromarray(picture)
    found = [np.asarray(peer.transform(image, each)) for each in parameters(peer, image)]
    check_alike(ours, read(np.stack(found).astype(int)), levels=40)


def test_ranges_of_jitter_are_torchvisions() -> None:
    """A number means a range around 1, or around 0 for hues."""
    ours = sp.ColorJitter(0.4, 1.5, 0.3, 0.1)._ranges()  # private: pixels show it in the test before
    theirs = v2.ColorJitter(0.4, 1.5, 0.3, 0.1)
    for name, found in ours.items():
        assert found == pytest.approx(getattr(theirs, name)), name


def test_blurs_are_torchvisions() -> None:
    """A blurred edge is lighter where it was black, the more the larger the deviation is."""
    edge = np.zeros((9, 9, 3), np.uint8)
    edge[:, 5:] = 255
    ours = values(edge, lambda rows: rows[:, 4, :5, 0].sum(axis=1), sp.GaussianBlur(9, (0.2, 2.5)))
    sigma = [each["sigma"][0] for each in parameters(v2.GaussianBlur(9, (0.2, 2.5)), edge)]
    weights = np.exp(-0.5 * (np.arange(-4, 5) / np.array(sigma)[:, None]) ** 2)
    weights /= weights.sum(axis=1, keepdims=True)
    # How much of the kernel is right of the edge, and each mirrored border; all levels rounded.
    mirrored = np.pad(edge[0, :, 0].astype(float), 4, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(mirrored, 9)[:5]
    check_alike(ours, np.rint(weights @ windows.T).sum(axis=1).astype(int), levels=100)


def test_angles_are_torchvisions() -> None:
    """The pixel in the middle is 100 pixels above the fixed point, so it shows x = 20.5 + 100 sin(angle)."""
    turn = sp.RandomRotation((-2, 5), center=(20.5, 100.5))
    found = values(places(1, 41), lambda rows: rows[:, 0, 0, 1], turn, sp.CenterCrop(1))
    drawn = parameters(v2.RandomRotation((-2, 5)), Image.new("1", (41, 1)))
    angles = np.radians([each["angle"] for each in drawn])
    check_alike(found, np.floor(20.5 + 100 * np.sin(angles)).astype(int) + 1, levels=12)


@pytest.mark.parametrize(
    ("name", "size", "center", "how"),
    [
        ("angle", (1, 41), (20.5, 100.5), {"degrees": (-2, 5)}),
        ("scale", (1, 201), (0.0, 0.0), {"degrees": 0, "scale": (0.55, 2.0)}),
        ("shear along x", (1, 41), (20.5, 100.5), {"degrees": 0, "shear": (-10, 5)}),
        ("shear along y", (41, 1), (100.5, 20.5), {"degrees": 0, "shear": (0, 0, -5, 10)}),
    ],
)
def test_affine_warps_are_torchvisions(name: str, size: Any, center: Any, how: dict[str, Any]) -> None:
    """The middle pixel shows where it comes from, by torchvision's matrix."""
    warp = sp.RandomAffine(**how, center=center)
    found = values(places(*size), lambda rows: rows[:, 0, 0, :2].max(axis=1), warp, sp.CenterCrop(1))
    y, x = (length // 2 + 0.5 for length in size)
    matrix = torchvision.transforms.functional._get_inverse_affine_matrix
    theirs = []
    for each in parameters(v2.RandomAffine(**how), Image.new("1", size[::-1])):
        m = matrix(center, each["angle"], each["translate"], each["scale"], each["shear"])
        place = m[3] * x + m[4] * y + m[5] if size[1] == 1 else m[0] * x + m[1] * y + m[2]
        theirs.append(int(place) + 1)
    check_alike(found, np.array(theirs), levels=12)


def erased(rows: AnyArray) -> AnyArray:
    """(rows, 5): erased pixels; height, width, top and left of what is erased."""
    gone = rows == 0
    down, across = gone.any(axis=2), gone.any(axis=1)
    return np.column_stack(
        [gone.sum(axis=(1, 2)), down.sum(1), across.sum(1), down.argmax(1), across.argmax(1)]
    )


@pytest.mark.parametrize("most", [1, 3])
def test_erased_places_are_timms(most: int) -> None:
    white = np.full((24, 24, 3), 255, np.uint8)
    erasing = sp.RandomErasing(1.0, (0.02, 1 / 3), (0.3, 1 / 0.3), value=0, max_count=most)
    ours = np.concatenate([erased(batch[..., 0]) for batch in transformed(white, erasing)])
    peer = timm.random_erasing.RandomErasing(1.0, max_count=most, device="cpu")
    random.seed(3)
    theirs = erased(np.stack([peer(torch.ones(1, 24, 24)).numpy()[0] for _ in range(PEERS // 2)]))
    for column in range(5):
        check_alike(ours[:, column], theirs[:, column], levels=20)


def test_erased_places_are_torchvisions() -> None:
    white = np.full((24, 24, 3), 255, np.uint8)
    ours = np.concatenate(
        [erased(batch[..., 0]) for batch in transformed(white, sp.RandomErasing(1.0, value=0))]
    )
    drawn = parameters(v2.RandomErasing(1.0), torch.zeros(3, 24, 24))
    theirs = np.array([[each["h"], each["w"], each["i"], each["j"]] for each in drawn])
    for column in range(4):
        check_alike(ours[:, column + 1], theirs[:, column], levels=15)


def test_three_augment_is_timms() -> None:
    """Each of three changes as often as the others, and radii of blurs uniform from 0.1 to 2 pixels."""
    picture = np.zeros((9, 9, 3), np.uint8)
    picture[:, 5:] = (255, 200, 90)
    image = Image.fromarray(picture)
    rows = np.concatenate([*transformed(picture, sp.ThreeAugment())])
    grey = (rows == np.asarray(image.convert("L"))[..., None]).all(axis=(1, 2, 3))
    solarized = (rows == np.asarray(v2.functional.solarize(image, 128))).all(axis=(1, 2, 3))
    for part in (grey, solarized):
        assert abs(part.mean() - 1 / 3) < 3.7 * (2 / 9 / COUNT) ** 0.5
    blurs = rows[~grey & ~solarized].astype(int)
    policy = timm.auto_augment.auto_augment_transform("3a", {}).policy
    (peer,) = next(each for each in policy if each[0].name == "GaussianBlurRand")
    random.seed(5)
    theirs = np.stack([np.asarray(peer(image)) for _ in range(PEERS)]).astype(int)
    check_alike(blurs[:, 4, :5].sum(axis=(1, 2)), theirs[:, 4, :5].sum(axis=(1, 2)), levels=100)


@pytest.mark.parametrize(("width", "alpha"), [(1, 0.2), (4, 1.0), (2, 5.0)])
def test_weights_of_aug_mix_are_torchvisions(width: int, alpha: float) -> None:
    """The weakest operations leave a white pixel, but posterize makes it 240, and solarize black."""
    mix = sp.AugMix(1, width, 5, alpha, all_ops=False)
    ours = values(np.full((1, 1, 3), 255, np.uint8), lambda rows: rows[:, 0, 0, 0], mix)
    torch.manual_seed(6)
    both = torch._sample_dirichlet(torch.full((COUNT, 2), alpha))
    weights = torch._sample_dirichlet(torch.full((COUNT, width), alpha)) * both[:, 1:]
    white = (7 / 9) ** 5  # none of both among five operations; the first of both decides
    law = torch.tensor([white, (1 - white) / 2, (1 - white) / 2])
    copies = torch.tensor([255.0, 240.0, 0.0])[torch.multinomial(law, COUNT * width, True)]
    theirs = both[:, 0] * 255 + (weights * copies.reshape(COUNT, width)).sum(dim=1)
    check_alike(np.minimum(ours, 254), np.minimum(theirs.numpy().astype(int), 254), levels=100)


def test_parts_of_mixed_images_are_torchvisions() -> None:
    """In steps of 1/65,536. MixUp's and CutMix's code is Python, so there are fewer of ours."""
    rng = np.random.default_rng(2)
    torch.manual_seed(4)
    theirs = v2.MixUp(alpha=0.2, num_classes=2)._dist.sample((COUNT,)).double().numpy()[:, 0]
    ours = np.array([beta(0.2, rng) for _ in range(PEERS)])
    check_alike(ours, np.rint(theirs * 65536) / 65536, levels=1000)


def test_cut_boxes_are_torchvisions() -> None:
    rng = np.random.default_rng(2)
    ours = np.array([cut_box(30, 40, beta(1.0, rng), rng) for _ in range(PEERS)])
    drawn = parameters(v2.CutMix(num_classes=2), torch.zeros(1, 3, 30, 40), PEERS // 2)
    theirs = np.array([each["box"] for each in drawn])[:, [1, 0, 3, 2]]
    for read in (
        *(lambda box, k=k: box[:, k] for k in range(4)),
        lambda box: (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]),
    ):
        check_alike(read(ours), read(theirs), levels=20)


def test_the_tests_see_small_differences() -> None:
    """A ratio that is uniform itself, and not its logarithm; a coin that is 1% off."""
    draw = np.random.default_rng(1)
    logarithms = draw.uniform(np.log(3 / 4), np.log(4 / 3), PEERS)
    with pytest.raises(AssertionError, match="apart"):
        check_alike(np.log(draw.uniform(3 / 4, 4 / 3, COUNT)), logarithms)
    with pytest.raises(AssertionError, match="standard deviations"):
        check_counts(Counter({"heads": 51_000, "tails": 49_000}), [(0.5, "heads"), (0.5, "tails")])
    with pytest.raises(AssertionError, match="none of the 1 that can be"):
        check_counts(Counter({"edge": 1}), [(1.0, "heads")])
