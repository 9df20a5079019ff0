"""Normalize, ToDtype and ToLayout: the exact formula, in every element type and order of axes."""

import itertools

import numpy as np
import pytest
import torch

import standpipe as sp
from reference import delivered, in_order
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform import simd_paths
from torchvision_cpu import torchvision

v2 = torchvision.transforms.v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ODD = sp.Normalize(mean=(-1.5, 0.0, 0.1 + 0.2), std=(1e-3, 3.0, 1 / 3))
NORMALIZES = [sp.Normalize(), ODD, sp.Normalize(mean=(0.5,) * 3, std=(0.5,) * 3)]


def every_value(width: int) -> UInt8Array:
    """Pictures of this width that hold each of the 256 values in each channel."""
    height = -(-256 // width)
    values = np.arange(height * width) % 256
    return (
        np.stack([values, values[::-1], values * 7 % 256], axis=-1)
        .astype(np.uint8)
        .reshape(1, height, width, 3)
    )


def row(pixels: UInt8Array, *transforms: object, simd: str | None = None) -> AnyArray:
    (image,) = delivered(in_order(sp.Arrays(image=pixels), *transforms), simd=simd)
    return image


def formula(pixels: UInt8Array, normalize: sp.Normalize | None) -> AnyArray:
    """The documented one, each operation in float32."""
    values = pixels.astype(np.float32) / np.float32(255)
    if normalize is None:
        return values
    return (values - np.array(normalize.mean, np.float32)) / np.array(normalize.std, np.float32)


@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("normalize", [None, *NORMALIZES], ids=repr)
def test_every_value_in_every_type_and_layout(normalize: sp.Normalize | None, simd: str) -> None:
    first = () if normalize is None else (normalize,)
    for width in (1, 7, 16, 33, 64, 100):
        pixels = every_value(width)
        exact = formula(pixels[0], normalize)
        for dtype, layout in itertools.product(("float16", "float32"), ("NCHW", "NHWC")):
            with np.errstate(over="ignore"):
                expected = exact.astype(dtype)
            ours = row(pixels, *first, sp.ToDtype(dtype, scale=True), sp.ToLayout(layout), simd=simd)
            assert ours.dtype == dtype
            ours = ours.transpose(1, 2, 0) if layout == "NCHW" else ours
            assert ours.tobytes() == np.ascontiguousarray(expected).tobytes(), (width, dtype, layout)


@pytest.mark.parametrize("simd", simd_paths())
def test_bytes_in_either_layout(simd: str) -> None:
    for width in (1, 7, 16, 33, 64, 100):
        pixels = every_value(width)
        for first in ((), (sp.ToDtype("uint8"),)):
            assert np.array_equal(row(pixels, *first, sp.ToLayout("NHWC"), simd=simd), pixels[0])
            planes = row(pixels, *first, sp.ToLayout("NCHW"), simd=simd)
            assert np.array_equal(planes, pixels[0].transpose(2, 0, 1))


def test_what_is_written_without_a_word() -> None:
    pixels = every_value(20)
    size = pixels.shape[1:3]
    crop = sp.CenterCrop(size)
    assert np.array_equal(row(pixels, crop), pixels[0])
    floats = formula(pixels[0], sp.Normalize(MEAN, STD)).transpose(2, 0, 1)
    assert np.array_equal(row(pixels, sp.Normalize()), floats)
    scaled = row(pixels, sp.ToDtype("float32", scale=True))
    assert np.array_equal(scaled, formula(pixels[0], None).transpose(2, 0, 1))
    for dtype in ("float32", "float16"):
        assert np.array_equal(row(pixels, sp.ToDtype(dtype)), pixels[0].transpose(2, 0, 1))
    halves = row(pixels, sp.ToDtype("float16"), sp.Normalize())  # in either order
    assert np.array_equal(halves, floats.astype(np.float16))


@pytest.mark.parametrize("normalize", NORMALIZES, ids=repr)
def test_torchvision_normalises_to_the_same_numbers(normalize: sp.Normalize) -> None:
    pixels = every_value(64)
    ours = row(pixels, normalize)
    mean, std = list(normalize.mean), list(normalize.std)
    divided = torchvision.transforms.functional.to_tensor(pixels[0])
    assert np.array_equal(ours, v2.functional.normalize(divided, mean, std).numpy())
    # transforms.v2 multiplies by 1 ÷ 255 instead. The difference, on the scale of the pixels, where 255 is 1:
    tensor = torch.from_numpy(pixels[0].transpose(2, 0, 1).copy())
    scaled = v2.functional.to_dtype(tensor, torch.float32, scale=True)
    theirs = v2.functional.normalize(scaled, mean, std).numpy()
    error = float((np.abs(ours.astype(np.float64) - theirs).max((1, 2)) * std).max())
    print(f"{normalize}: differs from transforms.v2 by up to {error:.3g}")
    assert error < 2**-21


def test_padding_is_normalised_too() -> None:
    pixels = every_value(16)
    padded = row(pixels, sp.CenterCrop(21), sp.Normalize())
    black = formula(np.zeros((1, 1, 3), np.uint8), sp.Normalize())[0, 0]
    assert np.array_equal(padded[:, 0, 0], black)
    assert np.array_equal(padded[:, -1, -1], black)
    assert np.array_equal(padded[:, 2:18, 2:18], formula(pixels[0], sp.Normalize()).transpose(2, 0, 1))
