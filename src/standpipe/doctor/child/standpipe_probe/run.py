"""Run a script as ``python SCRIPT`` does, with its DataLoaders watched, until enough has been seen of them."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .loaders import Watch
from .record import Record
from .saving import Withheld

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PATCHED = "torch.utils.data.dataloader"
SAVING = "torch.serialization"
OWN = "standpipe.loader.loader"


def main(settings: str) -> None:
    """Run the script ``sys.argv[1]``.

    settings  JSON: ``folder`` for the facts, ``rank``, ``steps`` of an epoch; ``seconds`` from the first
    epoch on, which
              the pipe ``begins`` reports; ``doctor``, the number of the process that examines it
    """
    given = json.loads(settings)
    _end_with(given["doctor"])
    script = sys.argv[1]
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.realpath(script))  # noqa: PTH120 (as Python itself has it)
    record = Record(given["folder"], given["rank"])
    watch = Watch(
        record,
        steps=given["steps"],
        seconds=given["seconds"],
        begins=given["begins"],
        enough=lambda: _leave(record, watch, "enough"),
    )
    withheld = Withheld(record)
    withheld.install()
    installs: dict[str, Callable[[Any], None]] = {
        PATCHED: watch.install,
        OWN: watch.install_own,
        SAVING: withheld.install_torch,
    }
    sys.meta_path.insert(0, _Hook(installs))
    record.write("start", script=script)
    try:
        with open(script, "rb") as file:  # noqa: PTH123
            code = compile(file.read(), script, "exec")
        _execute(code, script)
    except SystemExit as done:
        is_text = not isinstance(done.code, int | None)
        if is_text:
            print(done.code, file=sys.stderr)
        _leave(record, watch, "exited", code=1 if is_text else done.code)
    except BaseException as error:
        _say(error, cut=watch.cut)
        _leave(record, watch, "raised", type=type(error).__name__, message=str(error)[:500], cut=watch.cut)
    _leave(record, watch, "finished")


def _end_with(doctor: int) -> None:
    """Have the kernel end this process when the doctor ends in whatever way: nobody would end it then."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != doctor:
        os._exit(1)


def _execute(code: Any, script: str) -> None:
    """Run it in a main module of its own, which stays: worker processes look there for names when they
    unpickle.
    """
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=os.path.abspath(script), __builtins__=builtins, __spec__=None)  # noqa: PTH100
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _say(error: BaseException, *, cut: bool) -> None:
    """Print an exception as Python does, without our own frames; not where it is ours."""
    if cut and isinstance(error, StopIteration):
        return
    told = traceback.TracebackException.from_exception(error)
    ours = os.path.dirname(__file__)  # noqa: PTH120
    told.stack[:] = [frame for frame in told.stack if not frame.filename.startswith(ours)]
    print("".join(told.format()), end="", file=sys.stderr)


def _leave(record: Record, watch: Watch, how: str, **facts: Any) -> NoReturn:
    """Write the last facts and end: nothing of the script runs after this, such as what saves a model in the end."""
    torch = sys.modules.get("torch")
    available = False
    if torch is not None and PATCHED in sys.modules:
        with contextlib.suppress(Exception):  # a driver that doesn't fit
            available = bool(torch.cuda.is_available())
    for where, plan in watch.own.items():
        with contextlib.suppress(Exception):  # a dataset that can't be tried
            from standpipe.engine.probe import drawing

            if found := drawing(plan):
                record.write("drawing", where=where, code=list(found))
    record.write("end", how=how, cuda_available=available, **facts)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed by the script
            stream.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler takes a worker's end for a failure
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            child.terminate()
        _free_semaphores()
    os._exit(0)


def _free_semaphores() -> None:
    """Free semaphores that workers shared, of which multiprocessing would complain."""
    util = sys.modules.get("multiprocessing.util")
    for finalizer in list(util._finalizer_registry.values()) if util else ():
        if getattr(finalizer._callback, "__qualname__", "") == "SemLock._cleanup":
            finalizer()


class _Hook(importlib.abc.MetaPathFinder):
    """Patches modules as soon as they are imported."""

    def __init__(self, installs: dict[str, Callable[[Any], None]]) -> None:
        self.installs = installs

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if name not in self.installs:
            return None
        install = self.installs.pop(name)
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if self.installs:
            sys.meta_path.insert(0, self)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def executed(module: Any) -> None:
            execute(module)
            install(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec
