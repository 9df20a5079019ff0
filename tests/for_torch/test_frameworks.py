"""Frameworks that train with PyTorch, for real: every sample once, in one process and in two, and exact resume.

With a loader of a pipeline, and with the drop-in ``DataLoader``, in one run each: importing a framework takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

RANKS = pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
LIMIT_S = 240  # for a program that imports a framework, on a busy machine

# Pipelines over 48 records, 12 steps an epoch in one process; what a rank has seen of them goes to a file of its own.
BEGIN = """
import os, sys
sys.path[:0] = {path!r}
import json, logging, warnings
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import numpy as np
import torch
from uncompiled import without_the_compiler
import standpipe as sp
import standpipe.torch

rank = int(os.environ.get("RANK", 0))
folder = {folder!r}
arrays = sp.Arrays(x=np.ones((48, 3), np.float32), label=np.arange(48))
train = sp.Pipeline(arrays).shuffle(seed=5).batch(4)
evaluation = sp.Pipeline(arrays).batch(5)  # 48 records fill no whole number of batches

def loader(pipeline=train, **settings):
    return standpipe.torch.loader(pipeline, memory="256MiB", num_workers=1, **settings)

class Rows(torch.utils.data.Dataset):
    def __len__(self): return 48
    def __getitem__(self, index): return torch.ones(3), index

def drop_in(rows=4, shuffle=True, **more):
    return standpipe.torch.DataLoader(
        Rows(), rows, shuffle=shuffle, num_workers=1, memory="512MiB", executor="thread", **more)

def tell(**seen):
    with open(f"{{folder}}/seen-{{rank}}.json", "w") as file:
        json.dump(seen, file)
"""


def seen(folder: Path, program: str, *, ranks: int = 1) -> list[dict[str, Any]]:
    """What each rank of a program tells."""
    script = folder / "train.py"
    paths = [path for path in sys.path if path]
    script.write_text(BEGIN.format(path=paths, folder=str(folder)) + textwrap.dedent(program))
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    done = subprocess.run(
        [sys.executable, *launch, script],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr[-8000:]
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(ranks)]


def records(batches: list[list[int]]) -> list[int]:
    """All records of batches, sorted."""
    return sorted(record for batch in batches for record in batch)


@pytest.mark.long
def test_ddp(tmp_path: Path) -> None:
    """A plain loop, with gradients that the ranks average; examples/ddp.py and a recipe of docs/howto are others."""
    ranks = seen(
        tmp_path,
        """
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 48))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        batches, epochs = loader(fields=("x", "label")), []
        for epoch in range(2):
            epochs.append([])
            for x, label in batches:
                torch.nn.functional.cross_entropy(model(x), label).backward()
                optimizer.step()
                epochs[-1].append(label.tolist())
        tell(epochs=epochs)
        torch.distributed.destroy_process_group()
        """,
        ranks=2,
    )
    for epoch in range(2):
        assert records(ranks[0]["epochs"][epoch] + ranks[1]["epochs"][epoch]) == list(range(48))


ENGINE = "standpipe.torch.dataloader thread 512MiB"
LIGHTNING = """
import torchvision_cpu  # it imports torchvision where it is installed
import lightning

class Module(lightning.LightningModule):
    def __init__(self, stop=None):
        super().__init__()
        self.layer, self.stop = torch.nn.Linear(3, 48), stop
        self.seen, self.validated = [], []
    def training_step(self, batch, number):
        x, label = batch
        self.seen.append(label.tolist())
        return torch.nn.functional.cross_entropy(self.layer(x), label)
    def on_train_batch_end(self, *_):
        if len(self.seen) == self.stop:
            self.trainer.save_checkpoint(f"{folder}/stopped.ckpt")
            self.trainer.should_stop = True
            self.trainer.limit_train_batches = 0
            raise Stop
    def validation_step(self, batch, number):
        self.validated += batch[1].tolist()
    def predict_step(self, batch, number):
        return batch[1]
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Stop(Exception):
    pass

