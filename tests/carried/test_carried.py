"""Worker processes have what a script set before its loader started: settings, and values of its modules."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import standpipe as sp
from programs import output, run

BOTH = pytest.mark.parametrize("context", ["spawn", "forkserver"])

# A script that compares what its workers see with what it sees itself. SEEN is a function of the script.
COMPARE = """
class Data:
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return {"x": index, "seen": repr(seen())}

def of_workers(**settings):
    settings = {"executor": "process", "num_workers": 1, "memory": "256MiB", **settings}
    with sp.Pipeline(sp.MapSource(Data())).batch(4).loader(**settings) as loader:
        text = next(iter(loader))["seen"][0]
        return eval(text), loader.explain()
"""


def script(folder: Path, modules: dict[str, str], program: str) -> str:
    """Write modules of the user's, and return a program that can import them and compare."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return f"sys.path.insert(0, {str(folder)!r})\n" + COMPARE + textwrap.dedent(program)


SETTINGS = """
import csv, decimal, socket, tempfile, warnings
from PIL import Image, ImageFile, PngImagePlugin

def accept(prefix):
    return prefix[:4] == b"MINE"

def seen():
    return {
        "recursion": sys.getrecursionlimit(), "arguments": sys.argv, "digits": sys.get_int_max_str_digits(),
        "tempdir": tempfile.tempdir, "timeout": socket.getdefaulttimeout(), "csv": csv.field_size_limit(),
        "filters": [(action, str(message), kind.__name__) for action, message, kind, _, _ in warnings.filters],
        "level": logging.getLogger("of.mine").level, "propagates": logging.getLogger("of.mine").propagate,
        "disabled": logging.root.manager.disable, "root": logging.root.level,
        "precision": decimal.getcontext().prec, "traps": decimal.getcontext().traps[decimal.Inexact],
        "numpy": np.geterr()["over"], "printed": np.get_printoptions()["precision"],
        "pixels": Image.MAX_IMAGE_PIXELS, "truncated": ImageFile.LOAD_TRUNCATED_IMAGES,
        "text": PngImagePlugin.MAX_TEXT_CHUNK, "format": "MINE" in Image.OPEN,
        "ending": Image.EXTENSION.get(".mine"), "first": Image.ID[:5],
        "environment": os.environ.get("OF_MINE"), "folder": os.getcwd(), "global": SIZE,
    }

SIZE = 1
usual = seen()
sys.setrecursionlimit(4321)
sys.argv = ["train.py", "--size", "7"]
sys.set_int_max_str_digits(5000)
tempfile.tempdir = "/tmp/mine"
socket.setdefaulttimeout(7.5)
csv.field_size_limit(99)
warnings.filterwarnings("ignore", "mine", UserWarning)
logging.getLogger("of.mine").setLevel(17)
logging.getLogger("of.mine").propagate = False
logging.disable(5)
logging.root.setLevel(33)
decimal.getcontext().prec = 5
decimal.getcontext().traps[decimal.Inexact] = True
np.seterr(over="raise")
np.set_printoptions(precision=2)
Image.preinit()
Image.MAX_IMAGE_PIXELS = None
ImageFile.LOAD_TRUNCATED_IMAGES = True
PngImagePlugin.MAX_TEXT_CHUNK = 77
Image.register_open("MINE", lambda *_: None, accept)
Image.register_extension("MINE", ".mine")
os.environ["OF_MINE"] = "1"
os.chdir("/")
SIZE = 7
mine = seen()
"""


@BOTH
def test_known_settings_hold_in_workers(context: str, tmp_path: Path) -> None:
    program = f"""
    assert all(mine[name] != usual[name] for name in mine if name != "first"), usual
    theirs, text = of_workers(mp_context={context!r})
    assert {{name: (theirs[name], mine[name]) for name in mine if theirs[name] != mine[name]}} == {{}}
    carried = " ".join(text.partition("  carried ")[2].partition("  memory ")[0].split())
    for name in ("sys.setrecursionlimit", "numpy.seterr", "PIL.Image.register_open", "levels of loggers"):
        assert name in carried, carried
    """
    output(script(tmp_path, {}, SETTINGS + textwrap.dedent(program)))


