"""Fingerprints of samples and of generators' states, and shapes, so that they can be compared across processes."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from typing import Any

LEAVES = 6  # of a sample that have fingerprints of their own
WHOLE = ""  # the path of the sample itself


def of_sample(sample: Any) -> dict[str, str]:
    """Fingerprints of the sample, and of each of its first parts, by path: augmentation may leave ids as they are."""
    parts = list(leaves(sample))
    prints = {path: _print(_bytes(value)) for path, value in parts}
    whole = _print("".join(prints.values()).encode())
    return {WHOLE: whole, **dict(list(prints.items())[:LEAVES])}


def leaves(sample: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a sample is made of, by path such as ``[0]`` or ``['image']``."""
    if isinstance(sample, dict):
        for key, value in sample.items():
            yield from leaves(value, f"{path}[{key!r}]")
    elif isinstance(sample, list | tuple) and len(sample) <= 64:
        for number, value in enumerate(sample):
            yield from leaves(value, f"{path}[{number}]")
    else:
        yield path or "[]", sample


def shapes(sample: Any) -> str:
    """Types and shapes of a sample, as text: what collate needs to be the same."""
    return ", ".join(f"{path} {_shape(value)}".strip() for path, value in leaves(sample))


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return type(value).__name__
    return f"{tuple(shape)} {getattr(value, 'dtype', '')}".strip()


def size(batch: Any) -> int:
    """Bytes of a batch's tensors: they travel through shared memory."""
    total = 0
    for _, value in leaves(batch):
        total += int(getattr(value, "nbytes", 0)) if hasattr(value, "dtype") else 0
    return total


def of_generator(generator: Any) -> str:
    """A fingerprint of a generator's state: one of the standard library, NumPy or torch."""
    for name in ("getstate", "get_state"):
        if hasattr(generator, name):
            return _print(_bytes(getattr(generator, name)()))
    return _print(repr(generator.bit_generator.state).encode())


def of_globals() -> dict[str, str]:
    """Fingerprints of the global generators of what is imported."""
    prints = {"random": _print(repr(random.getstate()).encode())}
    if "numpy" in sys.modules:
        prints["numpy.random"] = _print(_bytes(sys.modules["numpy"].random.get_state()))
    if "torch" in sys.modules:
        prints["torch"] = _print(_bytes(sys.modules["torch"].random.get_rng_state()))
    return prints


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu()
        return repr((value.dtype, tuple(value.shape))).encode() + bytes(value.contiguous().flatten().numpy())
    if hasattr(value, "tobytes"):  # an array, an image
        return bytes(value.tobytes())
    if isinstance(value, tuple):
        return b"|".join(map(_bytes, value))
    return repr(value).encode("utf-8", "backslashreplace")


def _print(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
