"""What stands for code: every change that its results could depend on makes another digest, and nothing else does."""

import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from programs import LIMIT_S
from standpipe.identity.code import Unreadable, digest_of

# What is digested is named f. Each text in {{…}} stands for what is first there and what takes its place.
CHANGES = {
    "body": "def f(x): return x + {{1|2}}",
    "operator": "def f(x): return x {{+|-}} 1",
    "default": "def f(x, by={{1|2}}): return x + by",
    "keyword default": "def f(x, *, by={{1|2}}): return x + by",
    "attribute of a function": "def f(x): return x + f.by\nf.by = {{1|2}}",
    "what is tried": """
        def f(x):
            {{y = x.a|pass}}
            try:
                {{pass|y = x.a}}
            except AttributeError:
                y = 0
            return y
    """,
    "a global's value": "BY = {{1|2}}\ndef f(x): return x + BY",
    "a function it calls": "def g(x): return x + {{1|2}}\ndef f(x): return g(x)",
    "closure": "def made(by):\n    def f(x): return x + by\n    return f\nf = made({{1|2}})",
    "partial": "import functools\ndef g(x, by): return x + by\nf = functools.partial(g, by={{1|2}})",
    "wrapped by its own decorator": """
        import functools
        def twice(fn):
            @functools.wraps(fn)
            def call(x): return fn(fn(x))
            return call
        @twice
        def f(x): return x + {{1|2}}
    """,
    "no_grad": "import torch\n@torch.no_grad()\ndef f(x): return x + {{1|2}}",
    "errstate": "import numpy as np\n@np.errstate(all='ignore')\ndef f(x): return x + {{1|2}}",
    "errstate's own": "import numpy as np\n@np.errstate(all='{{ignore|raise}}')\ndef f(x): return x + 1",
    "context manager": """
        import contextlib
        @contextlib.contextmanager
        def g(x): yield x + {{1|2}}
        def f(x):
            with g(x) as y: return y
    """,
    "cache": "import functools\n@functools.cache\ndef f(x): return x + {{1|2}}",
    "lru_cache": "import functools\n@functools.lru_cache(maxsize=3)\ndef f(x): return x + {{1|2}}",
    "singledispatch": """
        import functools
        @functools.singledispatch
        def f(x): return x + {{1|2}}
    """,
    "registered": """
        import functools
        @functools.singledispatch
        def f(x): return x
        @f.register
        def _(x: int): return x + {{1|2}}
    """,
    "vectorized": "import numpy as np\ndef g(x): return x + {{1|2}}\nf = np.vectorize(g)",
    "pattern": "import re\nWORD = re.compile('{{a|b}}')\ndef f(x): return WORD.match(x)",
    "read-only mapping": "import types\nT = types.MappingProxyType({'a': {{1|2}}})\ndef f(x): return T[x]",
    "set": "T = {'a', 'b', '{{c|d}}'}\ndef f(x): return x in T",
    "set of functions": "def g(x): return x + {{1|2}}\nT = {g}\ndef f(x): return [h(x) for h in T]",
    "array": "import numpy as np\nT = np.array([1, {{2|3}}])\ndef f(x): return T[x]",
    "tensor": "import torch\nT = torch.tensor([1.0, {{2|3}}])\ndef f(x): return T[x]",
    "tensor of bfloat16": "import torch\nT = torch.tensor({{2|3}}, dtype=torch.bfloat16)\ndef f(x): return T * x",
    "module of torch": """
        import torch
        class Shift(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer('by', torch.full((3,), {{1.0|2.0}}))
            def forward(self, x): return x + self.by
        f = Shift()
    """,
    "value of an enumeration": """
        import enum
        class Mode(enum.Enum):
            NEAR = {{1|2}}
        def f(x): return Mode.NEAR
    """,
    "method of an enumeration": """
        import enum
        class Mode(enum.Enum):
            NEAR = 1
            def on(self, x): return x + {{1|2}}
        M = Mode.NEAR
        def f(x): return M.on(x)
    """,
    "method": "class C:\n    def __call__(self, x): return x + {{1|2}}\nf = C()",
    "inherited method": """
        class B:
            def by(self): return {{1|2}}
        class C(B):
            def __call__(self, x): return x + self.by()
        f = C()
    """,
    "state": """
        class C:
            def __init__(self, by): self.by = by
            def __call__(self, x): return x + self.by
        f = C({{1|2}})
    """,
    "private value of a class": "class C:\n    _BY = {{1|2}}\n    def __call__(self, x): return x + self._BY\nf = C()",
    "private table of a class": """
        class C:
            _BY = [{{1|2}}]
            def __call__(self, x): return x + self._BY[0]
        f = C()
    """,
    "object of a class": """
        import types
        class C:
            how = types.SimpleNamespace(by={{1|2}})
            def __call__(self, x): return x + self.how.by
        f = C()
    """,
    "partial of a class": """
        import functools
        def g(x, by): return x + by
        class C:
            g = functools.partial(g, by={{1|2}})
            def __call__(self, x): return self.g(x)
        f = C()
    """,
    "partial method": """
        import functools
        class C:
            def g(self, by, x): return x + by
            __call__ = functools.partialmethod(g, {{1|2}})
        f = C()
    """,
    "cached method": """
        import functools
        class C:
            @functools.lru_cache
            def g(self, x): return x + {{1|2}}
            def __call__(self, x): return self.g(x)
        f = C()
    """,
    "property": """
        class C:
            @property
            def by(self): return {{1|2}}
            def __call__(self, x): return x + self.by
        f = C()
    """,
    "cached property": """
        import functools
        class C:
            @functools.cached_property
            def by(self): return {{1|2}}
            def __call__(self, x): return x + self.by
        f = C()
    """,
    "dispatched method": """
        import functools
        class C:
            @functools.singledispatchmethod
            def __call__(self, x): return x
            @__call__.register
            def _(self, x: int): return x + {{1|2}}
        f = C()
    """,
    "class in a class": """
        class C:
            class How:
                def by(self): return {{1|2}}
            def __call__(self, x): return x + self.How().by()
        f = C()
    """,
    "class of a class": """
        class Meta(type):
            def by(cls): return {{1|2}}
        class C(metaclass=Meta):
            def __call__(self, x): return x + type(self).by()
        f = C()
    """,
    "default of a dataclass": """
        from dataclasses import dataclass
        @dataclass(slots=True)
        class C:
            by: int = {{1|2}}
        def f(x): return x + C().by
    """,
    "default of a named tuple": """
        from typing import NamedTuple
        class C(NamedTuple):
            by: int = {{1|2}}
        def f(x): return x + C().by
    """,
    "slots": """
        class C:
            __slots__ = ('by',)
            def __init__(self): self.by = {{1|2}}
            def __call__(self, x): return x + self.by
        f = C()
    """,
    "abstract base": """
        import abc
        class B(abc.ABC):
            @abc.abstractmethod
            def by(self): ...
            def __call__(self, x): return x + self.by() + {{1|2}}
        class C(B):
            def by(self): return 0
        f = C()
    """,
    "generic protocol": """
        from typing import Generic, Protocol, TypeVar
        T = TypeVar('T')
        class P(Protocol):
            def by(self) -> int: ...
        class C(P, Generic[T]):
            def by(self) -> int: return {{1|2}}
            def __call__(self, x): return x + self.by()
        f = C[int]()
    """,
    "each of two of one factory": """
        def made(by):
            def g(x): return x + by
            return g
        two, five = made(2), made(5)
        T = [two, five, {{two|five}}]
        def f(x): return [g(x) for g in T]
    """,
    "each of two classes of one factory": """
        def made(by):
            class C:
                def g(self, x): return x + by
            return C
        T = [made(2), made(5)]
        T += [{{T[0]|T[1]}}]
        def f(x): return [C().g(x) for C in T]
    """,
    "class of a tensor": """
        import torch
        class C(torch.Tensor):
            def by(self): return {{1|2}}
        T = torch.ones(2).as_subclass(C)
        def f(x): return x + T.by()
    """,
    "attribute of a tensor": """
        import torch
        class C(torch.Tensor): pass
        T = torch.ones(2).as_subclass(C)
        T.by = {{1|2}}
        def f(x): return x + T.by
    """,
    "class that a call made": """
        from dataclasses import field, make_dataclass
        C = make_dataclass('C', [('by', int, field(default={{1|2}}))])
        def f(x): return x + C().by
    """,
    "dunder of a class": """
        class C:
            __table__ = [{{1|2}}]
            def __call__(self, x): return self.__table__
        f = C()
    """,
    "attribute of a text in a set": """
        class Text(str): pass
        WORD = Text('a')
        WORD.by = {{1|2}}
        T = {WORD}
        def f(x): return [x + word.by for word in T]
    """,
    "fingerprint": """
        import threading
        class C:
            _fingerprint = '{{a|b}}'
            def __init__(self): self.lock = threading.Lock()
        T = [C()]
        def f(x): return T[0].lock.locked()
    """,
    "which of a package's functions": "import numpy as np\ndef f(x): return np.{{mean|median}}(x)",
    "which of a module's functions": "import math\ng = math.{{sin|cos}}\ndef f(x): return g(x)",
    "which universal function": "import numpy as np\ng = np.{{sin|cos}}\ndef f(x): return g(x)",
}
NO_CHANGES = {
    "comment": "def f(x):\n    {{# one|# another, longer}}\n    return x",
    "where it stands": "{{|\n\n\n}}def f(x): return x",
    "what a fingerprint stands for": """
        class C:
            _fingerprint = 'a'
        T = [C()]
        T[0].by = {{1|2}}
        def f(x): return x + T[0].by
    """,
    "what it doesn't use": "BY = {{1|2}}\ndef g(x): return x + BY\ndef f(x): return x",
    "order of a set": "T = {'a', {{'b', 'c'|'c', 'b'}}}\ndef f(x): return x in T",
}


