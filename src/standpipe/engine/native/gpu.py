"""JPEGs that the GPU decodes: a thread takes them from the native ones, and gives their pixels back."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from standpipe import _native
from standpipe.engine.watchdog.guarded import Ends, guarded
from standpipe.engine.workers import has_ended, start_kept
from standpipe.plan.plan import Plan
from standpipe.transform import NvDecoder, numbered

if TYPE_CHECKING:
    from standpipe.transform import Decoder


class GpuDecoding:
    """The GPU's decoder, and the thread that gives it files. A thread that hangs is replaced by another one.

    device  GPU number, from ``decode_device=``
    ends    called with the error of a thread that ends by itself

    Raises ``PlanError`` if the decoder isn't installed.
    """

    def __init__(self, plan: Plan, pool: _native.Pool, ends: Ends) -> None:
        # With a number: the current device of the thread that starts another one later isn't this one's.
        self._device = numbered(plan.options.decode_device)
        self._pool, self._ends = pool, ends
        self._decoder: Decoder = NvDecoder(self._device)
        self._threads: list[threading.Thread] = []
        self._told = False

    def start(self) -> None:
        """Begin to wait for files. Raises ``RuntimeError`` when the system allows no more threads."""
        name = f"standpipe-gpu-{len(self._threads) + 1}"
        start_kept(self._threads, guarded(name, partial(self._decode, self._decoder), self._ends))

    def start_again(self) -> None:
        """Let another thread, with a decoder of its own, take the place of one that hangs."""
        self._decoder = NvDecoder(self._device)
        self.start()

    def have_ended(self, patience_s: float) -> bool:
        """Wait for the threads' end, after the pool's."""
        ends = time.monotonic() + patience_s
        ended = [has_ended(thread, ends - time.monotonic()) for thread in self._threads]
        return all(ended)

    def _decode(self, decoder: Decoder) -> None:
        while (batch := self._pool.take_for_gpu()) is not None:
            try:
                decoded = decoder.decode(batch.encoded, batch.frames)
            except Exception as error:
                batch.fail(f"the GPU's decoder failed: {error}")
            else:
                self._tell_of_refusals(len(decoded) - sum(decoded))
                batch.hand_back(decoded)

    def _tell_of_refusals(self, count: int) -> None:
        """Say it once: another decoder's pixels take the place of those that the plan named."""
        if count == 0 or self._told:
            return
        self._told = True
        import logging  # a tenth of what importing standpipe costs beside NumPy

        logging.getLogger("standpipe").warning(
            "the GPU's decoder refused a JPEG that any decoder should take; such ones are decoded exactly, or are bad, "
            "and counted as gpu_refused in loader.stats()"
        )
