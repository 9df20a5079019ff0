"""The import rule, on the real tree and on small broken ones."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
breaches = runpy.run_path(str(ROOT / "scripts" / "layers.py"))["breaches"]


def test_the_source_keeps_the_import_rule() -> None:
    assert list(breaches(ROOT / "src" / "penstock")) == []


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("order/shuffle.py", "from penstock.source.folder import ImageFolder"),
        ("order/shuffle.py", "from ..source import folder"),
        ("order/shuffle.py", "def late():\n    import penstock.source.folder"),
        ("read/files.py", "from penstock.pipeline import Pipeline"),
        ("read/files.py", "from penstock import Pipeline"),
        ("read/files.py", "import penstock"),
        ("spec.py", "from penstock import _native"),
        ("pipeline.py", "from penstock._native import shuffle"),
        ("pipeline.py", "from penstock.plan import make_plan"),
        ("plan.py", "from penstock.loader import Loader"),
        ("plan.py", "def late():\n    from penstock.loader import Loader"),
        ("engine/run.py", "from penstock.observe import report"),
        ("loader.py", "import penstock.torch"),
        ("torch/__init__.py", "from penstock.engine import Engine"),
        ("torch/__init__.py", "from penstock import Hidden"),
        ("cli/main.py", "from penstock import _native"),
        ("cli/main.py", "import penstock as ps\nps.engine.start()"),
        ("__main__.py", "from penstock.loader import Loader"),
        ("observe/report.py", "from ..loader import Loader"),
        ("torch/__init__.py", "from penstock.observe import report"),
        ("__init__.py", "from penstock.cli import main\n__all__ = ['main']"),
        ("junk.py", "from penstock import errors"),
    ],
)
def test_a_breach_is_named_with_its_line(tmp_path: Path, file: str, code: str) -> None:
    (found,) = breaches(tree(tmp_path, {file: code}))
    assert found.startswith(f"penstock/{file}:{code.count(chr(10)) + 1 if '__all__' not in code else 1}: ")


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("order/shuffle.py", "from penstock import errors\nfrom penstock._native import shuffle"),
        ("order/shuffle.py", "from penstock.order.blocks import Blocks\nfrom . import blocks"),
        ("pipeline.py", "from penstock.source import ImageFolder\nfrom penstock.order import Shuffled"),
        ("pipeline.py", "def plan(self):\n    from penstock.plan import make_plan"),
        ("pipeline.py", "if TYPE_CHECKING:\n    from penstock.loader import Loader"),
        ("engine/run.py", "from penstock import _native, plan\nimport penstock.spec"),
        ("loader.py", "from penstock.engine.run import Engine\nimport torch"),
        ("torch/__init__.py", "import penstock as ps\nfrom penstock.torch.data import X\nps.Pipeline"),
        ("cli/main.py", "from penstock import Pipeline, __version__\nfrom penstock.cli.show import show"),
        ("__main__.py", "from penstock.cli import main"),
        ("cli/main.py", "from penstock.observe import report"),
    ],
)
def test_what_the_rule_allows(tmp_path: Path, file: str, code: str) -> None:
    assert list(breaches(tree(tmp_path, {file: code}))) == []


def tree(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "penstock"
    for name, code in ({"__init__.py": "__all__ = ['Pipeline']"} | files).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(code)
    return package
