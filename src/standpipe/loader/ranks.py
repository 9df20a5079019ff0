"""Checks that the ranks of one run agree on what they load, and on where they are.

Ranks don't communicate here: the caller gathers a small value from each, and every rank checks all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from standpipe.errors import PlanError, StateError
from standpipe.loader.state import MOST_SHOWN, differing, shown_value
from standpipe.units import MOST_COUNT, is_count

OF_ALL_STATES = ("version", "digest", "epoch", "consumed", "edits")
OF_ALL_PLANS = ("world_size", "batch", "last_batch", "steps", "digest")
MOST_NAMED = 8  # ranks or classes that a message names

Facts = Mapping[str, Any]  # plain data of a rank


def check_ranks(manifests: Sequence[Facts | None], *, replicate: int = 1) -> None:
    """Raise ``PlanError`` unless all ranks read the same data in the same steps, and each its own part.

    Gather the manifests before training, and pass all of them on every process. Then different data on one
    machine is an error at the start: a folder with one class fewer, another version of a list, another
    seed. The message names the ranks and the difference. Without the check, labels would mean different
    things, or a collective operation would wait for a rank with fewer steps. "Rank" in the message is the
    place in ``manifests``.

    Parameters
    ----------
    manifests : sequence of mapping or None
        One ``loader.plan.manifest()`` of each process; None for a process without one.
    replicate : int, default 1
        Number of processes that get the same rows, as in ``shard``.

    Raises
    ------
    PlanError
        If plans differ, a manifest is missing, or parts are missing or repeated.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.Arrays(x=np.arange(16))).shuffle(seed=7).batch(4)
    >>> sp.check_ranks([pipeline.shard(rank, 2).plan().manifest() for rank in (0, 1)])
    >>> other = pipeline.shuffle(seed=8)
    >>> sp.check_ranks([pipeline.shard(0, 2).plan().manifest(), other.shard(1, 2).plan().manifest()])
    Traceback (most recent call last):
        ...
    standpipe.errors.PlanError: ... seed is 8, not 7
    """
    if wrong := [rank for rank, manifest in enumerate(manifests) if not isinstance(manifest, Mapping)]:
        raise PlanError(f"{_have(wrong)} no manifest. Every rank must plan its part")
    found = [dict(manifest) for manifest in manifests if manifest is not None]
    if texts := [text for key in OF_ALL_PLANS if (text := _disagreement(key, found))]:
        raise PlanError(f"the ranks' plans differ: {'; '.join(texts)}")
    ranks, world_size = [facts.get("rank") for facts in found], found[0].get("world_size") if found else 1
    parts = [rank for rank in ranks if is_count(rank, 0, MOST_COUNT)]
    whole = is_count(world_size, 1, MOST_COUNT) and world_size * replicate == len(ranks) == len(parts)
    if not whole or sorted(parts) != [number // replicate for number in range(len(ranks))]:
        raise PlanError(
            f"{len(found)} processes have parts {shown_value(ranks)} of {shown_value(world_size)}, but each must come "
            f"{'once' if replicate == 1 else f'{replicate} times'}. Write .shard(), with replicate= if several "
            "processes get the same rows on purpose"
        )


def check_states(states: Sequence[Facts | None]) -> None:
    """Raise ``StateError`` unless all ranks have a state of the same step of the same recipe.

    Ranks don't communicate with each other. If each rank saves its own state, gather the states that are
    about to be loaded, and pass all of them on every rank. A rank that couldn't save its last state is then
    found before ranks train on different steps. The ranks' own counts of bad rows may differ.

    Parameters
    ----------
    states : sequence of mapping or None
        One ``state_dict()`` of each rank; None for a rank without one.

    Raises
    ------
    StateError
        If a state is missing or states differ. The message names the ranks and the difference.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2).loader() as loader:
    ...     old = loader.state_dict()
    ...     _ = next(loader.steps(1))
    ...     new = loader.state_dict()
    >>> sp.check_states([new, new])
    >>> sp.check_states([new, old])
    Traceback (most recent call last):
        ...
    standpipe.errors.StateError: the ranks' states differ: consumed is 2 on rank 0 and 0 on rank 1. ...
    """
    if wrong := [rank for rank, state in enumerate(states) if not isinstance(state, Mapping)]:
        raise StateError(f"{_have(wrong)} no state. Every rank must continue from the same step")
    found = [dict(state) for state in states if state is not None]
    if texts := [text for key in OF_ALL_STATES if (text := _disagreement(key, found))]:
        raise StateError(
            f"the ranks' states differ: {'; '.join(texts)}. Load states of one step that all ranks have"
        )


def _disagreement(key: str, of_ranks: Sequence[Facts]) -> str:
    """Return text about which ranks have which value of ``key``; an empty string if all values are equal."""
    ranks: dict[str, list[int]] = {}
    for rank, facts in enumerate(of_ranks):
        ranks.setdefault(shown_value(facts.get(key), most=1 << 20), []).append(rank)
    if len(ranks) < 2:
        return ""
    if key == "digest" and all(isinstance(facts.get("recipe"), Mapping) for facts in of_ranks):
        _, *others = ranks.values()
        return "; ".join(_other_recipe(of, of_ranks[of[0]], of_ranks[0]) for of in others)
    return f"{key} is " + " and ".join(f"{value[:MOST_SHOWN]} on {_named(of)}" for value, of in ranks.items())


def _other_recipe(ranks: Sequence[int], facts: Facts, first: Facts) -> str:
    """Return text about how the recipe in ``facts``, that of ``ranks``, differs from ``first``, rank 0's."""
    recipe, other = facts["recipe"], first["recipe"]
    texts = [
        f"{key} is {shown_value(recipe.get(key))}, not {shown_value(other.get(key))}"
        for key in differing(recipe, other)
    ]
    classes, all_classes = facts.get("classes"), first.get("classes")
    if isinstance(classes, list) and isinstance(all_classes, list):
        texts += [f"the {_classes(names)} only there" for names in [_but(classes, all_classes)] if names]
        texts += [f"the {_classes(names)} missing there" for names in [_but(all_classes, classes)] if names]
    return f"{_have(ranks)} another recipe than rank 0: {', '.join(texts) or 'it is damaged'}"


def _but(names: list[object], others: list[object]) -> list[str]:
    """Return the values of ``names`` that aren't in ``others``, as text."""
    known = set(map(shown_value, others))
    return [name for name in map(shown_value, names) if name not in known]


def _classes(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"class{'es' * (len(names) > 1)} {', '.join(names[:MOST_NAMED])}{more} {'is' if len(names) == 1 else 'are'}"


def _have(ranks: Sequence[int]) -> str:
    return f"{_named(ranks)} {'has' if len(ranks) == 1 else 'have'}"


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"ranks {', '.join(map(str, ranks[:MOST_NAMED]))}{more}"
