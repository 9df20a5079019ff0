"""What stands for code: the source files that it comes from, and the values that are bound to it."""

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from programs import LIMIT_S
from standpipe.identity.code import Unreadable, digest_of

# Modules whose f depends on the argument BY of the program that imports them, while their file stays the same.
BOUND = {
    "a global": "def f(x): return x + BY",
    "a global of a function it calls": "def g(x): return x + BY\ndef f(x): return g(x)",
    "default": "def f(x, by=BY): return x + by",
    "keyword default": "def f(x, *, by=BY): return x + by",
    "attribute of a function": "def f(x): return x + f.by\nf.by = BY",
    "closure": "def made(by):\n    def f(x): return x + by\n    return f\nf = made(BY)",
    "partial": "import functools\ndef g(x, by): return x + by\nf = functools.partial(g, by=BY)",
    "state": """
        class C:
            def __init__(self, by): self.by = by
            def __call__(self, x): return x + self.by
        f = C(BY)
    """,
    "slots": """
        class C:
            __slots__ = ('by',)
            def __init__(self): self.by = BY
            def __call__(self, x): return x + self.by
        f = C()
    """,
    "state of a dataclass": """
        from dataclasses import dataclass
        @dataclass
        class C:
            by: int
            def __call__(self, x): return x + self.by
        f = C(BY)
    """,
    "a bound method": """
        class C:
            def __init__(self, by): self.by = by
            def on(self, x): return x + self.by
        f = C(BY).on
    """,
    "wrapped by its own decorator": """
        import functools
        def adds(by):
            def wrap(fn):
                @functools.wraps(fn)
                def call(x): return fn(x) + by
                return call
            return wrap
        @adds(BY)
        def f(x): return x
    """,
    "no_grad": "import torch\n@torch.no_grad()\ndef f(x, by=BY): return x + by",
    "errstate's own": "import numpy as np\n@np.errstate(all=('ignore', 'raise')[BY - 1])\ndef f(x): return x + 1",
    "cache": "import functools\n@functools.cache\ndef f(x, by=BY): return x + by",
    "vectorized": "import numpy as np\ndef g(x, by=BY): return x + by\nf = np.vectorize(g)",
    "pattern": "import re\nWORD = re.compile(str(BY))\ndef f(x): return WORD.match(x)",
    "read-only mapping": "import types\nT = types.MappingProxyType({'a': BY})\ndef f(x): return T[x]",
    "set": "T = {'a', 'b', str(BY)}\ndef f(x): return x in T",
    "set of functions": "def g(x, by=BY): return x + by\nT = {g}\ndef f(x): return [h(x) for h in T]",
    "array": "import numpy as np\nT = np.array([1, BY])\ndef f(x): return T[x]",
    "tensor": "import torch\nT = torch.tensor([1.0, BY])\ndef f(x): return T[x]",
    "tensor of bfloat16": "import torch\nT = torch.tensor(BY, dtype=torch.bfloat16)\ndef f(x): return T * x",
    "module of torch": """
        import torch
        class Shift(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer('by', torch.full((3,), float(BY)))
            def forward(self, x): return x + self.by
        f = Shift()
    """,
    "fingerprint": """
        import threading
        class C:
            def __init__(self): self.lock, self._fingerprint = threading.Lock(), str(BY)
        T = [C()]
        def f(x): return T[0].lock.locked()
    """,
    "each of two of one factory": """
        def made(by):
            def g(x): return x + by
            return g
        two, five = made(2), made(5)
        T = [two, five, (two, five)[BY - 1]]
        def f(x): return [g(x) for g in T]
    """,
    "each of two lambdas in one line": "f = (lambda x: x + 1, lambda x: x + 2)[BY - 1]",
    "each of two functions of one name": """
        if BY == 1:
            def f(x): return x + 1
        else:
            def f(x): return x + 2
    """,
    "which of a package's functions": "import math\ng = (math.sin, math.cos)[BY - 1]\ndef f(x): return g(x)",
    "which universal function": "import numpy as np\ng = (np.sin, np.cos)[BY - 1]\ndef f(x): return g(x)",
}

