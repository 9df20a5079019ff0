"""Find a module's file and imports, and whether it is installed, without importing the module."""

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
    """Return the path of a loaded module's file; None if it has no file or isn't loaded.

    It is ``"<built-in>"`` for a built-in module.
    """
    if module in sys.builtin_module_names:
        return "<built-in>"
    return getattr(sys.modules.get(module), "__file__", None)


@functools.cache
def is_installed(file: str | None) -> bool:
    """Return True if a file belongs to Python's standard library or an installed package; False for None."""
    if file is None:
        return False
    if file.startswith(("<built-in", "<frozen")):
        return True
    return is_packaged(file) or _is_in(file, "stdlib", "platstdlib")


@functools.cache
def is_packaged(file: str | None) -> bool:
    """Return True if a file is in a folder of installed packages, such as site-packages; False for None."""
    if file is None:
        return False
    return not _INSTALLED.isdisjoint(Path(file).parts) or _is_in(file, "purelib", "platlib")


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object, and the code objects of all functions and classes inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def imports_of(code: types.CodeType, package: str) -> Iterator[str]:
    """Yield the full names of the modules that a code object imports.

    It also yields ``module.name`` for each name of a ``from`` import, which may be a module too.

    package  package of the module that contains the code
    """
    import dis  # imports many modules, which importing standpipe doesn't need
    import importlib.util

    before: list[Any] = [None, None]  # level of a relative import, and the imported names
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, taken = before
            name = "." * (level or 0) + instruction.argval
            with contextlib.suppress(
                ImportError
            ):  # a level above the top package: the import fails when it runs
                name = importlib.util.resolve_name(name, package)
                yield name
                yield from (f"{name}.{each}" for each in taken or () if each != "*")
        before = [before[1], instruction.argval]


class Sources:
    """A reader of the files of modules that aren't installed; it reads each file once."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[str, tuple[str, ...]] | None] = {}

    def digests(self, module: str) -> dict[str, str]:
        """Return the digests of a module's file and of all files that it imports, also indirectly, by module.

        Installed modules are left out.
        """
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
            # A module's package counts too: importing the module runs it.
            new = {each for each in (package, *imported) if each} - seen
            seen |= new
            left += new
        return dict(sorted(found.items()))


def _read(module: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the digest of a module's file, and its imports; None without a file, or for an installed module."""
    from hashlib import blake2b

    file, is_package = _source_of(module)
    if file is None or is_installed(file):
        return None
    source = Path(file).read_bytes()
    digest = blake2b(source, digest_size=16).hexdigest()
    try:
        code = compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # a module in C
        return digest, ()
    package = module if is_package else module.rpartition(".")[0]
    return digest, tuple(name for inner in codes(code) for name in imports_of(inner, package))


def _source_of(module: str) -> tuple[str | None, bool]:
    """Return a module's file and True if it is a package; (None, False) if it is installed or has no file."""
    import importlib.machinery
    import importlib.util

    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a main module without a spec
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
    import sysconfig  # likewise not needed by importing standpipe

    return any(Path(file).is_relative_to(sysconfig.get_path(name)) for name in names)