def trainer(**settings):
    return lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                             enable_progress_bar=False, enable_model_summary=False, **settings)

def training():
    return loader(fields=("x", "label"))

def validation():
    return loader(evaluation, shard=False, fields=("x", "label"))

def fit_drop_in():
    module = Module()
    trainer(**launch).fit(module, drop_in(), drop_in(rows=5, shuffle=False))
    loaders = (module.trainer.train_dataloader, module.trainer.val_dataloaders)
    engines = {f"{type(each).__module__} {each.executor} {each.memory}" for each in loaders}
    return dict(seen=module.seen, validated=module.validated, engines=sorted(engines))

def fit(stop=None, **resume):
    module = Module(stop)
    try:
        trainer(**launch).fit(module, training(), validation(), **resume)
    except Stop:
        pass
    return module
"""


@pytest.mark.long  # the example of Lightning goes on inside an epoch too
def test_lightning(tmp_path: Path) -> None:
    """Train, validate, predict; and go on from a checkpoint inside either epoch, and between them."""
    (rank,) = seen(
        tmp_path,
        LIGHTNING
        + """
launch = {}
whole = fit()
resumed = {}
for stop in (5, 12, 17):
    before = fit(stop)
    after = fit(ckpt_path=f"{folder}/stopped.ckpt", weights_only=False)
    resumed[stop] = before.seen + after.seen
predicted = trainer().predict(Module(), validation())
predicted = [batch.tolist() for batch in predicted]
tell(seen=whole.seen, validated=whole.validated, resumed=resumed, predicted=predicted, drop_in=fit_drop_in())
""",
    )
    assert [records(rank["seen"][:12]), records(rank["seen"][12:])] == 2 * [list(range(48))]
    assert rank["validated"][-48:] == list(range(48))
    assert rank["resumed"] == dict.fromkeys(("5", "12", "17"), rank["seen"])
    assert records(rank["predicted"]) == list(range(48))
    dropped_in = rank["drop_in"]
    assert [records(dropped_in["seen"][:12]), records(dropped_in["seen"][12:])] == 2 * [list(range(48))]
    assert dropped_in["validated"][-48:] == list(range(48))
    assert dropped_in["engines"] == [ENGINE]


@pytest.mark.long
def test_lightning_with_two_processes_shares_out_and_keeps_the_engine(tmp_path: Path) -> None:
    ranks = seen(
        tmp_path,
        LIGHTNING
        + """
launch = {"strategy": "ddp", "devices": 2, "num_nodes": 1}
whole = fit()
tell(seen=whole.seen, drop_in=fit_drop_in())
""",
        ranks=2,
    )
    dropped_in = [rank["drop_in"] for rank in ranks]
    for one, other in (ranks, dropped_in):
        for epoch in (slice(0, 6), slice(6, 12)):
            assert records(one["seen"][epoch] + other["seen"][epoch]) == list(range(48))
    assert sorted({*dropped_in[0]["validated"], *dropped_in[1]["validated"]}) == list(range(48))
    assert dropped_in[0]["engines"] == [ENGINE]


ACCELERATE = """
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration

