"""Measure standpipe.torch.loader beside standpipe's own loader.

One process, the standard task with two workers, one loader after the other taking turns of 5,120 images while the
other one rests. The difference is what tensors, torch's DataLoader around them and the frameworks' protocols take.
"""

from __future__ import annotations

from _measure import Turns, add_turns, compare_in_turns, parser, train_task

import standpipe.torch


def main() -> None:
    arguments = parser(__doc__, rounds=15)
    add_turns(arguments)
    arguments.set_defaults(batch=256, batches=20)
    args = arguments.parse_args()
    pipeline = train_task(args.path, args.batch)
    tensors = standpipe.torch.loader(pipeline, num_workers=2)
    turns = {"own": Turns(pipeline.loader(num_workers=2)), "torch": Turns(tensors.dataset.loader, tensors)}
    compare_in_turns(args, "loader", turns)


if __name__ == "__main__":
    main()
