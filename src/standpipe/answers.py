"""Answers to misuse: errors of public calls come without standpipe's own lines, and say what to write instead."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, is_dataclass
from types import FunctionType, TracebackType
from typing import Any, Never, TypeVar, cast

from standpipe.errors import PlanError, StandpipeError, StateError, key_name
from standpipe.hints import ARGUMENTS, CALLS, KINDS, OTHERS, unknown_argument, unknown_name

Public = TypeVar("Public", bound=Callable[..., Any])
AnError = TypeVar("AnError", bound=Exception)

SPECIAL = ("__init__", "__iter__")
OURS = frozenset({"standpipe", *sys.stdlib_module_names})  # modules whose lines an error doesn't show


def answering(public: Public) -> Public:
    """Let a public function, or the methods of a public class, answer misuse. Use it as a decorator.

    - A ``StandpipeError`` leaves the call with the caller's lines and those of the caller's own functions, without
      standpipe's. Errors in its chain stay if the caller's code had a part in them.
    - Wrong arguments raise a ``TypeError`` that says what to write, instead of Python's own.
    """
    if not isinstance(public, type):
        return cast(Public, _answering(public, public.__name__))
    for name in dir(public):
        method = inspect.getattr_static(public, name)
        shown = public.__name__ if name == "__init__" else name
        if name.startswith("_") and name not in SPECIAL:
            continue
        if isinstance(method, FunctionType) and method.__module__.startswith("standpipe."):
            setattr(public, name, _answering(method, shown))
        elif isinstance(method, classmethod):
            setattr(public, name, classmethod(_answering(method.__func__, shown)))
    for mark, kind in KINDS.items():
        if hasattr(public, mark):
            _answer_for(public, *kind)
    return public


def answering_of(found: object) -> object:
    """Return what the package has under a name, made ``answering`` in its module if it is a function or class."""
    if isinstance(found, FunctionType):
        # In its module too, where pickle looks for it.
        found = vars(sys.modules[found.__module__])[found.__name__] = answering(found)
    elif isinstance(found, type) and not issubclass(found, Exception):
        answering(found)
    return found


def _answer_for(public: Any, owner: str, hints: Mapping[str, str], others: str) -> None:
    """Give a class methods that answer the use of names and operators that it doesn't have."""

    def lacks_name(self: object, name: str) -> Never:
        if name.startswith("_"):  # Python's own probing
            raise AttributeError(name)
        raise unknown_name(name, dir(self), owner, ".", hints, others)

    def stays(self: object, name: str, value: object) -> Never:
        hint = hints.get(name, "make another one with the value in its place")
        raise FrozenInstanceError(f"{owner} can't be changed, so {name} can't be set: {hint}")

    def lacking(says: str) -> Callable[..., Never]:
        def lacks(self: object, *arguments: object, **_: object) -> Never:
            raise TypeError(says.format(*arguments, name=type(self).__name__))

        return lacks

    public.__getattr__ = lacks_name
    public.__bool__ = lambda _: True  # although len() fails
    if is_dataclass(public):
        setattr(public, "__setattr__", stays)  # noqa: B010 (mypy refuses an assignment)
    for method, says in hints.items():
        if method.startswith("__") and not any(method in vars(base) for base in public.__mro__):
            setattr(public, method, lacking(says))


def _answering(call: Callable[..., Any], shown: str) -> Any:
    if hasattr(call, "_answers"):
        return call

    @functools.wraps(call)
    def answered(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except StandpipeError as error:
            raise _shortened(error)  # noqa: B904 (it is the same error)
        except TypeError as error:
            if hasattr(error, "is_answer"):
                raise _shortened(error)  # noqa: B904
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # by the call's own code
        # Out here, its context is an error that the caller handles, or none.
        raise _misused(call, shown, args, kwargs)

    answered._answers = True  # type: ignore[attr-defined]
    return answered


def _shortened(error: AnError) -> AnError:
    """Leave standpipe's lines out of an error's traceback, and errors that were raised and caught inside of it."""
    if isinstance(error, PlanError | StateError):  # other errors have a cause that the caller may look at
        if error.__cause__ is not None and _is_inside(error.__cause__):
            error.__cause__ = None
        if error.__context__ is not None and _is_inside(error.__context__):
            error.__suppress_context__ = True
    short: TracebackType | None = None
    for line in reversed(_lines_of_others(error.__traceback__)):
        short = TracebackType(short, line.tb_frame, line.tb_lasti, line.tb_lineno)
    return error.with_traceback(short)


def _is_inside(error: BaseException | None) -> bool:
    """Return True if an error and those before it were raised in standpipe's lines, and by none of the caller's."""
    if error is None:
        return True
    raised_here = error.__traceback__ is not None and not _lines_of_others(error.__traceback__)
    return raised_here and _is_inside(error.__cause__) and _is_inside(error.__context__)


def _lines_of_others(traceback: TracebackType | None) -> list[TracebackType]:
    lines = []
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in OURS:
            lines.append(traceback)
        traceback = traceback.tb_next
    return lines


def _misused(call: Callable[..., Any], shown: str, args: Sequence[Any], given: dict[str, Any]) -> TypeError:
    """Return the error for arguments that don't fit a call, with what to write instead."""
    every = inspect.signature(call).parameters
    known = [name for name, each in every.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    placed = [name for name in known if every[name].kind is not inspect.Parameter.KEYWORD_ONLY]
    needed = [name for name in known if every[name].default is inspect.Parameter.empty]
    hint = CALLS.get(shown, "")
    takes_any = any(each.kind is each.VAR_KEYWORD for each in every.values())
    if (unknown := given.keys() - known) and not takes_any:
        known = [name for name in known if name != "self"]
        return unknown_argument(f"{shown}()", unknown, known, OTHERS | ARGUMENTS.get(shown, {}))
    if len(args) > len(placed):
        names = ", ".join(f"{name}=" for name in known if name not in placed)
        wrong = f"{shown}() takes no argument {key_name(args[len(placed)])} without a name"
        return TypeError(f"{wrong}: {hint or (f'its names are {names}' if names else 'leave it out')}")
    if twice := [name for name in placed[: len(args)] if name in given]:
        return TypeError(f"{shown}() got {twice[0]} twice: leave out {twice[0]}={key_name(given[twice[0]])}")
    missing = [name for name in needed if name not in given and name not in placed[: len(args)]]
    needs = " and ".join(f"{name}=" for name in missing)
    return TypeError(f"{shown}() needs {needs}: {hint or f'write {shown}({missing[0]}=…)'}")
