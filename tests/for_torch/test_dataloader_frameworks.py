"""The drop-in DataLoader inside frameworks, for real: every sample once, in one process and in two."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.for_torch.test_frameworks import LIGHTNING, records, seen

DROP_IN = """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 48
    def __getitem__(self, index): return torch.ones(3), index

def drop_in(rows=4, shuffle=True, **more):
    return penstock.torch.DataLoader(
        Rows(), rows, shuffle=shuffle, num_workers=1, memory="512MiB", executor="thread", **more)
"""

ACCELERATE = """
from accelerate import Accelerator, skip_first_batches

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(3, 48)
model, optimizer, batches = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), drop_in())
epochs = []
for epoch in range(2):
    epochs.append([])
    for x, label in batches:
        accelerator.backward(torch.nn.functional.cross_entropy(model(x), label))
        optimizer.step()
        epochs[-1].append(label.tolist())
ordered = accelerator.prepare(drop_in(shuffle=False))
skipped = [label.tolist() for _, label in skip_first_batches(ordered, 2)]
metrics = []
for x, label in accelerator.prepare(drop_in(rows=5, shuffle=False)):
    metrics += accelerator.gather_for_metrics(label).tolist()
tell(epochs=epochs, skipped=skipped, metrics=metrics)
accelerator.end_training()
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_accelerate(tmp_path: Path, ranks: int) -> None:
    told = seen(tmp_path, DROP_IN + ACCELERATE, ranks=ranks)
    for epoch in range(2):
        assert records([batch for rank in told for batch in rank["epochs"][epoch]]) == list(range(48))
    assert records([batch for rank in told for batch in rank["skipped"]]) == list(range(8 * ranks, 48))
    assert sorted(told[0]["metrics"]) == list(range(48))


FIT = """
module = Module()
trainer(**launch).fit(module, drop_in(), drop_in(rows=5, shuffle=False))
loaders = (module.trainer.train_dataloader, module.trainer.val_dataloaders)
engines = {f"{type(each).__module__} {each.executor} {each.memory}" for each in loaders}
tell(seen=module.seen, validated=module.validated, engines=sorted(engines))
"""


def test_lightning(tmp_path: Path) -> None:
    (rank,) = seen(tmp_path, LIGHTNING + DROP_IN + "launch = {}" + FIT)
    assert [records(rank["seen"][:12]), records(rank["seen"][12:])] == 2 * [list(range(48))]
    assert rank["validated"][-48:] == list(range(48))
    assert rank["engines"] == ["penstock.torch.dataloader thread 512MiB"]


def test_lightning_with_two_processes_shares_out_and_keeps_the_engine(tmp_path: Path) -> None:
    launch = 'launch = {"strategy": "ddp", "devices": 2, "num_nodes": 1}'
    ranks = seen(tmp_path, LIGHTNING + DROP_IN + launch + FIT, ranks=2)
    for epoch in (slice(0, 6), slice(6, 12)):
        assert records(ranks[0]["seen"][epoch] + ranks[1]["seen"][epoch]) == list(range(48))
    assert sorted({*ranks[0]["validated"], *ranks[1]["validated"]}) == list(range(48))
    assert ranks[0]["engines"] == ["penstock.torch.dataloader thread 512MiB"]
