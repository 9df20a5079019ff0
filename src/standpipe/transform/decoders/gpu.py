"""Decode JPEGs with NVIDIA's nvImageCodec, on a GPU or with its decoder for the CPU."""

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
# Chroma is interpolated as in libjpeg, and the entropy code of images of any size is decoded on the GPU.
OPTIONS = ":fancy_upsampling=1 nvjpeg_cuda_decoder:hybrid_huffman_threshold=0"
VERBOSITY = "PYNVIMGCODEC_VERBOSITY"
NOT_INSTALLED = (
    "decode('gpu') and 'hybrid' need nvImageCodec: run pip install 'nvidia-nvimgcodec-cu12[nvjpeg]', or use "
    "decode('exact')"
)


PACKAGES = ("nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13")
DRIVER = "libcuda.so.1"
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class Decoder(Protocol):
    """An interface of decoders that take several JPEGs per call."""

    def decode(self, encoded: Sequence[UInt8Array], frames: Sequence[UInt8Array]) -> list[bool]:
        """Decode JPEGs into ``frames``; return a bool per JPEG: True if it was decoded, False if it can't be.

        encoded  the JPEG files, (n,) uint8 each
        frames   memory for the RGB images, (H, W, 3) uint8 each; a decoded image fills its frame completely

        Raises an error only if the decoder fails as a whole.
        """


class NvDecoder:
    """The JPEG decoder of nvImageCodec. An image's pixels don't depend on the other images of the same call.

    device  ``"cuda"``, ``"cuda:1"``, …, or ``"cpu"``

    Raises ``PlanError`` if nvImageCodec isn't installed or decodes nothing, or the GPU can't be used.
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
                f"decode_device={device!r} can't be used: {error}. Use decode('exact'), which needs no GPU, or "
                "decode_device='cpu' to try this pipeline without one"
            ) from error
        self._settings = library.DecodeParams(apply_exif_orientation=False, color_spec=library.ColorSpec.SRGB)
        # A missing part of nvImageCodec shows only when it decodes; then it would refuse every image.
        if self.decode([_small_file()], [np.empty((16, 16, 3), np.uint8)]) != [True]:
            raise PlanError(
                f"decode_device={device!r} can't be used: nvImageCodec is installed, but decodes nothing. It needs "
                "nvJPEG: pip install 'nvidia-nvimgcodec-cu12[nvjpeg]'"
            )

    def decode(self, encoded: Sequence[UInt8Array], frames: Sequence[UInt8Array]) -> list[bool]:
        """Decode JPEGs into ``frames``; return True per decoded JPEG. A frame of another size gives False."""
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


def numbered_device(device: str) -> str:
    """Return the name of a device with its number: ``"cuda"`` becomes ``"cuda:N"``, N being the current GPU."""
    return f"cuda:{_number(device)}" if device == "cuda" else device


def has_nvimagecodec() -> bool:
    """Return True if nvImageCodec is installed, without loading it."""
    try:
        return importlib.util.find_spec(LIBRARY) is not None
    except ModuleNotFoundError:
        return False


@functools.cache
def decoder_of_gpu() -> str:
    """Return ``"nvImageCodec VERSION"``, or the name alone if it isn't installed, without loading it."""
    from importlib import metadata  # imported here: it takes a tenth of importing standpipe

    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return f"nvImageCodec {metadata.version(package)}"
    return "nvImageCodec"


def _loaded() -> Any:
    """Import nvImageCodec with its messages on stderr switched off, and return the module.

    Raises ``PlanError`` if it isn't installed.
    """
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
    """Return a JPEG of 16 × 16 pixels."""
    from PIL import Image  # imported here: it takes 0.05 s, which most pipelines never need

    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 100, 50)).save(file, "JPEG")
    return np.frombuffer(file.getvalue(), np.uint8)


def _size(stream: Any) -> tuple[int, int] | None:
    """Return (height, width) in pixels from a JPEG's header; None if nvImageCodec can't read the header."""
    try:
        return stream.height, stream.width
    except RuntimeError:
        return None


@functools.cache
def _stream_of(number: int) -> int:
    """Create a CUDA stream for all decoders of GPU ``number``, and return its address.

    It isn't the default stream, where torch runs the training step: there, each image would wait for a whole step,
    and the next step for the image. Raises ``OSError`` if the driver fails.
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
    """Return the GPU's number, as CUDA counts the GPUs that this process may use.

    device  ``"cuda:1"`` gives 1; ``"cuda"`` gives torch's current GPU, or 0 if torch hasn't used CUDA yet
    """
    if ":" in device:
        return int(device.partition(":")[2])
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0
