"""Measure which fraction of the JPEGs the GPU should decode.

The standard task with several fractions, in turn: the rate, the CPU time per image, and the peak memory of the GPU
since the process's first decoded image, compared with the limit. The first row decodes everything on the CPU. Below
the table: the difference between the GPU's pixels and exact ones, over whole photos, and how many photos it refuses.

``--device cpu`` runs without a GPU: nvImageCodec then decodes on the CPU, and no figure applies to GPUs.
Memory of the GPU is what torch reports as used; without a torch for CUDA it isn't measured.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
from _measure import MIB, Figure, Turns, add_turns, parser, progress, ratio, report, train_task
from PIL import Image

import standpipe as sp
from standpipe.transform import NvDecoder

SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
LOOK_S = 0.002  # between two looks at the GPU's memory
PHOTOS = 200  # whose pixels are compared


def main() -> None:
    arguments = parser(__doc__, rounds=7)
    add_turns(arguments)
    arguments.add_argument("--workers", type=int, metavar="N", help="decoding threads (default: one per CPU)")
    arguments.add_argument("--device", default="cuda", help="cuda (default), cuda:1, … or cpu")
    arguments.add_argument("--gpu-memory", default="256MiB", metavar="SIZE", help="the cap (default: 256MiB)")
    args = arguments.parse_args()
    notes = [pixels(args)]
    used = Used(args.device)
    plans = {share: plan_of(args, share) for share in SHARES}
    peaks = {}
    for share, plan in plans.items():  # one after another: the memory of each is its own
        with used.watch() as peak:
            alone = Turns(sp.Loader(plan))
            alone.turn(args.batches)
            alone.close()
        peaks[share] = peak[0]
    turns = {share: Turns(sp.Loader(plan)) for share, plan in plans.items()}
    rates: dict[float, list[float]] = {share: [] for share in SHARES}
    cpu: dict[float, list[float]] = {share: [] for share in SHARES}
    images = args.batch * args.batches
    for number in range(args.rounds):
        for share in SHARES[:: -1 if number % 2 else 1]:  # nobody is always the first
            progress(f"round {number + 1} of {args.rounds}: {share:.0%}")
            seconds, cpu_seconds = turns[share].turn(args.batches)
            rates[share].append(images / seconds)
            cpu[share].append(1e3 * cpu_seconds / images)
    progress("")
    for turn in turns.values():
        turn.close()
    rows = [
        [
            f"{share:.0%}",
            Figure(rates[share]),
            f"{ratio(rates[share], rates[SHARES[0]]).median:.2f}",
            Figure(cpu[share], ".3f"),
            f"{peaks[share] / MIB:,.0f}" if used.known else "—",
        ]
        for share in SHARES
    ]
    best = max(SHARES, key=lambda share: Figure(rates[share]).median)
    notes.append(
        f"the quickest: {best:.0%}, as .decode('hybrid', share={best})" if best else "the quickest: none"
    )
    notes.append(f"gpu_memory={args.gpu_memory}; turns of {images:,} images")
    report(
        args,
        ["share", "images/s", "÷ 0%", "CPU ms per image", "GPU MiB"],
        rows,
        *notes,
        packages=("nvidia-nvimgcodec-cu12", "nvidia-nvjpeg-cu12", "torch"),
    )


def plan_of(args: argparse.Namespace, share: float) -> sp.Plan:
    task = train_task(args.path, args.batch)
    if share:
        task = task.decode("hybrid", share=share, gpu_memory=args.gpu_memory)
    return task.plan(num_workers=args.workers or "auto", decode_device=args.device)


class Used:
    """Memory of the GPU that is in use, beyond what was when this was made."""

    def __init__(self, device: str) -> None:
        self._device, self.known = device, False
        if device == "cpu":
            return
        try:
            import torch
        except ImportError:
            return
        if torch.cuda.is_available():
            torch.zeros(1, device=device)  # the context's own memory is there before
            self.known, self._before = True, self._free()

    def _free(self) -> int:
        import torch

        return int(torch.cuda.mem_get_info(self._device)[0])

    @contextmanager
    def watch(self) -> Iterator[list[int]]:
        """Measure the peak bytes inside the ``with`` block, as a list of one."""
        peak, over = [0], threading.Event()

        def look() -> None:
            while self.known and not over.wait(LOOK_S):
                peak[0] = max(peak[0], self._before - self._free())

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield peak
        finally:
            over.set()
            thread.join()


def pixels(args: argparse.Namespace) -> str:
    """Return the difference of the decoder's pixels from exact ones, in levels of 0 to 255, over whole
    photos.
    """
    decoder = NvDecoder(args.device)
    most, total, count, refused = 0, 0, 0, 0
    paths = (path for path in sorted(Path(args.path).rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg"))
    for path in islice(paths, PHOTOS):
        with Image.open(path) as image:
            if image.mode not in ("L", "RGB") or image.info.get("progressive"):
                continue
            exact = np.asarray(image.convert("RGB")).astype(np.int16)
        frame = np.zeros(exact.shape, np.uint8)
        if not decoder.decode([np.fromfile(path, np.uint8)], [frame])[0]:
            refused += 1
            continue
        error = np.abs(frame - exact)
        most, total, count = max(most, int(error.max())), total + int(error.sum()), count + error.size
    mean = total / max(count, 1)
    return f"its pixels − exact ones: {mean:.3f} levels in the mean, {most} at most; {refused} of {PHOTOS} refused"


if __name__ == "__main__":
    main()
