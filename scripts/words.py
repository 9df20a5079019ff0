"""Check that words stay plain: openings of docstrings, lengths of sentences, odd words, subjects of commits.

It finds symptoms. A text that passes can still be hard to read: read the neighbours of what it finds. docs/glossary.md
has the words to use. Docstrings that the binding gives to nanobind are read in the stub that is made from them.

scripts/words.toml has the number of findings that a file may have, which is 0 for all others. Prints the findings of
each file that has more, a line for each file that has fewer, and exits with 1 if there is any. ``--write`` lowers the
numbers to what there is, and never raises one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

CODE = ("src", "benchmarks", "examples", "scripts", "docs", "tests")
STUB = "src/standpipe/_native.pyi"
NATIVE = ("native", "tests/native")
ALLOWED = Path("scripts/words.toml")
HEAD = """# The number of findings of scripts/words.py that each of these files has, and may have; all others have none.
# `python scripts/words.py --write` lowers them.

"""
OF_ODD_WORDS = ("words.py", "test_words.py")  # have odd words on purpose
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "src", "native")
BUILT = ("_build", "api")  # folders of docs/ that Sphinx writes

# A docstring that opens with one of these hides its subject or its verb.
OPENING = re.compile(
    r"(what|whether|who|whoever|whose|where|which|that|those|these|it|its|itself|there|so|likewise|as|how|why|when|if|to|"
    r"for|in|on|at|by|with|from|no|not|nobody|nothing|all|any|both|each|such|more|most|another|others?|the same|"
    r"the ones?)\b",
    re.IGNORECASE,
)
FIELDS_WORD = {  # a word that hides its meaning: what to write instead
    r"hangs? on": "depends on",
    r"g(i|a)ve(s|n)? way|giving way": "is replaced, is evicted",
    r"(is|are|was|were) told": "is reported, is logged",
    r"tells? of": "reports",
    r"as of": "see, like",
    r"whole numbers?": "integer",
    r"alike": "the same way",
    r"so many bytes": "name the quantity",
    r"errands?|desks?": "task, heartbeat",
    r"hungry": "waiting",
    r"part(y|ies)": "process",
    r"whoever": "name who acts",
    r"but for|aside": "except",
    r"lies? (in|at)": "is in, is stored in",
    r"mend(s|ed)?": "fix",
    r"draws? from|(own|random|of) draws": "random numbers, is drawn at random",
    r"(not|as) yet there|as yet": "not available",
    r"meanwhile": "at the same time",
    r"(to|can) be had": "available",
}
NATIVE_TEXT = re.compile(r'"(?:\\.|[^"\\])*"|//.*')
ODD = re.compile("|".join(rf"\b(?:{words})\b" for words in FIELDS_WORD), re.IGNORECASE)
LONG_WORDS = 30
LONG_MOST = 0.05  # of a project's sentences
SUBJECT_CHARACTERS = 72
SUBJECTS = 20  # the newest commits
NO_VERB = re.compile(
    r"(an?|the|what|who|where|whether|its?|one|two|three|no|every|each|all|some|there|that|these|when|how|only|in|on|of|"
    r"for)\b",
    re.IGNORECASE,
)


def files(names: tuple[str, ...], suffix: str) -> Iterator[Path]:
    """Yield the files of these names, and those with the suffix in these folders."""
    for name in names:
        path = Path(name)
        found = [path] if path.is_file() else sorted(path.rglob(f"*{suffix}"))
        yield from (each for each in found if not set(each.parts) & set(BUILT))


def docstrings(path: Path) -> Iterator[str]:
    """Yield a line for each docstring of a file whose first words hide its subject."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node) or ""
        if OPENING.match(text):
            first = text.partition("\n")[0]
            yield f"{path}:{node.body[0].lineno}: say first what it does or is: {first}"


def native_comments(path: Path) -> Iterator[str]:
    """Yield a line for each comment before a declaration in C++ whose first words hide its subject.

    In a source file, only comments that aren't indented count: inside a function, one may open with a condition.
    """
    before = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip() if path.suffix == ".h" else line
        if text.startswith("// ") and not before.startswith("//") and OPENING.match(text[3:]):
            yield f"{path}:{number}: say first what it does or is: {text[3:]}"
        before = text


def native_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and text of each string and comment of a C++ file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield from ((number, found) for found in NATIVE_TEXT.findall(line))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and text of each string and comment of a Python file that has more than one word."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from enumerate(node.value.splitlines(), node.lineno)
    for number, line in enumerate(source.splitlines(), 1):
        if "# " in line:
            yield number, line.partition("# ")[2]


