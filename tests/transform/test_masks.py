"""Masks go where their images go: a mask and an image with the same painted places stay alike."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from photos import encoded, picture
from preloaded import SERVER
from standpipe import _native
from standpipe.spec import UInt8Array
from standpipe.transform.image import Size
from standpipe.transform.pixels import auto_augment
from tars import shard

SIZES = [(41, 60), (60, 41), (37, 37), (9, 70), (64, 5), (1, 1), (50, 50), (33, 80)]  # (height, width)
INSIDE = 7  # in the third channel of painted images
MOVING = {
    "RandomResizedCrop": [sp.RandomResizedCrop(24, interpolation="nearest")],
    "Resize": [sp.Resize((30, 20), interpolation="nearest")],
    "Resize, CenterCrop": [sp.Resize(30, interpolation="nearest"), sp.CenterCrop((40, 26))],
    "CenterCrop": [sp.CenterCrop((36, 44))],
    "flips": [
        sp.CenterCrop(40),
        sp.RandomHorizontalFlip(),
        sp.RandomVerticalFlip(),
        sp.RandomHorizontalFlip(),
    ],
    "RandomCrop": [sp.RandomCrop((30, 36), padding=(5, 2), pad_if_needed=True)],
    "RandomCrop, reflect": [
        sp.Resize((30, 20), interpolation="nearest"),
        sp.RandomCrop(34, 8, padding_mode="reflect"),
    ],
    "PadImage": [
        sp.Resize((30, 20), interpolation="nearest"),
        sp.PadImage((3, 4, 5, 6)),
        sp.RandomHorizontalFlip(),
    ],
    "RandomRotation": [sp.CenterCrop((36, 44)), sp.RandomRotation(70, center=(9, 12))],
    "RandomAffine": [
        sp.CenterCrop((36, 44)),
        sp.RandomAffine(40, translate=(0.2, 0.1), scale=(0.7, 1.4), shear=(-9, 9, -5, 5)),
    ],
    "RandomPerspective": [sp.CenterCrop((36, 44)), sp.RandomPerspective(0.6, p=0.8, interpolation="nearest")],
    "groups": [
        sp.CenterCrop((36, 44)),
        sp.RandomApply([sp.RandomRotation(20), sp.RandomVerticalFlip()], p=0.7),
        sp.RandomChoice([sp.RandomAffine(0, scale=(0.5, 0.9)), sp.RandomRotation((80, 100))], p=[1, 2]),
        sp.RandomOrder([sp.RandomRotation(9), sp.RandomVerticalFlip(), sp.RandomApply([sp.RandomAffine(9)])]),
    ],
    "RandomZoomOut": [
        sp.RandomZoomOut(side_range=(1.0, 2.5), p=0.8),
        sp.RandomHorizontalFlip(),
        sp.Resize((30, 36), interpolation="nearest"),
    ],
    "ScaleJitter": [
        sp.ScaleJitter((40, 40), (0.3, 1.8), "nearest"),
        sp.FixedSizeCrop((38, 30)),
        sp.RandomHorizontalFlip(),
    ],
    "RandomShortestSize": [
        sp.RandomHorizontalFlip(),
        sp.RandomShortestSize((12, 30), 50, "nearest"),
        sp.FixedSizeCrop(30),
    ],
    "LetterBox": [
        sp.LetterBox((33, 40), scaleup=False, interpolation="nearest"),
        sp.RandomHorizontalFlip(),
        sp.LetterBox(30, center=False, interpolation="nearest"),
    ],
    "RandomSizeCrop": [
        sp.RandomApply(
            [sp.RandomShortestSize((30, 40), interpolation="nearest"), sp.RandomSizeCrop(15, 36)], p=0.7
        ),
        sp.RandomApply([sp.RandomHorizontalFlip(), sp.PadImage(3)]),
        sp.Resize((30, 36), interpolation="nearest"),
    ],
    "crop again": [
        sp.RandomResizedCrop(40, interpolation="nearest"),
        sp.RandomVerticalFlip(),
        sp.RandomResizedCrop(20, interpolation="nearest"),
        sp.CenterCrop(31),
    ],
}


def painted(height: int, width: int) -> tuple[UInt8Array, UInt8Array]:
    """An image with its places in two channels, and a mask with a number that is different at each place nearby."""
    y, x = np.mgrid[:height, :width].astype(np.uint8)
    mask = (y % 16) * 15 + x % 15
    return np.stack([mask, y, np.full_like(y, INSIDE)], -1), mask


def png(mask: UInt8Array, mode: str = "L") -> bytes:
    """A mask as a PNG: of grey levels, or with a palette."""
    image = Image.fromarray(mask)
    if mode == "P":
        image.putpalette(list(range(255, -1, -1)) * 3)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def write_pairs(folder: Path, pairs: list[tuple[bytes, bytes | None]]) -> sp.FileList:
    """Write images and masks, and two lists of them. None: list a mask and don't write it."""
    for number, (image, mask) in enumerate(pairs):
        (folder / f"{number}.jpg").write_bytes(image)
        if mask is not None:
            (folder / f"{number}.png").write_bytes(mask)
    for kind in ("jpg", "png"):
        (folder / f"{kind}.txt").write_text("".join(f"{n}.{kind}\n" for n in range(len(pairs))))
    return sp.FileList(folder / "jpg.txt", mask=folder / "png.txt")


