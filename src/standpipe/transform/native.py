"""Ask which native kernels this machine runs."""

from __future__ import annotations

from standpipe import _native


def decoder_version() -> str:
    """Version of the libjpeg-turbo that decodes, such as ``"2.1.5"``. Another one may give other pixels."""
    return _native.jpeg_library_version()


def simd_paths() -> list[str]:
    """Instruction sets that this machine runs, narrowest first. All give the same bytes."""
    return _native.simd_paths()
