"""Find the owner, the file and the imports of a module, without importing any."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_INSTALLED = frozenset(["site-packages", "dist-packages"])


def file_of(module: str) -> str | None:
    """Return the file of a module's code; None without a file, such as a notebook's cells."""
    if module in sys.builtin_module_names:
        return "<built-in>"
    return getattr(sys.modules.get(module), "__file__", None)


@functools.cache
def is_installed(file: str | None) -> bool:
    """Return True if code in a file belongs to Python or an installed package."""
    if file is None:
        return False
    if file.startswith(("<built-in", "<frozen")):
        return True
    return is_packaged(file) or _is_in(file, "stdlib", "platstdlib")


@functools.cache
def is_packaged(file: str | None) -> bool:
    """Return True if a file belongs to an installed package, of this environment or one that it is based on."""
    if file is None:
        return False
    return not _INSTALLED.isdisjoint(Path(file).parts) or _is_in(file, "purelib", "platlib")


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Code, and that of functions and classes inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def imports_of(code: types.CodeType, package: str) -> Iterator[str]:
    """Full names of the modules that code imports, and of what it takes from them, which may be modules too.

    package  of the module that the code is in
    """
    import dis  # loads much that importing standpipe needn't
    import importlib.util

    before: list[Any] = [None, None]  # how many packages up, and what is taken
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, taken = before
            name = "." * (level or 0) + instruction.argval
            with contextlib.suppress(ImportError):  # more packages up than there are: it fails when it is run
                name = importlib.util.resolve_name(name, package)
                yield name
                yield from (f"{name}.{each}" for each in taken or () if each != "*")
        before = [before[1], instruction.argval]


class Sources:
    """Files of modules that aren't installed; each is read once."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[str, tuple[str, ...]] | None] = {}

    def digests(self, module: str) -> dict[str, str]:
        """Digests of a module's file and those of all that it imports, by their names."""
        found: dict[str, str] = {}
        seen, left = {module}, [module]
        while left:
            name = left.pop()
            if name not in self._read:
                self._read[name] = _read(name)
            package, _, _ = name.rpartition(".")
            imported: tuple[str, ...] = ()
            if (source := self._read[name]) is not None:
                found[name], imported = source
            # A package that a module is in takes part too: importing the module runs it.
            new = {each for each in (package, *imported) if each} - seen
            seen |= new
            left += new
        return dict(sorted(found.items()))


def _read(module: str) -> tuple[str, tuple[str, ...]] | None:
    """The digest of a module's file, and what it imports; None without one, and for what is installed."""
    from hashlib import blake2b

    file, is_package = _source_of(module)
    if file is None or is_installed(file):
        return None
    source = Path(file).read_bytes()
    digest = blake2b(source, digest_size=16).hexdigest()
    try:
        code = compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # of a module in C
        return digest, ()
    package = module if is_package else module.rpartition(".")[0]
    return digest, tuple(name for inner in codes(code) for name in imports_of(inner, package))


def _source_of(module: str) -> tuple[str | None, bool]:
    """The file of a module, and whether it is a package."""
    import importlib.machinery
    import importlib.util

    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # of a main module that has none
        return file_of(module), False
    for number, _ in enumerate(rest):
        if spec is None or is_installed(spec.origin):
            return None, False
        name = ".".join((top, *rest[: number + 1]))
        spec = importlib.machinery.PathFinder.find_spec(name, spec.submodule_search_locations or [])
    if spec is None or not spec.has_location:
        return None, False
    return spec.origin, spec.submodule_search_locations is not None


def _is_in(file: str, *names: str) -> bool:
    import sysconfig  # as above

    return any(Path(file).is_relative_to(sysconfig.get_path(name)) for name in names)