def painted_files(folder: Path) -> sp.FileList:
    pairs: list[tuple[bytes, bytes | None]] = []
    for number, (height, width) in enumerate(SIZES):
        image, mask = painted(height, width)
        pairs.append((encoded(image, "PNG"), png(mask, "LP"[number % 2])))
    return write_pairs(folder, pairs)


@contextmanager
def batches(pipeline: sp.Pipeline, **options: Any) -> Iterator[list[dict[str, Any]]]:
    with pipeline.loader(memory="256MiB", **options) as loader:
        yield [{name: np.array(field) for name, field in batch.items()} for batch in loader]


def check_alike(batch: dict[str, Any]) -> None:
    inside = batch["image"][..., 2] == INSIDE
    assert inside.any()
    assert (batch["mask"][inside] == batch["image"][..., 0][inside]).all()
    assert (batch["mask"][~inside] == 255).all()


@pytest.mark.parametrize("transforms", MOVING.values(), ids=MOVING)
def test_a_mask_of_painted_places_goes_where_its_image_goes(transforms: list[Any], tmp_path: Path) -> None:
    pipeline = sp.Pipeline(painted_files(tmp_path), seed=4).map(*transforms).batch(8)
    for options in ({"num_workers": 2}, {"executor": "inline"}):
        with batches(pipeline, **options) as (batch,):
            assert batch["mask"].shape == batch["image"].shape[:3]
            assert batch["mask"].dtype == np.uint8
            check_alike(batch)


def test_colours_leave_masks_alone_and_masks_leave_images_alone(tmp_path: Path) -> None:
    """Images are as without masks, whatever filter they have, and masks are as with images of nearest pixels."""
    files = painted_files(tmp_path)
    colours = [
        sp.ColorJitter(0.5, 0.5, 0.5, 0.2),
        sp.RandomHSV(0.1, 0.5, 0.5),
        sp.RandomSolarize(100, p=1.0),
        sp.GaussianBlur(3),
        sp.Normalize(),
    ]
    crop, flip = sp.RandomResizedCrop(24), sp.RandomHorizontalFlip()
    nearest = sp.RandomResizedCrop(24, interpolation="nearest")
    with batches(sp.Pipeline(files, seed=9).map(nearest, flip).batch(8)) as (plain,):
        check_alike(plain)
    with batches(sp.Pipeline(files, seed=9).map(crop, flip, *colours).batch(8)) as (batch,):
        assert (batch["mask"] == plain["mask"]).all()
        assert batch["image"].dtype == np.float32
    without = sp.FileList(tmp_path / "jpg.txt")
    with batches(sp.Pipeline(without, seed=9).map(crop, flip, *colours).batch(8)) as (alone,):
        assert (batch["image"] == alone["image"]).all()


