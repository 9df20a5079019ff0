"""Convert objects of torchvision and timm that ``map(…, native="auto")`` is given into native transforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any

from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.spec import ArraySpec, Layout
from standpipe.transform.converted.composition import converted, is_theirs
from standpipe.transform.image import RowForm, RowTransform, ValueTransform
from standpipe.transform.kernels.views import Views
from standpipe.transform.python.function import Function, InputFormat, Tensors, callable_name, is_python
from standpipe.transform.python.schedule import is_scheduled

Spec = ArraySpec | Mapping[str, ArraySpec]


def automatic(
    given: Sequence[Any],
    before: Sequence[Transform],
    *,
    field: str | None,
    input_format: InputFormat | None,
    spec: Spec | None,
    tensors: Tensors | None,
) -> tuple[list[Transform], list[str]]:
    """Return the transforms of one call of ``map``, and a line for each part that could have been converted.

    before   the pipeline's earlier transforms, which decide in what form an image comes
    tensors  as ``from_torchvision`` takes it
    """
    made: list[Transform] = []
    report: list[str] = []
    for theirs, group in groupby(given, is_theirs):
        parts = list(group)
        form, why = _form_after([*before, *made])
        if field not in (None, "image"):
            form, why = None, f"it takes the field {field!r}, and native transforms take 'image'"
        elif input_format not in (None, "pil"):
            form, why = (
                None,
                f"it takes images as input_format={input_format!r}, with other pixels than Pillow's",
            )
        rest: Sequence[Any] = parts
        on, takes = field, input_format
        if theirs:
            # Behind native code that wrote floats, Python parts take them as a tensor.
            on, takes = field or "image", input_format or ("pil" if form in (None, "image") else "tensor")
            if form is None:
                report += [f"{type(each).__name__}: Python ({why})" for each in parts]
            else:
                found = converted(parts[0] if len(parts) == 1 else parts, form, tensors)
                made += found.native
                rest = found.python
                report += found.report
                if rest and form == "tensor":  # a uint8 tensor would come back as (H, W, 3)
                    raise PlanError(
                        f"map(native='auto'): {found.report[0]}, but it follows PILToTensor or ToLayout('NCHW') of an "
                        "earlier map(), which is native. Give both in one call of map(), or leave native= out"
                    )
        else:
            report += [
                f"{callable_name(each)}: Python (it isn't a class of torchvision or timm)"
                for each in parts
                if is_python(each)
            ]
        made += [
            Function.of(each, field=on, input_format=takes, spec=spec) if is_python(each) else each
            for each in rest
        ]
    return made, report


def offer(transforms: Sequence[Transform]) -> list[str]:
    """Return a line on what ``native="auto"`` would bring to a pipeline with Python objects of torchvision or timm."""
    python = [isinstance(each, Function) and is_theirs(each.fn) for each in transforms]
    if True not in python:
        return []
    first = python.index(True)
    run = takewhile(lambda each: isinstance(each, Function) and is_theirs(each.fn), transforms[first:])
    functions = [each for each in run if isinstance(each, Function)]
    how = functions[0]
    try:
        _, report = automatic(
            [each.fn for each in functions],
            transforms[:first],
            field=how.field,
            input_format=how.input_format,
            spec=how.spec,
            tensors=None,
        )
    except PlanError:
        return []
    native = sum(": native" in line for line in report)
    reason = next((f". {line}" for line in report if ": Python (" in line), "")
    return [f'map(…, native="auto") would make {native} of {len(report)} parts native{reason}']


def _form_after(transforms: Sequence[Transform]) -> tuple[str | None, str]:
    """Return the form of an image after transforms, as ``converted`` takes it; or None, and why it isn't known."""
    form, erased = RowForm(), False
    for each in transforms:
        if isinstance(each, Function) and each.field in (None, "image"):
            return None, f"it follows the Python function {callable_name(each.fn):.60}"
        if isinstance(each, Views):
            return None, "it follows Views"
        if isinstance(each, ValueTransform):
            if is_scheduled(each):
                return None, f"it follows {type(each).__name__} with a Schedule or PerStep"
            erased = erased or isinstance(each, RowTransform)
            form = each.applied_to(form)
    dtype = form.dtype or (None if form.table is None else "float32")
    scaled = form.table is not None or form.scale
    if dtype is None and form.layout is None:
        return "image", ""
    if form.layout is Layout.NHWC or dtype not in (None, "float32") or (dtype is not None and not scaled):
        return None, "it follows ToDtype or ToLayout with a form that torchvision doesn't have"
    if dtype is None:
        return "tensor", ""
    return "erased" if erased else "float" if form.table is None else "normalized", ""
