"""Compute digests of Python functions and other objects: equal in all processes, different after a change.

A function counts by the source files that it comes from, and by the values that are bound to it.
"""

from __future__ import annotations

import copyreg
import functools
import pickle
import random
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe.identity.modules import Sources, codes, file_of, is_installed, is_packaged
from standpipe.transform.python.randomness import draws, is_albumentations

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
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

    - Functions and classes count by the bytes of their source file and of the user's modules that it imports, by
      their place in the file, and by the values that are bound to a function: defaults, closure, attributes, and
      the globals that it reads. Those of installed packages count by name and by bound values.
    - Objects count by their class and the state that pickling saves, or by their ``_fingerprint``, a text.

    Raises ``Unreadable``, also for functions and classes that no source file has as they run.
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
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


class _Parts(pickle.Pickler):
    """A pickler whose output is only hashed: for each function and class it writes a tuple of its parts."""

    def __init__(self, out: Any, *, fast: bool) -> None:
        super().__init__(out, protocol=5)
        self.fast = fast  # no memo, so equal values give equal bytes, whether they are one object or two
        self.draws: dict[str, None] = {}
        # Visited values with their numbers, by object.
        self._visited: dict[int, tuple[int, object]] = {}
        self._sources = Sources()
        self.packages = self._sources.packages

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
            return _tuple("fingerprint", type(value).__qualname__, text)
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
                self._note_package(value.__name__)
                return _tuple("module", value.__name__, self._files_of(value.__name__))
            case types.MappingProxyType():
                return _tuple("mapping", dict(value))
            case type():
                return self._class(value)
        return self._object(value)

    def _function(self, function: types.FunctionType) -> Any:
        name = ("function", function.__module__, function.__qualname__)
        code, module = function.__code__, function.__globals__.get("__name__")
        if not is_installed(code.co_filename):
            if not self._sources.has(code):
                raise Unreadable(_no_source(function.__qualname__))
            package = function.__globals__.get("__package__") or ""
            place = code.co_firstlineno, _end_of(code)  # which of several lambdas
            return self._once(
                function,
                *name,
                *place,
                self._sources.digests(code.co_filename, package),
                _bound_to(function),
                _globals_of(function),
            )
        self._note_package(module)
        self._note_package(function.__module__)
        if _is_by_name(function):
            return _tuple(*name)
        return self._once(function, *name, module, code.co_qualname, _bound_to(function))

    def _class(self, class_: type) -> Any:
        if class_ is tuple:
            return NotImplemented  # pickled as usual: all other parts are written as tuples
        name = (type(class_).__name__, class_.__module__, class_.__qualname__)
        file = file_of(class_.__module__)
        self._note_package(class_.__module__)
        if is_installed(file) and (_is_by_name(class_) or not class_.__flags__ & _MADE_BY_PYTHON):
            return _tuple(*name)
        if "<locals>" in class_.__qualname__ or is_installed(file):
            raise Unreadable(
                f"the class {class_.__qualname__} was made by a call of a function, so the values that it uses can't "
                "be found. Define it at the top level of a module"
            )
        own = [each.__code__ for each in vars(class_).values() if isinstance(each, types.FunctionType)]
        if file is None or not all(self._sources.has(code) for code in own if code.co_filename == file):
            raise Unreadable(_no_source(class_.__qualname__))
        return self._once(class_, *name, self._files_of(class_.__module__), class_.__bases__)

    def _files_of(self, module: str) -> dict[str, str]:
        """Return the digests of the files of a loaded module; empty if it is installed or has no file."""
        file = file_of(module)
        if file is None or is_installed(file):
            return {}
        return self._sources.digests(file, getattr(sys.modules[module], "__package__", None) or "")

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
            return self._once(value, type(value).__qualname__, module, reduced, wrapped)
        files = self._files_of(module)
        if not files and not is_installed(file_of(module)):
            raise pickle.PicklingError(f"{reduced} of {module} is pickled by its name alone")
        return _tuple("name", module, reduced, files)

    def _once(self, value: Any, *parts: object) -> Any:
        """Return the parts of a value at its first use, and only its number at later uses."""
        if id(value) in self._visited:
            return _tuple("again", self._visited[id(value)][0])
        self._visited[id(value)] = len(self._visited), value  # holding the value keeps its id unique
        return _tuple(*parts)

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


def _no_source(name: str) -> str:
    return (
        f"{name} isn't in a source file as it runs here: it is from a notebook, a console or exec(), or its file was "
        "changed after it was loaded"
    )


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


def _end_of(code: types.CodeType) -> tuple[int, int]:
    """Return the line and column where a function's code ends."""
    return max((line or 0, column or 0) for _, line, _, column in code.co_positions())


def _bound_to(function: types.FunctionType) -> list[object]:
    """Return a function's defaults, keyword defaults, closure contents and attributes."""
    closure = [_contents(cell) for cell in function.__closure__ or ()]
    return [function.__defaults__, function.__kwdefaults__, closure, function.__dict__]


def _globals_of(function: types.FunctionType) -> dict[str, object]:
    """Return the globals that a function reads: a program may have set them from its arguments."""
    import dis  # loads much that importing standpipe needn't

    names = {
        instruction.argval
        for code in codes(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return {name: function.__globals__[name] for name in sorted(names) if name in function.__globals__}


def _contents(cell: types.CellType) -> list[object]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing yet
        return []


def _tensor_parts(tensor: Any) -> Iterator[object]:
    """Yield the parts of a torch tensor, whose pickle differs between processes."""
    import torch

    values = tensor.detach().cpu().contiguous()
    yield from (type(tensor), tensor.__dict__)
    yield from (str(values.dtype), tuple(values.shape), tensor.requires_grad)
    yield values.reshape(-1).view(torch.uint8).numpy() if values.numel() else None
