"""Names that people know from elsewhere are answered with ours; what they print is one readable line."""

from __future__ import annotations

import os
import subprocess
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import write_photos
from standpipe.hints import BATCH, NAMES, RUN
from standpipe.plan.options import LoaderOptions

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pipeline(tmp_path: Path) -> sp.Pipeline:
    """One of a few photos."""
    (tmp_path / "class").mkdir()
    write_photos(tmp_path / "class", 8)
    source = sp.Pipeline(sp.ImageFolder(tmp_path)).shuffle(seed=7)
    return source.map(sp.RandomResizedCrop(32), sp.RandomHorizontalFlip(), sp.Normalize()).batch(2)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("workers", "write num_workers="),
        ("prefetch_factor", "write prefetch="),
        ("batch_size", r"write \.batch\(batch_size\)"),
        ("drop_last", "last_batch='drop'"),
        ("collate_fn", r"write \.batch\(batch_size, collate_fn=…\)"),
        ("sampler", r"loader\.from_batches\(batches\)"),
        ("pin_memory", "leave it out: standpipe.torch.loader"),
        ("wokers", "did you mean num_workers=?"),
        ("xyzzy", "it takes memory=, num_workers=,"),
    ],
)
def test_an_argument_of_torch_names_ours(pipeline: sp.Pipeline, name: str, says: str) -> None:
    unknown: Any = {name: 2}
    for call in (pipeline.loader, pipeline.plan):
        with pytest.raises(TypeError, match=f"a plan or loader takes no {name}=: .*{says}"):
            call(**unknown)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sampler", "write batch_sampler=True"),
        ("drop_last", "write last_batch='drop'"),
        ("last_bacth", "did you mean last_batch=?"),
    ],
)
def test_an_argument_of_batch_names_ours(pipeline: sp.Pipeline, name: str, says: str) -> None:
    unknown: Any = {name: 2}
    with pytest.raises(TypeError, match=rf"batch\(\) takes no {name}=: {says}"):
        pipeline.batch(2, **unknown)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ElasticTransform", "has no attribute 'ElasticTransform': give torchvision's"),
        ("DataLoader", r"standpipe\.torch\.DataLoader"),
        ("Compose", r"\.map\(first, second\)"),
        ("Dataset", r"sp\.MapSource\(dataset\)"),
        ("Mixup", r"did you mean sp\.MixUp\?"),
        ("ImageFodler", r"did you mean sp\.ImageFolder\?"),
        ("xyzzy", "has no attribute 'xyzzy': dir\\(sp\\) lists its names$"),
    ],
)
def test_a_name_of_torch_names_ours(name: str, says: str) -> None:
    with pytest.raises(AttributeError, match=says):
        getattr(sp, name)


def test_what_is_advised_is_there_and_what_is_refused_is_not() -> None:
    assert not RUN.keys() & LoaderOptions.__annotations__.keys()
    assert not NAMES.keys() & set(sp.__all__)
    assert not BATCH.keys() & set(signature(sp.Pipeline.batch).parameters)
    for text in (*RUN.values(), *BATCH.values(), *NAMES.values()):
        for word in text.replace("(", " ").replace(",", " ").split():
            if word.startswith("sp."):
                assert hasattr(sp, word[3:]), text
            if word.startswith("."):
                assert hasattr(sp.Pipeline, word[1:]), text


def test_iterating_a_pipeline_says_what_to_iterate_over(pipeline: sp.Pipeline) -> None:
    with pytest.raises(TypeError, match=r"Iterate over its loader: 'with pipeline\.loader\(\)"):
        list(pipeline)


def test_a_pipeline_and_a_loader_are_one_readable_line(pipeline: sp.Pipeline, tmp_path: Path) -> None:
    text = f"Pipeline(ImageFolder('{tmp_path}')).shuffle(seed=7).map(RandomResizedCrop("
    assert repr(pipeline).startswith(text)
    assert repr(pipeline).endswith(").batch(2)")
    with pipeline.loader(num_workers=1, memory="64MiB") as loader:
        assert repr(loader) == f"<Loader of {pipeline!r}: 1 worker, epoch 0, batch 0 of 4>"
        batches = iter(loader)
        next(batches)
        assert repr(loader).endswith("epoch 0, batch 1 of 4>")
    assert repr(loader).endswith("batch 1 of 4, closed>")


def test_every_part_of_a_pipeline_is_shown_also_one_that_cant_be() -> None:
    numbers = sp.Arrays(x=list(range(10)))
    pipeline = sp.Pipeline(numbers).take(5).shuffle(seed=1).repeat_each(2).map(str.upper, field="x")
    pipeline = pipeline.cache(sp.Cache("eval")).map(sp.Normalize()).on_error(sp.Replace(at_most=0.1))
    text = repr(pipeline.batch(budget=9, length_column="x", last_batch="pad").shard(1, 4))
    for part in (
        ".take(5)",
        ".shuffle(seed=1)",
        ".repeat_each(2)",
        ".cache('eval')",
        ".map(Normalize(",
        ".batch(budget=9, length_column='x', last_batch='pad')",
        ".shard(1, 4)",
        ".on_error(Replace(at_most=0.1))",
    ):
        assert part in text
    assert "\n" not in text
    wrong: Any = sp.Pipeline
    assert repr(wrong(sp.ImageFolder).map(lambda x: x)).startswith("Pipeline(<class ")


def test_a_long_pipeline_is_shown_without_its_middle() -> None:
    many = sp.Concat([sp.ImageFolder(f"photos-{number}") for number in range(100)])
    text = repr(sp.Pipeline(many).batch(4, last_batch="drop").shard(1, 2).on_error(sp.Replace(at_most=3)))
    assert len(text) == 600
    assert text.startswith("Pipeline(Concat([ImageFolder(root='photos-0', ")
    assert text.endswith(
        "index=None, others=())])).batch(4, last_batch='drop').shard(1, 2).on_error(Replace(at_most=3))"
    )


def test_a_plan_of_many_fields_is_one_readable_line() -> None:
    many = sp.Arrays(**{f"field{number}": np.zeros(4) for number in range(100)})
    text = repr(sp.Pipeline(many).batch(2).plan(memory="64MiB"))
    assert text.startswith("<Plan of Arrays(field0=float64[4], field1=float64[4], ")
    assert " field99=float64[4]): 4 records, 2 steps per epoch of 2 rows, rank 0 of 1, " in text
    assert len(text) < 400


def test_a_build_shows_how_far_it_is() -> None:
    lines = "Processing .\n  [1/60] Building CXX\n  warning\n[60/60] Linking\n"
    done = subprocess.run(
        [ROOT / "scripts" / "progress"], input=lines, capture_output=True, text=True, check=True
    )
    assert done.stdout == "setup: step 60 of 60\n"
    ours, theirs = os.openpty()
    subprocess.run([ROOT / "scripts" / "progress"], input=lines, stdout=theirs, text=True, check=True)
    assert os.read(ours, 4096) == b"\rsetup: step 1 of 60\rsetup: step 60 of 60\r\x1b[K"
    for end in (ours, theirs):
        os.close(end)
