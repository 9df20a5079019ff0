"""Samples as bytes: what comes back is what went in, or an error that says which field can't be kept."""

import struct
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image

# The bytes have no public name: a cache keeps them, and their form may change with its format.
from standpipe.engine.python.stored import DTYPES, MODES, NotStorable, NotStored, from_bytes, to_bytes


def back(value: Any) -> Any:
    sample, form = from_bytes(to_bytes({"x": value}, dict))
    assert form is dict
    assert list(sample) == ["x"]
    return sample["x"]


def same(one: Any, other: Any) -> bool:
    """Equal, and of one kind throughout."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, float):
        return np.float64(one).tobytes() == np.float64(other).tobytes()
    return bool(one == other)


NUMBERS = st.integers() | st.floats() | st.booleans() | st.none() | st.complex_numbers(allow_nan=False)
ARRAYS = st.builds(
    lambda dtype, shape, data: (
        np.frombuffer(data, np.uint8).view(np.uint8)[:0].view(dtype).reshape(0)
        if not shape
        else np.resize(np.frombuffer(data, np.uint8), np.prod(shape, dtype=int) * dtype.itemsize)
        .view(dtype)
        .reshape(shape)
    ),
    st.sampled_from([dtype for dtype in DTYPES.values() if dtype.kind != "b"]),
    st.lists(st.integers(0, 5), max_size=4),
    st.binary(min_size=1, max_size=100),
)
VALUES = st.recursive(
    NUMBERS | st.text() | st.binary() | ARRAYS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES))
def test_values_come_back_as_they_were(sample: dict[str, Any]) -> None:
    found, form = from_bytes(to_bytes(sample, tuple))
    assert form is tuple
    assert same(found, sample)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1.5),
        np.bool_(True),
        np.int64(-3),
        np.array(3.5),
        np.zeros((0, 7), np.int16),
        np.arange(12).reshape(3, 4).T,
        np.arange(12, dtype=">i4")[::2],
        np.array([True, False]),
        -(1 << 200),
        -128,
        255,
        "lone surrogate \udcff",
        "two of them \ud800\udc00",
    ],
    ids=repr,
)
def test_numbers_of_numpy_and_arrays_of_any_order(value: Any) -> None:
    assert same(back(value), value)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "bfloat16", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (4, 5)])
def test_tensors_come_back_as_tensors(dtype: str, shape: tuple[int, ...]) -> None:
    value = (torch.rand(shape) * 9).to(getattr(torch, dtype))
    found = back(value)
    assert type(found) is torch.Tensor
    assert found.dtype is value.dtype
    assert torch.equal(found, value)
    if len(shape) == 2:
        assert torch.equal(back(value.T), value.T)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_pictures_come_back_as_pictures(mode: str) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, 13 * 7 * 4, np.uint8).tobytes()
    value = Image.frombytes(mode, (13, 7), pixels[: len(Image.new(mode, (13, 7)).tobytes())])
    found = back(value)
    assert (found.mode, found.size, found.tobytes()) == (value.mode, value.size, value.tobytes())


def test_what_a_file_says_of_its_picture_comes_back() -> None:
    """Functions turn images by their EXIF, and make transparent what a palette says."""
    value = Image.new("RGB", (3, 2))
    exif = value.getexif()
    exif[0x0112] = 6  # turned by a quarter
    value.info = {
        "exif": exif.tobytes(),
        "transparency": (1, 2, 3),
        "dpi": (72.0, 72),
        "of no kind": object(),
    }
    found = back(value)
    assert found.info == {name: value.info[name] for name in ("exif", "transparency", "dpi")}
    assert found.getexif()[0x0112] == 6


def test_a_memory_map_comes_back_as_an_array(tmp_path: Any) -> None:
    np.save(tmp_path / "a.npy", np.arange(6))
    found = back(np.load(tmp_path / "a.npy", mmap_mode="r"))
    assert same(found, np.arange(6))


def test_arrays_are_views_that_cant_be_written() -> None:
    data = to_bytes({"a": np.arange(1000.0), "b": b"x", "c": np.ones((3, 3), np.uint8)}, dict)
    sample, _ = from_bytes(data)
    for name in ("a", "c"):
        assert np.shares_memory(sample[name], data)
        assert sample[name].flags.aligned
        with pytest.raises(ValueError, match="read-only"):
            sample[name][:] = 0


def test_an_image_with_its_label_takes_few_bytes_more() -> None:
    image = np.zeros((32, 32, 3), np.uint8)
    assert len(to_bytes({"image": image, "label": 7}, tuple)) - image.nbytes < 0.03 * image.nbytes


class Pair(NamedTuple):
    """Somebody's own tuple."""

    one: int


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({1, 2}, "the field 'x' is a set"),
        (object(), "the field 'x' is a object"),
        (np.array(["a"]), "the field 'x' is a numpy.ndarray of <U1"),
        (np.array([object()]), "of object"),
        (np.ma.masked_array([1, 2], [True, False]), "MaskedArray"),
        (np.datetime64("2020-01-01"), "datetime64"),
        (Pair(1), "Pair"),
        (torch.zeros(2, requires_grad=True), "torch.Tensor of torch.float32"),
        (torch.zeros(2).to_sparse(), "torch.Tensor"),
        (torch.nn.Parameter(torch.zeros(2)), "Parameter"),
        (Image.new("P", (2, 2)), "of mode 'P'"),
        (Image.new("L", (0, 2)), "of mode 'L'"),
        ([1, {"deep": {1}}], r"the field 'x'[1]['deep'] is a set"),
        ({3: 1}, "the field 'x' has a key 3, which is a int"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cant_be_kept_is_named(value: Any, says: str) -> None:
    with pytest.raises(NotStorable) as error:
        to_bytes({"x": value}, dict)
    assert says in str(error.value)


def test_what_leads_back_to_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotStorable):
        to_bytes({"x": value}, dict)