def test_the_number_around_a_mask_can_be_chosen(tmp_path: Path) -> None:
    files = painted_files(tmp_path)
    with batches(sp.Pipeline(files).map(sp.CenterCrop(100, mask_fill=3)).batch(8)) as (batch,):
        assert (batch["mask"][batch["image"][..., 2] != INSIDE] == 3).all()
    crop = sp.RandomCrop(100, pad_if_needed=True, fill=9, mask_fill=4)
    with batches(sp.Pipeline(files).map(crop).batch(8)) as (batch,):
        outside = batch["image"][..., 2] == 9
        assert outside.any()
        assert (batch["mask"][outside] == 4).all()
    with pytest.raises(sp.PlanError, match=r"CenterCrop\(mask_fill=256\): .* from 0 to 255"):
        sp.Pipeline(files).map(sp.CenterCrop(100, mask_fill=256)).batch(8).plan()
    assert sp.CenterCrop(8).describe() == "CenterCrop(size=8)"
    assert sp.CenterCrop(8, mask_fill=0).describe() == "CenterCrop(size=8, mask_fill=0)"


def test_groups_use_the_images_random_numbers_whatever_is_in_them(tmp_path: Path) -> None:
    """Colours in a group take their random numbers for masks as well, and change none of them."""

    def in_groups(strong: bool) -> list[Any]:
        blur: Any = sp.GaussianBlur(5 if strong else 1, (0.5, 2.0))
        posterize, sharpness = (
            sp.RandomPosterize(1 if strong else 8),
            sp.RandomAdjustSharpness(1 + 4 * strong),
        )
        turn, move = sp.RandomRotation(60), sp.RandomAffine(20, translate=(0.3, 0.3))
        inner = sp.RandomChoice([blur, sp.RandomApply([posterize, turn]), sharpness])
        return [sp.CenterCrop(40), sp.RandomOrder([blur, move, inner, sp.RandomVerticalFlip(), posterize])]

    files = painted_files(tmp_path)
    with (
        batches(sp.Pipeline(files, seed=6).map(*in_groups(False)).batch(8)) as (plain,),
        batches(sp.Pipeline(files, seed=6).map(*in_groups(True)).batch(8)) as (batch,),
    ):
        check_alike(plain)
        assert (batch["image"] != plain["image"]).any()
        assert (batch["mask"] == plain["mask"]).all()


class Neutral(auto_augment.AutoAugmentBase):
    """Makes colours of a policy change nothing, with as many random numbers as before."""

    __slots__ = ()

    def _operation(self, name: str, magnitude: float, size: Size) -> list[_native.PixelStage]:
        stages = super()._operation(name, magnitude, size)
        if not stages or name.startswith(("Shear", "Translate", "Rotate")):
            return stages
        if name in ("Brightness", "Color", "Contrast"):
            return [_native.PixelStage("brightness", 0, 1.0, [1.0, 1.0])]
        return [_native.PixelStage("posterize", 0, 1.0, [8])]


@pytest.mark.parametrize(
    "augment",
    [sp.RandAugment(4, 15), sp.TrivialAugmentWide(), sp.AutoAugment("svhn"), sp.AutoAugment("cifar10")],
    ids=["RandAugment", "TrivialAugmentWide", "svhn", "cifar10"],
)
def test_augmentation_policies_move_masks(augment: Any, tmp_path: Path) -> None:
    neutral = type("Neutral" + type(augment).__name__, (Neutral, type(augment)), {})(
        **{each.name: getattr(augment, each.name) for each in fields(augment)}
    )
    files = painted_files(tmp_path)
    crop = sp.RandomCrop(40, pad_if_needed=True)
    for seed in range(4):
        with (
            batches(sp.Pipeline(files, seed=seed).map(crop, neutral).batch(8)) as (plain,),
            batches(sp.Pipeline(files, seed=seed).map(crop, augment).batch(8)) as (batch,),
        ):
            check_alike(plain)
            assert (batch["mask"] == plain["mask"]).all()


