"""Compute digests of Python code and of the values it uses: equal in all processes, different after a change."""

from __future__ import annotations

import copyreg
import enum
import functools
import pickle
import random
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe.identity.modules import Sources, codes, file_of, imports_of, is_installed, is_packaged
from standpipe.transform.randomness import draws, is_albumentations

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)
_TABLES = (list, tuple, dict, set, frozenset, np.ndarray)
# Attributes of a class that Python and its tools set, and that add nothing to its functions.
_NOTED = frozenset(
    [
        "_abc_impl",
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__match_args__",
        "__module__",
        "__orig_bases__",
        "__parameters__",
        "__static_attributes__",
        "__type_params__",
        "__weakref__",
    ]
)
_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE of a type's __flags__


class Unreadable(Exception):
    """The error that an object has no digest, since its changes can't be detected; the text says why."""


@dataclass(frozen=True, slots=True)
class Code:
    """The digest of a function or another object, and facts that the digest doesn't include.

    digest    32 hexadecimal digits
    packages  installed packages that the object uses, of which the digest includes only the names
    draws     descriptions of the random generators and random transforms that the object contains
    """

    digest: str
    packages: frozenset[str]
    draws: tuple[str, ...]


def digest_of(value: object) -> str:
    """Return the digest of a function or another object: the field ``digest`` of ``code_of``."""
    return code_of(value).digest


def code_of(value: object) -> Code:
    """Return the digest of a function or another object, which is made from its parts:

    - Functions and classes count by their bytecode, constants, defaults and, in turn, the values they refer to.
      Those of installed packages count by name, and by the values that they were made with, such as a wrapped
      function.
    - Objects count by their class and the state that pickling saves, or by their ``_fingerprint``, a text.
    - Modules count by their files, the modules they import, and the values that are used of them.

    Line numbers, comments and file names don't count, except for modules. Raises ``Unreadable``.
    """
    from hashlib import blake2b  # loads OpenSSL, which importing standpipe needn't

    def code(*, fast: bool) -> Code:
        digest = blake2b(digest_size=16)
        parts = _Parts(types.SimpleNamespace(write=digest.update), fast=fast)
        parts.dump(value)
        return Code(digest.hexdigest(), frozenset(parts.packages), tuple(parts.draws))

    try:
        try:
            return code(fast=True)
        except ValueError:  # an object that contains itself
            return code(fast=False)
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