def versions(text: str) -> tuple[str, str]:
    """A case's text as it is first, and changed."""
    both = ["", ""]
    for number, part in enumerate(textwrap.dedent(text).replace("{{", "\0").replace("}}", "\0").split("\0")):
        choice = part.split("|") if number % 2 else [part, part]
        both = [whole + each for whole, each in zip(both, choice, strict=True)]
    return both[0], both[1]


def digest(text: str) -> str:
    """Of f in a module of this text."""
    module = types.ModuleType("of_mine")
    sys.modules["of_mine"] = module
    try:
        exec(compile(text, "of_mine.py", "exec", dont_inherit=True), vars(module))
        return digest_of(module.f)
    finally:
        del sys.modules["of_mine"]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_another_digest(name: str) -> None:
    first, changed = versions(CHANGES[name])
    assert first != changed
    assert digest(first) == digest(first)
    assert digest(first) != digest(changed)


@pytest.mark.parametrize("name", NO_CHANGES)
def test_what_results_cant_depend_on_is_none(name: str) -> None:
    first, changed = versions(NO_CHANGES[name])
    assert first != changed
    assert digest(first) == digest(changed)


def test_equal_in_every_process() -> None:
    """Whatever the seed of hashes and the addresses are there."""
    program = "import test_code as t; print([t.digest(t.versions(text)[0]) for text in t.CHANGES.values()])"

    def said(seed: str) -> str:
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, env=env, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said("1") == said("2")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the user's own: aug, with aug.ops, which imports aug.tables."""
    folder = tmp_path / "aug"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "ops.py").write_text("from . import tables\ndef g(x):\n    return x + tables.BY\n")
    (folder / "tables.py").write_text("BY = 1\n")
    (folder / "other.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return folder


USES = {
    "two attributes away": "import aug.ops\ndef f(x): return aug.ops.g(x)",
    "a module": "from aug import ops\ndef f(x): return ops.g(x)",
    "an object that holds one": (
        "import types\nfrom aug import ops\nT = types.SimpleNamespace(of=ops)\ndef f(x): return T.of.g(x)"
    ),
    "imported when called": "def f(x):\n    from aug import ops\n    return ops.g(x)",
    "imported whole when called": "def f(x):\n    import aug.ops\n    return aug.ops.g(x)",
    "chosen by name": "from aug import ops\ndef f(x): return getattr(ops, 'g')(x)",
    "a function of it": "from aug.ops import g\ndef f(x): return g(x)",
}


def digest_anew(text: str) -> str:
    for name in [name for name in sys.modules if name.partition(".")[0] == "aug"]:
        del sys.modules[name]
    return digest(text)


@pytest.mark.parametrize("use", USES)
def test_modules_enter_with_what_they_import(use: str, package: Path) -> None:
    before = digest_anew(USES[use])
    (package / "other.py").write_text("BY = 3\n")
    assert digest_anew(USES[use]) == before
    (package / "tables.py").write_text("BY = 22\n")
    assert digest_anew(USES[use]) != before


SETS = {
    "an attribute": "def f(x): return x + tables.BY",
    "by full name": "import aug.tables\ndef f(x): return x + aug.tables.BY",
    "another attribute first": "def g(x): return x + tables.BY\ndef f(x): return g(x) + tables.OTHER",
    "given to a function": "def g(x, of): return x + of.BY\ndef f(x): return g(x, tables)",
    "chosen by name": "def f(x): return x + getattr(tables, 'BY')",
    "held by an object": "import types\nT = types.SimpleNamespace(of=tables)\ndef f(x): return x + T.of.BY",
    "imported when called": "def f(x):\n    from aug import tables\n    return x + tables.BY",
    "taken when called": "def f(x):\n    from aug.tables import BY\n    return x + BY",
}


@pytest.mark.parametrize("use", SETS)
def test_values_of_modules_that_were_changed_are_part_of_it(use: str, package: Path) -> None:
    """As a script does that sets what its arguments say."""
    (package / "tables.py").write_text("BY = 1\nOTHER = 1\n")
    first, changed = (digest_anew(f"from aug import tables\ntables.BY = {by}\n{SETS[use]}") for by in (1, 2))
    assert first != changed


def test_what_is_pickled_by_its_name_enters_with_its_file(package: Path) -> None:
    """As functions of a module in C are."""
    named = "class Named:\n    def __reduce__(self): return 'NAMED'\nNAMED = Named()\n"
    (package / "tables.py").write_text(named)
    text = "from aug.tables import NAMED\nNAMED.__module__ = 'aug.tables'\ndef f(x): return NAMED"
    before = digest_anew(text)
    (package / "tables.py").write_text(named + "# another build\n")
    assert digest_anew(text) != before


def test_what_is_pickled_by_a_name_of_no_package_is_refused() -> None:
    text = """
        class Named:
            def __reduce__(self): return 'NAMED'
        NAMED = Named()
        def f(x): return NAMED
    """
    with pytest.raises(Unreadable, match=r"NAMED of of_mine is pickled by its name"):
        digest(textwrap.dedent(text))
