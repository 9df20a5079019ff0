"""Check who imports whom in src/standpipe: data flows one way, and a place never imports another place.

A module may import its own package and everything in the rows of ``LAYERS`` above its own; modules of one row
never import one another. The native core is for those in ``NATIVE``. Those in ``OUTSIDE`` stand where a user
stands: they see the names in ``standpipe.__all__`` and their own package, nothing else but the pairs in ``BESIDE``.
A method that leads to the next step, as ``Pipeline.plan`` does, needs what comes after it: pairs in ``LATE``,
imported when called.

Prints one line per breach and exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PLACES = ("source", "order", "read", "transform", "batch", "device")
LAYERS = (
    ("errors",),
    (
        "spec",
        "habits",
        "formats",
        "launcher",
        "faults",
        "worker",
        "machine",
        "counters",
        "shares",
        "warned",
        "writing",
    ),
    ("contracts",),
    (*PLACES, "settings"),
    ("ordered", "cache"),
    ("pipeline",),
    ("mixture", "sizing", "kept"),
    ("ordering", "contents", "payoff", "frames"),
    ("caching",),
    ("plan",),
    ("tuning",),
    ("explain", "audit", "bad", "memory", "state"),
    ("engine", "ranks"),
    ("epochs", "observing"),
    ("loader",),
    ("scan", "check", "warm"),
)
OUTSIDE = ("torch", "jax", "ray", "cli", "observe", "doctor")
BESIDE = {
    ("cli", "observe"),  # it shows what that finds
    ("cli", "formats"),  # one list for all
    ("doctor", "cli"),  # it is one of the commands
    ("cli", "writing"),
    ("observe", "writing"),
    ("observe", "machine"),  # what the machine has is nobody's own
}
NATIVE = (*PLACES, "cache", "engine", "faults")
LATE = {
    ("pipeline", "plan"),
    ("pipeline", "audit"),
    ("pipeline", "loader"),
    ("pipeline", "scan"),
    ("pipeline", "warm"),
    ("plan", "explain"),
    ("plan", "engine"),
    ("worker", "engine"),
    ("epochs", "loader"),
    ("loader", "observe"),
    ("observing", "loader"),
    ("observing", "observe"),
}

RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
WHOLE = "the public list"  # what ``import standpipe`` takes


def breaches(package: Path) -> Iterator[str]:
    """Yield one line per import in ``package`` (the folder src/standpipe) that breaks the rule."""
    public = public_names(package / "__init__.py")
    for path in sorted(package.rglob("*.py")):
        owner = path.relative_to(package).parts[0].removesuffix(".py")
        owner = "cli" if owner == "__main__" else owner
        for line, target, late in taken(path, package):
            allowed = late and (owner, target) in LATE
            if not allowed and (reason := objection(owner, target, public)):
                yield f"{path.relative_to(package.parent)}:{line}: {reason}"


def objection(owner: str, target: str, public: frozenset[str]) -> str | None:
    """Say why ``owner`` must not take ``target``; None if it may. Both are named relative to standpipe."""
    if target == owner:
        return None
    if owner == "__init__":
        return f"the public list must not need {target}" if target in OUTSIDE else None
    if owner in OUTSIDE:
        seen = target == WHOLE or target in public or target.startswith("__") or (owner, target) in BESIDE
        return None if seen else f"{owner} sees public names only, not standpipe.{target}"
    if owner not in RANK:
        return f"{owner} has no row in scripts/layers.py"
    if target == "_native":
        return None if owner in NATIVE else f"{owner} must not import the native core"
    if owner in PLACES and target in PLACES:
        return f"a place never imports another place: {owner} imports {target}"
    if RANK.get(target, RANK[owner]) < RANK[owner]:
        return None
    return f"{owner} must not import {target}, which is not below it"


def taken(path: Path, package: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield all that a file takes from standpipe.

    line    where it does
    target  a module of the first level, a name, or ``WHOLE``
    late    whether only inside a function or for the type checker
    """
    folders = path.relative_to(package).parts[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    late = {inner for outer in ast.walk(tree) if runs_late(outer) for inner in ast.walk(outer)}
    aliases: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                root, *rest = name.name.split(".")
                if root == "standpipe":
                    aliases.add(name.asname or root)
                    yield node.lineno, rest[0] if rest else WHOLE, node in late
        elif isinstance(node, ast.ImportFrom):
            above = ["standpipe", *folders[: len(folders) + 1 - node.level]] if node.level else []
            root, *rest = above + (node.module.split(".") if node.module else [])
            if root == "standpipe":
                for target in rest[:1] or [name.name for name in node.names]:
                    yield node.lineno, target, node in late
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield node.lineno, node.attr, node in late


def runs_late(node: ast.AST) -> bool:
    """Say whether importing the module doesn't run what is inside ``node``."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def public_names(init: Path) -> frozenset[str]:
    """Read ``__all__``."""
    for node in ast.parse(init.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(name, ast.Name) and name.id == "__all__" for name in targets):
                return frozenset(ast.literal_eval(node.value))
    return frozenset()


if __name__ == "__main__":
    found = list(breaches(Path(__file__).parent.parent / "src" / "standpipe"))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
