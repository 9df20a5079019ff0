"""Return versions and instruction sets of the native kernels on this machine."""

from __future__ import annotations

from standpipe import _native


def decoder_version() -> str:
    """Return the version of the libjpeg-turbo in use, such as ``"2.1.5"``. Pixels may depend on it."""
    return _native.jpeg_library_version()


def simd_paths() -> list[str]:
    """Return the instruction sets that this machine runs, narrowest first. All give the same pixels."""
    return _native.simd_paths()