def test_a_setting_that_was_set_back_is_as_before_in_workers_of_a_warm_server(tmp_path: Path) -> None:
    program = """
    np.seterr(over="raise")
    sys.setrecursionlimit(4321)
    config.SIZE = 7

    def seen():
        return np.geterr()["over"], sys.getrecursionlimit(), config.SIZE

    server = sp.ForkServer()
    print(of_workers(mp_context=server)[0])
    np.seterr(over="warn")
    sys.setrecursionlimit(1000)
    config.SIZE = 1
    print(of_workers(mp_context=server)[0])
    """
    text = script(tmp_path, {"config": "SIZE = 1"}, "import config\n" + textwrap.dedent(program))
    assert output(text).splitlines() == ["('raise', 4321, 7)", "('warn', 1000, 1)"]


def test_settings_hold_in_a_library_that_a_worker_imports_late(tmp_path: Path) -> None:
    program = """
    import csv, config
    csv.field_size_limit(99)
    config.SIZE = 7

    def seen():
        import csv, config  # neither is needed to rebuild the data set
        return csv.field_size_limit(), config.SIZE

    print(of_workers()[0])
    """
    assert output(script(tmp_path, {"config": "SIZE = 1"}, program)) == "(99, 7)\n"


MODULES = {
    "config": """
    import argparse
    from dataclasses import dataclass, field
    from enum import Enum
    from pathlib import Path
    import numpy as np

    class Mode(Enum):
        FAST = 1
        SLOW = 2

    @dataclass
    class Crop:
        size: int = 1
        names: list = field(default_factory=list)

    class CFG:
        size = 1
        crop = Crop()

    SIZE, NAME, ROOT, MODE, MEAN = 1, "a", Path("/"), Mode.FAST, np.zeros(3)
    _private = 1
    ITEMS, OPTIONS = [], {"a": [1]}
    crop, args, unset = Crop(), argparse.Namespace(), None

    def set_private(value):
        global _private
        _private = value
    """,
    "data": """
    import config
    from config import ITEMS, OPTIONS, SIZE, crop

    def shares():
        return ITEMS is config.ITEMS, OPTIONS is config.OPTIONS, crop is config.crop
    """,
}


def test_values_of_the_users_modules_hold_in_workers(tmp_path: Path) -> None:
    program = """
    import config, data

    def seen():
        config_here = {
            name: repr(getattr(config, name))
            for name in ("SIZE", "NAME", "ROOT", "MODE", "MEAN", "ITEMS", "OPTIONS", "crop", "args", "unset")
        }
        sizes = config._private, config.CFG.size, config.CFG.crop.size, data.SIZE
        return config_here, sizes, config.new, config.MODE is config.Mode.SLOW, data.shares()

    config.SIZE, config.NAME, config.ROOT, config.MODE = 7, "b" * 9, config.Path("/tmp"), config.Mode.SLOW
    config.MEAN = config.np.arange(3)
    config.ITEMS.append((1, None))
    config.OPTIONS["a"].append(2)
    config.crop.size, config.crop.names = 3, ["x"]
    config.args = config.argparse.Namespace(size=7)
    config.CFG.size = config.CFG.crop.size = 9
    config.set_private(4)
    config.unset = ("set", {1, 2})
    config.new = {"key": b"value"}
    theirs, text = of_workers()
    assert theirs == seen(), (theirs, seen())
    assert "config.SIZE" in text and "config.CFG.size" in text
    """
    output(script(tmp_path, MODULES, program))


def test_names_that_share_an_object_share_it_in_workers(tmp_path: Path) -> None:
    program = """
    import config, data

    def seen():
        return config.ITEMS, data.ITEMS, data.shares()[0], config.OPTIONS, data.shares()[1]

    config.ITEMS = [3]  # data has the old list still
    data.ITEMS.append(4)
    data.OPTIONS["b"] = 5
    theirs = of_workers()[0]
    assert theirs == seen() == ([3], [4], False, {"a": [1], "b": 5}, True), theirs
    """
    output(script(tmp_path, MODULES, program))


LIBRARIES = {
    "settings_node": """
    class Node(dict):
        def __init__(self, **values):
            super().__init__(values)
            self.__dict__["_frozen"] = False

        def __getattr__(self, name):
            if name not in self:
                raise AttributeError(name)
            return self[name]

        def __setattr__(self, name, value):
            assert name not in self.__dict__ and not self._frozen, name
            self[name] = value

        def freeze(self):
            self.__dict__["_frozen"] = True
    """,
    "ml_collections": """
    class ConfigDict:
        def __init__(self, **values):
            object.__setattr__(self, "_fields", values)

        def __getattr__(self, name):
            return self._fields[name]

        def __setattr__(self, name, value):
            self._fields[name] = value

        def __getstate__(self):
            return self._fields

        def __setstate__(self, fields):
            object.__setattr__(self, "_fields", fields)
    """,
}


