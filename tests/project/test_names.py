"""Names of modules: each has one meaning in the whole package."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "standpipe"
SAME_INTERFACE = {
    "add_arguments": "cli",  # every command has these
    "run": "cli",
    "main": "",  # of a process
    "loader": "",  # of torch, JAX and Ray
}

COUNTERPARTS = {  # of native classes and functions, which these call
    *("GeometryStage", "Head", "Input", "Job", "PixelStage"),
    *("fault_hits", "faultpoint", "file_marks", "in_turn", "install_faults", "simd_paths"),
}


def test_a_public_function_or_class_shares_its_name_with_no_other() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        place = str(path.relative_to(PACKAGE))
        if "child" in path.parts:  # of the doctor: it runs in other programs
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            name = getattr(node, "name", "_")  # of a function or class
            if not name.startswith("_") and not place.startswith(SAME_INTERFACE.get(name, "nowhere")):
                found[name].append(place)
    for node in ast.parse((PACKAGE / "_native.pyi").read_text(encoding="utf-8")).body:
        if (name := getattr(node, "name", "_")) not in COUNTERPARTS:
            found[name].append("_native.pyi")
    assert {name: places for name, places in found.items() if len(set(places)) > 1} == {}