Module = Callable[..., Any]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    """Write a module of the user's, and import it anew; it finds the value ``by`` under the name BY."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("of_mine", "aug", "options")]:
            del sys.modules[name]

    def imported(text: str, by: int = 1) -> Any:
        (tmp_path / "options.py").write_text("import os\nBY = int(os.environ['BY'])\n")
        (tmp_path / "of_mine.py").write_text("from options import BY\n" + textwrap.dedent(text))
        monkeypatch.setenv("BY", str(by))
        forget()
        importlib.invalidate_caches()
        return importlib.import_module("of_mine")

    yield imported
    forget()


@pytest.mark.parametrize("name", BOUND)
def test_a_bound_value_is_another_digest(name: str, module: Module) -> None:
    first, again, changed = (digest_of(module(BOUND[name], by).f) for by in (1, 1, 2))
    assert first == again
    assert first != changed


def test_any_change_of_the_file_is_another_digest(module: Module) -> None:
    text = "def f(x): return x + 1\n"
    others = ["def f(x): return x + 2\n", text + "# why\n", text + "def g(x): return x\n"]
    assert len({digest_of(module(each).f) for each in (text, *others)}) == 4


def test_what_a_fingerprint_stands_for_is_no_part(module: Module) -> None:
    text = """
        class C:
            _fingerprint = 'a'
        T = [C()]
        T[0].by = BY
        def f(x): return x + T[0].by
    """
    assert digest_of(module(text, 1).f) == digest_of(module(text, 2).f)


def test_a_fingerprint_of_a_function_stands_for_its_code(module: Module) -> None:
    text = "def f(x): return x + 1\nf._fingerprint = 'a'\n"
    assert digest_of(module(text).f) == digest_of(module(text.replace("+", "-")).f)
    assert digest_of(module(text).f) != digest_of(module(text.replace("'a'", "'b'")).f)


def test_equal_in_every_process(tmp_path: Path) -> None:
    """Whatever the seed of hashes and the addresses are there."""
    for number, text in enumerate(BOUND.values()):
        (tmp_path / f"case{number}.py").write_text("BY = 1\n" + textwrap.dedent(text))
    names = [f"case{number}" for number in range(len(BOUND))]
    program = tmp_path / "program.py"
    program.write_text(
        "import importlib\nfrom standpipe.identity.code import digest_of\n"
        f"print([digest_of(importlib.import_module(name).f) for name in {names}])\n"
    )

    def said(seed: str) -> str:
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, program], env=env, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said("1") == said("2")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of the user's own: aug, with aug.ops, which imports aug.tables."""
    folder = tmp_path / "aug"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "ops.py").write_text("from . import tables\ndef g(x):\n    return x + tables.BY\n")
    (folder / "tables.py").write_text("BY = 1\n")
    (folder / "other.py").write_text("")
    return folder


USES = {
    "two attributes away": "import aug.ops\ndef f(x): return aug.ops.g(x)",
    "a module": "from aug import ops\ndef f(x): return ops.g(x)",
    "imported when called": "def f(x):\n    from aug import ops\n    return ops.g(x)",
    "imported whole when called": "def f(x):\n    import aug.ops\n    return aug.ops.g(x)",
    "chosen by name": "from aug import ops\ndef f(x): return getattr(ops, 'g')(x)",
    "a function of it": "from aug.ops import g\ndef f(x): return g(x)",
    "used by another function": "from aug.ops import g\ndef h(x): return g(x)\ndef f(x): return x",
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("file", ["tables.py", "ops.py", "__init__.py"])
def test_user_modules_enter_with_what_they_import(use: str, file: str, package: Path, module: Module) -> None:
    before = digest_of(module(USES[use]).f)
    (package / "other.py").write_text("BY = 3\n")
    assert digest_of(module(USES[use]).f) == before
    with (package / file).open("a") as changed:
        changed.write("BY = 22\n")
    assert digest_of(module(USES[use]).f) != before


def test_an_object_enters_with_the_file_of_its_class(package: Path, module: Module) -> None:
    (package / "tables.py").write_text("class Table:\n    by = 1\n")
    text = "from aug.tables import Table\nf = Table()\n"
    before = digest_of(module(text).f)
    (package / "tables.py").write_text("class Table:\n    by = 2\n")
    assert digest_of(module(text).f) != before


def test_what_is_pickled_by_its_name_enters_with_its_file(package: Path, module: Module) -> None:
    """As functions of a module in C are."""
    named = "class Named:\n    def __reduce__(self): return 'NAMED'\nNAMED = Named()\n"
    (package / "tables.py").write_text(named)
    text = "from aug.tables import NAMED\nNAMED.__module__ = 'aug.tables'\ndef f(x): return NAMED"
    before = digest_of(module(text).f)
    (package / "tables.py").write_text(named + "# another build\n")
    assert digest_of(module(text).f) != before


NO_SOURCE = "isn't in a source file as it runs here: it is from a notebook, a console or exec"


def test_code_without_a_file_is_refused() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(x): return x + 1\nclass C: pass\nclass D:\n    def g(self): pass\n", names)
    with pytest.raises(Unreadable, match=f"f {NO_SOURCE}"):
        digest_of(names["f"])
    for name in "CD":
        names[name].__module__ = "of_no_file"
        with pytest.raises(Unreadable, match=f"{name} {NO_SOURCE}"):
            digest_of(names[name]())


def test_code_whose_file_changed_after_its_import_is_refused(tmp_path: Path, module: Module) -> None:
    """The file says nothing of what runs."""
    loaded = module("def f(x): return x + 1\nclass C:\n    def by(self): return 1\nc = C()\n")
    assert digest_of(loaded.f) != digest_of(loaded.c)
    (tmp_path / "of_mine.py").write_text("def f(x): return x + 2\nclass C:\n    def by(self): return 2\n")
    for value in (loaded.f, loaded.c):
        with pytest.raises(Unreadable, match="or its file was changed after it was loaded"):
            digest_of(value)


def test_a_class_that_a_function_made_is_refused(module: Module) -> None:
    """Its methods may use values of the function."""
    text = """
        def made(by):
            class C:
                def __call__(self, x): return x + by
            return C()
        f = made(BY)
    """
    with pytest.raises(Unreadable, match=r"the class made\.<locals>\.C was made by a call"):
        digest_of(module(text).f)
