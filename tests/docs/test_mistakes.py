"""Everyday mistakes are answered in one or two sentences. ``docs/contributing/mistakes.md`` lists them.

``mistakes.MISTAKES`` has what people type. A pipeline that they write is planned, as a loader would. Words that begin
with ``$`` are for a shell.
"""

from __future__ import annotations

import ast
import io
import os
import re
import shlex
import traceback
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import standpipe as sp
import standpipe.torch
from mistakes import MISTAKES
from photos import write_photos
from standpipe.cli import main
from torchvision_cpu import torchvision

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "mistakes.md"
OURS = str(Path(sp.__file__).parent)
# Where Python's convention, or torch's, asks for it.
PYTHONS = (TypeError, ValueError, AttributeError, ImportError)
CLASS = re.compile(r"\b[A-Z][a-z]+[A-Z]\w*")
MODULE = re.compile(r"standpipe\.(?!torch\b)\w+\.\w+")
SENTENCE = re.compile(r"[.?!] (?=[A-Z])")
BEGIN = """# Everyday mistakes

What people type who come from other libraries, and what standpipe answers. `tests/docs/test_mistakes.py` types
them, and compares this page with the answers. An answer has one or two sentences with the words that were typed.
No class of standpipe's inside is named, and the traceback has at most two lines of standpipe's own.

`photos` is a pipeline of an `ImageFolder` with 24 images, `train` has a shuffle, a random crop and `Normalize` too,
`evaluation` a `CenterCrop`, and `numbers` is a pipeline of `Arrays`. A pipeline is planned after it is written, in
batches of eight.
"""


@dataclass(frozen=True)
class Answer:
    """An answer to a mistake.

    error  the error; None from a shell
    """

    text: str
    error: BaseException | None = None

    @property
    def shown(self) -> str:
        """Return the answer as the page has it."""
        kind = "" if self.error is None else f"{type(self.error).__name__}: "
        text = re.sub(r" at 0x\w+", " at 0x…", self.text.replace(str(Path.cwd()), "/data"))
        return (kind + text).replace("|", "\\|").replace("<", "&lt;")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names that exist when somebody types, in a folder with photos, ``list.txt`` and an empty folder."""
    folder = tmp_path_factory.mktemp("mistakes")
    for each in ("cat", "dog"):
        (folder / "photos" / each).mkdir(parents=True)
        write_photos(folder / "photos" / each, 12)
    (folder / "empty").mkdir()
    (folder / "mixed.txt").write_text("photos/cat/0.jpg 0\nphotos/cat/1.jpg\n", encoding="utf-8")
    (folder / "phone" / "cat").mkdir(parents=True)
    (folder / "phone" / "cat" / "0.heic").touch()
    (folder / "photos.zip").write_bytes(b"PK\3\4" + bytes(600))
    (folder / "list.txt").write_text("photos/cat/0.jpg 0\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("RANK", "WORLD_SIZE"):
            patch.delenv(name, raising=False)
        from datasets import Dataset, DatasetDict  # here, as importing it takes long

        photos = sp.Pipeline(sp.ImageFolder("photos"))
        train = photos.shuffle(seed=7).map(
            sp.RandomResizedCrop(32), sp.RandomHorizontalFlip(), sp.Normalize()
        )
        yield {
            "__name__": "__main__",
            "Image": Image,
            "np": np,
            "os": os,
            "Path": Path,
            "torch": torch,
            "torchvision": torchvision,
            "v2": torchvision.transforms.v2,
            "Dataset": Dataset,
            "DatasetDict": DatasetDict,
            "sp": sp,
            "standpipe": standpipe,
            "photos": photos,
            "train": train,
            "evaluation": photos.map(sp.CenterCrop(32)),
            "numbers": sp.Pipeline(sp.Arrays(x=np.arange(8))),
        }


def answer_of(code: str, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Type ``code``; an empty answer if nothing is wrong."""
    if code.startswith("$ standpipe"):
        monkeypatch.setattr("sys.stderr", said := io.StringIO())
        monkeypatch.setattr("sys.stdout", io.StringIO())
        assert main(shlex.split(code)[2:]) != 0, code
        return Answer(re.sub(r"^standpipe[\w ]*: ", "", said.getvalue().strip()))
    before = dict(os.environ)
    try:
        run(code, names)
    except Exception as error:
        return Answer(str(error), error)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return Answer("")


def run(code: str, names: dict[str, Any]) -> None:
    tree, here = ast.parse(code), dict(names)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "<typed>", "exec"), here)
        return
    exec(compile(ast.Module(tree.body[:-1], []), "<typed>", "exec"), here)
    value = eval(compile(ast.Expression(last.value), "<typed>", "eval"), here)
    if isinstance(value, sp.Pipeline):
        (value if value.batch_rows is not None or value.budget is not None else value.batch(8)).plan()


def words_of(code: str, given: Collection[str]) -> set[str]:
    """The names and values that somebody typed, without those that were there before."""
    if code.startswith("$"):
        return set(shlex.split(code)[2:])
    words: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Constant(value=value):
                words.add(str(value))
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.arg(arg=name):
                words.add(name)
            case ast.alias(name=name):
                words.add(name)
            case ast.Name(id=name) if name not in given:
                words.add(name)
    return words


def faults(code: str, answer: Answer, given: Collection[str]) -> Iterator[str]:
    """Say what is wrong with an answer."""
    error, text, typed = answer.error, answer.text, words_of(code, given)
    if not text:
        yield "no answer"
    if len(SENTENCE.findall(text)) > 1:
        yield "more than two sentences"
    if not any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) for word in typed):
        yield "none of the words that were typed"
    known = {*sp.__all__, *given, *typed, "DataLoader", "TypeError", "NoneType", "NumPy"}
    known |= {word for each in typed for word in CLASS.findall(each)}
    inside = [name for name in CLASS.findall(text) if name not in known]
    if inside := inside + MODULE.findall(text):
        yield f"names {inside}"
    if error is None:
        return
    if not isinstance(error, PYTHONS) and getattr(sp, type(error).__name__, None) is not type(error):
        yield f"the class {type(error)}"
    chained = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if chained is not None and not isinstance(
        error, sp.SampleError
    ):  # whose cause is that of the caller's code
        yield "a chained traceback"
    lines = [line for line in traceback.extract_tb(error.__traceback__) if line.filename.startswith(OURS)]
    if len(lines) > 2:
        yield f"{len(lines)} lines of standpipe's"


def test_mistakes_are_answered(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong, page = [], [BEGIN]
    for section, rows in MISTAKES.items():
        page.append(f"\n## {section}\n\n| mistake | typed | answer |\n|---|---|---|\n")
        for name, code in rows.items():
            with monkeypatch.context() as patch:
                answer = answer_of(code, names, patch)
            wrong += [f"{name}: {code}\n    {fault}: {answer.shown}" for fault in faults(code, answer, names)]
            typed = code.removeprefix("$ ").replace("|", "\\|")
            page.append(f"| {name} | `{typed}` | {answer.shown} |\n")
    now = tmp_path / "mistakes.md"
    now.write_text("".join(page), encoding="utf-8")
    assert not wrong, "\n".join(wrong)
    assert sum(map(len, MISTAKES.values())) >= 110
    assert PAGE.read_text(encoding="utf-8") == "".join(page), f"copy {now} to {PAGE}"
