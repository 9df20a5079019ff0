"""Errors of public calls keep the caller's lines and errors, and have none of standpipe's own."""

from __future__ import annotations

import copy
import pickle
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from standpipe.answers import answering


def inside(error: BaseException) -> list[str]:
    """Return the names of the functions in a traceback."""
    return [line.name for line in traceback.extract_tb(error.__traceback__)]


class Source:
    """A source of the user's, whose ``open`` calls ``act``."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def open(self) -> Any:
        return self.act()

    def describe(self) -> str:
        return "mine"


def refuses() -> None:
    raise sp.PlanError("mine is empty")


def test_lines_of_the_callers_functions_stay() -> None:
    with pytest.raises(sp.PlanError, match="mine is empty") as caught:
        sp.Pipeline(Source(refuses)).batch(1).plan()
    assert inside(caught.value) == [inside(caught.value)[0], "answered", "open", "refuses"]


def test_an_error_of_the_callers_function_stays_in_the_chain() -> None:
    class Broken:
        def __len__(self) -> int:
            raise KeyError("no such table")

        def __getitem__(self, index: int) -> int:
            return index

    with pytest.raises(sp.PlanError, match="no such table") as caught:
        sp.Pipeline(sp.MapSource(Broken())).batch(1).plan()
    assert isinstance(caught.value.__cause__, KeyError)
    assert "__len__" in inside(caught.value.__cause__)


def while_handling(call: Any) -> None:
    try:
        raise LookupError("mine")
    except LookupError:
        call()


def test_an_error_that_the_caller_handles_stays_in_the_chain() -> None:
    numbers = sp.Pipeline(sp.Arrays(x=np.arange(8)))
    wrong: Any = numbers
    for call, kind in ((numbers.plan, sp.PlanError), (wrong.shuffle, TypeError)):
        with pytest.raises(kind) as caught:
            while_handling(call)
        assert isinstance(caught.value.__context__, LookupError)
        assert not caught.value.__suppress_context__


def test_an_error_inside_is_left_out_of_the_chain(tmp_path: Path) -> None:
    with pytest.raises(sp.PlanError) as caught:
        sp.Pipeline(sp.FileList(tmp_path / "none.txt")).batch(1).plan()
    assert "FileNotFoundError" not in "".join(traceback.format_exception(caught.value))
    assert len(inside(caught.value)) == 2


def test_what_workers_find_is_a_plan_error() -> None:
    def fails() -> None:
        raise OSError("no database")

    numbers = sp.Pipeline(sp.MapSource([{"x": n} for n in range(4)])).batch(2)
    for executor in ("thread", "process"):
        with numbers.loader(executor=executor, num_workers=1, initializer=fails) as loader:  # type: ignore[arg-type]
            with pytest.raises(sp.PlanError, match="no database") as caught:
                next(iter(loader))
            assert type(caught.value) is sp.PlanError


def test_a_type_error_of_the_calls_own_code_stays() -> None:
    @answering
    def adds(number: int) -> int:
        return number + "1"  # type: ignore[operator, no-any-return]

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        adds(1)
    assert inside(caught.value)[-1] == "adds"


def test_arguments_that_do_not_fit_are_named() -> None:
    @answering
    def adds(number: int, *, to: int) -> int:
        return number + to

    wrong: Any = adds
    assert adds(1, to=2) == 3
    for arguments, named, says in (
        ((), {}, r"adds\(\) needs number= and to=: write adds\(number=…\)"),
        ((1,), {}, r"adds\(\) needs to=: write adds\(to=…\)"),
        ((1, 2), {}, r"adds\(\) takes no argument 2 without a name: its names are to="),
        ((1,), {"number": 2, "to": 3}, r"adds\(\) got number twice: leave out number=2"),
        ((1,), {"too": 3}, r"adds\(\) takes no too=: did you mean to=\?"),
    ):
        with pytest.raises(TypeError, match=says):
            wrong(*arguments, **named)


def test_an_argument_of_a_call_without_any_is_left_out() -> None:
    @answering
    def ends() -> None:
        """Take no arguments."""

    wrong: Any = ends
    with pytest.raises(TypeError, match=r"^ends\(\) takes no now=: leave it out$"):
        wrong(now=True)


def test_public_functions_answer_too_and_can_be_pickled() -> None:
    with pytest.raises(sp.PlanError, match="nowhere") as caught:
        sp.build_index(sp.ImageFolder("nowhere"))
    assert len(inside(caught.value)) == 2
    assert pickle.loads(pickle.dumps(sp.build_index)) is sp.build_index


def test_a_pipeline_is_true_and_can_be_copied() -> None:
    numbers = sp.Pipeline(sp.Arrays(x=np.arange(8)))
    assert numbers
    assert repr(copy.deepcopy(numbers)) == repr(pickle.loads(pickle.dumps(numbers))) == repr(numbers)
