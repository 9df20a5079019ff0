"""Convert compositions of torchvision and timm into native transforms, as far as those give the same pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from standpipe.errors import PlanError
from standpipe.transform.converted.convert import (
    PACKAGES,
    Unlike,
    erasing,
    filter_name,
    flat,
    is_compose,
    is_same_on_tensors,
    package,
    pixels,
    three,
)
from standpipe.transform.image import ImageTransform, ValueTransform
from standpipe.transform.pixels.element import Normalize, ToDtype, ToLayout
from standpipe.transform.pixels.geometry import CenterCrop, Resize

FLOATS = ("float", "normalized", "erased")  # forms of an image of floats; each may become the ones after it
UNCHANGED = ("Identity", "RGB", "ToPureTensor")  # parts that change no value of an RGB image
FLIPS = ("RandomHorizontalFlip", "RandomVerticalFlip")
PRESETS = ("ImageClassification", "SemanticSegmentation")


@dataclass(frozen=True, slots=True)
class Converted:
    """Transforms for ``Pipeline.map``, made by ``from_torchvision`` or ``from_timm``. ``print`` shows a report.

    native  the native transforms, which come first
    python  the rest, as one callable in a tuple; empty if every part is native
    report  one line for each part of the composition
    """

    native: tuple[ImageTransform, ...]
    python: tuple[Callable[..., Any], ...]
    report: tuple[str, ...]

    def __iter__(self) -> Iterator[ImageTransform | Callable[..., Any]]:
        """Yield the transforms in order, for ``.map(*converted)``."""
        yield from self.native
        yield from self.python

    def __str__(self) -> str:
        return "\n".join(self.report)


def from_torchvision(transforms: Any) -> Converted:
    """Convert a composition of torchvision into native transforms, as far as they give the same pixels.

    Parts are converted up to the first one without an equal native form. It and all later parts stay Python, as
    one callable. ``print`` shows a report with a line for each part.

    Random numbers are standpipe's own, with torchvision's distributions. Pixels are those of Pillow images, with the
    differences that each native transform documents. Numbers after ``Normalize`` are at most 1e-6 away. After
    ``PILToTensor`` or ``ToImage``, parts that give other pixels for tensors stay Python: resizes, warps and changes
    of colour.

    Parameters
    ----------
    transforms : Compose of torchvision.transforms or its v2, or list
        The composition, for Pillow images; or the preset of a model, ``weights.transforms()``.

    Returns
    -------
    iterable of transforms
        For ``Pipeline.map``. Its attribute ``native`` has the native ones, and ``python`` the others.

    Raises
    ------
    PlanError
        If it isn't a composition or list.

    Examples
    --------
    >>> converted = sp.from_torchvision([])  # a torchvision.transforms.Compose
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(*converted)
    >>> converted.native
    ()
    """
    return _convert(transforms, "from_torchvision")


def from_timm(transforms: Any) -> Converted:
    """Convert a transform of timm's ``create_transform`` into native transforms, as ``from_torchvision`` does.

    timm's own classes have native forms too: ``rand-m9-mstd0.5-inc1``, ``3a``, random erasing and
    ``interpolation="random"``.

    Parameters
    ----------
    transforms : Compose or list
        The result of ``timm.data.create_transform``.

    Returns
    -------
    iterable of transforms
        For ``Pipeline.map``, with the attributes ``native`` and ``python``.

    Raises
    ------
    PlanError
        If it isn't a composition or list.

    Examples
    --------
    >>> converted = sp.from_timm([])  # timm.data.create_transform(224, is_training=True)
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(*converted)
    """
    return _convert(transforms, "from_timm")


def _convert(transforms: Any, asked_by: str) -> Converted:
    parts = list(flat(transforms))
    if parts and not any(map(is_theirs, parts)):
        inside = is_compose(getattr(transforms, "transforms", None))
        raise PlanError(
            f"{asked_by} takes a Compose or list of transforms of torchvision or timm, got {transforms!r:.80}"
            + "; give it the Compose, its attribute transforms" * inside
        )
    return converted(transforms, "image")


def converted(transforms: Any, start: str) -> Converted:
    """Return the native form of a composition or list.

    start  the form of the image before: ``"image"``, then ``"tensor"`` or ``"levels"`` (floats from 0 to 255), or
           ``"float"``, ``"normalized"``, ``"erased"``
    """
    parts = list(flat(transforms))
    native: list[ImageTransform] = []
    report: list[str] = []
    state = start
    kept, refused = 0, {}  # the reason, by the number of the part that has no native form
    pending: list[ImageTransform] = []  # of the tensor; Python parts later need these as Python too
    for number, part in enumerate(parts):
        try:
            state, made = _value(part, state, parts[:number])
            if start != "image" and not all(isinstance(each, ValueTransform) for each in made):
                raise Unlike("an earlier map() made the image a tensor")
            for each in made:
                each.check()
        except (Unlike, PlanError) as error:
            refused[number] = f" ({error})"
            break
        (native if state == "image" else pending).extend(made)
        if state == "image":
            kept += 1
    else:
        kept = len(parts)
        native += _ending(start, state, pending)
    for number, part in enumerate(parts):
        name = type(part).__name__
        where = "native" if number < kept else f"Python{refused.get(number, '')}"
        report.append(f"{name}: {where}")
    rest = parts[kept:]
    python = (type(transforms)(rest),) if rest and is_compose(transforms) else tuple(rest)
    return Converted(tuple(native), python, tuple(report))


def is_theirs(part: object) -> bool:
    """Return True for an object of a class of torchvision or timm."""
    return package(part) in PACKAGES


def _ending(start: str, state: str, pending: list[ImageTransform]) -> list[ImageTransform]:
    """Return the transforms from that to a tensor on, of a composition that was converted completely."""
    values = [each for each in pending if isinstance(each, ValueTransform)]
    moved = [each for each in pending if each not in values]  # they are the same on tensors and before
    if state == "tensor" and start == "image":
        values = [ToLayout("NCHW")]
    elif state in FLOATS and start not in FLOATS and not any(isinstance(each, Normalize) for each in values):
        values = [ToDtype("float32", True), *values]
    return [*moved, *values]


def _value(part: Any, state: str, before: Sequence[Any]) -> tuple[str, list[ImageTransform]]:
    """Return the form of the image after a part, and its native transforms. Raises ``Unlike``.

    before  the parts before it
    """
    name = type(part).__name__
    if package(part) not in PACKAGES:
        raise Unlike("it isn't a class of torchvision or timm")
    if name in UNCHANGED:
        return state, []
    if state == "image":
        if name in ("PILToTensor", "ToImage", "MaybePILToTensor", "ToNumpy"):
            return "tensor", []
        if name == "ToTensor" and part.__module__.startswith("timm."):  # it doesn't divide by 255
            return _floats(part, "tensor", before, scale=False)
        if name in ("ToTensor", "MaybeToTensor", "ObjectDetection"):
            return "float", []
        if name in PRESETS and part.__module__.startswith("torchvision."):
            return "normalized", _preset(part)
        return "image", [pixels(part)]
    if name in ("ConvertImageDtype", "ToDtype"):
        return _floats(part, state, before)
    if name == "Normalize" and state in FLOATS:
        if state != "float":
            raise Unlike("only one Normalize, before RandomErasing, has a native form")
        return "normalized", [Normalize(three(part.mean), three(part.std))]
    if name == "RandomErasing" and state in FLOATS:
        if state == "erased":
            raise Unlike("only one RandomErasing has a native form")
        return "erased", [erasing(part)]
    if (state == "tensor" and is_same_on_tensors(part)) or (
        name in FLIPS and state in ("float", "normalized")
    ):
        return state, [pixels(part)]
    raise Unlike("tensors have other pixels than Pillow images here")


def _floats(
    part: Any, state: str, before: Sequence[Any], scale: bool = True
) -> tuple[str, list[ImageTransform]]:
    """Return what ``_value`` returns, for ``ConvertImageDtype`` and ``ToDtype``.

    scale  whether the part divides by 255, if it doesn't say so itself
    """
    dtype = part.dtype
    if isinstance(dtype, Mapping):
        kinds = {"ToImage": "Image", "ToPureTensor": "Tensor"}
        made = [kinds[type(each).__name__] for each in before if type(each).__name__ in kinds]
        known = made[-1] if made else "Tensor"
        by_name = {getattr(kind, "__name__", kind): value for kind, value in dtype.items()}
        dtype = by_name.get(known, by_name.get("others"))
        if dtype is None:
            return state, []
    if str(dtype) == "torch.float32":
        if state != "tensor":
            return state, []
        return ("float", []) if getattr(part, "scale", scale) else ("levels", [ToDtype("float32")])
    raise Unlike("only float32 has a native form with the same numbers")


def _preset(part: Any) -> list[ImageTransform]:
    """Return the native form of the preset of a model's weights."""
    made: list[ImageTransform] = []
    if part.resize_size is not None:
        made.append(Resize(part.resize_size[0], interpolation=filter_name(part)))
    if type(part).__name__ == "ImageClassification":
        made.append(CenterCrop(part.crop_size[0]))
    return [*made, Normalize(three(part.mean), three(part.std))]
