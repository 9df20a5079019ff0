"""What stands for code, and the values it uses: equal in every process, another one when they change."""

from __future__ import annotations

import functools
import pickle
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Unreadable(Exception):
    """Something in it can't be told from another one; the text says what."""


def digest_of(value: object) -> str:
    """Hex digest of a function or any other object.

    Functions and classes enter by their bytecode, constants, defaults and what they refer to, in turn; those of
    installed packages by name alone. Objects enter by their class and what pickling would save of them. Line
    numbers, comments and file names make no difference. Raises ``Unreadable``.
    """
    from hashlib import blake2b  # loads OpenSSL, which importing penstock needn't

    def digest(*, fast: bool) -> str:
        digest = blake2b(digest_size=16)
        _Parts(types.SimpleNamespace(write=digest.update), fast=fast).dump(value)
        return digest.hexdigest()

    try:
        try:
            return digest(fast=True)
        except ValueError:  # an object that leads back to itself
            return digest(fast=False)
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


class _Parts(pickle.Pickler):
    """Writes what nobody reads back: for each function and class a tuple of its parts."""

    def __init__(self, out: Any, *, fast: bool) -> None:
        super().__init__(out, protocol=5)
        self.fast = fast  # without a memo, so equal values are equal bytes, one object or two
        self._inside: set[int] = set()

    def reducer_override(self, value: Any) -> Any:
        """The parts of functions, classes and what belongs to them; others are pickled as ever.

        What has a ``content_digest``, such as a packed list, enters by that.
        """
        if hasattr(type(value), "content_digest"):
            return _tuple(type(value).__name__, value.content_digest)
        match value:
            case types.FunctionType():
                return self._once(value, _is_installed(value.__code__.co_filename), _function_parts)
            case types.ModuleType():
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
        if installed or id(value) in self._inside:
            return _tuple(*name)
        self._inside.add(id(value))
        return _tuple(*name, *parts(value))


def _tuple(*parts: object) -> tuple[type, tuple[object]]:
    return tuple, (parts,)


def _function_parts(function: types.FunctionType) -> Iterator[object]:
    code = function.__code__
    yield code
    yield function.__defaults__
    yield _ordered(function.__kwdefaults__ or {})
    yield [_ordered(part) for cell in function.__closure__ or () for part in _contents(cell)]
    names = {name for inner in _codes(code) for name in inner.co_names}
    for name in sorted({name for inner in _codes(code) for name in _globals(inner)}):
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        yield name
        yield _ordered(value)
        if isinstance(value, types.ModuleType) and not _is_installed(_file_of(value.__name__)):
            yield {each: getattr(value, each) for each in sorted(names) if hasattr(value, each)}


def _class_parts(class_: type) -> Iterator[object]:
    yield class_.__bases__
    for name, value in sorted(vars(class_).items()):
        kinds = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property, *_PLAIN)
        if isinstance(value, kinds) and name not in ("__doc__", "__module__", "__firstlineno__"):
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


def _contents(cell: types.CellType) -> list[object]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing yet
        return []


def _ordered(value: Any) -> Any:
    """A value whose order doesn't depend on the process: those of sets do."""
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if type(value) is dict:
        return {name: _ordered(part) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(_ordered, value))
    return value


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
    import sysconfig  # likewise

    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(file).is_relative_to(folder) for folder in folders)
