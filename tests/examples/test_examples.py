"""Every example runs as a user would run it, learns something, and resumes to the same end."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from record_files import example as example_of, mds, tfrecord

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SLOPES = ((0, 1), (1, 0), (1, 1))  # of the stripes of each class: across, down, both


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``train`` and ``val`` of three classes: stripes of three directions, in any colours."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:96, :96]
    for subset, images in (("train", 100), ("val", 21)):
        for number in range(images):
            label = number % len(SLOPES)
            down, right = SLOPES[label]
            wave = np.sin((y * down + x * right) / rng.uniform(2, 3) + rng.uniform(0, 6))
            first, second = rng.integers(0, 256, (2, 3))
            pixels = first + (second - first) * (wave[..., None] + 1) / 2
            path = root / subset / f"class-{label}" / f"{number:03}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
    return root


def run(example: str, *arguments: str | Path, folder: Path | None = None, **variables: str) -> str:
    """What it prints, as a user starts it, with warnings as errors."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / example), *map(str, arguments)]
    return output(command, folder=folder, **variables)


# What a user starts several times, in one process: importing a framework takes seconds.
SEVERAL = """
import json, runpy, shutil, sys
for sys.argv in json.loads(sys.argv[1]):
    if sys.argv[0] == "copy":
        shutil.copyfile(*sys.argv[1:])
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
"""
# Before that: frameworks import torchvision where it is there, and examples of torch alone need no compiler.
WITH_TORCHVISION = "import torchvision_cpu"
WITHOUT_TORCHVISION = "import sys; sys.modules['torchvision'] = None"
UNCOMPILED = "import uncompiled; hidden = uncompiled.without_the_compiler(); hidden.__enter__()"


def run_in_turn(
    example: str,
    *turns: tuple[str | Path, ...],
    first: str = UNCOMPILED,
    warnings: str = "error",
    **variables: str,
) -> list[str]:
    """The lines that it prints, started once for each of ``turns``, which are its arguments.

    A turn of ``"copy"`` and two paths copies a file in between. ``first`` is run before all turns.
    """
    command = str(EXAMPLES / example)
    commands = json.dumps([[*(() if turn[0] == "copy" else (command,)), *map(str, turn)] for turn in turns])
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    return output([sys.executable, "-W", warnings, "-c", first + SEVERAL, commands], **variables).splitlines()


def output(command: list[str], *, folder: Path | None = None, **variables: str) -> str:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=240, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def both(photos: Path) -> tuple[Path, Path]:
    return photos / "train", photos / "val"


def last_accuracy(output: str) -> float:
    return float(output.strip().splitlines()[-1].rpartition(" ")[2])


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "cifar_resnet.py",
        "ddp.py",
        "detection_detr.py",
        "detection_torchvision.py",
        "detection_yolo.py",
        "dino_multicrop.py",
        "eval_cache.py",
        "hdf5_images.py",
        "hf_trainer.py",
        "huggingface.py",
        "instance_segmentation.py",
        "jax_cnn.py",
        "keypoints.py",
        "lightning_module.py",
        "lmdb_images.py",
        "mds.py",
        "mnist.py",
        "nfs_cache.py",
        "parquet.py",
        "progressive_resizing.py",
        "ray_remote_workers.py",  # tests/for_ray runs these two
        "ray_train_ddp.py",
        "resume_elsewhere.py",
        "segmentation.py",
        "serve_one_image.py",
        "simclr_views.py",
        "stereo_depth.py",
        "super_resolution_pairs.py",
        "ten_million_images.py",
        "tfrecords.py",
        "timm_recipe.py",
        "train_numpy.py",
        "train_resnet_torch.py",
        "train_torch.py",
        "webdataset_shards.py",
        "zarr_images.py",
    }


def test_images_grow_and_a_resumed_run_goes_on_as_the_whole_one(photos: Path, tmp_path: Path) -> None:
    whole, parts = ("--checkpoint", tmp_path / "whole.pt"), ("--checkpoint", tmp_path / "parts.pt")
    arguments = (photos / "train", "--epochs", "3", "--batch", "32", "--size", "64")
    turns = [(*arguments, *whole), (*arguments, *parts, "--until", "2"), (*arguments, *parts)]
    lines = [line.rpartition(",")[0] for line in run_in_turn("progressive_resizing.py", *turns)]
    assert [line.split(",")[0] for line in lines[:3]] == [
        f"epoch {epoch}: {side} × {side} pixels" for epoch, side in enumerate((32, 48, 64))
    ]
    assert lines[:3] == lines[3:]


