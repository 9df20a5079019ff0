"""Check who imports whom in src/standpipe and native: data flows one way, and a place never imports another place.

A part is a package, a module of the first level, or what ``LAYERS`` names inside of them; the longest name that fits a
module is its part. A module may import its own part and everything in the rows of ``LAYERS`` above its own; parts of
one row never import one another. The native core is for those in ``NATIVE``. Those in ``OUTSIDE`` stand where a user
stands: they see the names in ``standpipe.__all__`` and their own package, nothing else but the pairs in ``BESIDE``.
The pair in ``LAZY`` takes a package that imports its modules when they are asked for. In native, a file includes those
of its own folder and of the rows of ``CORE`` above that.

Prints one line per breach and exits with 1 if there is any; with ``--draw`` the rows, as docs/architecture.md and
native/README.md show them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PLACES = ("source", "order", "read", "transform", "batch", "device")
LAYERS = (
    ("errors",),
    ("spec", "formats", "hints", "units"),
    ("answers",),
    ("contracts",),
    ("system", "transform.kinds", "source.targets"),
    ("source.index", "source.python", "transform.image", "cache.description"),
    ("source.annotations", "transform.pixels", "transform.python"),
    ("source.files", "source.records"),
    ("source.shards", "transform.decoders", "transform.kernels"),
    ("transform.converted", "recipes"),
    PLACES,
    ("source.at_path",),
    ("identity",),
    ("cache.files", "carried", "plan.options"),
    ("cache.sets",),
    ("cache",),
    ("pipeline",),
    ("plan", "fetch"),
    ("stats",),
    ("engine.watchdog", "engine.moves"),
    ("engine.canvases",),
    ("engine.workers",),
    ("engine.cache", "engine.rows", "engine.timing", "engine.tuner"),
    ("engine.fetching",),
    ("engine.meter",),
    ("engine.python", "engine.room", "engine.replace", "engine.instances"),
    ("engine.start_common", "engine.queue"),
    ("engine.native", "engine.processes", "engine.mixes", "engine.pasting"),
    ("engine.composing",),
    ("engine.start", "engine.fill", "engine.probe", "engine.deliver"),
    ("engine.remote",),
    ("engine.run_monitor",),
    ("engine.consumer", "engine.filling_thread"),
    ("engine",),
    ("loader",),
    ("jobs",),
    ("api",),
    ("reports",),
)
OUTSIDE = ("torch", "jax", "ray", "cli", "observe", "doctor")
BESIDE = {
    ("cli", "observe"),  # it shows what that finds
    ("cli", "doctor"),
    ("cli", "ray"),
    ("cli", "formats"),  # one list for all
    ("cli", "spec"),
    ("cli", "source.at_path"),  # what its paths are
    ("torch", "spec"),
    ("torch", "answers"),
    ("jax", "answers"),
    ("torch", "loader"),  # what their loaders have of ours
    ("jax", "loader"),
    ("torch", "plan.options"),  # the types of arguments that they pass on
    ("jax", "plan.options"),
    ("ray", "plan.options"),
    ("ray", "contracts"),
    ("doctor", "engine.probe"),  # it looks for code that uses global random generators
    ("doctor", "cli"),  # it is one of the commands
    ("doctor", "observe"),
    ("ray", "carried"),  # the actor has what the trainer has set
    ("cli", "units"),  # numbers are shown in one way
    ("observe", "units"),
    ("doctor", "units"),
    ("cli", "system"),  # files that are there as a whole
    ("observe", "system"),
    ("doctor", "system"),  # what the machine has is nobody's own
}
NATIVE = (*PLACES, "cache", "engine", "fetch", "jobs", "system")
LAZY = ("loader", "observe")  # a package that imports its modules when they are asked for
CORE = (
    ("simd",),
    ("system",),
    ("memory", "order", "pixels"),
    ("io",),
    ("image", "cache"),
    ("pool",),
    ("bind", "fuzz"),
)

RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
WHOLE = "the public list"  # what ``import standpipe`` takes


def breaches(package: Path) -> Iterator[str]:
    """Yield one line per import in ``package`` (the folder src/standpipe) that breaks the rule."""
    public = public_names(package / "__init__.pyi")
    for path in sorted({*package.rglob("*.py"), package / "__init__.pyi"}):
        owner = part_of(".".join(path.relative_to(package).with_suffix("").parts))
        owner = "cli" if owner == "__main__" else owner
        for line, target in taken(path, package):
            allowed = (owner.partition(".")[0], target.partition(".")[0]) == LAZY
            if not allowed and (reason := objection(owner, target, public)):
                yield f"{path.relative_to(package.parent)}:{line}: {reason}"


def part_of(module: str) -> str:
    """Return the part that a module or name in one belongs to: ``engine.python`` of ``engine.python.samples``."""
    pieces = module.split(".")
    names = (".".join(pieces[:length]) for length in range(len(pieces), 0, -1))
    return next((name for name in names if name in RANK), pieces[0])


def objection(owner: str, target: str, public: frozenset[str]) -> str | None:
    """Say why ``owner`` must not take ``target``; None if it may. Both are named relative to standpipe."""
    if target == owner:
        return None
    if owner == "__init__":
        return f"the public list must not need {target}" if target in OUTSIDE else None
    if owner in OUTSIDE:
        seen = (
            target in (WHOLE, "reports")
            or target in public
            or target.startswith("__")
            or (owner, target) in BESIDE
        )
        return None if seen else f"{owner} sees public names only, not standpipe.{target}"
    if owner not in RANK:
        return f"{owner} has no row in scripts/layers.py"
    if target == "_native":
        return None if owner.partition(".")[0] in NATIVE else f"{owner} must not import the native core"
    places = owner.partition(".")[0], target.partition(".")[0]
    if places[0] != places[1] and {*places} <= {*PLACES}:
        return f"a place never imports another place: {owner} imports {target}"
    if RANK.get(target, RANK[owner]) < RANK[owner]:
        return None
    return f"{owner} must not import {target}, which is not below it"


def taken(path: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Yield all that a file takes from standpipe.

    line    where it does
    target  a part, a public name, or ``WHOLE``
    """
    folders = path.relative_to(package).parts[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    aliases: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                root, *rest = name.name.split(".")
                if root == "standpipe":
                    aliases.add(name.asname or root)
                    yield node.lineno, part_of(".".join(rest)) if rest else WHOLE
        elif isinstance(node, ast.ImportFrom):
            above = ["standpipe", *folders[: len(folders) + 1 - node.level]] if node.level else []
            seen: set[str] = set()
            root, *rest = above + (node.module.split(".") if node.module else [])
            if root == "standpipe":
                for name in node.names:
                    target = part_of(".".join([*rest, name.name]))
                    if target not in seen:
                        seen.add(target)
                        yield node.lineno, target
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield node.lineno, node.attr


def public_names(stub: Path) -> frozenset[str]:
    """Read the names that the stub of the package imports."""
    imports = [
        node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)
    ]
    return frozenset(each.name for node in imports for each in node.names)


def core_breaches(core: Path) -> Iterator[str]:
    """Yield one line per include in ``core`` (the folder native) that breaks the rule."""
    rank = {name: number for number, row in enumerate(CORE) for name in row}
    for path in sorted(each for each in core.rglob("*") if each.suffix in (".h", ".cpp")):
        owner = path.relative_to(core).parts[0]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if found := re.match(r'#include "(\w+)/', line):
                target, place = found[1], f"{path.relative_to(core.parent)}:{number}"
                if owner not in rank or target not in rank:
                    yield f"{place}: {owner} or {target} has no row in scripts/layers.py"
                elif target != owner and rank[target] >= rank[owner]:
                    yield f"{place}: {owner} must not include {target}, which is not below it"


def drawing(rows: tuple[tuple[str, ...], ...]) -> str:
    """Return the rows as lines of text, the first on top."""
    return "\n".join("  ".join(row) for row in rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--draw"]:
        print(drawing(LAYERS), drawing(CORE), sep="\n\n")
        sys.exit()
    root = Path(__file__).parent.parent
    found = [*breaches(root / "src" / "standpipe"), *core_breaches(root / "native")]
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
