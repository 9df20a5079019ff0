"""Return versions and instruction sets of the native kernels on this machine."""

from __future__ import annotations

import os

from standpipe import _native
from standpipe.errors import PlanError

DECODER_VARIABLE = "STANDPIPE_DECODER"


def decoder_version() -> str:
    """Return the version of the libjpeg-turbo in use, such as ``"2.1.5"``. Pixels may depend on it."""
    return _native.jpeg_library_version()


def only_libjpeg() -> bool:
    """Return True if libjpeg-turbo alone decodes JPEGs, without standpipe's entropy decoder in front of it.

    Both give the same pixels. Raises ``PlanError`` for an unknown STANDPIPE_DECODER.
    """
    choice = os.environ.get(DECODER_VARIABLE, "")
    if choice not in ("", "libjpeg"):
        raise PlanError(f"{DECODER_VARIABLE} must be unset or 'libjpeg', got {choice!r}")
    return choice == "libjpeg" or not _native.has_entropy_decoder()


def decoder_name() -> str:
    """Return the name and version of the JPEG decoder, as people read it."""
    library = f"libjpeg-turbo {decoder_version()}"
    return library if only_libjpeg() else f"{library} with standpipe's entropy decoder"


def simd_paths() -> list[str]:
    """Return the instruction sets that this machine runs, narrowest first. All give the same pixels."""
    return _native.simd_paths()