def test_timms_policy_moves_masks(tmp_path: Path) -> None:
    """At magnitude 10, which the large mean gives, PosterizeOriginal changes nothing."""
    files = painted_files(tmp_path)
    names = ["PosterizeOriginal", "Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"]
    crop = sp.RandomCrop(40, pad_if_needed=True)
    for sampling, most in (("nearest", 0), ("random", 200)):
        augment = sp.TimmRandAugment(3, 50, 2.0, p=0.8, interpolation=sampling, fill=0, operations=names)
        with batches(sp.Pipeline(files, seed=8).map(crop, augment).batch(8)) as (batch,):
            outside = batch["image"][..., 2] == 0
            assert outside.any()
            # Interpolated images have another rounding at their edges.
            assert ((batch["mask"] == 255) != outside).sum() <= most
            if sampling == "nearest":
                check_alike(batch)


def of_shard(folder: Path) -> Any:
    members = []
    for number, (height, width) in enumerate(SIZES):
        image, mask = painted(height, width)
        members += [(f"{number}.jpg", encoded(image, "PNG")), (f"{number}.mask.png", png(mask, "P"))]
    return sp.TarShards(shard(folder / "a.tar", members), fields={"image": "jpg", "mask": "mask.png"})


class Pairs:
    """A data set of paths, bytes, Pillow images and arrays."""

    def __init__(self, folder: Path, form: Callable[[bytes], Any]) -> None:
        self.folder, self.form = folder, form

    def __len__(self) -> int:
        return len(SIZES)

    def __getitem__(self, index: int) -> dict[str, Any]:
        mask = self.form((self.folder / f"{index}.png").read_bytes())
        return {"image": (self.folder / f"{index}.jpg").read_bytes(), "mask": mask}


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_all_sources_and_workers_give_the_same_masks(tmp_path: Path) -> None:
    files = painted_files(tmp_path)
    transforms = (sp.RandomResizedCrop(24), sp.RandomHorizontalFlip(), sp.RandomVerticalFlip())
    pipelines = [
        sp.Pipeline(source).shuffle(seed=5).map(*transforms).batch(4)
        for source in (
            files,
            of_shard(tmp_path),
            *(
                sp.MapSource(Pairs(tmp_path, form), encoded="image")
                for form in (bytes, opened, lambda data: np.array(opened(data)))
            ),
        )
    ]
    with batches(pipelines[0], num_workers=1) as expected:
        pass
    runs: list[tuple[sp.Pipeline, dict[str, Any]]] = [(pipelines[0], {"num_workers": 3})]
    runs += [(pipeline, {"executor": "inline"}) for pipeline in pipelines]
    runs += [
        (
            pipelines[0].map(lambda sample: sample),
            {"executor": "process", "num_workers": 2, "mp_context": SERVER},
        )
    ]
    for pipeline, options in runs:
        with batches(pipeline, **options) as found:
            for batch, other in zip(expected, found, strict=True):
                assert (batch["image"] == other["image"]).all()
                assert (batch["mask"] == other["mask"]).all()


def test_masks_in_arrays(tmp_path: Path) -> None:
    pairs = [painted(30, 44) for _ in range(6)]
    arrays = sp.Arrays(
        image=np.stack([image for image, _ in pairs]), mask=np.stack([mask for _, mask in pairs])
    )
    pipeline = sp.Pipeline(arrays, seed=2).map(sp.RandomResizedCrop(16, interpolation="nearest")).batch(6)
    with batches(pipeline) as (batch,), batches(pipeline, executor="inline") as (other,):
        check_alike(batch)
        assert (batch["mask"] == other["mask"]).all()
    smaller = sp.Arrays(image=np.zeros((2, 9, 9, 3), np.uint8), mask=np.zeros((2, 8, 9), np.uint8))
    with pytest.raises(sp.PlanError, match=r"field 'mask' has \(8, 9\) pixels .*, but 'image' \(9, 9\)"):
        sp.Pipeline(smaller).map(sp.CenterCrop(4)).batch(2).plan()


