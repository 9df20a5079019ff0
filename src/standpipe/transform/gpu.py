"""JPEGs decoded by nvImageCodec: on a GPU, or by its decoder for the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from standpipe.errors import PlanError
from standpipe.spec import GPU_THREADS, UInt8Array

LIBRARY = "nvidia.nvimgcodec"
# Chroma is interpolated as libjpeg does, and the entropy code is decoded on the GPU however small the image is.
OPTIONS = ":fancy_upsampling=1 nvjpeg_cuda_decoder:hybrid_huffman_threshold=0"
VERBOSITY = "PYNVIMGCODEC_VERBOSITY"
NOT_INSTALLED = (
    "decode('gpu') and 'hybrid' need nvImageCodec: pip install 'standpipe[gpu]', or use decode('exact')"
)


PACKAGES = ("nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13")
DRIVER = "libcuda.so.1"
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class Decoder(Protocol):
    """Decodes JPEGs together."""

    def decode(self, encoded: Sequence[UInt8Array], frames: Sequence[UInt8Array]) -> list[bool]:
        """Decode files; return for each one whether it was decoded.

        encoded  (n,) uint8 each, files
        frames   (H, W, 3) uint8 each, RGB, of which every byte is written if the file was decoded

        Raises if the decoder doesn't work at all.
        """


class NvDecoder:
    """nvImageCodec's decoder. Each image is decoded alone, so that the others have no say in its pixels.

    device  ``"cuda"``, ``"cuda:1"``, …, or ``"cpu"``

    Raises ``PlanError`` where it isn't installed, or there is no such GPU.
    """

    def __init__(self, device: str) -> None:
        self._library = library = _loaded()
        on_cpu = device == "cpu"
        kind = library.BackendKind.CPU_ONLY if on_cpu else library.BackendKind.HYBRID_CPU_GPU
        number = library.NVIMGCODEC_DEVICE_CPU_ONLY if on_cpu else _number(device)
        try:
            self._decoder = library.Decoder(
                device_id=number,
                max_num_cpu_threads=GPU_THREADS,
                backends=[library.Backend(kind)],
                options=OPTIONS,
            )
            self._stream = 0 if on_cpu else _stream_of(number)
        except Exception as error:
            raise PlanError(
                f"decode_device={device!r}: {error}; decode('exact') needs no GPU, and decode_device='cpu' tries "
                "the rest without one"
            ) from error
        self._settings = library.DecodeParams(apply_exif_orientation=False, color_spec=library.ColorSpec.SRGB)
        # What of it is missing shows when it decodes; then every image would be refused.
        if self.decode([_small_file()], [np.empty((16, 16, 3), np.uint8)]) != [True]:
            raise PlanError(
                f"decode_device={device!r}: nvImageCodec is there and decodes nothing; it needs nvJPEG, which "
                "pip install 'standpipe[gpu]' brings"
            )

    def decode(self, encoded: Sequence[UInt8Array], frames: Sequence[UInt8Array]) -> list[bool]:
        """Decode files, as ``Decoder.decode`` describes."""
        streams = [self._library.CodeStream(file) for file in encoded]
        fitting = [row for row, stream in enumerate(streams) if _size(stream) == frames[row].shape[:2]]
        images = self._decoder.decode(
            [streams[row] for row in fitting],
            images=[self._library.as_image(frames[row], cuda_stream=self._stream) for row in fitting],
            params=self._settings,
            cuda_stream=self._stream,
        )
        decoded = {row for row, image in zip(fitting, images, strict=True) if image is not None}
        return [row in decoded for row in range(len(encoded))]


def numbered(device: str) -> str:
    """Return the device with its number, if it is this thread's current one."""
    return f"cuda:{_number(device)}" if device == "cuda" else device


def is_installed() -> bool:
    """Return True if nvImageCodec is installed; nothing of it is loaded."""
    try:
        return importlib.util.find_spec(LIBRARY) is not None
    except ModuleNotFoundError:
        return False


@functools.cache
def decoder_of_gpu() -> str:
    """Name and version of nvImageCodec; nothing of it is loaded."""
    from importlib import metadata  # takes a tenth of an import of standpipe

    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return f"nvImageCodec {metadata.version(package)}"
    return "nvImageCodec"


def _loaded() -> Any:
    """The library. It would print to stderr what of it isn't there, and each file that it refuses."""
    before = os.environ.get(VERBOSITY)
    os.environ.setdefault(VERBOSITY, "0")
    try:
        return importlib.import_module(LIBRARY)
    except ImportError as error:
        raise PlanError(f"{NOT_INSTALLED} ({error})") from error
    finally:
        if before is None:
            del os.environ[VERBOSITY]


def _small_file() -> UInt8Array:
    """A JPEG of 16 × 16 pixels."""
    from PIL import Image  # 0.05 s that most pipelines never need

    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 100, 50)).save(file, "JPEG")
    return np.frombuffer(file.getvalue(), np.uint8)


def _size(stream: Any) -> tuple[int, int] | None:
    """(height, width) by its header; None where it can't be read."""
    try:
        return stream.height, stream.width
    except RuntimeError:
        return None


@functools.cache
def _stream_of(number: int) -> int:
    """A CUDA stream of a GPU, for all decoders there. Work that is ordered by it waits for nobody else's.

    By default that would be the stream on which torch runs the training step: each image would wait for all
    of the step that is on its way, and the next step for the image. Raises ``OSError`` where the driver
    fails.
    """
    driver = ctypes.CDLL(DRIVER)
    context, before, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    device = ctypes.c_int()
    for function, *arguments in (
        ("cuInit", 0),
        ("cuDeviceGet", ctypes.byref(device), number),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
        ("cuCtxPushCurrent_v2", context),
        ("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING),
        ("cuCtxPopCurrent_v2", ctypes.byref(before)),
    ):
        if status := getattr(driver, function)(*arguments):
            raise OSError(f"{function} of {DRIVER} gave {status}")
    assert stream.value is not None
    return stream.value


def _number(device: str) -> int:
    """A GPU's number, as CUDA counts those that this process may use."""
    if ":" in device:
        return int(device.partition(":")[2])
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0