class _Parts(pickle.Pickler):
    """A pickler whose output is only hashed: for each function and class it writes a tuple of its parts."""

    def __init__(self, out: Any, *, fast: bool) -> None:
        super().__init__(out, protocol=5)
        self.fast = fast  # no memo, so equal values give equal bytes, whether they are one object or two
        self.packages: set[str] = set()
        self.draws: dict[str, None] = {}
        # Visited values with their numbers, by object and use.
        self._visited: dict[tuple[object, ...], tuple[int, object]] = {}
        self._sources = Sources()

    def persistent_id(self, value: Any) -> list[str] | None:
        """Return a set's elements as sorted texts, since their order differs between processes.

        It returns None for other values, which are then pickled.
        """
        return sorted(map(self._element, value)) if type(value) in (set, frozenset) else None

    def _element(self, value: object) -> str:
        if type(value) in _PLAIN:
            return repr(value)
        code = code_of(value)
        self.packages |= code.packages
        self.draws |= dict.fromkeys(code.draws)
        return code.digest

    def reducer_override(self, value: Any) -> Any:
        """Return the parts of functions, classes and related objects; other objects are pickled as usual.

        An object with a ``content_digest``, such as a packed list, counts by that. albumentations' transforms
        count by their ``to_dict()``: they hold generators, which are seeded differently in each process.
        """
        if hasattr(type(value), "content_digest"):
            return _tuple(type(value).__name__, value.content_digest)
        if isinstance(text := getattr(value, "_fingerprint", None), str) and not isinstance(value, type):
            return _tuple("fingerprint", type(value), text)
        if is_albumentations(value):
            self._note_draws(value, draws(value))
            self._note_package(type(value).__module__)
            return _tuple(type(value).__qualname__, value.to_dict(), getattr(value, "transforms", None))
        self._note_draws(value, isinstance(value, _generators()) or _is_of_torch(value, "Generator"))
        if _is_of_torch(value, "Tensor") and not value.is_sparse and not value.is_quantized:
            return _tuple("tensor", *_tensor_parts(value))
        match value:
            case types.BuiltinFunctionType():
                self._note_package(value.__module__)
            case types.FunctionType():
                return self._function(value)
            case types.ModuleType():
                return self._module(_Used(value, None))
            case _Used():
                return self._module(value)
            case _Imported():
                self._note_package(value.name)
                loaded = sys.modules.get(value.name)
                used = None if loaded is None else _Used(loaded, value.names)
                return _tuple("import", value.name, self._sources.digests(value.name), used)
            case types.CodeType():
                return _tuple(*_code_parts(value))
            case types.CellType():
                return _tuple("cell", *_contents(value))
            case types.MappingProxyType():
                return _tuple("mapping", dict(value))
            case type():
                return self._class(value)
            case staticmethod() | classmethod():
                return _tuple(type(value).__name__, value.__func__)
            case property():
                return _tuple("property", value.fget, value.fset, value.fdel)
            case functools.cached_property():
                return _tuple("cached_property", value.func)
        return self._object(value)

    def _function(self, function: types.FunctionType) -> Any:
        name = ("function", function.__module__, function.__qualname__)
        if not is_installed(function.__code__.co_filename):
            return self._once(function, name, _function_parts)
        self._note_package(function.__globals__.get("__name__"))
        if _is_by_name(function):
            self._note_package(function.__module__)
            return _tuple(*name)
        return self._once(function, name, _wrapper_parts)

    def _class(self, class_: type) -> Any:
        if class_ is tuple:
            return NotImplemented  # pickled as usual: all other parts are written as tuples
        name = (type(class_).__name__, class_.__module__, class_.__qualname__)
        made_elsewhere = class_.__flags__ & _MADE_BY_PYTHON and not _is_by_name(class_)
        if made_elsewhere or not is_installed(file_of(class_.__module__)):
            return self._once(class_, name, _class_parts)
        self._note_package(class_.__module__)
        return _tuple(*name)

    def _module(self, used: _Used) -> Any:
        name = used.module.__name__
        self._note_package(name)
        if is_installed(file_of(name)):
            return _tuple("module", name)
        files = self._sources.digests(name)
        return self._once(used.module, ("module", name), lambda _: (files, *_values_of(used)), used.names)

    def _object(self, value: Any) -> Any:
        """Return the pickle's parts of an object, or a name for an object that pickles as a name.

        The name must belong to an installed module, to a module whose file goes into the digest, or to a wrapper,
        whose wrapped object goes into the digest. Raises ``pickle.PicklingError`` for another name.
        """
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(5) if reduce is None else reduce(value)
        if not isinstance(reduced, str):
            return reduced
        module = getattr(value, "__module__", None) or type(value).__module__
        self._note_package(module)
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            return self._once(value, (type(value).__qualname__, module, reduced), lambda _: (wrapped,))
        files = self._sources.digests(module)
        if not files and not is_installed(file_of(module)):
            raise pickle.PicklingError(f"{reduced} of {module} is pickled by its name alone")
        return _tuple("name", module, reduced, files)

    def _once(self, value: Any, name: tuple[str, ...], parts: Any, *use: object) -> Any:
        """Return the name and parts of a value at its first use, and only its number at later uses.

        parts  function that returns the value's parts
        use    how the value is used; another use counts as another value
        """
        key = (id(value), *use)
        if key in self._visited:
            return _tuple("again", self._visited[key][0])
        self._visited[key] = len(self._visited), value  # holding the value keeps its id unique
        return _tuple(*name, *parts(value))

    def _note_package(self, module: str | None) -> None:
        name = (module or "").partition(".")[0]
        if is_packaged(file_of(name)):
            self.packages.add(name)

    def _note_draws(self, value: object, it_does: bool) -> None:
        if it_does:
            self.draws[f"{type(value).__name__} of {type(value).__module__.partition('.')[0]}"] = None


@functools.cache
def _generators() -> tuple[type, ...]:
    """Return the classes of generators. NumPy imports its own at first use, which most pipelines don't need."""
    return np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random


def _is_of_torch(value: object, name: str) -> bool:
    kind = getattr(sys.modules.get("torch"), name, None)
    return kind is not None and isinstance(value, kind)


def _tuple(*parts: object) -> tuple[type, tuple[object]]:
    return tuple, (parts,)


@dataclass(frozen=True, slots=True)
class _Imported:
    """A module that a function's body imports, and names of the module that the function may use."""

    name: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Used:
    """A loaded module, and names of its attributes that code may use; ``names`` is None if they are unknown."""

    module: types.ModuleType
    names: tuple[str, ...] | None


