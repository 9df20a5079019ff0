"""What is asked of the decoder that ``decode("gpu")`` uses: on a GPU where there is one, else on the CPU."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from PIL import Image

from jpegs import kinds, photo, saved
from standpipe.spec import GpuDecode, UInt8Array
from standpipe.transform import NvDecoder

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
on_a_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device here")
PLAIN = (
    "4:4:4",
    "4:2:2",
    "4:2:0",
    "4:2:0 restart markers",
    "quality 1",
    "quality 100",
    "grey",
    "4:4:0 by hand",
)
FILL = 123


@pytest.fixture(scope="module")
def decoder() -> NvDecoder:
    return NvDecoder(DEVICE)


def frames_of(
    decoder: NvDecoder, files: Sequence[bytes], sizes: Sequence[tuple[int, int]], fill: int = FILL
) -> list[UInt8Array | None]:
    """What comes of files that are decoded together; None for what is refused."""
    frames = [np.full((*size, 3), fill, np.uint8) for size in sizes]
    decoded = decoder.decode([np.frombuffer(data, np.uint8) for data in files], frames)
    return [frame if done else None for frame, done in zip(frames, decoded, strict=True)]


def exact(data: bytes) -> UInt8Array:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_pixels_are_near_exact_ones(decoder: NvDecoder) -> None:
    files = kinds(131, 150)
    for name in PLAIN:
        (frame,) = frames_of(decoder, [files[name]], [(131, 150)])
        assert frame is not None, name
        error = np.abs(frame.astype(int) - exact(files[name]))
        assert error.mean() < 2, f"{name}: {error.mean()}, at most {error.max()}"
        assert DEVICE == "cuda" or error.max() == 0


def test_an_images_pixels_dont_depend_on_those_that_come_with_it(decoder: NvDecoder) -> None:
    sizes = [(40 + 17 * i, 300 - 11 * i) for i in range(20)]
    files = [saved(photo(*size, seed=i), quality=90, subsampling=i % 3) for i, size in enumerate(sizes)]
    alone = [frames_of(decoder, [data], [size])[0] for data, size in zip(files, sizes, strict=True)]
    for places in (np.arange(20), np.random.default_rng(0).permutation(20), np.arange(20)[::-3]):
        together = frames_of(decoder, [files[i] for i in places], [sizes[i] for i in places])
        for i, frame in zip(places, together, strict=True):
            assert frame is not None
            assert np.array_equal(frame, alone[i])


def test_a_damaged_file_never_shows_another_one(decoder: NvDecoder) -> None:
    """The same pixels or a refusal, whatever was decoded before and whatever lay in its frame."""
    size = (96, 128)
    whole = saved(photo(*size), quality=90)
    begin, draw = whole.index(b"\xff\xda") + 14, np.random.default_rng(1)
    for _ in range(20):
        data = bytearray(whole)
        for at in draw.integers(begin, len(whole) - 2, 3):
            data[at] ^= 1 << int(draw.integers(8))
        seen = []
        for fill, others in ((0, [photo(*size, seed=1)] * 8), (255, [255 - photo(*size, seed=2)] * 8)):
            frames_of(decoder, [saved(other, quality=90) for other in others], [size] * 8)
            seen.append(frames_of(decoder, [bytes(data)], [size], fill)[0])
        one, other = seen
        assert (one is None) == (other is None)
        assert one is None or other is None or np.array_equal(one, other)


@on_a_gpu
def test_decoding_doesnt_wait_for_the_training_steps_work(decoder: NvDecoder) -> None:
    size = (300, 400)
    data = saved(photo(*size), quality=90)
    for _ in range(3):  # each of its threads allocates buffers, which waits for everything
        frames_of(decoder, [data] * 64, [size] * 64)
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(4_000_000_000)  # some seconds
            done = torch.cuda.Event()
            done.record(stream)
            assert frames_of(decoder, [data], [size])[0] is not None
            assert not done.query()
            done.synchronize()


@on_a_gpu
def test_memory_of_the_gpu_stays_below_the_cap() -> None:
    gpu = GpuDecode(1.0, 128 << 20)
    side = int(gpu.most_pixels**0.5)
    files = [saved(photo(side, side, seed=i), quality=95, subsampling=0) for i in range(4)]
    decoder = NvDecoder("cuda")
    frames_of(decoder, [saved(photo(16, 16))], [(16, 16)])  # the context and the library's code are there now
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(4):
        assert all(frame is not None for frame in frames_of(decoder, files * 3, [(side, side)] * 12))
        assert before - torch.cuda.mem_get_info()[0] <= gpu.memory
