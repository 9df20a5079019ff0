"""The arguments of sources, whose records may have further images."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Mapping
from typing import TypeAlias

from standpipe.errors import PlanError
from standpipe.hints import ARGUMENTS, OTHERS, unknown_argument
from standpipe.system.paths import AnyPath, path_text

ADDED = ("index", "valid", "source")  # fields that batches have themselves
OWN_FIELDS = ("image", "label", *ADDED)
ALIKE = 0.8  # names that are closer to an argument's name are taken for a misspelt one

Further: TypeAlias = tuple[tuple[str, AnyPath], ...]


def is_field_name(name: object) -> bool:
    """Return True for a name that a further field of a record can have."""
    return isinstance(name, str) and name.isidentifier() and name not in OWN_FIELDS


def set_arguments(source: object, given: Mapping[str, AnyPath], **own: object) -> None:
    """Set the attributes of a frozen source from a call's arguments, and ``others`` to its further fields, sorted.

    given  paths of further fields by name
    own    the other arguments, the path of the images first

    Raises ``TypeError`` for an argument that is misspelt or known from other libraries, and ``PlanError`` for a name
    that a field can't have, and for a value that isn't a path.
    """
    call, arguments = type(source).__name__, [*own][1:]
    hints = OTHERS | ARGUMENTS.get(call, {})
    for name, path in given.items():
        is_path = isinstance(path, str | bytes | os.PathLike)
        if difflib.get_close_matches(name, arguments, 1, ALIKE) or (name in hints and not is_path):
            raise unknown_argument(f"{call}()", [name], arguments, hints)
        if not is_path or not is_field_name(name):
            raise PlanError(
                f"{call}({name}={path!r:.80}): it takes {'=, '.join(arguments)}=, and paths of further fields, whose "
                f"names are identifiers other than {', '.join(OWN_FIELDS)}"
            )
    for name, value in {**own, "others": tuple(sorted(given.items()))}.items():
        object.__setattr__(source, name, value)


def shown_call(source: object, first: str) -> str:
    """Return the call that makes a source, for ``describe()``; ``first``: its arguments without a default, as text."""
    further: Further = getattr(source, "others", ())
    shown = [f"{name}='{path_text(path)}'" for name, path in further]
    return f"{type(source).__name__}({', '.join([first, *changed_arguments(source), *shown])})"


def changed_arguments(source: object, *left_out: str) -> list[str]:
    """Return the arguments of a source that aren't the defaults, such as ``index='a.index'``."""
    values = {
        each.name: getattr(source, each.name)
        for each in inspect.signature(type(source)).parameters.values()
        if each.default is not each.empty and each.name not in ("others", *left_out)
        if getattr(source, each.name) != each.default
    }
    return [
        f"{name}='{path_text(value)}'"
        if isinstance(value, str | bytes | os.PathLike)
        else f"{name}={value!r}"
        for name, value in values.items()
    ]