def _is_by_name(value: types.FunctionType | type) -> bool:
    """Return True if an installed module has this function or class under its qualified name.

    It is False for a function or class that a call of an installed function made.
    """
    module = sys.modules.get(value.__module__)
    if module is None or not is_installed(file_of(module.__name__)):
        return False
    found: Any = module
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _wrapper_parts(function: types.FunctionType) -> Iterator[object]:
    """Yield the digest's parts of a function that a call of an installed package made, such as a wrapper.

    These are its code's module and name, defaults, closure and attributes.
    """
    yield from (function.__globals__.get("__name__"), function.__code__.co_qualname)
    registry = getattr(function, "registry", None)
    if isinstance(
        registry, types.MappingProxyType
    ):  # functools.singledispatch, whose closure holds weak references
        yield {f"{kind.__module__}.{kind.__qualname__}": each for kind, each in registry.items()}
        return
    yield from _given(function)


def _given(function: types.FunctionType) -> Iterator[object]:
    """Yield a function's defaults, keyword defaults, closure contents and attributes."""
    yield function.__defaults__
    yield function.__kwdefaults__
    yield [_contents(cell) for cell in function.__closure__ or ()]
    yield function.__dict__


def _function_parts(function: types.FunctionType) -> Iterator[object]:
    code, package = function.__code__, function.__globals__.get("__package__") or ""
    names = tuple(sorted({name for inner in codes(code) for name in inner.co_names}))
    yield code
    yield [_Imported(name, names) for inner in codes(code) for name in imports_of(inner, package)]
    yield from _given(function)
    looked_up: dict[str, bool] = {}
    for inner in codes(code):
        for name, for_an_attribute in _globals(inner):
            looked_up[name] = looked_up.get(name, True) and for_an_attribute
    for name in sorted(looked_up):
        if name in function.__globals__:
            value = function.__globals__[name]
            yield name
            yield _used(value, names if looked_up[name] else None)


def _used(value: object, names: tuple[str, ...] | None) -> object:
    return _Used(value, names) if isinstance(value, types.ModuleType) else value


def _values_of(used: _Used) -> Iterator[object]:
    """Yield names and values of the module attributes in ``used.names``.

    If the names are unknown, it yields all attributes that are plain values, containers or arrays. Functions need
    no value: the digest includes the module's file.
    """
    if used.names is None:
        kinds = (*_PLAIN, *_TABLES)
        values = {name: value for name, value in vars(used.module).items() if not name.startswith("__")}
        yield {name: value for name, value in sorted(values.items()) if isinstance(value, kinds)}
        return
    for name in used.names:
        if hasattr(used.module, name):
            yield name
            yield _used(getattr(used.module, name), used.names)


def _class_parts(class_: type) -> Iterator[object]:
    yield class_.__bases__
    if type(class_) is not type:
        yield type(class_)
    if isinstance(class_, enum.EnumMeta):
        members: dict[str, enum.Enum] = dict(class_.__members__)
        yield {name: member.value for name, member in members.items()}
    for name, value in sorted(vars(class_).items()):
        if name not in _NOTED and not (isinstance(class_, enum.EnumMeta) and _is_of_enum(value)):
            yield name
            yield type(value).__name__ if isinstance(value, _DESCRIPTORS) else value


def _is_of_enum(value: object) -> bool:
    """Return True if an attribute of an enumeration is a member, or Python's own data about members."""
    return isinstance(value, enum.Enum | dict | list | types.BuiltinFunctionType | type)


def _code_parts(code: types.CodeType) -> Iterator[object]:
    yield from (code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, code.co_freevars)
    yield from (code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    for constant in code.co_consts:
        yield constant if isinstance(constant, types.CodeType) else repr(_ordered(constant))


def _tensor_parts(tensor: Any) -> Iterator[object]:
    """Yield the parts of a torch tensor, whose pickle differs between processes."""
    import torch

    values = tensor.detach().cpu().contiguous()
    yield from (type(tensor), tensor.__dict__)
    yield from (str(values.dtype), tuple(values.shape), tensor.requires_grad)
    yield values.reshape(-1).view(torch.uint8).numpy() if values.numel() else None


def _globals(code: types.CodeType) -> Iterator[tuple[str, bool]]:
    """Yield (name, at_once) for each global that code looks up; at_once is True if an attribute access follows."""
    import dis  # loads much that importing standpipe needn't

    before: str | None = None
    for instruction in dis.get_instructions(code):
        if before is not None:
            yield before, instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")
        before = instruction.argval if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") else None


def _contents(cell: types.CellType) -> list[object]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing yet
        return []


def _ordered(constant: Any) -> Any:
    """Return a constant of compiled code with its frozensets sorted, since their order depends on the process."""
    if isinstance(constant, frozenset):
        return sorted(map(repr, constant))
    return tuple(map(_ordered, constant)) if isinstance(constant, tuple) else constant
