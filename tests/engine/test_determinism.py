"""A batch's bytes depend on the recipe, seed, epoch and positions: not on instruction sets, workers or batches."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

import standpipe as sp
from jpegs import kinds, photo, saved
from reference import delivered, in_order, listed
from standpipe.spec import AnyArray
from standpipe.transform import simd_paths

TRAIN = (sp.RandomResizedCrop(57), sp.RandomHorizontalFlip())
EVAL = (sp.Resize(60), sp.CenterCrop((57, 63)))
SEVERAL = (sp.Resize(70, interpolation="lanczos"), *TRAIN, sp.CenterCrop(60))
ELEMENTS: Mapping[str, tuple[object, ...]] = {
    "uint8": (),
    "uint8 planes": (sp.ToLayout("NCHW"),),
    "float16": (sp.Normalize(), sp.ToDtype("float16")),
    "float32": (sp.Normalize(),),
    "float32 pixels": (sp.Normalize(), sp.ToLayout("NHWC")),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> sp.FileList:
    """Every kind of JPEG, and others, in turn."""
    every = [*kinds(75, 101).values(), *kinds(33, 16).values()]
    every[::9] = [saved(photo(40 + n, 90), "PNG") for n in range(len(every[::9]))]
    return listed(tmp_path_factory.mktemp("files"), every)


def bytes_of(rows: list[AnyArray]) -> bytes:
    return np.stack(rows).tobytes()


@pytest.mark.parametrize("elements", ELEMENTS.values(), ids=ELEMENTS)
@pytest.mark.parametrize("transforms", [TRAIN, EVAL, SEVERAL], ids=["train", "eval", "several stages"])
def test_every_instruction_set_and_number_of_workers_gives_the_same_bytes(
    transforms: tuple[object, ...], elements: tuple[object, ...], files: sp.FileList
) -> None:
    pipeline = in_order(files, *transforms, *elements, seed=9)
    expected = bytes_of(delivered(pipeline, simd="scalar", num_workers=1))
    for simd, workers in [*itertools.product(simd_paths()[1:], [2]), (None, 1), (None, 5)]:
        assert bytes_of(delivered(pipeline, simd=simd, num_workers=workers)) == expected, (simd, workers)


def test_every_width_and_number_of_taps_gives_the_same_bytes() -> None:
    """Vector units take outputs in groups and taps in pairs: every remainder of both."""
    for width, filter_name in itertools.product((*range(1, 18), 33), ("bilinear", "lanczos")):
        pixels = np.random.default_rng(width).integers(0, 256, (1, 40, 47, 3), np.uint8)
        for elements in ((), (sp.ToLayout("NCHW"),)):
            resize = sp.Resize((13, width), interpolation=filter_name)
            pipeline = in_order(sp.Arrays(image=pixels), resize, *elements)
            every = {simd: bytes_of(delivered(pipeline, simd=simd)) for simd in simd_paths()}
            assert len(set(every.values())) == 1, (width, filter_name, elements)


def by_index(pipeline: sp.Pipeline, epoch: int) -> dict[int, bytes]:
    """The bytes of each record that one rank gets in an epoch."""
    with pipeline.loader(memory="128MiB", num_workers=2) as loader:
        loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
        return {
            index: batch["image"][row].tobytes()
            for batch in loader
            for row, index in enumerate(batch["index"].tolist())
        }


def test_batch_size_and_ranks_change_no_pixel(files: sp.FileList) -> None:
    base = sp.Pipeline(files).shuffle(seed=4).map(*TRAIN)
    whole = by_index(base.batch(1000, last_batch="partial"), epoch=2)
    assert by_index(base.batch(7, last_batch="partial"), epoch=2) == whole
    ranks = [by_index(base.batch(8, last_batch="pad").shard(rank, 3), epoch=2) for rank in range(3)]
    assert {index: image for rank in ranks for index, image in rank.items()} == whole


def test_seeds_and_epochs_change_pixels(files: sp.FileList) -> None:
    pipeline = in_order(files, *TRAIN)
    streams = {
        bytes_of(delivered(replace(pipeline, seed=seed), epoch=epoch))
        for seed, epoch in itertools.product((0, 1), (0, 1))
    }
    assert len(streams) == 4
    again = bytes_of(delivered(pipeline, epoch=1))
    assert again in streams


def test_fast_decoding_gives_the_same_bytes_too(files: sp.FileList) -> None:
    pipeline = in_order(files, sp.RandomResizedCrop(9), sp.RandomHorizontalFlip()).decode("fast")
    expected = bytes_of(delivered(pipeline, simd="scalar", num_workers=1))
    for simd, workers in ((None, 1), (None, 5), (simd_paths()[-1], 2)):
        assert bytes_of(delivered(pipeline, simd=simd, num_workers=workers)) == expected
