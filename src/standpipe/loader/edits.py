"""Edits of a running epoch, such as new mixture weights, and the orders that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.loader.state import Edit
from standpipe.order import AnyOrder, Mixed
from standpipe.pipeline.mix import OpenMixture


def in_order(source: OpenSource, weights: Mapping[str, float] | Sequence[float]) -> list[float]:
    """Return a mixture's weights in the order of its components.

    Raises ``PlanError`` if the names aren't exactly those of the components. A list is returned unchecked.
    """
    names = source.component_names if isinstance(source, OpenMixture) else ()
    if isinstance(weights, list | tuple | np.ndarray):
        return list(weights)
    if not isinstance(weights, Mapping):
        raise PlanError(f"reweigh takes weights by name, or a list in the components' order, got {weights!r}")
    if sorted(weights) != sorted(set(names)) or len(set(names)) < len(names):
        raise PlanError(
            f"reweigh needs one weight for each component, {list(names)!r}, got {dict(weights)!r}. "
            "Mixture(…, names=[…]) sets the names"
        )
    return [weights[name] for name in names]


def reweighed(order: AnyOrder, edit: Edit) -> AnyOrder:
    """Return the order after ``edit``; a skip of steps doesn't change the order.

    Raises ``PlanError`` if ``edit`` has weights and the order isn't that of a mixture.
    """
    if "reweigh" not in edit:
        return order
    if not isinstance(order, Mixed):
        raise PlanError(
            "reweigh() changes the weights of a mixture, but this pipeline's source is no Mixture"
        )
    return order.reweighed(edit["epoch"], edit["consumed"], edit["reweigh"])
