"""Workers of the drop-in DataLoader have what a script set before ``iter()``, torch's own settings too."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from programs import output

torch = pytest.importorskip("torch")

PROGRAM = """
sys.path.insert(0, {folder!r})
import torch, standpipe.torch
import config

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        precision, certain = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
        values = config.SIZE, config.DEVICE, config.MEAN, config.TABLE
        return repr((torch.zeros(2).dtype, precision, certain, torch.is_grad_enabled(), *values))

torch.set_default_dtype(torch.float64)
torch.set_float32_matmul_precision("medium")
torch.use_deterministic_algorithms(True)
config.SIZE, config.DEVICE = 7, torch.device("meta")
config.MEAN.fill_(0.5)
config.TABLE["std"] = torch.ones(2, dtype=torch.int64)
ours = Data()[0]
loader = standpipe.torch.DataLoader(Data(), batch_size=4, num_workers=1)
for batch in loader:
    assert batch == [ours] * 4, (batch, ours)
with torch.no_grad():
    without = Data()[0]
    for batch in loader:
        assert batch == [without] * 4 != [ours] * 4, batch
torch.set_default_dtype(torch.float32)
torch.use_deterministic_algorithms(False)
config.SIZE = 1
assert next(iter(loader))[0] == Data()[0] != ours
"""


def test_settings_of_torch_hold_in_workers_of_each_epoch(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text(
        "import torch\nSIZE, DEVICE, MEAN, TABLE = 1, torch.device('cpu'), torch.zeros(3), {}\n"
    )
    output(textwrap.dedent(PROGRAM.format(folder=str(tmp_path))))
