"""The log of standpipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger() -> logging.Logger:
    """Return the logger ``standpipe``.

    ``logging`` is imported at the first use, as it takes a tenth of the time of importing standpipe without NumPy.
    """
    import logging

    return logging.getLogger("standpipe")
