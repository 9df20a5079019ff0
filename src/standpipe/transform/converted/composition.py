"""Convert compositions of torchvision and timm into native transforms, as far as those give the same pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from standpipe.errors import PlanError
from standpipe.transform.converted.convert import (
    GROUPS,
    OF_INSTANCES,
    PACKAGES,
    check_theirs,
    erasing,
    flat,
    instances,
    is_compose,
    is_same_on_tensors,
    package,
    pixels,
    selected,
)
from standpipe.transform.converted.recognised import RGB, keeps_rgb
from standpipe.transform.converted.values import Unlike, by_channel, filter_of
from standpipe.transform.image import ImageTransform, ValueTransform
from standpipe.transform.pixels.element import Normalize, ToDtype, ToLayout
from standpipe.transform.pixels.geometry import CenterCrop, Resize
from standpipe.transform.pixels.instances import InstanceTransform
from standpipe.transform.python.function import Tensors, check_tensors

FLOATS = ("float", "normalized", "erased")  # forms of an image of floats; each may become the ones after it
UNCHANGED = ("Identity", "ToPureTensor")  # parts that change no value
FLIPS = ("RandomHorizontalFlip", "RandomVerticalFlip")
PRESETS = ("ImageClassification", "SemanticSegmentation")
RESIZES = ("Resize", "RandomResize", "RandomResizedCrop", "ScaleJitter", "RandomShortestSize")
APART = "tensors have other pixels than Pillow images here"
# benchmarks/tensor_pixels.py prints the levels.
RESIZED_APART = f"{APART}: on photos, 2 levels of 255 apart at most with bilinear and 23 with bicubic"
NEAREST_APART = f"{APART}: torch's nearest pixel is up to half a pixel from Pillow's"
FLOATS_APART = "floats have other results than bytes here: put it before the part that makes floats"
UNCHANGING = " (it changes nothing: bytes stay bytes)"
AS_PILLOW = '. tensors="as_pillow" takes Pillow\'s'


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


class Outcome(NamedTuple):
    """The result of converting one part of a composition.

    state   the form of the image after it
    native  its native transforms
    note    what its line of the report says about that
    """

    state: str
    native: list[ImageTransform]
    note: str = ""


def from_torchvision(transforms: Any, *, tensors: Tensors | None = None) -> Converted:
    """Convert a composition of torchvision into native transforms, as far as they give the same pixels.

    Parts are converted up to the first one without an equal native form. It and all later parts stay Python, as
    one callable. ``print`` shows a report with a line for each part.

    Random numbers are standpipe's own, with torchvision's distributions. Pixels are those of Pillow images, with the
    differences that each native transform documents. Numbers after ``Normalize`` are at most 1e-6 away. After
    ``PILToTensor`` or ``ToImage``, parts that give other pixels for tensors stay Python: resizes, warps and changes
    of colour. ``tensors="as_pillow"`` converts them too. A field ``mask`` takes Pillow's nearest pixels, which are up
    to half a pixel away from those that v2 takes for a ``Mask``.

    A conversion to RGB, which changes no RGB image, is a ``PlanError`` by ``plan()`` for images with other channels,
    such as those of ``decode(channels="L")``.

    A class of your own stays Python. The composition can have a native transform in its place, such as
    ``PillowGaussianBlur``.

    Parameters
    ----------
    transforms : Compose of torchvision.transforms or its v2, or list
        The composition, for Pillow images; or the preset of a model, ``weights.transforms()``.
    tensors : {"as_pillow"}, optional
        ``"as_pillow"``: also convert parts that work on tensors, with the pixels that they have for Pillow images. On
        photos, antialiased resizes are at most 2 levels of 255 apart with bilinear, and 23 with bicubic. Default:
        such parts stay Python.

    Returns
    -------
    iterable of transforms
        For ``Pipeline.map``. Its attribute ``native`` has the native ones, and ``python`` the others.

    Raises
    ------
    PlanError
        If it isn't a composition or list. For a native transform in it, after a part that stays Python.

    Examples
    --------
    >>> converted = sp.from_torchvision([])  # a torchvision.transforms.Compose
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(*converted)
    >>> converted.native
    ()
    """
    return _convert(transforms, "from_torchvision", tensors)


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


def _convert(transforms: Any, asked_by: str, tensors: Tensors | None = None) -> Converted:
    check_tensors(asked_by, tensors)
    parts = list(flat(transforms))
    if wrong := next((each for each in parts if isinstance(each, type)), None):
        raise PlanError(f"{asked_by}: {wrong.__name__} is a class, write {wrong.__name__}(…)")
    if parts and not any(map(is_theirs, parts)):
        inside = is_compose(getattr(transforms, "transforms", None))
        own = type(transforms).__name__ == "Compose"
        raise PlanError(
            f"{asked_by} takes a Compose or list of transforms of torchvision or timm, got {transforms!r:.80}"
            + "; call it first, as weights.transforms()" * isinstance(transforms, partial)
            + "; give it the Compose, its attribute transforms" * inside
            + "; write the parts of your own Compose with torchvision's classes, or with standpipe's in map()"
            * own
        )
    return converted(transforms, "image", tensors)


def converted(transforms: Any, start: str, tensors: Tensors | None) -> Converted:
    """Return the native form of a composition or list.

    start    the form of the image before: ``"image"``, then ``"tensor"`` or ``"levels"`` (floats from 0 to 255), or
             ``"float"``, ``"normalized"``, ``"erased"``
    tensors  ``"as_pillow"``: parts that work on tensors become native too
    """
    parts = list(flat(transforms))
    native: list[ImageTransform] = []
    notes: dict[int, str] = {}  # by the number of the part
    state, kept, refusal = start, 0, ""
    pending: list[ImageTransform] = []  # of the tensor; Python parts later need these as Python too
    for number, part in enumerate(parts):
        try:
            state, made, notes[number] = _value(part, state, parts, number, tensors)
            late = ValueTransform | InstanceTransform
            if start != "image" and not all(isinstance(each, late) for each in made):
                raise Unlike("an earlier map() made the image a tensor")
            for each in made:
                each.check()
        except (Unlike, PlanError) as error:
            refusal = f" ({error})"
            break
        (native if state == "image" else pending).extend(made)
        if state == "image":
            kept += 1
    else:
        kept = len(parts)
        native += _ending(start, state, pending)
    report = [
        f"{type(part).__name__}: "
        + (f"native{notes[at]}" if at < kept else f"Python{refusal if at == number else ''}")
        for at, part in enumerate(parts)
    ]
    rest = parts[kept:]
    if ours := next(filter(_is_ours, rest), None):
        raise PlanError(
            f"{report[number]}. So {type(ours).__name__} after it would be Python too, but is native: write a native "
            "form for the former as well, or give them to map() one after another"
        )
    python = (type(transforms)(rest),) if rest and is_compose(transforms) else tuple(rest)
    return Converted(tuple(native), python, tuple(report))


def _is_ours(part: Any) -> bool:
    """Return True for a transform of standpipe, and for a group of torchvision that has one in it."""
    inside = part.transforms if type(part).__name__ in GROUPS and is_theirs(part) else ()
    return isinstance(part, ImageTransform) or any(map(_is_ours, inside))


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


def _value(part: Any, state: str, parts: Sequence[Any], number: int, tensors: Tensors | None) -> Outcome:
    """Return what part ``number`` of the composition becomes. Raises ``Unlike``.

    state  the form of the image before it
    """
    name = type(part).__name__
    if isinstance(part, ImageTransform):
        if state not in ("image", "tensor") or isinstance(part, ValueTransform):
            raise Unlike(
                "in a composition, standpipe's transforms of values have no place: write them into map()"
            )
        return Outcome(state, [part])
    if state == "image" and keeps_rgb(part):
        return Outcome(state, [RGB()], " (images are RGB)")
    check_theirs(part)
    if name == "RGB":
        return Outcome(state, [RGB()])
    if name in UNCHANGED:
        return Outcome(state, [])
    if name in OF_INSTANCES:
        return Outcome(state, instances(part))
    if name in ("ConvertImageDtype", "ToDtype") and (state != "image" or tensors):
        return _floats(part, "tensor" if state == "image" else state, parts[:number])
    if state == "image":
        return _of_image(part, parts, number)
    if name == "Normalize" and state in FLOATS:
        if state != "float":
            raise Unlike("only one Normalize, before RandomErasing, has a native form")
        return Outcome("normalized", [Normalize(by_channel(part.mean), by_channel(part.std))])
    if name == "RandomErasing" and state in FLOATS:
        if state == "erased":
            raise Unlike("only one RandomErasing has a native form")
        return Outcome("erased", [erasing(part)])
    if (state == "tensor" and is_same_on_tensors(part)) or (
        name in FLIPS and state in ("float", "normalized")
    ):
        return Outcome(state, [pixels(part)])
    made = pixels(part)
    # Floats of another filter go beyond 0 to 1, and fill= and thresholds of floats are from 0 to 1.
    if state != "tensor" and not (
        state == "float" and name in RESIZES and filter_of(part.interpolation) == "bilinear"
    ):
        raise Unlike(FLOATS_APART)
    if not getattr(part, "antialias", True):
        raise Unlike("antialias=False has no native form")
    if tensors is None:
        raise Unlike(_apart(part) + AS_PILLOW)
    return Outcome(state, [made], f" (with Pillow's pixels{_of_mask(name, parts)})")


def _apart(part: Any) -> str:
    """Return how far a part's results for tensors are from those for Pillow images."""
    if type(part).__name__ not in RESIZES:
        return APART
    return NEAREST_APART if filter_of(part.interpolation) == "nearest" else RESIZED_APART


