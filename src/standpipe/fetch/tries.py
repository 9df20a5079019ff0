"""The faults of a try to get a range: whether another try may help, and when."""

from __future__ import annotations

import random

SLOWS = ("503", "429")  # the store asks for fewer requests
PASSES = (*SLOWS, "500", "502", "504", "timeout", "reset", "connect", "short", "200", "range", "checksum")
RENEWS = ("401", "403")  # credentials may have expired
SLOW_RETRIES = 10
MOST_PAUSE_S = 20.0

TEXTS = {
    "timeout": "the store didn't answer in time",
    "reset": "the connection was reset",
    "connect": "the store can't be reached",
    "short": "the answer ended too soon",
    "200": "the store answered with a whole object instead of a range",
    "range": "the store answered with another range",
    "checksum": "the bytes have another checksum than in the index",
    "redirect": "the store answered with a redirect, which isn't followed; set endpoint= or region= of the Store",
    "certificate": "the store's certificate can't be verified",
    "401": "the store wants credentials (401)",
    "403": "the store refuses the credentials (403)",
    "404": "there is no such object (404)",
    "changed": "the object isn't the indexed one any more; index it again",
    "416": "the object is shorter than it was when indexed (416); index it again",
    "dropped": "it wasn't finished in time",
}


class FetchFault(Exception):
    """A try failed.

    kind           a key of ``TEXTS``, or the status of the answer
    retry_after_s  seconds that the store asks to wait; 0: it didn't
    """

    def __init__(self, kind: str, retry_after_s: float = 0.0) -> None:
        super().__init__(kind)
        self.kind, self.retry_after_s = kind, retry_after_s

    def text(self, tries: int) -> str:
        """Return the reason for messages. It has nothing of the answer: that may contain credentials."""
        known = TEXTS.get(self.kind, f"the store answered with status {self.kind}")
        return f"{known}, in {tries} tries" if tries > 1 else known

    def passes(self, tries: int, retries: int) -> bool:
        """Return True if another try may help, after ``tries`` tries."""
        return self.kind in PASSES and tries <= (SLOW_RETRIES if self.kind in SLOWS else retries)

    def pause_s(self, tries: int, backoff_s: float) -> float:
        """Return the seconds to wait before the next try."""
        drawn = random.uniform(0, backoff_s * 2.0**tries)
        return min(max(drawn, self.retry_after_s), MOST_PAUSE_S)
