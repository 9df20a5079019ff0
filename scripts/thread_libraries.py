"""Try popular libraries in worker processes, and print which of them start threads when they are imported.

    .venv/bin/python scripts/thread_libraries.py [PACKAGE…]     without words all of them: some fifteen minutes

Each library is installed, from wheels only, into a virtual environment of its own, which is removed afterwards. The
largest takes 2 GB of disk. There, a dataset whose module imports the library and uses it for each sample is read by two
worker processes. A library that can't be installed is skipped. docs/guide/python.md has the table.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

LONGEST_S = 300  # of one run
INSTALL_S = 900


@dataclass(frozen=True)
class Library:
    """A library and how a sample uses it.

    package  what pip installs
    imports  the first lines of the dataset's module
    value    an expression of ``index``, a number that the sample has
    """

    package: str
    imports: str
    value: str


LIBRARIES = (
    Library("av", "import av", "av.AudioFrame(samples=16 + index).samples"),
    Library("datasets", "import datasets", "datasets.Dataset.from_dict({'x': [index]})[0]['x']"),
    Library("duckdb", "import duckdb", "duckdb.execute(f'select {index} + 1').fetchall()[0][0]"),
    Library("h5py", "import h5py", "h5py.File.in_memory().create_dataset('x', data=[index])[0]"),
    Library("jax", "import jax.numpy as jnp", "jnp.arange(index + 1).sum()"),
    Library(
        "lightgbm",
        "import lightgbm",
        "lightgbm.Dataset(np.eye(8), np.arange(8.0)).construct().num_data() + index",
    ),
    Library("numba", "import numba\n\n@numba.njit\ndef add(x):\n    return x + 1", "add(index)"),
    Library(
        "obstore",
        "import obstore\nfrom obstore.store import MemoryStore\nstore = MemoryStore()",
        "obstore.put(store, f'{index}', b'x' * index) and len(obstore.get(store, f'{index}').bytes())",
    ),
    Library("onnxruntime", "import onnxruntime", "index + len(onnxruntime.get_available_providers())"),
    Library(
        "opencv-python-headless",
        "import cv2",
        "cv2.resize(np.full((64, 64, 3), index, np.uint8), (8, 8)).sum()",
    ),
    Library("pandas", "import pandas as pd", "pd.DataFrame({'x': range(index + 1)}).x.sum()"),
    Library(
        "polars", "import polars as pl", "pl.DataFrame({'x': range(index + 1)}).lazy().sum().collect().item()"
    ),
    Library(
        "pyarrow",
        "import pyarrow as pa\nimport pyarrow.compute as pc",
        "pc.sum(pa.array([index, 1])).as_py()",
    ),
    Library(
        "pylance",
        "import lance\nimport pyarrow as pa",
        "lance.write_dataset(pa.table({'x': range(index + 1)}), f'memory://{index}').count_rows()",
    ),
    Library(
        "rasterio",
        "import rasterio\nfrom rasterio.io import MemoryFile",
        "len(rasterio.drivers.raster_driver_extensions()) + index",
    ),
    Library(
        "scikit-learn",
        "from sklearn.cluster import KMeans",
        "KMeans(2, n_init=1, random_state=0).fit([[0.0], [index + 1.0]]).inertia_ + index",
    ),
    Library("scipy", "import scipy.ndimage", "scipy.ndimage.zoom(np.full((4, 4), float(index)), 2).sum()"),
    Library("tensorflow-cpu", "import tensorflow as tf", "int(tf.reduce_sum(tf.range(index + 1)))"),
    Library(
        "tokenizers",
        "import tokenizers",
        "index + len(tokenizers.pre_tokenizers.Whitespace().pre_tokenize_str('a b'))",
    ),
    Library("torch==2.13.0", "import torch", "int(torch.arange(index + 1).sum())"),
    Library(
        "xgboost",
        "import xgboost",
        "xgboost.DMatrix(np.eye(8), label=np.arange(8.0)).num_row() + index",
    ),
    Library("zarr", "import zarr", "int(zarr.array(np.arange(index + 1))[-1])"),
)

MODULE = """
import os
import numpy as np
{imports}

class Rows:
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return {{"x": float({value}), "process": os.getpid()}}
"""

# Prints a row of the table: threads, mode, works.
PROGRAM = """
import logging, os, subprocess, sys
count = "import os; before = len(os.listdir('/proc/self/task')); import rows; "
count += "print(len(os.listdir('/proc/self/task')) - before)"
import standpipe as sp
from standpipe.engine.processes.forking import _environment as of_workers
counted = subprocess.run(
    [sys.executable, "-c", count], env=of_workers(), capture_output=True, text=True, check=True
)
threads = counted.stdout.split()[-1]
logging.getLogger("standpipe").setLevel(logging.ERROR)
import rows
dataset = rows.Rows()
pipeline = sp.Pipeline(sp.MapSource(dataset)).batch(8)
with pipeline.loader(executor="process", num_workers=2, memory="6GiB") as loader:
    batches = list(loader)
    mode = "by each worker" if "loaded by each worker" in " ".join(loader.explain().split()) else "once"
values = [x for batch in batches for x in batch["x"].tolist()]
processes = {x for batch in batches for x in batch["process"].tolist()}
assert os.getpid() not in processes
assert values == [dataset[index]["x"] for index in range(len(dataset))], values
print(f"{threads} | {mode}")
sys.stdout.flush()
os._exit(0)
"""


def main() -> int:
    """Print the table; the exit code is 1 if a library that could be installed doesn't work."""
    chosen = sys.argv[1:]
    print("| library | version | threads at import | loaded | works |\n|---|---|---|---|---|", flush=True)
    works = True
    for library in LIBRARIES:
        name = library.package.partition("==")[0]
        if chosen and name not in chosen:
            continue
        with tempfile.TemporaryDirectory(prefix="thread-libraries-") as folder:
            row, good = _row(library, name, Path(folder))
        print(f"| {name} | {row} |", flush=True)
        works &= good
    return not works


def _row(library: Library, name: str, folder: Path) -> tuple[str, bool]:
    """Install a library and try it; return the other columns of its row, and False if it doesn't work."""
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    ours = sysconfig.get_path("purelib")
    packages = next((folder / "env").glob("lib/python*/site-packages"))
    # What the library needs is in its own environment. Standpipe and what it needs come behind that.
    (packages / "standpipe.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    install = ["install", "-q", "--no-compile", "--only-binary", ":all:", library.package]
    try:
        done = _output([sys.executable, "-m", "pip", "--python", python, *install], folder, INSTALL_S)
    except subprocess.TimeoutExpired:
        return f"– | – | – | skipped: not installed in {INSTALL_S} s", True
    if done.returncode:
        why = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return f"– | – | – | skipped: {why[-1] if why else 'not installed'}", True
    version = f"from importlib.metadata import version; print(version({name!r}))"
    head = _output([python, "-c", version], folder, LONGEST_S).stdout.strip()
    (folder / "rows.py").write_text(MODULE.format(imports=library.imports, value=library.value))
    try:
        done = _output([python, "-c", PROGRAM], folder, LONGEST_S)
    except subprocess.TimeoutExpired:
        return f"{head} | – | – | no: not done in {LONGEST_S} s", False
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return f"{head} | – | – | no", False
    return f"{head} | {done.stdout.splitlines()[-1]} | yes", True


def _output(command: list[str | Path], folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False, env=environment
    )


if __name__ == "__main__":
    sys.exit(main())