def _of_image(part: Any, parts: Sequence[Any], number: int) -> Outcome:
    """Return what a part becomes that takes a Pillow image. Raises ``Unlike``."""
    name = type(part).__name__
    if name in ("PILToTensor", "ToImage", "MaybePILToTensor", "ToNumpy"):
        return Outcome("tensor", [])
    if name == "ToTensor" and part.__module__.startswith("timm."):  # it doesn't divide by 255
        return _floats(part, "tensor", parts[:number], scale=False)
    if name in ("ToTensor", "MaybeToTensor", "ObjectDetection"):
        return Outcome("float", [])
    if name in PRESETS and part.__module__.startswith("torchvision."):
        return Outcome("normalized", _preset(part))
    if name in ("ConvertImageDtype", "ToDtype"):
        if str(part.dtype) == "torch.uint8":
            return Outcome("image", [], UNCHANGING)
        raise Unlike(f"it changes no Pillow image: put ToImage() before it{AS_PILLOW}")
    mask = _of_mask(name, parts).removeprefix("; ")
    return Outcome("image", selected(part) or [pixels(part)], f" ({mask})" * bool(mask))


def _of_mask(name: str, parts: Sequence[Any]) -> str:
    """Return what a resize's line of the report says of masks, if a part of the composition names their class."""
    given = (value for part in parts for value in getattr(part, "__dict__", {}).values())
    kinds = (kind for value in given if isinstance(value, Mapping) for kind in value)
    masks = any(getattr(kind, "__name__", "") == "Mask" for kind in kinds)
    return "; a mask's pixels are up to half a pixel from v2's" * (masks and name in RESIZES)


def _floats(part: Any, state: str, before: Sequence[Any], scale: bool = True) -> Outcome:
    """Return what ``ConvertImageDtype`` and ``ToDtype`` become. Raises ``Unlike``.

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
            return Outcome(state, [])
    if str(dtype) == "torch.uint8" and state == "tensor":
        return Outcome(state, [], UNCHANGING)
    if str(dtype) == "torch.float32":
        if state != "tensor":
            return Outcome(state, [])
        return (
            Outcome("float", []) if getattr(part, "scale", scale) else Outcome("levels", [ToDtype("float32")])
        )
    raise Unlike("only float32 has a native form with the same numbers")


def _preset(part: Any) -> list[ImageTransform]:
    """Return the native form of the preset of a model's weights."""
    made: list[ImageTransform] = []
    if part.resize_size is not None:
        made.append(Resize(part.resize_size[0], interpolation=filter_of(part.interpolation)))
    if type(part).__name__ == "ImageClassification":
        made.append(CenterCrop(part.crop_size[0]))
    return [*made, Normalize(by_channel(part.mean), by_channel(part.std))]
