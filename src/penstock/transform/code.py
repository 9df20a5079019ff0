"""What stands for code, and the values it uses: equal in every process, another one when they change."""

from __future__ import annotations

import functools
import pickle
import random
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.transform.randomness import draws, is_albumentations

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Unreadable(Exception):
    """Something in it can't be told from another one; the text says what."""


@dataclass(frozen=True, slots=True)
class Code:
    """What stands for a function or any other object.

    digest    hex
    packages  installed ones that it uses, which entered by name alone
    draws     names of what it holds that draws random numbers by itself, seen by nobody
    """

    digest: str
    packages: frozenset[str]
    draws: tuple[str, ...]


def digest_of(value: object) -> str:
    """The digest of ``code_of``."""
    return code_of(value).digest


def code_of(value: object) -> Code:
    """What stands for a function or any other object.

    Functions and classes enter by their bytecode, constants, defaults and what they refer to, in turn; those of
    installed packages by name alone. Objects enter by their class and what pickling would save of them. Line
    numbers, comments and file names make no difference. Raises ``Unreadable``.
    """
    from hashlib import blake2b  # loads OpenSSL, which importing penstock needn't

    def code(*, fast: bool) -> Code:
        digest = blake2b(digest_size=16)
        parts = _Parts(types.SimpleNamespace(write=digest.update), fast=fast)
        parts.dump(value)
        return Code(digest.hexdigest(), frozenset(parts.packages), tuple(parts.draws))

    try:
        try:
            return code(fast=True)
        except ValueError:  # an object that leads back to itself
            return code(fast=False)
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


class _Parts(pickle.Pickler):
    """Writes what nobody reads back: for each function and class a tuple of its parts."""

    def __init__(self, out: Any, *, fast: bool) -> None:
        super().__init__(out, protocol=5)
        self.fast = fast  # without a memo, so equal values are equal bytes, one object or two
        self.packages: set[str] = set()
        self.draws: dict[str, None] = {}
        self._inside: set[int] = set()

    def persistent_id(self, value: Any) -> list[str] | None:
        """Of a set, whose order isn't the same in every process; it is asked before all else."""
        return sorted(map(repr, value)) if type(value) in (set, frozenset) else None

    def reducer_override(self, value: Any) -> Any:
        """The parts of functions, classes and what belongs to them; others are pickled as ever.

        What has a ``content_digest``, such as a packed list, enters by that. albumentations' transforms enter by what
        they say of themselves: they hold generators, seeded anew in each process.
        """
        if hasattr(type(value), "content_digest"):
            return _tuple(type(value).__name__, value.content_digest)
        if isinstance(value, _Imported):
            self._note_package(value.name)
            return _tuple("import", value.name, value.digest())
        if is_albumentations(value):
            self._note_draws(value, draws(value))
            self._note_package(type(value).__module__)
            return _tuple(type(value).__qualname__, value.to_dict(), getattr(value, "transforms", None))
        self._note_draws(value, isinstance(value, _GENERATORS) or _is_torch_generator(value))
        match value:
            case types.BuiltinFunctionType():
                self._note_package(value.__module__)
            case types.FunctionType():
                return self._once(value, _is_installed(value.__code__.co_filename), _function_parts)
            case types.ModuleType():
                self._note_package(value.__name__)
                return _tuple("module", value.__name__)
            case types.CodeType():
                return _tuple(*_code_parts(value))
            case types.CellType():
                return _tuple("cell", *_contents(value))
            case type():
                return self._once(value, _is_installed(_file_of(value.__module__)), _class_parts)
            case staticmethod() | classmethod():
                return _tuple(type(value).__name__, value.__func__)
            case property():
                return _tuple("property", value.fget, value.fset, value.fdel)
            case functools.cached_property():
                return _tuple("cached_property", value.func)
        return NotImplemented

    def _once(self, value: Any, installed: bool, parts: Any) -> Any:
        """By parts, and by name where those lead back to it."""
        if value is tuple:
            return NotImplemented  # what all the others are written as
        name = (type(value).__name__, value.__module__, value.__qualname__)
        if installed:
            self._note_package(value.__module__)
        if installed or id(value) in self._inside:
            return _tuple(*name)
        self._inside.add(id(value))
        return _tuple(*name, *parts(value))

    def _note_package(self, module: str | None) -> None:
        name = (module or "").partition(".")[0]
        if _is_packaged(_file_of(name)):
            self.packages.add(name)

    def _note_draws(self, value: object, it_does: bool) -> None:
        if it_does:
            self.draws[f"{type(value).__name__} of {type(value).__module__.partition('.')[0]}"] = None


_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)


