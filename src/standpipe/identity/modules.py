"""Read the user's source files, and find which files they import, without importing them."""

from __future__ import annotations

import contextlib
import functools
import sys
import sysconfig
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INSTALLED = frozenset(["site-packages", "dist-packages"])
_OURS = Path(__file__).parent.parent
# Now: sysconfig imports more at its first use. A process that is forked while another thread imports waits for ever.
_PATHS = {name: sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def file_of(module: str) -> str | None:
    """Return the path of a loaded module's file; None if it has no file or isn't loaded.

    It is ``"<built-in>"`` for a built-in module.
    """
    if module in sys.builtin_module_names:
        return "<built-in>"
    return getattr(sys.modules.get(module), "__file__", None)


@functools.cache
def is_installed(file: str | None) -> bool:
    """Return True if a file belongs to Python's library, an installed package or standpipe; False for None."""
    if file is None:
        return False
    if file.startswith(("<built-in", "<frozen")):
        return True
    return is_packaged(file) or _is_in(file, "stdlib", "platstdlib") or Path(file).is_relative_to(_OURS)


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


@dataclass(frozen=True, slots=True)
class _Source:
    """A file: a digest of its bytes, and its code objects, which a module in C hasn't."""

    digest: str
    codes: tuple[types.CodeType, ...]


class Sources:
    """A reader of the user's source files; it reads each file once.

    packages  top-level names of installed packages that these files import
    """

    def __init__(self) -> None:
        self._read: dict[str, _Source] = {}
        self.packages: set[str] = set()

    def has(self, code: types.CodeType) -> bool:
        """Return True if a code object is the one that its source file compiles to now."""
        try:
            return code in self._source(code.co_filename).codes
        except OSError:
            return False

    def digests(self, file: str, package: str) -> dict[str, str]:
        """Return the digest of a file, under ``""``, and of each user's module that it imports, also indirectly.

        package  package of the module whose file it is; ``""`` without one
        """
        found: dict[str, str] = {}
        seen, left = {""}, [("", file, package)]
        while left:
            name, file, package = left.pop()
            source = self._source(file)
            found[name] = source.digest
            # A module's packages count too: importing the module runs them.
            names = {package, name.rpartition(".")[0]}.union(
                *(_imports_of(code, package) for code in source.codes)
            )
            for new in sorted(names - seen):
                seen.add(new)
                if (place := _place_of(new)) is not None:
                    left.append((new, *place))
                elif (top := new.partition(".")[0]) != "standpipe" and is_packaged(file_of(top)):
                    self.packages.add(top)
        return dict(sorted(found.items()))

    def _source(self, file: str) -> _Source:
        if file not in self._read:
            self._read[file] = _read(file)
        return self._read[file]


def _read(file: str) -> _Source:
    from hashlib import blake2b

    source = Path(file).read_bytes()
    digest = blake2b(source, digest_size=16).hexdigest()
    try:
        return _Source(digest, tuple(codes(compile(source, file, "exec", dont_inherit=True))))
    except (SyntaxError, ValueError):  # a module in C
        return _Source(digest, ())


def _imports_of(code: types.CodeType, package: str) -> Iterator[str]:
    """Yield the full names of the modules that a code object imports.

    It also yields ``module.name`` for each name of a ``from`` import, which may be a module too.

    package  package of the module that contains the code
    """
    import dis  # imports many modules, which importing standpipe doesn't need
    import importlib.util

    if dis.opmap["IMPORT_NAME"] not in code.co_code[::2]:
        return  # as most code: disassembling it takes far longer
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


def _place_of(module: str) -> tuple[str, str] | None:
    """Return the file of a user's module, and its package; None if it is installed or has no file."""
    import importlib.machinery
    import importlib.util

    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a main module without a spec
        return None
    for number, _ in enumerate(rest):
        if spec is None or is_installed(spec.origin):
            return None
        name = ".".join((top, *rest[: number + 1]))
        spec = importlib.machinery.PathFinder.find_spec(name, spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.has_location or is_installed(spec.origin):
        return None
    is_package = spec.submodule_search_locations is not None
    return spec.origin, module if is_package else module.rpartition(".")[0]


def _is_in(file: str, *names: str) -> bool:
    return any(Path(file).is_relative_to(_PATHS[name]) for name in names)
