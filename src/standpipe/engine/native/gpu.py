"""JPEG decoding on the GPU: a thread takes files from the native threads, and returns their pixels."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from standpipe import _native
from standpipe.engine.watchdog.guarded import Ends, guarded
from standpipe.engine.workers import has_ended, start_kept
from standpipe.plan.plan import Plan
from standpipe.system.logs import logger
from standpipe.transform import NvDecoder, numbered_device

if TYPE_CHECKING:
    from standpipe.transform import Decoder


class GpuDecoding:
    """The GPU's decoder, and the thread that gives it files. A new thread replaces one that hangs.

    plan  names the GPU, as ``decode_device=``
    pool  the native pool, whose threads hand over encoded files and get decoded pixels back
    ends  called with the error if a thread ends because of one

    Raises ``PlanError`` if the decoder isn't installed.
    """

    def __init__(self, plan: Plan, pool: _native.Pool, ends: Ends) -> None:
        # With a device number: a thread that starts another decoder later may have another current device.
        self._device = numbered_device(plan.options.decode_device)
        self._pool, self._ends = pool, ends
        self._decoder: Decoder = NvDecoder(self._device)
        self._threads: list[threading.Thread] = []
        self._told = False

    def start(self) -> None:
        """Start a thread that waits for files. Raises ``RuntimeError`` if the system allows no more threads."""
        name = f"standpipe-gpu-{len(self._threads) + 1}"
        start_kept(self._threads, guarded(name, partial(self._decode, self._decoder), self._ends))

    def start_again(self) -> None:
        """Start a thread with a new decoder in place of one that hangs."""
        self._decoder = NvDecoder(self._device)
        self.start()

    def have_ended(self, patience_s: float) -> bool:
        """Wait for the threads' end, after the pool has ended; return True if all have ended."""
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
        """Warn once that the GPU refused JPEGs, which the CPU decodes; do nothing if ``count`` is 0."""
        if count == 0 or self._told:
            return
        self._told = True
        logger().warning(
            "the GPU's decoder refused a JPEG that it should support. Such files are decoded by the exact decoder, or "
            "are bad samples if that fails too; loader.stats() counts them as gpu_refused"
        )