def _is_torch_generator(value: object) -> bool:
    kind = getattr(sys.modules.get("torch"), "Generator", None)
    return kind is not None and isinstance(value, kind)


def _tuple(*parts: object) -> tuple[type, tuple[object]]:
    return tuple, (parts,)


@dataclass(frozen=True, slots=True)
class _Imported:
    """A module that a function imports when it is called."""

    name: str

    def digest(self) -> bytes | None:
        """Of its file's bytes; None for Python's own, an installed package's, or one that isn't there."""
        from hashlib import blake2b

        file = _source_of(self.name)
        if file is None or _is_installed(file):
            return None
        return blake2b(Path(file).read_bytes(), digest_size=16).digest()


def _source_of(module: str) -> str | None:
    """The file of a module, which isn't imported for that, nor are the packages that it is in."""
    import importlib.machinery
    import importlib.util

    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # of a main module that has none
        spec = None
    for number, _ in enumerate(rest):
        if spec is None:
            return None
        name = ".".join((top, *rest[: number + 1]))
        spec = importlib.machinery.PathFinder.find_spec(name, spec.submodule_search_locations or [])
    return spec.origin if spec is not None and spec.has_location else None


def _function_parts(function: types.FunctionType) -> Iterator[object]:
    code = function.__code__
    yield code
    yield [_Imported(name) for inner in _codes(code) for name in _imports(inner, function.__globals__)]
    yield function.__defaults__
    yield function.__kwdefaults__
    yield [_contents(cell) for cell in function.__closure__ or ()]
    names = {name for inner in _codes(code) for name in inner.co_names}
    for name in sorted({name for inner in _codes(code) for name in _globals(inner)}):
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        yield name
        yield value
        if isinstance(value, types.ModuleType) and not _is_installed(_file_of(value.__name__)):
            yield {each: getattr(value, each) for each in sorted(names) if hasattr(value, each)}


def _class_parts(class_: type) -> Iterator[object]:
    yield class_.__bases__
    for name, value in sorted(vars(class_).items()):
        kinds = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property, *_PLAIN)
        own = isinstance(value, list | tuple | dict | set | frozenset | np.ndarray) and not name.startswith(
            "_"
        )
        if (isinstance(value, kinds) or own) and name not in ("__doc__", "__module__", "__firstlineno__"):
            yield name
            yield value


def _code_parts(code: types.CodeType) -> Iterator[object]:
    yield code.co_code
    yield from (code.co_names, code.co_varnames, code.co_freevars, code.co_flags, code.co_argcount)
    for constant in code.co_consts:
        yield constant if isinstance(constant, types.CodeType) else repr(_ordered(constant))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code, and that of functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _globals(code: types.CodeType) -> Iterator[str]:
    """Names of the globals that it looks up."""
    import dis  # loads much that importing penstock needn't

    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval


def _imports(code: types.CodeType, names: dict[str, Any]) -> Iterator[str]:
    """Full names of the modules that it imports, and of what it takes from them, which may be modules too."""
    import dis
    import importlib.util

    before: list[Any] = [None, None]  # how many packages up, and what is taken
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, taken = before
            package = names.get("__package__") or ""
            module = "." * (level or 0) + instruction.argval
            module = importlib.util.resolve_name(module, package) if level else module
            yield module
            yield from (f"{module}.{name}" for name in taken or () if name != "*")
        before = [before[1], instruction.argval]


def _contents(cell: types.CellType) -> list[object]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing yet
        return []


def _ordered(constant: Any) -> Any:
    """A constant of code in an order that doesn't depend on the process: that of sets does."""
    if isinstance(constant, frozenset):
        return sorted(map(repr, constant))
    return tuple(map(_ordered, constant)) if isinstance(constant, tuple) else constant


def _file_of(module: str) -> str | None:
    """Where a module's code is; None for none, such as a notebook's cells."""
    if module in sys.builtin_module_names:
        return "<built-in>"
    return getattr(sys.modules.get(module), "__file__", None)


@functools.cache
def _is_installed(file: str | None) -> bool:
    """Whether code in a file belongs to Python or an installed package."""
    if file is None:
        return False
    if file.startswith(("<built-in", "<frozen")):
        return True
    return _is_packaged(file) or _is_in(file, "stdlib", "platstdlib")


@functools.cache
def _is_packaged(file: str | None) -> bool:
    """Whether it is that of an installed package."""
    return file is not None and _is_in(file, "purelib", "platlib")


def _is_in(file: str, *names: str) -> bool:
    import sysconfig  # likewise

    return any(Path(file).is_relative_to(sysconfig.get_path(name)) for name in names)
