"""Python callables as transforms of a sample, a field or a batch."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from standpipe.errors import PlanError
from standpipe.spec import ArraySpec
from standpipe.transform.python.mixing import CutMix, MixUp

Mixing = MixUp | CutMix
InputFormat = Literal["numpy", "pil", "tensor"]
Tensors = Literal["as_pillow"]  # what ``from_torchvision`` makes of parts that work on tensors
LONGEST_NAME = 120  # characters of a callable's repr; it is part of the loader's state, which must stay small
FORMS = ("numpy", "pil", "tensor")
Rng = Literal["numpy", "torch"]
# Transforms of torchvision that move pixels. In map() they get the image alone, and move nothing beside it.
MOVING = {
    *("Resize", "CenterCrop", "RandomCrop", "RandomResizedCrop", "FiveCrop", "TenCrop", "Pad"),
    *("RandomHorizontalFlip", "RandomVerticalFlip", "RandomRotation", "RandomAffine", "RandomPerspective"),
    *("ElasticTransform", "ScaleJitter", "RandomShortestSize", "RandomResize", "RandomIoUCrop"),
    *("RandomZoomOut", "AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix", "ImageClassification"),
}
_TORCH_GENERATOR = re.compile(r"\btorch\.(_C\.)?Generator\b")


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A transform of a sample, or of one field, that a Python callable does.

    fn            the callable. With ``field`` it takes that field's value and returns the new value. Without, it takes
                  the sample, a dict of values by field, and returns the new sample. A parameter named ``rng`` gets a
                  ``numpy.random.Generator`` keyed by (seed, epoch, position) and by the callable's number among the
                  pipeline's callables, or a ``torch.Generator`` if the parameter is annotated as one
    field         the field that the callable reads and writes; None: the whole sample
    input_format  the form of images: ``"numpy"``, (H, W, 3) uint8; ``"pil"``; ``"tensor"``, (3, H, W) uint8
    spec          shape and dtype of the result: a dict by field, or one ``ArraySpec`` if ``field`` is given; None: the
                  loader measures them on one sample when it starts
    kind          the package whose calling convention applies; ``"plain"``: none
    """

    fn: Callable[..., Any]
    field: str | None
    input_format: InputFormat
    spec: ArraySpec | Mapping[str, ArraySpec] | None
    kind: Literal["plain", "torchvision", "albumentations"]

    @classmethod
    def of(
        cls,
        fn: Callable[..., Any],
        *,
        field: str | None = None,
        input_format: InputFormat | None = None,
        spec: ArraySpec | Mapping[str, ArraySpec] | None = None,
    ) -> Function:
        """Make a ``Function`` of ``fn``; the package of fn's class sets ``kind`` and the defaults.

        Raises ``PlanError`` for invalid arguments.
        """
        check_form("map", field, input_format)
        if spec is not None and not (
            isinstance(spec, ArraySpec) if field is not None else isinstance(spec, Mapping)
        ):
            wanted = (
                "ArraySpec(shape, dtype)" if field is not None else "a dict with the ArraySpec of every field"
            )
            raise PlanError(f"map(spec={spec!r}): give {wanted}")
        package = (type(fn).__module__ or "").partition(".")[0]
        if package == "torchvision":
            return cls(fn, field or "image", input_format or "pil", spec, "torchvision")
        if package in ("albumentations", "albumentationsx"):
            if input_format not in (None, "numpy"):
                raise PlanError(
                    f"map(input_format={input_format!r}): albumentations takes NumPy arrays; leave input_format out"
                )
            return cls(fn, field, "numpy", spec, "albumentations")
        return cls(fn, field, input_format or "numpy", spec, "plain")

    @property
    def moves(self) -> tuple[str, ...]:
        """The fields whose pixels it is known to move: the image, for a transform of torchvision."""
        return (self.field,) if self.field and self.kind == "torchvision" and _moves(self.fn) else ()

    @property
    def takes_rng(self) -> Rng | None:
        """The kind of generator that its parameter ``rng`` takes; None without such a parameter."""
        return takes_rng(self.fn)

    def describe(self) -> str:
        """Return the callable's qualified name, with the parameters in its repr, the field and the form."""
        field = "" if self.field is None else f", field={self.field!r}"
        form = "" if self.input_format == "numpy" else f", input_format={self.input_format!r}"
        return f"{callable_name(self.fn)}{field}{form}"


