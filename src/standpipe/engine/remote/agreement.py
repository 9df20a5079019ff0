"""Check that a maker outside the trainer makes the same batches as the trainer would."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from standpipe.engine.remote.maker import forms_of
from standpipe.errors import PlanError
from standpipe.plan.plan import Plan
from standpipe.plan.remote_images import sent


def difference(plan: Plan, name: str, facts: Mapping[str, Any]) -> PlanError | None:
    """Return the error for a maker whose batches would differ from the plan's; None if they are the same.

    name   the maker, in messages
    facts  ``BatchMaker.facts()``
    """
    own: dict[str, Any] = {"standpipe's version": version("standpipe"), "decoder": plan.decoder}
    its = {"standpipe's version": facts["version"], "decoder": facts["decoder"]}
    recipe = facts["recipe"]
    for key in sorted({*plan.recipe, *recipe}):
        own[key], its[key] = plan.recipe.get(key), recipe.get(key)
    if found := [key for key in own if own[key] != its.get(key)]:
        texts = [f"{key} is {its.get(key)!r} there and {own[key]!r} here" for key in found]
        hint = " It has other files, or files that it sees under another path." if "source" in found else ""
        return PlanError(f"{name} would make other batches: {'; '.join(texts)}.{hint}")
    if facts["rows"] < plan.batch.layout.rows:
        return PlanError(
            f"{name} was started for batches of {facts['rows']} rows, and this loader's have {plan.batch.layout.rows}. "
            "Start the makers with the same pipeline"
        )
    expected = forms_of(sent(plan))
    if facts["fields"] != expected:
        return PlanError(f"{name} makes the fields {facts['fields']}, and this loader needs {expected}")
    return None