def prose(text: str) -> str:
    """Return a page without blocks of code, its line numbers unchanged; names in backquotes become ``X``."""
    text = re.sub(
        r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE
    )
    return re.sub(r"`[^`\n]*`", "X", text)


def page_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page's prose."""
    yield from enumerate(prose(path.read_text(encoding="utf-8")).splitlines(), 1)


def odd_words(path: Path, lines_of: Callable[[Path], Iterator[tuple[int, str]]]) -> Iterator[str]:
    """Yield a line for each odd word in a file's texts, which ``lines_of`` finds with their line numbers."""
    if not ODD.search(path.read_text(encoding="utf-8")):  # most files, in a tenth of the time
        return
    for number, line in lines_of(path):
        for found in ODD.finditer(line):
            better = next(
                write for words, write in FIELDS_WORD.items() if re.fullmatch(words, found[0], re.IGNORECASE)
            )
            yield f"{path}:{number}: “{found[0]}”: write {better}"


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page, without its headings and tables."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", ">", ":::"))]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", "\n".join(lines))
    text = re.sub(r"^\s*[-*\d.]+\s", "\n\n", text, flags=re.MULTILINE)
    for part in text.split("\n\n"):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(part.split()))


def long_sentences() -> Iterator[str]:
    """Yield the long sentences of all pages, if they are too many."""
    every = [
        (path, each)
        for path in files(PAGES, ".md")
        for each in sentences(prose(path.read_text(encoding="utf-8")))
    ]
    long = [(path, each) for path, each in every if len(each.split()) > LONG_WORDS]
    if len(long) > LONG_MOST * len(every):
        yield f"{len(long)} of {len(every)} sentences are above {LONG_WORDS} words; at most {LONG_MOST:.0%} may be"
        yield from (f"{path}: {len(each.split())} words: {each[:80]}…" for path, each in long)


def subjects() -> Iterator[str]:
    """Yield a line for each of the newest commits whose subject is too long or no imperative."""
    log = ["git", "log", "--no-merges", f"-{SUBJECTS}", "--format=%h %s"]
    done = subprocess.run(log, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        subject = line.partition(" ")[2]
        if len(subject) > SUBJECT_CHARACTERS:
            yield f"{line}: the subject has {len(subject)} characters; write at most {SUBJECT_CHARACTERS}"
        elif NO_VERB.match(subject):
            yield f"{line}: write the subject as an imperative, such as “Reject negative labels”"


def of_files() -> Iterator[tuple[Path, list[str]]]:
    """Yield each file that is read, and its findings."""
    for path in (*files(CODE, ".py"), *files((STUB,), ".pyi")):
        yield path, [*docstrings(path), *([] if path.name in OF_ODD_WORDS else odd_words(path, texts))]
    for path in (*files(NATIVE, ".h"), *files(NATIVE, ".cpp")):
        yield path, [*native_comments(path), *odd_words(path, native_texts)]
    for path in files(PAGES, ".md"):
        yield path, list(odd_words(path, page_lines))


def allowed() -> dict[str, int]:
    """Return the number of findings that a file may have, by its path."""
    return tomllib.loads(ALLOWED.read_text(encoding="utf-8"))


def findings() -> Iterator[str]:
    """Yield every finding in the working folder that isn't allowed, and every file that has fewer than it may."""
    fewer = allowed()
    for path, found in of_files():
        most = fewer.pop(str(path), 0)
        if len(found) > most:
            yield from found
            if most:
                yield f"{path}: {len(found)} findings, and {ALLOWED} allows {most}: reword what you wrote"
        elif len(found) < most:
            fewer[str(path)] = most
    for name, most in fewer.items():
        yield f"{name}: fewer than {most} findings: python scripts/words.py --write lowers the number"
    yield from long_sentences()
    yield from subjects()


def lower() -> None:
    """Lower the numbers of findings that files may have to those that they have."""
    counts = {str(path): len(found) for path, found in of_files()}
    lowered = {name: min(most, counts.get(name, 0)) for name, most in allowed().items()}
    lines = [f'"{name}" = {most}\n' for name, most in sorted(lowered.items()) if most]
    ALLOWED.write_text(HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        lower()
    found = list(findings())
    print(*found, sep="\n")
    sys.exit(bool(found))
