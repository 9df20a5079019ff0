"""The import rule, on the real tree and on small broken ones."""

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULE = runpy.run_path(str(ROOT / "scripts" / "layers.py"))
breaches, core_breaches = RULE["breaches"], RULE["core_breaches"]


def test_the_source_keeps_the_import_rule() -> None:
    assert list(breaches(ROOT / "src" / "standpipe")) == []
    assert list(core_breaches(ROOT / "native")) == []


def test_at_most_five_modules_import_one_another() -> None:
    """Also inside functions, and for the type checker: a larger circle can only be read as a whole."""
    source = ROOT / "src"
    paths = {path.relative_to(source).with_suffix(""): path for path in (source / "standpipe").rglob("*.py")}
    modules = {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}
    near: dict[str, set[str]] = {}
    for module, path in modules.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{name.name}" for name in node.names}
                names |= whole & modules.keys() or {node.module}
        near[module] = names & modules.keys() - {module, "standpipe"}

    def reached(module: str) -> set[str]:
        found, left = set(), [module]
        while left:
            new = near[left.pop()] - found
            found |= new
            left += new
        return found

    reach = {module: reached(module) for module in modules}
    circles = [{other for other in reach[module] if module in reach[other]} for module in modules]
    assert [circle for circle in circles if len(circle) > 5] == []


@pytest.mark.parametrize(("page", "rows"), [("docs/architecture.md", "LAYERS"), ("native/README.md", "CORE")])
def test_a_page_shows_the_rule(page: str, rows: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert f"```text\n{RULE['drawing'](RULE[rows])}\n```" in text, "python scripts/layers.py --draw prints it"


@pytest.mark.parametrize(
    ("file", "header", "is_breach"),
    [
        ("simd/avx2.cpp", "image/jpeg.h", True),
        ("image/rows.h", "cache/store.h", True),
        ("cache/store.cpp", "bind/bind.h", True),
        ("junk/a.cpp", "simd/simd.h", True),
        ("pool/pool.cpp", "cache/store.h", False),
        ("pool/pool.cpp", "pool/state.h", False),
    ],
)
def test_the_native_core_keeps_its_own_rule(tmp_path: Path, file: str, header: str, is_breach: bool) -> None:
    path = tmp_path / "native" / file
    path.parent.mkdir(parents=True)
    path.write_text(f'#include <vector>\n#include "{header}"\n', encoding="utf-8")
    found = list(core_breaches(tmp_path / "native"))
    assert [each.partition(": ")[0] for each in found] == [f"native/{file}:2"] * is_breach


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("order/shuffle.py", "from standpipe.source.files.folder import ImageFolder"),
        ("order/shuffle.py", "from ..source import folder"),
        ("order/shuffle.py", "def late():\n    import standpipe.source.files.folder"),
        ("read/files.py", "from standpipe.pipeline.description import Description"),
        ("read/files.py", "from standpipe import Pipeline"),
        ("read/files.py", "import standpipe"),
        ("spec.py", "from standpipe import _native"),
        ("pipeline/mix.py", "from standpipe._native import shuffle"),
        ("pipeline/pipeline.py", "from standpipe.plan.build import make_plan"),
        ("plan/plan.py", "from standpipe.loader.loader import Loader"),
        ("plan/plan.py", "def late():\n    from standpipe.loader.loader import Loader"),
        ("engine/run.py", "from standpipe.observe import report"),
        ("loader/loader.py", "import standpipe.torch"),
        ("torch/__init__.py", "from standpipe.engine import Engine"),
        ("torch/__init__.py", "from standpipe import Hidden"),
        ("cli/main.py", "from standpipe import _native"),
        ("cli/main.py", "import standpipe as sp\nsp.engine.start()"),
        ("__main__.py", "from standpipe.loader.loader import Loader"),
        ("observe/report.py", "from ..loader.loader import Loader"),
        ("torch/__init__.py", "from standpipe.observe import report"),
        ("__init__.pyi", "from standpipe.cli import main"),
        ("junk.py", "from standpipe import errors"),
        ("plan/options.py", "from standpipe.pipeline.description import Description"),
        ("engine/watchdog/watch.py", "from standpipe.engine.run import Run"),
        ("engine/python/samples.py", "from standpipe.engine.processes import server"),
        ("engine/native/workers.py", "from standpipe.engine.processes.server import serve"),
        ("engine/start.py", "from standpipe.engine import run"),
        ("engine/consumer.py", "from standpipe.engine.filling_thread import FillingThread"),
    ],
)
def test_a_breach_is_named_with_its_line(tmp_path: Path, file: str, code: str) -> None:
    (found,) = breaches(tree(tmp_path, {file: code}))
    assert found.startswith(f"standpipe/{file}:{code.count(chr(10)) + 1 if '__all__' not in code else 1}: ")


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("order/shuffle.py", "from standpipe import errors\nfrom standpipe._native import shuffle"),
        ("order/shuffle.py", "from standpipe.order.blocks import Blocks\nfrom . import blocks"),
        (
            "pipeline/pipeline.py",
            "from standpipe.source import ImageFolder\nfrom standpipe.plan.options import Settings",
        ),
        ("api.py", "from standpipe.plan.build import make_plan\nfrom standpipe.loader.loader import Loader"),
        ("engine/run.py", "from standpipe import _native, plan\nimport standpipe.spec"),
        ("engine/processes/server.py", "from standpipe.engine.python.samples import Samples"),
        ("loader/loader.py", "from standpipe.engine.run import Engine\nimport torch"),
        ("torch/__init__.py", "import standpipe as sp\nfrom standpipe.torch.data import X\nsp.Pipeline"),
        ("cli/main.py", "from standpipe import Pipeline, __version__\nfrom standpipe.cli.show import show"),
        ("__main__.py", "from standpipe.cli import main"),
        ("cli/main.py", "from standpipe.observe import report"),
    ],
)
def test_what_the_rule_allows(tmp_path: Path, file: str, code: str) -> None:
    assert list(breaches(tree(tmp_path, {file: code}))) == []


def tree(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "standpipe"
    for name, code in ({"__init__.pyi": "from standpipe.api import Pipeline"} | files).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(code)
    return package