@pytest.mark.parametrize(
    "transforms",
    [[sp.RandomVerticalFlip()], [sp.Resize(20, interpolation="nearest"), sp.RandomHorizontalFlip()]],
)
def test_python_workers_move_masks_whose_size_is_the_arrays(transforms: list[Any]) -> None:
    pairs = [painted(30, 44) for _ in range(6)]
    images, masks = (np.stack(part) for part in zip(*pairs, strict=True))
    source = sp.Arrays(image=images, mask=masks, label=np.arange(6))
    pipeline = sp.Pipeline(source, seed=2).map(*transforms)
    with batches(pipeline.batch(6)) as (batch,):
        check_alike(batch)
    with_code = pipeline.map(lambda label: label, field="label").batch(6)
    with batches(with_code, executor="inline") as (other,):
        assert (batch["mask"] == other["mask"]).all()
        assert (batch["image"] == other["image"]).all()


def test_a_run_goes_on_with_the_same_masks(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(painted_files(tmp_path)).shuffle(seed=1).map(sp.RandomResizedCrop(16)).batch(2)
    with batches(pipeline) as whole:
        pass
    with pipeline.loader(memory="256MiB", num_workers=1) as loader:
        for number, _ in enumerate(loader, 1):
            if number == 2:
                state = loader.state_dict()
                break
    with pipeline.loader(memory="256MiB", num_workers=2) as loader:
        loader.load_state_dict(state)
        rest = [np.array(batch["mask"]) for batch in loader]
    assert len(rest) == 2
    assert all((mask == batch["mask"]).all() for mask, batch in zip(rest, whole[2:], strict=True))


BAD: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "No such file"),
    "cut": (png(painted(40, 56)[1])[:-40], "truncated or damaged PNG"),
    "no image": (b"not an image", "not an image"),
    "RGB": (encoded(picture(1), "PNG"), "its mode is RGB; save its class numbers as an 8-bit PNG"),
    "16 bits": (encoded(np.zeros((40, 56), np.uint16), "PNG"), "one channel of 8 bits.*its mode is I;16"),
    "one bit": (encoded(np.zeros((40, 56), bool), "PNG"), "one bit per pixel may mean"),
    "JPEG": (encoded(painted(40, 56)[1]), "can't be a JPEG"),
    "another size": (png(painted(56, 40)[1]), "it has 40 × 56 pixels, but its image 56 × 40"),
}


@pytest.mark.parametrize("executor", [None, "inline"])
@pytest.mark.parametrize(("mask", "says"), BAD.values(), ids=BAD)
def test_a_bad_mask_is_a_bad_sample(mask: bytes | None, says: str, executor: Any, tmp_path: Path) -> None:
    good = [(encoded(picture(seed)), png(painted(40, 56)[1])) for seed in range(5)]
    pipeline = (
        sp.Pipeline(write_pairs(tmp_path, [*good, (encoded(picture(5)), mask)]))
        .map(sp.CenterCrop(8))
        .batch(3)
    )
    options = {"memory": "256MiB", "num_workers": 1, "executor": executor}
    with (
        pipeline.loader(**options) as loader,
        pytest.raises(sp.SampleError, match=f"mask: .*{says}") as raised,
    ):
        list(loader)
    assert raised.value.index == 5
    assert str(raised.value.path).endswith("5.png")
    replacing = pipeline.on_error(sp.Replace(at_most=1))
    with replacing.loader(**options) as loader:
        assert [5 in batch["index"] for batch in loader] == [False, False]
        assert [bad.path for bad in loader.bad_samples] == [str(tmp_path / "5.png")]


def test_a_bad_image_is_named_by_its_own_file(tmp_path: Path) -> None:
    source = write_pairs(tmp_path, [(b"no image", b"no mask")])
    with (
        sp.Pipeline(source).map(sp.CenterCrop(8)).batch(1, last_batch="partial").loader() as loader,
        pytest.raises(sp.DecodeError, match="not an image") as raised,
    ):
        next(iter(loader))
    assert str(raised.value.path).endswith("0.jpg")


