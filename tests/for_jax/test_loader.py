"""The loader for JAX, in processes of its own: one that has used JAX mustn't fork any more, and other tests do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).parent / "cases.py"
LIMIT_S = 240
TWO_DEVICES = os.environ | {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    "JAX_PLATFORMS": "cpu",
    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
}

RANK = """
import sys
import jax, numpy as np
rank = int(sys.argv[1])
jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=rank)
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import standpipe as sp, standpipe.jax

pipeline = sp.Pipeline(sp.Arrays(x=np.arange(60, dtype=np.int32).reshape(30, 2))).shuffle(seed=3)
alone = [batch["x"] for batch in pipeline.batch(8).loader(num_workers=1, memory="64MiB")]

def mesh(*shape):
    return Mesh(np.array(jax.devices()).reshape(shape), ("data", "model")[:len(shape)])

def check(sharding, rows, parts):
    with standpipe.jax.loader(pipeline.batch(rows), sharding, fields=["x"], num_workers=1, memory="64MiB") as batches:
        assert len(batches) == len(alone)
        for batch, whole in zip(batches, alone, strict=True):
            assert batch["x"].shape == (8, 2)
            for shard in batch["x"].addressable_shards:
                np.testing.assert_array_equal(shard.data, whole[shard.index])
        assert (batches.loader.plan.steps.rank, batches.loader.plan.steps.world_size) == parts

check(NamedSharding(mesh(4), PartitionSpec("data")), 4, (rank, 2))
check(NamedSharding(mesh(2, 2), PartitionSpec("data")), 4, (rank, 2))
check(NamedSharding(mesh(2, 2), PartitionSpec("model")), 8, (0, 1))  # both processes have all rows
check(NamedSharding(mesh(2, 2), PartitionSpec(None, "model")), 8, (0, 1))
with standpipe.jax.loader(pipeline.batch(4), fields=["x"], num_workers=1, memory="64MiB") as batches:
    for batch, whole in zip(batches, alone, strict=True):
        np.testing.assert_array_equal(batch["x"], whole[4 * rank : 4 * rank + 4])
jax.distributed.shutdown()
"""


def test_two_devices() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", CASES],
        env=TWO_DEVICES,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-4000:]


def test_two_processes_of_two_devices() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), address],
            env=TWO_DEVICES,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