@pytest.mark.parametrize(
    "told",
    [
        "",
        "[0,",
        "[0]",
        '[7,{"x":1}]',
        "[0,[]]",
        '[0,{"x":[]}]',
        '[0,{"x":["int"]}]',
        '[0,{"x":["int","one"]}]',
        '[0,{"x":["array","|O",[1]]}]',
        '[0,{"x":["array","|u1",[9]]}]',
        '[0,{"x":["array","|u1",[-1]]}]',
        '[0,{"x":["array","|u1",{}]}]',
        '[0,{"x":["array",["|u1"],[1]]}]',
        '[0,{"x":["scalar","|u1",[2]]}]',
        '[0,{"x":["tensor","<f4",[0],"int32"]}]',
        '[0,{"x":["picture","|u1",[0],"RGB",[100000,100000],{}]}]',
        '[0,{"x":["picture","|u1",[1],"L",[1.0,1],{}]}]',
        '[0,{"x":["pickle","|u1",[1]]}]',
        '[0,{"x":' + "[" * 20000,
        '[0,{"x":' + '["list",' * 20 + "1" + "]" * 20 + "}]",
        '[0,{"x":' + "9" * 5000 + "}]",
    ],
    ids=lambda told: told[:40],
)
def test_a_text_that_tells_no_sample_is_an_error(told: str) -> None:
    data = np.frombuffer(bytearray(struct.pack("<I", len(told)) + told.encode() + b"\0"), np.uint8)
    with pytest.raises(NotStored):
        from_bytes(data)


def test_any_cut_and_any_bit_is_a_sample_or_an_error() -> None:
    whole = to_bytes(
        {"a": np.arange(3.0), "t": torch.ones(2), "n": [1, "é", None], "i": Image.new("L", (2, 2))}, dict
    )
    for size in range(len(whole)):
        with pytest.raises(NotStored):
            from_bytes(whole[:size].copy())
    for bit in range(8 * len(whole)):
        changed = whole.copy()
        changed[bit // 8] ^= 1 << bit % 8
        try:
            sample, _ = from_bytes(changed)
        except NotStored:
            continue
        assert type(sample) is dict