def trained(dispatch):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
    model = torch.nn.Linear(3, 48)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader(fields=("x", "label")))
    epochs, ends = [], []
    for epoch in range(2):
        epochs.append([])
        for x, label in batches:
            with accelerator.accumulate(model):
                accelerator.backward(torch.nn.functional.cross_entropy(model(x), label))
                optimizer.step()
            epochs[-1].append(label.tolist())
            ends.append(accelerator.gradient_state.end_of_dataloader)
    again = accelerator.prepare(loader(fields=("x", "label")))
    again.set_epoch(1)
    skipped = [label.tolist() for _, label in skip_first_batches(again, 4)]
    for number, _ in enumerate(again):  # epoch 2
        if number == 3:
            state = again.state_dict()
            break
    rest = [label.tolist() for _, label in again]  # epoch 3
    resumed = loader(fields=("x", "label"))
    resumed.load_state_dict(state)
    resumed = [label.tolist() for batches in 2 * [accelerator.prepare(resumed)] for _, label in batches]
    metrics = dict()
    for tail in (None, "pad"):
        batches = loader(sp.Pipeline(arrays).batch(5, last_batch=tail), fields="label")
        metrics[tail] = [accelerator.gather_for_metrics(batch).tolist() for batch in accelerator.prepare(batches)]
    batches = accelerator.prepare(loader(fields="label"))
    assert batches.peek().tolist() == next(iter(batches)).tolist()
    counted = [batch.tolist() for batch in accelerator.prepare(loader(evaluation, shard=False, fields="label"))]
    with warnings.catch_warnings():  # prepare() and gather_for_metrics() leave padding out: no warning
        warnings.simplefilter("error")
        batches = accelerator.prepare(loader(sp.Pipeline(arrays).batch(5, last_batch="pad"), fields="label"))
        assert len(list(batches)) == len(batches)
    # Saved within an epoch of other steps, so its last batch is another one too.
    batches = accelerator.prepare(loader(sp.Pipeline(arrays).batch(5, last_batch="pad"), fields="label"))
    batches.load_state_dict({**batches.state_dict(), "consumed": 12})
    after = [accelerator.gather_for_metrics(batch).tolist() for batch in batches]
    return dict(epochs=epochs, ends=ends, skipped=skipped, rest=rest, resumed=resumed, counted=counted,
                metrics=[*metrics.values()], after=after)

def trained_drop_in():
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
    return dict(epochs=epochs, skipped=skipped, metrics=metrics)

tell(runs=[trained(None), trained(False)], drop_in=trained_drop_in())
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""


@RANKS
def test_accelerate(tmp_path: Path, ranks: int) -> None:
    """Whatever it would do with iterable datasets by itself, and told not to dispatch their batches."""
    all_told = seen(tmp_path, ACCELERATE, ranks=ranks)
    for told in zip(*(rank["runs"] for rank in all_told), strict=True):
        for epoch in range(2):
            assert records([batch for rank in told for batch in rank["epochs"][epoch]]) == list(range(48))
        for rank in told:
            assert rank["skipped"] == rank["epochs"][1][4:]
            steps = 12 // ranks
            assert rank["ends"] == 2 * [*[False] * (steps - 1), True]
            assert len(rank["resumed"]) == 2 * steps - 4
            assert rank["resumed"][steps - 4 :] == rank["rest"]
            assert [records(each) for each in rank["metrics"]] == 2 * [list(range(48))]
            assert records(rank["after"]) == list(range(12, 48))
            assert records(rank["counted"]) == list(range(48))
    dropped_in = [rank["drop_in"] for rank in all_told]
    for epoch in range(2):
        assert records([batch for rank in dropped_in for batch in rank["epochs"][epoch]]) == list(range(48))
    assert records([batch for rank in dropped_in for batch in rank["skipped"]]) == list(range(8 * ranks, 48))
    assert sorted(dropped_in[0]["metrics"]) == list(range(48))


TRANSFORMERS = """
import pathlib, shutil
sys.modules["torchvision"] = None  # without it, as importing it takes more than a second
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.drawn, self.evaluated = torch.nn.Linear(3, 48), [], [], []
    def forward(self, x, labels):
        if self.training:
            self.seen.append(labels.tolist())
            self.drawn.append(x[:, 0].tolist())
        else:
            self.evaluated += labels.tolist()
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

def noisy(x, rng: np.random.Generator):
    return x + rng.random(3, np.float32)

class OurTrainer(Trainer):
    def get_train_dataloader(self):
        drawing = train.map(noisy, field="x")
        return self.accelerator.prepare(loader(drawing, executor="thread", fields={"x": "x", "labels": "label"}))
    def get_eval_dataloader(self, eval_dataset=None):
        return self.accelerator.prepare(loader(evaluation, shard=False, fields={"x": "x", "labels": "label"}))

def trained(resume=None, save_steps=1000):
    model = Model()
    arguments = TrainingArguments(f"{folder}/out", num_train_epochs=2, use_cpu=True, save_steps=save_steps,
                                  report_to=[], disable_tqdm=True, logging_strategy="no")
    trainer = OurTrainer(model, arguments)
    trainer.train(resume_from_checkpoint=resume)
    return model, trainer

model, trainer = trained(save_steps=5 if torch.distributed.get_world_size() == 1 else 4)
metrics = trainer.evaluate()
resumed, drawn = {}, {}
for checkpoint in sorted(pathlib.Path(folder, "out").glob("checkpoint-*")):
    step = int(checkpoint.name.split("-")[1])
    again, _ = trained(checkpoint)
    resumed[step], drawn[step] = model.seen[:step] + again.seen, model.drawn[:step] + again.drawn
tell(seen=model.seen, drawn=model.drawn, evaluated=model.evaluated, resumed=resumed, drawn_again=drawn)
"""


