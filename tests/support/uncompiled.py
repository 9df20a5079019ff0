"""Programs without torch's compiler: each optimizer would import it, which takes more than a second.

    python -m uncompiled SCRIPT ARGUMENTS…

Frameworks that use more of it than a function's exclusion need the real one.
"""

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch


@contextmanager
def without_the_compiler() -> Iterator[None]:
    """Put an empty module in the compiler's place, unless that was imported already."""
    compiler, utils = ModuleType("torch._dynamo"), ModuleType("torch._dynamo.utils")
    compiler.__dict__.update(disable=lambda function, *_, **__: function, graph_break=lambda: None)
    utils.__dict__["is_compile_supported"] = lambda _device: False
    if compiler.__name__ in sys.modules:
        yield
        return
    modules = {each.__name__: each for each in (compiler, utils)}
    sys.modules.update(modules)
    lazy: Any = torch
    lazy._dynamo = compiler
    try:
        yield
    finally:
        del lazy._dynamo
        for name in modules:
            del sys.modules[name]


if __name__ == "__main__":
    del sys.argv[0]
    with without_the_compiler():
        runpy.run_path(sys.argv[0], run_name="__main__")