def test_self_supervised_examples_train_with_views(photos: Path) -> None:
    for example in ("simclr_views.py", "dino_multicrop.py"):
        lines = run_in_turn(example, (photos / "train", "--steps", "10"))
        first, last = (float(line.rpartition(" ")[2]) for line in lines)
        assert first > 0
        assert 0 < last < (first if example == "simclr_views.py" else 10)


def test_masks_are_learned(photos: Path, tmp_path: Path) -> None:
    lines = run_in_turn("segmentation.py", (photos / "train", "--masks", tmp_path / "masks", "--size", "48"))
    assert last_accuracy(lines[-1]) > 0.85


def losses(printed: str) -> list[float]:
    return [float(line.split()[-1 if "loss" in line else -2]) for line in printed.splitlines()]


def test_pairs_of_two_sizes_are_learned(photos: Path, tmp_path: Path) -> None:
    printed = run(
        "super_resolution_pairs.py", photos / "train", "--pairs", tmp_path / "pairs", "--epochs", "3"
    )
    assert losses(printed)[-1] < losses(printed)[0]


def test_depths_are_learned(tmp_path: Path) -> None:
    printed = run("stereo_depth.py", tmp_path / "scenes")
    assert losses(printed)[-1] < losses(printed)[0]


@pytest.mark.parametrize(
    "example",
    [
        "detection_torchvision.py",
        "detection_detr.py",
        "detection_yolo.py",
        "instance_segmentation.py",
        "keypoints.py",
    ],
)
def test_an_example_of_detection_learns(example: str, tmp_path: Path) -> None:
    printed = run(example, tmp_path / "made")
    assert losses(printed)[-1] < losses(printed)[0]


def test_a_server_gets_what_evaluation_got(photos: Path, tmp_path: Path) -> None:
    model, path = tmp_path / "model.pt", next((photos / "val").glob("*/*.jpg"))
    saved, served = run_in_turn(
        "serve_one_image.py", (photos / "train", "--train", model), (path, "--model", model)
    )
    assert "saved" in saved
    assert f"{path}: class-" in served


def test_timms_recipe_runs_natively(photos: Path) -> None:
    *report, first, last = run_in_turn(
        "timm_recipe.py",
        (photos / "train", "--epochs", "2", "--size", "32"),
        first=f"{UNCOMPILED}; {WITH_TORCHVISION}",
        warnings="default",
    )
    assert report
    assert all(line.endswith(": native") for line in report)
    assert [line.partition(":")[0] for line in (first, last)] == ["epoch 0", "epoch 1"]