def test_settings_objects_of_libraries_travel(tmp_path: Path) -> None:
    """Classes like those of yacs and EasyDict, which are dicts, and of OmegaConf and ml_collections, which aren't."""
    config = """
    from ml_collections import ConfigDict
    from settings_node import Node
    cfg, frozen, other = Node(size=1, inner=Node(names=[])), Node(size=1), ConfigDict(size=1)
    """
    data = """
    from config import cfg, frozen, other
    """
    program = """
    import config, data

    def seen():
        values = data.cfg, data.cfg.inner.names, data.frozen, data.frozen._frozen, data.other.size
        return *values, data.cfg is config.cfg, data.frozen is config.frozen, data.other is config.other

    config.cfg.size = config.frozen.size = config.other.size = 7
    config.cfg.inner.names.append("a")
    config.frozen.freeze()
    theirs = of_workers()[0]
    assert theirs == seen(), (theirs, seen())
    """
    installed = tmp_path / "site-packages"
    installed.mkdir()
    for name, text in LIBRARIES.items():
        (installed / f"{name}.py").write_text(textwrap.dedent(text))
    text = script(tmp_path, {"config": config, "data": data}, program)
    output(f"sys.path.insert(0, {str(installed)!r})\n{text}")


def test_a_registry_has_what_other_modules_and_the_script_have_registered(tmp_path: Path) -> None:
    registry = """
    ITEMS = {}
    def register(function):
        if function.__name__ in ITEMS:
            raise KeyError(function.__name__)
        ITEMS[function.__name__] = function
        return function
    """
    plugins = """
    import registry
    @registry.register
    def twice(x):
        return 2 * x
    """
    program = """
    import plugins, registry
    plugins = None  # nothing else refers to it

    @registry.register
    def thrice(x):
        return 3 * x

    def seen():
        return {name: function(7) for name, function in registry.ITEMS.items()}

    print(of_workers()[0])
    """
    text = script(tmp_path, {"registry": registry, "plugins": plugins}, program)
    assert output(text) == "{'twice': 14, 'thrice': 21}\n"


def test_values_that_can_not_travel_are_named_in_one_warning(tmp_path: Path) -> None:
    config = """
    import threading
    handle, TABLE, LOCK, cache, _session = None, b"", threading.Lock(), {}, None
    SIZE = 1
    """
    program = """
    import warnings, config
    config.handle, config._session = threading.Lock(), threading.Lock()
    config.TABLE, config.SIZE = bytes(70_000), 7
    config.cache["lock"] = threading.Lock()

    def seen():
        return config.handle is None, config.SIZE, len(config.TABLE)

    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            theirs, text = of_workers()
        assert theirs == (True, 7, 0), theirs
        (warning,) = caught
        values = "config.handle (a _thread.lock)", "config.TABLE (a bytes of 70,000 items)", "config.cache (a dict"
        for name in (*values, "initializer=", "worker_init_fn=", "mp_context='fork'"):
            assert name in str(warning.message), warning.message
        assert "_session" not in str(warning.message) and "LOCK" not in str(warning.message)
        assert "different in workers: config.handle" in " ".join(text.split())
    assert of_workers(mp_context="fork")[0][2] == 70_000
    """
    output(script(tmp_path, {"config": config}, program))


def test_what_a_module_keeps_to_itself_travels_completely_or_not_at_all(tmp_path: Path) -> None:
    tool = """
    import threading
    _is_open, _file, LEVEL = False, None, 1
    def is_locked():
        global _is_open, _file
        if not _is_open:
            _is_open, _file = True, threading.Lock()
        return _file.locked()
    """
    program = """
    import warnings, tool
    tool.is_locked()
    tool.LEVEL = 3
    warnings.filterwarnings("ignore", "worker processes don't have these values of this process.* tool._is_open")

    def seen():
        return tool.is_locked(), tool.LEVEL

    print(of_workers()[0])
    """
    assert output(script(tmp_path, {"tool": tool}, program)) == "(False, 3)\n"


