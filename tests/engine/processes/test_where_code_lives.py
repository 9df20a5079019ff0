"""Worker processes take datasets and functions from wherever people write them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from photos import WAIT_S

DATASET = """
    import os
    import numpy as np
    import standpipe as sp

    class Squares:
        def __len__(self):
            return 40
        def __getitem__(self, index):
            return {"x": np.full(4, index * index), "process": os.getpid()}
"""

RUN = """
    pipeline = sp.Pipeline(sp.MapSource(Squares())).map(lambda x: x + offset, field="x").batch(8)
    with pipeline.loader(executor="process", num_workers=2, memory="512MiB") as loader:
        batches = [(batch["x"][:, 0].tolist(), batch["process"].tolist()) for batch in loader]
    print([x[0] for x, _ in batches], os.getpid() not in {process for _, ids in batches for process in ids})
"""

EXPECTED = "[3, 67, 259, 579, 1027] True\n"


def python(
    *arguments: str | Path, folder: Path, stdin: str | None = None, ends_with: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the interpreter in ``folder``; warnings are errors there too."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S * 3,
        check=False,
        cwd=folder,
        input=stdin,
        env=os.environ | {"IPYTHONDIR": str(folder / "ipython")},
    )
    assert done.returncode == ends_with, done.stderr
    return done


def text(*programs: str) -> str:
    return "".join(map(textwrap.dedent, programs))


NOTEBOOK = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
for path in sys.argv[1:]:
    with open(path) as cell:
        shell.run_cell(cell.read(), store_history=True).raise_error()
"""


def test_a_class_of_a_notebook_cell(tmp_path: Path) -> None:
    """With what later cells change: the second cell's class is the one that runs, with the last ``offset``."""
    cells = {
        "1": text(DATASET, "offset = 1\n").replace("index * index", "-index"),
        "2": text(DATASET, "offset = 2\n"),
        "3": "offset = 3\n",
        "4": text(RUN),
    }
    for name, cell in cells.items():
        (tmp_path / name).write_text(cell)
    done = python("-c", NOTEBOOK, *cells, folder=tmp_path)
    assert (done.stdout, done.stderr) == (EXPECTED, "")


def test_a_module_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "code" / "mine.py").write_text(
        text(DATASET, "offset = 3\ndef add(x):\n    return x + offset\n")
    )
    script = tmp_path / "code" / "script.py"
    begin = "import os\nimport standpipe as sp\nfrom mine import Squares, add\n"
    script.write_text(begin + text(RUN).replace("lambda x: x + offset", "add"))
    done = python(script, folder=tmp_path / "elsewhere")
    assert (done.stdout, done.stderr) == (EXPECTED, "")


@pytest.mark.parametrize("way", ["-c", "-"])
def test_a_program_without_a_file(tmp_path: Path, way: str) -> None:
    program = text(DATASET, "offset = 3\n", RUN)
    done = python(*((way, program) if way == "-c" else (way,)), folder=tmp_path, stdin=program)
    assert (done.stdout, done.stderr) == (EXPECTED, "")


def test_a_module_run_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "data.py").write_text(text(DATASET))
    begin = "import os\nimport standpipe as sp\nfrom .data import Squares\noffset = 3\n"
    (tmp_path / "package" / "train.py").write_text(begin + text(RUN))
    done = python("-m", "package.train", folder=tmp_path)
    assert (done.stdout, done.stderr) == (EXPECTED, "")


def test_a_module_that_starts_a_thread(tmp_path: Path) -> None:
    start = "\nimport threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "mine.py").write_text(text(DATASET) + start)
    program = "import os\nimport standpipe as sp\nfrom mine import Squares\noffset = 3\n" + text(RUN)
    done = python("-c", program, folder=tmp_path)
    assert done.stdout == EXPECTED
    assert done.stderr.startswith(
        "importing mine starts a thread, with which no process can be forked. So each"
    )
    assert len(done.stderr.splitlines()) == 1


def test_a_module_that_is_not_found_says_where_it_is_looked_for(tmp_path: Path) -> None:
    """``-c`` searches the current folder, which is another one when the workers start."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine.py").write_text(text(DATASET))
    program = (
        "import os\nimport standpipe as sp\nfrom mine import Squares\noffset = 3\nos.chdir('elsewhere')\n"
    )
    done = python("-c", program + text(RUN), folder=tmp_path, ends_with=1)
    last = done.stderr.strip().splitlines()[-1]
    assert "can't rebuild the dataset and its functions: ModuleNotFoundError: No module named 'mine'" in last
    assert last.endswith("put the module's folder there, by its full path")


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_a_module_that_runs_a_loader_when_it_is_imported(tmp_path: Path, way: str) -> None:
    """Its workers' server would import it too, and start a server that does the same, without end."""
    run = RUN.replace('memory="512MiB"', f'memory="512MiB", mp_context="{way}"')
    imports = 'with open("imports", "a") as file:\n    print(file=file)\noffset = 3\n'
    (tmp_path / "loops.py").write_text(text(DATASET, imports, run))
    done = python("-c", "import loops", folder=tmp_path, ends_with=1)
    assert "a module runs a loader with worker processes when it is imported" in done.stderr
    assert len((tmp_path / "imports").read_text()) <= 5  # by the trainer and its servers


def test_a_module_that_preloads_when_it_is_imported(tmp_path: Path) -> None:
    module = """
        class Asks(Squares):
            def __getitem__(self, index):
                return super().__getitem__(index) | {"starts": server._process is not None}
        server = sp.ForkServer().preload(Asks())
    """
    program = """
        import standpipe as sp
        from preloads import Asks, server
        pipeline = sp.Pipeline(sp.MapSource(Asks())).batch(8)
        with pipeline.loader(executor="process", num_workers=2, memory="512MiB", mp_context=server) as loader:
            print([bool(batch["starts"].any()) for batch in loader])
    """
    (tmp_path / "preloads.py").write_text(text(DATASET, module))
    done = python("-c", text(program), folder=tmp_path)
    assert done.stdout == f"{[False] * 5}\n"