def test_what_cant_move_masks_is_refused(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(painted_files(tmp_path)).map(sp.RandomResizedCrop(24))
    warps: list[Any] = [sp.RandomRotation(9, mask_fill=256), sp.RandAugment(mask_fill=-1)]
    warps += [sp.TimmRandAugment(mask_fill=1000), sp.RandomPerspective(mask_fill=True)]
    for warp in warps:
        with pytest.raises(sp.PlanError, match="mask_fill must be an integer from 0 to 255"):
            pipeline.map(warp).batch(4).plan()
    cache = sp.Cache("masks", memory="32MiB", directory=tmp_path)
    kept = sp.Pipeline(painted_files(tmp_path)).map(sp.CenterCrop(24)).cache(cache).batch(4)
    with pytest.raises(sp.PlanError, match=r"not its masks or .*: put it right after the source"):
        kept.plan()
    with pytest.raises(sp.PlanError, match=r"not its masks or .*: put it right after the source"):
        kept.map(lambda sample: sample).plan()


@pytest.mark.parametrize(
    "mix", [sp.MixUp(0.2, num_classes=4), sp.CutMix(1.0, num_classes=4)], ids=["MixUp", "CutMix"]
)
def test_mixing_of_images_with_masks_is_refused(mix: Any) -> None:
    images, labels = np.zeros((4, 9, 9, 3), np.uint8), np.zeros(4, np.int64)
    arrays = sp.Arrays(image=images, mask=images[..., 0].copy(), label=labels)
    with pytest.raises(sp.PlanError, match="mixes images and labels but not the field 'mask'"):
        sp.Pipeline(arrays).map(sp.CenterCrop(8)).batch(2).map_batch(mix).plan()


NEAREST_CROP = sp.RandomResizedCrop(16, scale=(0.2, 1), interpolation="nearest")
OF_VIEWS = {
    "a": [NEAREST_CROP, sp.RandomHorizontalFlip()],
    "image": [sp.CenterCrop((36, 44)), sp.RandomRotation(60)],
    "some": sp.Repeat(3, [NEAREST_CROP, sp.RandomVerticalFlip(), sp.ColorJitter(hue=0.0)]),
}


def sources_of_masks(folder: Path) -> dict[str, Any]:
    files = painted_files(folder)
    pairs = [painted(30, 44) for _ in range(8)]
    images, masks = (np.stack(part) for part in zip(*pairs, strict=True))
    return {
        "files": files,
        "arrays": sp.Arrays(image=images, mask=masks),
        "dataset": sp.MapSource(Pairs(folder, bytes), encoded="image"),
    }


@pytest.mark.parametrize("kind", ["files", "arrays", "dataset"])
def test_each_view_has_its_mask(kind: str, tmp_path: Path) -> None:
    """A view's mask has the view's random numbers, and its image is as without masks."""
    source = sources_of_masks(tmp_path)[kind]
    pipeline = sp.Pipeline(source, seed=3).map(sp.Views(**OF_VIEWS)).batch(8)
    plain = sp.FileList(tmp_path / "jpg.txt")
    with batches(sp.Pipeline(plain, seed=3).map(sp.Views(**OF_VIEWS)).batch(8)) as (alone,):
        pass
    runs: list[dict[str, Any]] = [{"num_workers": 2}, {"executor": "inline"}]
    found = []
    for options in runs:
        with batches(pipeline, **options) as (batch,):
            assert batch.keys() == {"a", "a_mask", "image", "mask", "some", "some_mask", "index", "valid"}
            for name, of_view in (("a", "a_mask"), ("image", "mask"), ("some", "some_mask")):
                assert batch[of_view].shape == batch[name].shape[:-1]
                check_alike({"image": batch[name], "mask": batch[of_view]})
                assert kind == "arrays" or (batch[name] == alone[name]).all()
            assert (batch["some_mask"][:, 0] != batch["some_mask"][:, 1]).any()
            found.append(batch)
    assert all((found[0][name] == found[1][name]).all() for name in found[0])


def test_a_bad_mask_of_views_is_a_bad_sample(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, [(encoded(picture(5)), png(painted(56, 40)[1]))])
    pipeline = sp.Pipeline(files).map(sp.Views(a=[sp.CenterCrop(8)], b=[sp.CenterCrop(9)])).batch(1)
    for executor in (None, "inline"):
        with (
            pipeline.loader(executor=executor, mp_context=SERVER) as loader,
            pytest.raises(sp.SampleError, match=r"mask: .*it has 40 × 56 pixels, but its image 56 × 40"),
        ):
            list(loader)


def test_views_whose_masks_have_no_name_of_their_own_are_refused(tmp_path: Path) -> None:
    files = painted_files(tmp_path)
    crop = [sp.RandomResizedCrop(8)]
    with pytest.raises(sp.PlanError, match="'mask' of the view 'a' becomes 'a_mask', which is a view"):
        sp.Pipeline(files).map(sp.Views(a=crop, a_mask=crop)).batch(2).plan()
    masks = np.zeros((4, 9, 9), np.uint8)
    arrays = sp.Arrays(image=np.zeros((4, 9, 9, 3), np.uint8), mask=masks, a_mask=masks)
    with pytest.raises(sp.PlanError, match="has a field 'a_mask' already"):
        sp.Pipeline(arrays).map(sp.Views(a=crop)).batch(2).plan()


def test_mixing_of_views_with_masks_is_refused(tmp_path: Path) -> None:
    images, labels = np.zeros((4, 9, 9, 3), np.uint8), np.zeros(4, np.int64)
    arrays = sp.Arrays(image=images, mask=images[..., 0].copy(), label=labels)
    mix = sp.MixUp(0.2, num_classes=4, image="a")
    with pytest.raises(sp.PlanError, match="mixes images and labels but not the field 'a_mask'"):
        sp.Pipeline(arrays).map(sp.Views(a=[sp.CenterCrop(8)])).batch(2).map_batch(mix).plan()


@pytest.mark.parametrize("executor", [None, "inline"])
def test_masks_change_their_size_with_their_images_by_epoch(executor: Any, tmp_path: Path) -> None:
    size: Any = sp.Schedule({0: 12, 1: 24, 2: 8})
    crop = sp.RandomResizedCrop(size, interpolation="nearest")
    pipeline = sp.Pipeline(painted_files(tmp_path), seed=4).map(crop, sp.RandomVerticalFlip()).batch(8)
    with pipeline.loader(memory="256MiB", executor=executor, mp_context=SERVER) as loader:
        for side in (12, 24, 8):
            (batch,) = [{name: np.array(field) for name, field in each.items()} for each in loader]
            assert batch["mask"].shape == (8, side, side)
            check_alike(batch)


def test_a_cache_of_files_keeps_images_and_reads_masks(tmp_path: Path) -> None:
    cache = sp.Cache("files", memory="32MiB", directory=tmp_path)
    crop = sp.RandomResizedCrop(16, interpolation="nearest")
    pipeline = sp.Pipeline(painted_files(tmp_path), seed=3).cache(cache).map(crop).batch(8)
    for options in ({"num_workers": 2}, {"executor": "inline"}):
        with pipeline.loader(memory="256MiB", **options) as loader:
            for _ in range(2):
                (batch,) = list(loader)
                check_alike(batch)


def test_functions_get_the_bytes_of_masks_that_nothing_has_moved(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(painted_files(tmp_path)).map(lambda data: opened(data.tobytes()), field="mask")
    with batches(pipeline.map(sp.CenterCrop((36, 44))).batch(8), executor="inline") as (batch,):
        check_alike(batch)


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    source = painted_files(tmp_path)
    (tmp_path / "png.txt").write_text("0.png\n")
    with pytest.raises(sp.PlanError, match=r"jpg\.txt has 8 lines, and mask='.*png\.txt' 1; line n"):
        source.open()