def test_modules_that_the_data_set_does_not_need_are_not_imported(tmp_path: Path) -> None:
    program = """
    import broken, importlib, config
    config.BROKEN = broken.made
    os.remove(broken.__file__)
    import warnings
    warnings.filterwarnings("ignore", "worker processes don't have these.* config.BROKEN .ModuleNotFoundError")

    def seen():
        import config
        return "broken" in sys.modules, config.SIZE

    config.SIZE = 7
    print(of_workers()[0])
    """
    modules = {"broken": "print('imported')\ndef made():\n    pass", "config": "SIZE, BROKEN = 1, None"}
    assert output(script(tmp_path, modules, program), environment={"PYTHONDONTWRITEBYTECODE": "1"}) == (
        "imported\n(False, 7)\n"
    )


def test_an_initializer_runs_once_in_each_worker_process_before_its_first_sample(tmp_path: Path) -> None:
    program = """
    called = []
    def seen():
        return os.getpid(), len(called), called == [os.getpid()]

    (process, count, is_own), _ = of_workers(initializer=lambda: called.append(os.getpid()))
    assert process != os.getpid() and count == 1 and is_own and called == []
    (process, count, _), _ = of_workers(initializer=lambda: called.append(os.getpid()), mp_context="fork")
    assert process != os.getpid() and count == 1 and called == []
    for executor in ("thread", "inline"):
        settings = {"executor": executor, "num_workers": 2, "check_generators": False}
        of_workers(initializer=lambda: called.append(executor), **settings)
    assert called == ["thread", "inline"]
    with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4).loader(initializer=lambda: called.append("native")) as loader:
        list(loader), list(loader)
    assert called == ["thread", "inline", "native"]
    """
    output(script(tmp_path, {}, program))


@pytest.mark.parametrize("executor", ["process", "thread", "inline"])
def test_an_initializer_that_fails_is_an_error_that_names_it(executor: str) -> None:
    def set_up() -> None:
        raise ValueError("no connection")

    pipeline = sp.Pipeline(sp.MapSource([{"x": 1}, {"x": 2}])).batch(2)
    with (
        pipeline.loader(executor=executor, num_workers=1, memory="256MiB", initializer=set_up) as loader,  # type: ignore[arg-type]
        pytest.raises(sp.PlanError, match=r"initializer=.*set_up.* failed: ValueError: no connection"),
    ):
        next(iter(loader))


def test_the_main_module_never_runs_again(tmp_path: Path) -> None:
    program = """
    print("once")
    def seen():
        return __name__
    of_workers()
    """
    done = run(script(tmp_path, {}, program))
    assert (done.stdout, done.stderr) == ("once\n", "")


def test_objects_that_the_script_has_not_changed_stay_and_others_take_their_place(tmp_path: Path) -> None:
    """Sentinels stay themselves, frozen settings are replaced, and what raises at every question is left alone."""
    config = """
        import dataclasses

        class Missing:
            __slots__ = ()

        MISSING = Missing()

        def is_missing(value=MISSING):
            return value is MISSING

        class Size(int):
            pass

        SIZE = Size(1)

        class Only(dict):
            its = None

            def __new__(cls):
                cls.its = cls.its or super().__new__(cls)
                return cls.its

        ONLY = Only()
        ONLY.size, ONLY["size"] = 1, 1

        @dataclasses.dataclass(frozen=True, slots=True)
        class Slotted:
            size: int = 1

        @dataclasses.dataclass(frozen=True)
        class Frozen:
            size: int = 1

        SLOTTED, FROZEN = Slotted(), Frozen()

        def default(value=FROZEN):
            return value.size

        class Lazy:
            def asked(self):
                raise RuntimeError("settings are not configured")

            __class__ = property(asked)

        LAZY = Lazy()
    """
    program = """
        import socket

        import config

        def seen():
            sizes = config.SIZE, config.SLOTTED.size, config.FROZEN.size, config.default()
            return config.is_missing(), *sizes, config.ONLY.size, config.ONLY["size"], config.Only() is config.ONLY

        socket.setdefaulttimeout(0.05)
        config.SIZE, config.SLOTTED, config.FROZEN = config.Size(5), config.Slotted(6), config.Frozen(7)
        config.ONLY.size = config.ONLY["size"] = 8
        theirs = of_workers()[0]
        assert theirs == seen() == (True, 5, 6, 7, 1, 8, 8, True), theirs
    """
    output(script(tmp_path, {"config": config}, program))