def test_numpy_learns_and_resumes_to_the_same_bits(photos: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.npz", tmp_path / "parts.npz"
    arguments = ("--epochs", "3", "--batch", "16", "--save-every", "3")
    output = run("train_numpy.py", *both(photos), *arguments, "--checkpoint", whole)
    assert last_accuracy(output) > 0.9
    assert "epoch 1:" not in run(
        "train_numpy.py", *both(photos), *arguments, "--checkpoint", parts, "--max-steps", "7"
    )
    resumed = run("train_numpy.py", *both(photos), *arguments, "--checkpoint", parts, "--workers", "1")
    assert resumed.startswith("going on after step 6, in epoch 1\n")
    assert resumed.splitlines()[-1] == output.splitlines()[-1]
    with np.load(whole) as a, np.load(parts) as b:
        np.testing.assert_array_equal(a["weights"], b["weights"])
        np.testing.assert_array_equal(a["bias"], b["bias"])


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch isn't installed")
def test_torch_learns_and_resumes(photos: Path, tmp_path: Path) -> None:
    arguments = ("--epochs", "3", "--batch", "16", "--save-every", "3", "--checkpoint", tmp_path / "run.pt")
    arguments = (*both(photos), *arguments)
    lines = run_in_turn("train_torch.py", (*arguments, "--max-steps", "7"), arguments)
    assert [line.partition(":")[0] for line in lines] == [
        "epoch 0",
        "going on after step 6, in epoch 1",
        "epoch 1",
        "epoch 2",
    ]
    assert last_accuracy(lines[-1]) > 0.6


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch isn't installed")
def test_cifar_learns_and_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, rows in (("data_batch_1", 192), ("data_batch_2", 192), ("test_batch", 60)):
        labels = (np.arange(rows) % 2).astype(np.uint8)[:, None]
        pixels = rng.integers(0, 128, (rows, 3 * 32 * 32), np.uint8) + 127 * labels
        np.hstack([labels, pixels]).astype(np.uint8).tofile(tmp_path / f"{name}.bin")
    arguments = (tmp_path, "--batch", "32", "--width", "4", "--checkpoint", tmp_path / "run.pt")
    lines = run_in_turn("cifar_resnet.py", (*arguments, "--epochs", "1"), (*arguments, "--epochs", "3"))
    assert [line.partition(":")[0] for line in lines] == ["epoch 0", "epoch 1", "epoch 2"]
    assert last_accuracy(lines[-1]) > 0.9


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch isn't installed")
def test_mnist_learns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, rows in (("train", 384), ("t10k", 60)):
        labels = (np.arange(rows) % 2).astype(np.uint8)
        images = rng.integers(0, 128, (rows, 28, 28), np.uint8) + 127 * labels[:, None, None]
        header = struct.pack(">HBBIII", 0, 8, 3, rows, 28, 28)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(header + images.astype(np.uint8).tobytes())
        header = struct.pack(">HBBI", 0, 8, 1, rows)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())
    lines = run_in_turn("mnist.py", (tmp_path, "--batch", "32", "--width", "4"))
    assert [line.partition(":")[0] for line in lines] == ["epoch 0", "epoch 1", "epoch 2"]
    assert last_accuracy(lines[-1]) > 0.9


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch isn't installed")
def test_a_resnet_script_learns_and_resumes(photos: Path, tmp_path: Path) -> None:
    arguments = (*both(photos), "--model", "tiny", "--size", "48", "--batch", "16", "--rate", "0.02")
    arguments += (
        "--epochs",
        "3",
        "--memory",
        "512MiB",
        "--save-every",
        "3",
        "--checkpoint",
        tmp_path / "run.pt",
    )
    lines = run_in_turn("train_resnet_torch.py", (*arguments, "--max-steps", "8"), arguments)
    assert [line.partition(":")[0] for line in lines] == [
        "epoch 0",
        "going on after step 6, in epoch 1",
        "epoch 1",
        "epoch 2",
    ]
    assert last_accuracy(lines[-1]) > 0.45


def test_ddp_counts_every_image_once_and_resumes_with_fewer_processes(photos: Path, tmp_path: Path) -> None:
    arguments = [
        *map(str, both(photos)),
        "--size",
        "32",
        "--batch",
        "8",
        "--checkpoint",
        str(tmp_path / "run.pt"),
    ]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    example = str(EXAMPLES / "ddp.py")
    assert output([*torchrun, example, *arguments, "--epochs", "1"]).startswith(
        "epoch 0: 6 steps, 21 images validated, accuracy 0."
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    assert output([sys.executable, example, *arguments, "--epochs", "2"], **alone).startswith(
        "epoch 1: 12 steps, 21 images validated, accuracy 0."
    )


def test_a_lightning_module_goes_on_inside_an_epoch(photos: Path, tmp_path: Path) -> None:
    arguments = (*both(photos), "--folder", tmp_path, "--size", "32", "--batch", "16", "--accelerator", "cpu")
    arguments += ("--epochs", "2", "--save-every", "4")
    lines = run_in_turn(
        "lightning_module.py",
        (*arguments, "--max-steps", "5"),
        (*arguments, "--resume", tmp_path / "last.ckpt"),
        first=WITH_TORCHVISION,
        warnings="default",
    )
    first = lines.index("5 steps")
    assert lines[first + 1].startswith("going on from")
    validated = [line.partition(", acc")[0] for line in lines[first:] if line.startswith("epoch ")]
    assert validated == ["epoch 0: 21 images validated", "epoch 1: 21 images validated"]
    assert lines[-1] == "12 steps"


def test_the_hugging_face_trainer_goes_on_inside_an_epoch(photos: Path, tmp_path: Path) -> None:
    arguments = (*both(photos), "--folder", tmp_path, "--size", "32", "--batch", "16", "--cpu")
    arguments += ("--epochs", "2", "--save-every", "4")
    resumed = (*arguments, "--resume")
    lines = run_in_turn(
        "hf_trainer.py",
        (*arguments, "--max-steps", "4"),
        resumed,
        (*resumed, "--val-batch", "7"),
        first=WITHOUT_TORCHVISION,
        warnings="default",
    )
    steps = [line for line in lines if "steps, " in line]
    found = [line for line in lines if line.startswith("accuracy ")]
    assert steps == [f"{number} steps, 21 images evaluated" for number in (4, 12, 12)]
    assert found[0] != found[1]
    assert found[1] == found[2]  # 21 images in 2 batches, of which 11 rows are padding, or in 3 whole ones


def test_jax_learns_and_resumes(photos: Path, tmp_path: Path) -> None:
    arguments = ("--epochs", "2", "--batch", "16", "--save-every", "4", "--checkpoint", tmp_path / "run.pkl")
    variables = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),  # the second turn compiles the same
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    arguments = (*both(photos), *arguments)
    lines = run_in_turn("jax_cnn.py", (*arguments, "--max-steps", "5"), arguments, first="", **variables)
    assert [line.partition(":")[0] for line in lines] == [
        "going on after step 4, in epoch 0",
        "epoch 0",
        "epoch 1",
    ]
    assert last_accuracy(lines[-1]) > 0.6


def test_a_killed_job_goes_on_as_another_one(photos: Path) -> None:
    lines = run("resume_elsewhere.py", photos / "train").splitlines()
    assert lines == [
        "killed; the state says 32 samples of epoch 0 were delivered",
        "1 steps of 4 × 8 rows, then 1 of 2 × 24",
        "80 samples, none lost, none twice, in the order of an undisturbed run",
    ]


def aged(photos: Path, folder: Path) -> Path:
    """A copy from long ago: of what was written a moment before it was read, a cache isn't sure."""
    shutil.copytree(photos, folder)
    for path in folder.rglob("*.jpg"):
        os.utime(path, (10**9, 10**9))
    return folder


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch isn't installed")
def test_only_the_first_evaluation_decodes(photos: Path, tmp_path: Path) -> None:
    folders = both(aged(photos, tmp_path / "photos"))
    arguments = (*folders, "--size", "32", "--batch", "16", "--directory", tmp_path, "--epochs", "2")
    lines = run_in_turn("eval_cache.py", arguments, arguments)
    decoded = [int(re.search(r"(\d+) images decoded for it", line)[1]) for line in lines]  # type: ignore[index]
    assert decoded[0] >= 20  # more if batches ahead are begun before all rows are stored
    assert decoded[1:] == [0, 0, 0]
    accuracies = [line.partition(",")[0] for line in lines]
    assert accuracies[:2] == accuracies[2:]  # whoever decoded them, pixels are the same


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch isn't installed")
def test_training_reads_each_file_once_until_it_changes(photos: Path, tmp_path: Path) -> None:
    copy = aged(photos / "train", tmp_path / "train")
    arguments = (copy, "--size", "32", "--batch", "20", "--directory", tmp_path, "--epochs", "2")
    change = ("copy", copy / "class-2" / "002.jpg", copy / "class-1" / "001.jpg")
    lines = run_in_turn("nfs_cache.py", arguments, change, arguments, (*arguments, "--explain"))
    read = [int(re.search(r"(\d+) files read", line)[1]) for line in lines[:4]]  # type: ignore[index]
    # One more if the next epoch's first batch is begun before the file is kept.
    assert 100 <= read[0] + read[1] < 120
    assert 1 <= read[2] + read[3] <= 2
    assert "encoded" in "".join(lines[4:])


