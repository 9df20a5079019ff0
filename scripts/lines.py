"""Count the lines of code, without docstrings, comments and blank lines, and compare them with scripts/ceilings.toml.

Prints the counts of each package and of each folder of ``native``, the longest first, and one line for each that is
above its ceiling. Exits with 1 if there is any. ``--write`` lowers the ceilings to the counts, and never raises or adds
one: a change that has to do that says so in its message.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
CEILINGS = Path(__file__).with_name("ceilings.toml")
NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
HEAD = """# The most lines of code, without docstrings, comments and blank lines, of each package of src/standpipe and
# of each folder of native. scripts/check fails above them. `python scripts/lines.py --write` lowers them.
"""


def python_lines(text: str) -> int:
    """Return the number of lines of Python code in a file."""
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    firsts = [node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, places) and node.body]
    words = {
        line
        for node in firsts
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - words)


def native_lines(text: str) -> int:
    """Return the number of lines of C++ code in a file."""
    code = COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else "", text)
    return sum(1 for line in code.splitlines() if line.strip())


def counts() -> dict[str, dict[str, int]]:
    """Return the lines of code by package of src/standpipe, and by folder of native."""
    found: dict[str, Counter[str]] = {"python": Counter(), "native": Counter()}
    for part, folder, suffixes, count in (
        ("python", ROOT / "src/standpipe", (".py",), python_lines),
        ("native", ROOT / "native", (".h", ".cpp"), native_lines),
    ):
        for path in sorted(each for each in folder.rglob("*") if each.suffix in suffixes):
            below = path.relative_to(folder).parts
            found[part][below[0] if len(below) > 1 else "files"] += count(path.read_text(encoding="utf-8"))
    return {part: dict(each.most_common()) for part, each in found.items()}


def main() -> None:
    """Print the counts, and what is above its ceiling."""
    now, ceilings = counts(), tomllib.loads(CEILINGS.read_text(encoding="utf-8"))
    if "--write" in sys.argv[1:]:
        lines = [HEAD]
        for part, each in now.items():
            most = ceilings[part]
            lowered = [f"{name} = {min(count, most[name])}\n" for name, count in each.items() if name in most]
            lines.append(f"\n[{part}]\n{''.join(lowered)}")
        CEILINGS.write_text("".join(lines), encoding="utf-8")
        return
    for part, each in now.items():
        print(
            f"lines of {part}",
            sum(each.values()),
            *(f"{name} {count}" for name, count in each.items()),
            sep=", ",
        )
    above = [
        f"scripts/ceilings.toml: {part}/{name} has {count} lines of code, more than {ceilings[part].get(name, 0)}"
        for part, each in now.items()
        for name, count in each.items()
        if count > ceilings[part].get(name, 0)
    ]
    print(*above, sep="\n")
    sys.exit(bool(above))


if __name__ == "__main__":
    main()
