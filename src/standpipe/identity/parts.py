"""Compute the parts of a cache set's identity for Python code: functions, a dataset, and the packages they use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.identity.code import Code, Unreadable, code_of
from standpipe.transform.python.function import Function, callable_name

# Packages that a package calls for its work: their versions count too.
RESTS_ON = {
    "torchvision": ("torch", "PIL"),
    "albumentations": ("cv2", "numpy"),
    "albumentationsx": ("cv2", "numpy"),
}
ADVICE = (
    "Put .cache(…) before it, or give it an attribute _fingerprint, a text that changes with what it does"
)


def code_parts(
    transforms: Sequence[Transform], dataset: Any = None, *, version: str | int | None = None
) -> dict[str, str]:
    """Return a short text for each function among ``transforms`` and for a Python dataset, by name.

    A function counts by its source files, the values bound to it and how it is called. A dataset counts by its
    class's source files and its contents, or by its ``_fingerprint``. Installed packages that they use count by
    their versions and the hashes of the installed files, since a user's own package may be installed again under
    the same version.

    version  the user's version of all of them; with one, those whose changes can't be detected count by it alone

    Raises ``PlanError`` for objects whose changes can't be detected, and for those that contain a random
    generator.
    """
    functions = [transform for transform in transforms if isinstance(transform, Function)]
    parts: dict[str, str] = {}
    if version is not None and (functions or dataset is not None):
        parts["version"] = repr(version)
    packages: set[str] = set()
    if dataset is not None:
        code = _code("the dataset", dataset, version)
        parts["dataset"] = code.digest
        packages |= code.packages
    for number, function in enumerate(functions):
        code = _code(callable_name(function.fn), function.fn, version)
        parts[f"function {number}"] = (
            f"{code.digest} {function.kind} {function.field} {function.input_format}"
        )
        packages |= code.packages
    packages |= {name for package in packages for name in RESTS_ON.get(package, ())}
    return parts | {f"package {name}": _version(name) for name in sorted(packages)}


def _code(name: str, value: Any, version: str | int | None) -> Code:
    try:
        code = code_of(value)
    except Unreadable as error:
        if version is not None:
            return Code(name, frozenset(), ())
        raise PlanError(
            f"cache(…): changes of {name} can't be detected, so its results can't be cached: {error}. Use "
            f"Cache(version=…), a text or number that you change with what it does. Or: {ADVICE[0].lower()}{ADVICE[1:]}"
        ) from error
    if code.draws:
        raise PlanError(
            f"cache(…): {name} holds {' and '.join(code.draws)}, so its results differ each time, and the cache would "
            f"keep the first one for ever. {ADVICE}, if its results don't differ"
        )
    return code


def _version(package: str) -> str:
    from importlib import metadata  # takes a tenth of the time to import standpipe

    version = getattr(sys.modules.get(package), "__version__", None)
    try:
        installed = metadata.distribution(package)
    except metadata.PackageNotFoundError:  # the distribution has another name than the package
        return "of no known version" if version is None else str(version)
    return f"{version or installed.version} {_installed_files(package, installed.read_text('RECORD') or '')}"


def _installed_files(package: str, record: str) -> str:
    """Return a digest of the lines of a package's RECORD, pip's list of installed files with their hashes.

    record  text of RECORD; only lines of files of the package count
    """
    from hashlib import blake2b

    own = (line for line in record.splitlines() if line.startswith((f"{package}/", f"{package}.")))
    return blake2b("\n".join(sorted(own)).encode(), digest_size=8).hexdigest()