PROOF = [
    f"{order}, ranks={ranks}: every image once, {steps} steps each"
    for order, ranks, steps in (
        ("in sequence", 1, 5),
        ("in sequence", 3, 2),
        ("shuffled", 1, 4),
        ("shuffled", 3, 1),
    )
]


def test_a_list_is_proved_complete_and_resumes_to_the_same_bytes(photos: Path, tmp_path: Path) -> None:
    """Without albumentations, which every start of it and of its workers would import for seconds."""
    paths = sorted((photos / "train").glob("*/*.jpg"))
    (tmp_path / "list.txt").write_text("".join(f"{path} {path.parent.name}\n" for path in paths * 3))
    (tmp_path / "albumentations.py").write_text("raise ImportError('not here')\n")

    def lines(state: str, *arguments: str) -> list[str]:
        given = ("list.txt", "--ranks", "3", "--save-every", "3", "--state", state, *arguments)
        return run("ten_million_images.py", *given, folder=tmp_path, PYTHONPATH=str(tmp_path)).splitlines()

    whole = lines("whole.json", "--steps", "9")
    assert whole[:4] == PROOF
    assert whole[4] == "albumentations isn't installed: crops are flipped, and nothing else happens to them"
    assert [line.partition(":")[0] for line in whole[5:]] == ["epoch 0", "epoch 1"]
    assert lines("parts.json", "--steps", "5") == whole[:6]
    resumed = lines("parts.json", "--steps", "6", "--workers", "1")
    assert resumed[5:] == ["going on after 192 images of epoch 0", *whole[5:]]


@pytest.mark.long
def test_photos_of_its_own_and_albumentations(tmp_path: Path) -> None:
    *_, proof, last = run("ten_million_images.py", "--steps", "31", folder=tmp_path).splitlines()
    assert proof.startswith("shuffled, ranks=")
    assert last.startswith("epoch 0: 31 steps, pixels add up to ")


STORES = [  # an example, what it needs, and further arguments
    ("hdf5_images.py", "h5py"),
    ("hdf5_images.py", "h5py", "96"),
    ("huggingface.py", "datasets"),
    ("lmdb_images.py", "lmdb"),
    ("parquet.py", "pyarrow"),
    ("webdataset_shards.py", "standpipe"),
    ("zarr_images.py", "zarr", "96"),
]


def epoch_of(train: sp.Pipeline) -> str:
    """Return the line that the examples of stores print for an epoch."""
    train = train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)
    digest = hashlib.sha256()
    with train.loader(memory="1GiB", num_workers=2) as loader:
        for batch in loader:
            digest.update(batch["image"])
    return f"epoch 0: 3 steps, SHA-256 {digest.hexdigest()}"


@pytest.mark.parametrize("store", STORES, ids="-".join)
def test_images_of_a_store_give_the_batches_of_the_folder(
    store: tuple[str, ...], photos: Path, tmp_path: Path
) -> None:
    example, package, *arguments = store
    pytest.importorskip(package)
    assert (EXAMPLES / example).read_text().count("\n") <= 60
    order = {"block": 64, "window": 4} if example == "parquet.py" else {}
    expected = epoch_of(sp.Pipeline(sp.ImageFolder(photos / "train")).shuffle(seed=7, **order))
    made = () if example == "huggingface.py" else (tmp_path / "store", *arguments)
    variables = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    assert run(example, photos / "train", *made, **variables).splitlines() == [expected]


def test_shards_of_other_libraries_give_the_batches_of_the_folder(photos: Path, tmp_path: Path) -> None:
    expected = epoch_of(sp.Pipeline(sp.ImageFolder(photos / "train")).shuffle(seed=7))
    images = [path.read_bytes() for path in sorted((photos / "train").glob("*/*.jpg"))]
    tfrecord(tmp_path / "train-0", [example_of({"image/encoded": image, "n": [0]}) for image in images])
    assert run("tfrecords.py", tmp_path / "train-*", "image/encoded", "n").splitlines() == [expected]
    mds(tmp_path / "mds", {"x": "jpeg", "y": "int"}, [{"x": image, "y": 0} for image in images], per_shard=40)
    assert run("mds.py", tmp_path / "mds", "x", "y").splitlines() == [expected]