@dataclass(frozen=True, slots=True, eq=False)
class BatchFunction:
    """A transform of a batch that a Python callable does, in the worker that makes the batch.

    fn        the callable. It takes a dict of (rows, …) arrays by field, or the list of samples if ``collates`` is
              True. It returns the new batch: a dict of arrays, one array, or a tuple of arrays
    collates  True if the callable makes the batch from the samples itself, like torch's ``collate_fn``
    """

    fn: Callable[..., Any]
    collates: bool = False

    @property
    def takes_rng(self) -> Rng | None:
        """The kind of generator that its parameter ``rng`` takes; None without such a parameter."""
        return takes_rng(self.fn)

    @property
    def mixing(self) -> Mixing | None:
        """The callable if it is standpipe's MixUp or CutMix, which can also run on the GPU; else None."""
        return self.fn if isinstance(self.fn, MixUp | CutMix) else None

    def check(self) -> None:
        """Raise ``PlanError`` if a MixUp or CutMix has invalid parameters."""
        if self.mixing is not None:
            self.mixing.check()

    @property
    def note(self) -> str:
        """A remark for ``explain()``; usually empty."""
        return "" if self.mixing is None else self.mixing.note

    def describe(self) -> str:
        """Return the callable's qualified name, or the parameters of a MixUp or CutMix."""
        if self.mixing is not None:
            return f"map_batch({self.mixing!r})"
        name = callable_name(self.fn)
        return f"collate_fn={name}" if self.collates else f"map_batch({name})"


def check_form(method: str, field: object, input_format: object) -> None:
    """Raise ``PlanError`` unless ``field`` is None or a name, and ``input_format`` is None or in ``FORMS``.

    method  the public method that got these arguments, for the message, such as ``"map"``
    """
    if input_format is not None and input_format not in FORMS:
        raise PlanError(
            f"{method}(input_format={input_format!r}): input_format must be 'numpy', 'pil' or 'tensor'"
        )
    if field is not None and (not isinstance(field, str) or not field):
        raise PlanError(f"{method}(field={field!r}): field must be a field's name, such as 'image'")


def takes_rng(fn: Callable[..., Any]) -> Rng | None:
    """Return the kind of random generator that the parameter ``rng`` of ``fn`` takes.

    It is ``"torch"`` if the parameter is annotated as a ``torch.Generator``, else ``"numpy"``; None if ``fn`` has no
    parameter ``rng``.
    """
    try:
        parameter = inspect.signature(fn).parameters.get("rng")
    except (TypeError, ValueError):  # built-in functions without a signature
        return None
    if parameter is None:
        return None
    annotation = parameter.annotation
    if isinstance(annotation, str):
        with contextlib.suppress(Exception):  # a name that only type checkers import
            annotation = inspect.signature(fn, eval_str=True).parameters["rng"].annotation
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return "torch" if _TORCH_GENERATOR.search(shown) else "numpy"


def _moves(part: Any) -> bool:
    inside = getattr(part, "transforms", None)
    return any(map(_moves, inside)) if isinstance(inside, Iterable) else type(part).__name__ in MOVING


def callable_name(fn: object) -> str:
    """Return a callable's name and parameters, as text that is the same in every process.

    It leaves out a repr with a memory address, and shortens a long one.
    """
    if isinstance(fn, functools.partial):
        arguments = [*map(repr, fn.args), *(f"{name}={value!r}" for name, value in fn.keywords.items())]
        shown = f"({', '.join(arguments)})"
        return f"partial {callable_name(fn.func)}{'' if ' at 0x' in shown else shown}"
    if (name := getattr(fn, "__qualname__", None)) is not None:
        owner = getattr(fn, "__self__", None)
        of = f"{callable_name(owner)}." if owner is not None and not inspect.ismodule(owner) else ""
        if of:
            return f"{of}{fn.__name__}"  # type: ignore[attr-defined]
        # A method of a built-in type has no __module__.
        return f"{getattr(fn, '__module__', 'builtins')}.{name}"
    kind = f"{type(fn).__module__}.{type(fn).__qualname__}"
    shown = " ".join(repr(fn).split())
    if " at 0x" in shown:
        return kind
    if len(shown) > LONGEST_NAME:
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        rest = blake2b(shown.encode(), digest_size=8).hexdigest()
        shown = f"{shown[:LONGEST_NAME]}… (digest {rest})"
    return f"{kind}: {shown}"


def is_python(transform: object) -> TypeGuard[Callable[..., Any]]:
    """Return True for a user's callable; classes and standpipe's own transforms aren't."""
    return callable(transform) and not isinstance(transform, type)


def check_tensors(asked_by: str, tensors: object) -> None:
    """Raise ``PlanError`` for an unknown value of ``tensors=``."""
    if tensors not in (None, "as_pillow"):
        raise PlanError(f"{asked_by}: tensors must be 'as_pillow' or None, got {tensors!r}")