@pytest.mark.long  # the example of the Trainer goes on inside an epoch too
@RANKS
def test_transformers_trainer(tmp_path: Path, ranks: int) -> None:
    """Train, evaluate, and go on from every checkpoint: some inside an epoch, of the first and the second."""
    program = TRANSFORMERS.replace("torch.distributed.get_world_size()", str(ranks))
    told = seen(tmp_path, program, ranks=ranks)
    steps = 12 // ranks
    for epoch in (slice(0, steps), slice(steps, 2 * steps)):
        assert records([batch for rank in told for batch in rank["seen"][epoch]]) == list(range(48))
    for rank in told:
        assert rank["evaluated"] == list(range(48))
        assert len(rank["resumed"]) >= 3
        assert all(resumed == rank["seen"] for resumed in rank["resumed"].values())
        assert all(drawn == rank["drawn"] for drawn in rank["drawn_again"].values())


def test_stateful_dataloader_of_torchdata(tmp_path: Path) -> None:
    (rank,) = seen(
        tmp_path,
        """
        from torchdata.stateful_dataloader import StatefulDataLoader
        from torchdata.stateful_dataloader.stateful import Stateful

        def batches():
            return StatefulDataLoader(loader(fields="label").dataset, batch_size=None)

        assert isinstance(loader(fields="label"), Stateful)
        own = loader(fields="label")
        whole = [label.tolist() for _ in range(2) for label in own]
        resumed = []
        for stop in range(25):
            first, second = batches(), batches()
            seen = []
            while len(seen) < stop:
                for label in first:
                    seen.append(label.tolist())
                    if len(seen) == stop:
                        break
            second.load_state_dict(first.state_dict())
            while len(seen) < 24:
                seen += [label.tolist() for label in second]
            resumed.append(seen)
        tell(whole=whole, resumed=resumed)
        """,
    )
    assert rank["resumed"] == 25 * [rank["whole"]]


def test_timm(tmp_path: Path) -> None:
    """What its training script does with a loader, and its mixup on the batch."""
    (rank,) = seen(
        tmp_path,
        """
        import torchvision_cpu  # timm imports torchvision
        with without_the_compiler():
            from timm.data import Mixup

        images = sp.Arrays(image=np.zeros((48, 32, 32, 3), np.uint8), label=np.arange(48))
        pipeline = sp.Pipeline(images).shuffle(seed=5).map(sp.Normalize()).batch(4)
        batches = loader(pipeline, memory_format=torch.channels_last)
        mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=48)
        epochs = []
        for epoch in range(2):
            if hasattr(batches.dataset, "set_epoch"):
                batches.dataset.set_epoch(epoch)
            last, seen = len(batches) - 1, []
            for number, (image, label) in enumerate(batches):
                seen.append(label.tolist())
                mixed, target = mixup(image, label)
                assert target.shape == (4, 48) and mixed.shape == (4, 3, 32, 32)
            assert number == last
            epochs.append(seen)
        tell(epochs=epochs)
        """,
    )
    assert [records(epoch) for epoch in rank["epochs"]] == 2 * [list(range(48))]
