"""Compile what tests import, before several processes do: each would rewrite the assertions of every test, for 9 s."""

import compileall
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from _pytest.assertion import rewrite  # private: pytest itself only compiles a module as it imports it

ROOT = Path(__file__).parents[2]


def compile_test(path: Path) -> None:
    """Write the file of bytecode that pytest looks for, unless it is there."""
    folder = rewrite.get_cache_dir(path)
    folder.mkdir(exist_ok=True)
    compiled = folder / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, compiled) is None:
        source_hash, code = rewrite._rewrite_test(path, None)  # type: ignore[arg-type]
        rewrite._write_pyc(SimpleNamespace(trace=print), code, source_hash, compiled)  # type: ignore[arg-type]


if __name__ == "__main__":
    for folder in (ROOT / "src", ROOT / "tests" / "support"):
        compileall.compile_dir(folder, quiet=1)
    with ProcessPoolExecutor() as pool:
        list(pool.map(compile_test, (ROOT / "tests").rglob("test_*.py"), chunksize=8))
