"""Check a state from ``state_dict()`` against a plan before the loader uses the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from standpipe.errors import StateError
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.units import MOST_COUNT, is_count

Edit = dict[str, Any]  # plain data, as it is saved

STATE_VERSION = 1
MOST_SHOWN = 1000  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class Saved:
    """The contents of a state whose recipe is that of the plan.

    cursor    the epoch and position at which the run continues
    edits     the edits before that, in order
    bad_rows  number of bad rows in the epoch so far, for one rank: all ranks' rows divided by the world size
    decoder   libjpeg-turbo's version when the state was saved
    """

    cursor: Cursor
    edits: tuple[Edit, ...]
    bad_rows: int
    decoder: object


def saved_state(state: Mapping[str, object], plan: Plan) -> Saved:
    """Return the contents of a state. Raises ``StateError`` if it is damaged or was saved by another recipe."""
    if not isinstance(state, Mapping):
        raise StateError(
            f"a state must be a dict from state_dict(), got {shown_value(state, 100)}. Load it: torch.load(path)"
        )
    version, epoch, consumed, recipe = (state.get(key) for key in ("version", "epoch", "consumed", "recipe"))
    if "version" not in state:
        raise StateError(
            f"a dict with the keys {shown_value(list(state), 100)} isn't a loader's state: it has no 'version'. Give "
            "what loader.state_dict() returned, such as checkpoint['loader']"
        )
    if type(version) is not int or version != STATE_VERSION:
        raise StateError(
            f"the state has version {shown_value(version)}, this standpipe reads version {STATE_VERSION}"
        )
    if (
        not is_count(epoch, 0, MOST_COUNT - 1)
        or not is_count(consumed, 0, MOST_COUNT - 1)
        or not isinstance(recipe, Mapping)
    ):
        found = f"epoch {shown_value(epoch)}, consumed {shown_value(consumed)}, recipe {shown_value(recipe)}"
        raise StateError(f"the state is damaged: {found}")
    if keys := differing(recipe, plan.recipe):
        differences = [
            f"{key} was {shown_value(recipe.get(key))} and is {shown_value(plan.recipe.get(key))}"
            for key in keys
        ]
        raise StateError("the state belongs to another recipe: " + "; ".join(differences))
    if not _same(state.get("digest"), plan.digest):
        raise StateError(
            f"the state is damaged: its digest {shown_value(state.get('digest'))} isn't that of its recipe"
        )
    bad_rows = _bad_rows(state, plan.steps.world_size)
    return Saved(Cursor(epoch, consumed), _edits(state), bad_rows, state.get("decoder"))


def differing(was: Mapping[Any, object], now: Mapping[Any, object]) -> list[Any]:
    """Return the sorted keys whose values differ between two recipes."""
    return [key for key in sorted({*was, *now}, key=str) if not _same(was.get(key), now.get(key))]


def _same(one: object, other: object) -> bool:
    """Return True if two values are equal and both a str, an int or None; False for values of other types."""
    return type(one) is type(other) and isinstance(one, str | int | None) and one == other


def shown_value(value: object, most: int = MOST_SHOWN) -> str:
    """Return a value as text of about ``most`` characters, for a message about a state that may be damaged."""
    try:
        text = repr(value)
    except Exception as error:
        return f"a {type(value).__name__} ({type(error).__name__})"
    return text if len(text) <= most else f"{text[:most]}…"


def _bad_rows(state: Mapping[str, object], world_size: int) -> int:
    rows, ranks = state.get("bad_rows", 0), state.get("bad_ranks", 1)
    if not is_count(rows, 0, MOST_COUNT - 1) or not is_count(ranks, 1, MOST_COUNT - 1):
        raise StateError(
            f"the state is damaged: bad_rows {shown_value(rows)}, bad_ranks {shown_value(ranks)}"
        )
    return -(-rows * ranks // world_size)


def _edits(state: Mapping[str, object]) -> tuple[Edit, ...]:
    """Return the edits in a state. Raises ``StateError`` if they are invalid."""
    edits = state.get("edits", [])
    if not isinstance(edits, list | tuple) or not all(_is_edit(edit) for edit in edits):
        raise StateError(f"the state is damaged: edits {shown_value(edits)}")
    return tuple(dict(edit) for edit in edits)


def _is_edit(edit: object) -> bool:
    if not isinstance(edit, Mapping):
        return False
    whole = [edit.get(name) for name in edit if name != "reweigh"]
    if not all(type(number) is int and 0 <= number < MOST_COUNT for number in whole):
        return False
    if edit.keys() == {"epoch", "consumed", "skip_steps"}:
        return True
    weights = edit.get("reweigh")
    return (
        edit.keys() == {"epoch", "consumed", "reweigh"}
        and isinstance(weights, list | tuple)
        and all(type(weight) in (int, float) for weight in weights)
    )
