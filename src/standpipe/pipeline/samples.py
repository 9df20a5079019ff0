"""The description of how a pipeline's samples are made: transforms, decoding, a cache, checks. It only stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, Self, cast

from standpipe.cache.cached import Cached
from standpipe.cache.description import Cache
from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.hints import ON_CPUS
from standpipe.pipeline.records import Ordered
from standpipe.source import turns_photos
from standpipe.spec import (
    DECODED,
    ArraySpec,
    ChannelsName,
    DecodeLimits,
    DecodeMode,
    Decoding,
    Labels,
    Pictures,
    plain,
)
from standpipe.transform import Function
from standpipe.transform.python.function import InputFormat, Mixing, Tensors, check_tensors, is_python
from standpipe.units import is_count

FORMS_OF_PAIRS = {
    "pairs": (str, "two names of fields, such as ('left', 'right'), or several pairs"),
    "flip_pairs": (int, "pairs of numbers of keypoints, such as ((1, 2), (3, 4)), and each number once"),
}


@dataclass(frozen=True, slots=True)
class Transformed(Ordered):
    """The part of a ``Pipeline`` that says how samples are made. Every method returns a new value."""

    transforms: tuple[Transform, ...] = field(default=(), kw_only=True)
    decoding: Decoding = field(default=Decoding(), kw_only=True)
    finite: tuple[str, ...] | None = field(default=None, kw_only=True)
    labels: tuple[Labels, ...] = field(default=(), kw_only=True)
    cached: Cached | None = field(default=None, kw_only=True)
    unmoved: tuple[str, ...] = field(default=(), kw_only=True)
    delivered: frozenset[str] | None = field(default=None, kw_only=True, compare=False)
    conversions: tuple[str, ...] = field(default=(), kw_only=True, compare=False)

    def map(
        self,
        *transforms: Transform | Callable[..., Any],
        field: str | None = None,
        input_format: InputFormat | None = None,
        spec: ArraySpec | Mapping[str, ArraySpec] | None = None,
        native: Literal["auto"] | None = None,
        tensors: Tensors | None = None,
        unmoved: Sequence[str] = (),
    ) -> Self:
        """Append transforms, which are applied in the order in which they are written.

        standpipe's own transforms are native, and adjacent ones run as one. Other callables are Python code,
        which workers run (see ``executor`` of ``plan``): functions, torchvision and albumentations
        transforms. A function takes a sample, a dict of values by field, and returns the new sample. With
        ``field`` it takes that field's value and returns the new value. torchvision and albumentations
        transforms take the image, unless ``field`` names another field; albumentations transforms also take
        the sample's ``mask``, ``bboxes`` and ``keypoints``.

        Images between transforms are (H, W, C) uint8 arrays. A function with a parameter named ``rng`` gets a
        ``numpy.random.Generator``. The global generators of ``random``, NumPy and torch are seeded too. All
        these seeds depend only on seed, epoch and position, so results don't depend on the worker.

        Parameters
        ----------
        *transforms : Transform or callable
            Transforms of standpipe, or Python code.
        field : str, optional
            For Python code: the field that it takes and returns.
        input_format : {"numpy", "pil", "tensor"}, optional
            For Python code: the form of images that it takes. ``"tensor"`` is (3, H, W) uint8. Default:
            ``"numpy"``, and ``"pil"`` for torchvision transforms.
        spec : ArraySpec or mapping of str to ArraySpec, optional
            For Python code: shape and dtype of the value that it returns with ``field``, or of all fields by
            name. Default: measured on one sample when a loader starts.
        native : {"auto"}, optional
            ``"auto"``: convert objects of torchvision and timm to native transforms, as ``from_torchvision`` and
            ``from_timm`` do. Parts without an equal native form stay Python, and so do those after a Python
            function of the image. ``explain()`` says for each part where it runs, and why. Native transforms
            also move a field ``mask``. Python functions after native ``ToTensor`` or ``Normalize`` get arrays,
            or tensors with ``input_format="tensor"``. Default: all of them are Python code.
        tensors : {"as_pillow"}, optional
            With ``native="auto"``: also convert parts that work on tensors, as ``from_torchvision`` does.
        unmoved : sequence of str, default ()
            Names of fields that fit the image although native transforms of this pipeline, which move its pixels, leave
            them as they are. Without it, ``plan()`` or the first batch raises ``PlanError`` for a delivered field that
            is named as boxes, points or pictures are, such as ``bbox``, ``target["boxes"]`` or ``depth``, and has at
            least two numbers. The loader warns of a field with the image's height and width.

        Raises
        ------
        PlanError
            For an invalid argument. By ``plan()`` or the first batch, for a field that no longer fits the image,
            and for a name in ``unmoved`` that no field has. With ``native="auto"`` also for a part without native
            form after a native ``PILToTensor`` of an earlier ``map``.

        Examples
        --------
        >>> def brighten(image, rng):
        ...     return np.minimum(image + rng.integers(50), 255).astype(np.uint8)
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).map(brighten, field="image")
        >>> with pipeline.batch(8).loader(executor="thread", num_workers=1) as loader:
        ...     print(loader.peek()["image"].shape)
        (8, 32, 32, 3)
        """
        if mixing := [each for each in transforms if isinstance(each, Mixing)]:
            raise PlanError(
                f"map({mixing[0]!r}): it mixes the images of a batch. Write .batch(…).map_batch(…)"
            )
        if native not in (None, "auto"):
            raise PlanError(f"map: native must be 'auto' or None, got {native!r}")
        check_tensors("map", tensors)
        if tensors is not None and native is None:
            raise PlanError(f"map(tensors={tensors!r}) is for native='auto': add it, or leave tensors= out")
        if any(option is not None for option in (field, input_format, spec, native)) and not any(
            map(is_python, transforms)
        ):
            raise PlanError(
                "map(): field=, input_format=, spec= and native= apply to Python callables only. Leave them out "
                "for standpipe's own transforms"
            )
        if not isinstance(unmoved, list | tuple) or not all(isinstance(name, str) for name in unmoved):
            raise PlanError(f"map(unmoved={unmoved!r}): give names of fields in a tuple, such as ('depth',)")
        pipeline = replace(self, unmoved=tuple(dict.fromkeys((*self.unmoved, *unmoved))))
        if native == "auto":
            from standpipe.transform.converted.automatic import automatic  # it imports all transforms

            made, report = automatic(
                transforms,
                self.transforms,
                field=field,
                input_format=input_format,
                spec=spec,
                tensors=tensors,
            )
            return replace(
                pipeline, transforms=(*self.transforms, *made), conversions=(*self.conversions, *report)
            )
        appended = [
            Function.of(each, field=field, input_format=input_format, spec=spec)
            if is_python(each)
            else cast(Transform, each)
            for each in transforms
        ]
        return replace(pipeline, transforms=(*self.transforms, *appended))

    def cache(self, cache: Cache | Literal["auto"], *, place: Literal["here", "auto"] = "here") -> Self:
        """Keep the intermediate result at this place for later epochs and for other jobs on this machine.

        Directly after the source, the cache keeps the bytes of files. After deterministic transforms, it
        keeps their result: images as (H, W, C) uint8, which take a quarter of their float32 size.
        ``Normalize``, ``ToDtype`` and ``ToLayout`` are applied when rows are read from the cache, wherever
        they are written. Batches are the same as without a cache, bit for bit.

        Parameters
        ----------
        cache : Cache or "auto"
            The settings: where rows are kept, how many bytes, and when rows are compared with their files.
            ``"auto"`` is ``Cache("auto")`` at the place that the plan chooses.
        place : {"here", "auto"}, default "here"
            ``"auto"``: after the last native transform before the first random one, if images have a fixed
            size there and all of them fit; otherwise right after the source.

        Raises
        ------
        PlanError
            By ``plan()``, if the place is after a random transform: all epochs would get the same random
            numbers.

        Examples
        --------
        >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).cache(cache)
        >>> with pipeline.map(sp.RandomHorizontalFlip()).batch(8).loader(num_workers=1) as loader:
        ...     rows = [sum(len(batch["label"]) for batch in loader) for _ in range(2)]
        >>> rows
        [24, 24]
        """
        if cache == "auto":
            cache, place = Cache("auto"), "auto"
        if place not in ("here", "auto"):
            raise PlanError(f"cache: place must be 'here' or 'auto', got {place!r}")
        if not isinstance(cache, Cache):
            raise PlanError(
                f"cache() takes a Cache, such as sp.Cache('imagenet', memory='8GiB'), got {cache!r}"
            )
        if self.cached is not None:
            raise PlanError(
                "a pipeline can have only one .cache(). Keep the last one: it saves the work of all steps before it"
            )
        return replace(self, cached=Cached(cache, len(self.transforms), chosen=place == "here"))

    def decode(
        self,
        mode: Literal["exact", "fast"] = "exact",
        *,
        limits: DecodeLimits | None = None,
        allow_truncated: bool = False,
        orientation: Literal["ignore", "apply"] | None = None,
        channels: ChannelsName = "RGB",
        images: Sequence[str] | None = None,
        masks: Sequence[str] | None = None,
        depths: Sequence[str] | None = None,
        pairs: Sequence[Any] | None = None,
        scale: Mapping[str, float] | None = None,
        flip_pairs: Sequence[tuple[int, int]] | None = None,
    ) -> Self:
        """Choose how images are decoded, and say which fields are pictures where their names don't.

        All pictures of a record are moved together. Encoded fields are images, and those named ``mask`` or
        ``…_mask`` are masks: class numbers that are moved and never changed. Those named ``depth`` or ``…_depth``
        are depths: uint16, moved by the nearest pixel, and 0 outside. Of arrays, only the fields ``image`` and
        ``mask`` are pictures without being named here.

        Parameters
        ----------
        mode : {"exact", "fast"}, default "exact"
            ``"exact"``: Pillow's pixels, bit for bit. ``"fast"``: large JPEGs at 1/2, 1/4 or 1/8 of their
            size, if the crop still has enough pixels; its error is documented. All other images are decoded
            exactly.
        limits : DecodeLimits, optional
            Limits that are checked from a file's header.
        allow_truncated : bool, default False
            Decode a file that ends too soon, after its header, as far as it goes. Missing pixels are grey in
            a JPEG and black in other formats, as with Pillow's ``LOAD_TRUNCATED_IMAGES``. ``loader.stats()``
            counts such rows. Other damage that Pillow refuses is still an error.
        orientation : {"ignore", "apply"}, optional
            ``"apply"``: before all transforms, turn images and masks as their EXIF orientation says, with the
            pixels of Pillow's ``ImageOps.exif_transpose``, as Hugging Face's ``Image()`` does. Pillow decodes the
            JPEGs that are turned. Default: ``"apply"`` for the source ``HuggingFace``, ``"ignore"`` for others.
        channels : {"RGB", "L", "luma", "RGBA", "as_stored"}, default "RGB"
            The channels of decoded images. ``"RGB"``, ``"L"`` and ``"RGBA"``: those of Pillow's ``convert``, bit for
            bit. ``"luma"``: one channel, the luma of a JPEG itself, as Pillow's ``draft("L", size)`` and OpenCV decode
            it: the fastest, and up to 10 levels away from ``"L"``, which other files get. ``"as_stored"``: the channels
            of the first record (L, LA, RGB or RGBA); a record with others is a bad sample.
        images, masks, depths : sequence of str, optional
            Names of further fields that are images, masks, and depths.
        pairs : (str, str) or sequence of these, optional
            Fields that swap where ``RandomHorizontalFlip`` mirrors a row, such as ``("left", "right")``: the mirrored
            pixels of each are the other's. ``()``: none do. Others are mirrored where they are. Fields named ``left``
            and ``right`` need it beside a horizontal flip.
        scale : mapping of str to float, optional
            Length of the sides of fields of another size, as a multiple of those of the reference, the field
            ``image`` or else the first image: ``{"lr": 1 / 4}``. It is an integer, or 1 ÷ an integer. Crops are at
            multiples of its denominator then, and a transform that isn't exact in both is a ``PlanError``.
        flip_pairs : sequence of (int, int), optional
            Numbers of left and right keypoints, from 0, which swap where a row is mirrored. ``()``: points have no
            sides. Default: as the source has them, COCO's by the names ``left_…`` and ``right_…`` and the YOLO family's
            by ``flip_idx``.

        Raises
        ------
        PlanError
            For an invalid argument. By ``plan()``, for a field that doesn't exist, and for one that isn't of its kind.

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).decode("fast", allow_truncated=True)
        >>> with pipeline.map(sp.RandomResizedCrop(32)).batch(8).loader() as loader:
        ...     print(loader.peek()["image"].shape)
        (8, 32, 32, 3)
        """
        if mode not in (each.value for each in DecodeMode):
            hint = f". {ON_CPUS}: write decode('exact')" if mode in ("gpu", "hybrid", "mixed") else ""
            raise PlanError(f"decode: mode must be 'exact' or 'fast', got {mode!r}{hint}")
        if not isinstance(allow_truncated, bool):
            raise PlanError(f"decode: allow_truncated must be True or False, got {allow_truncated!r}")
        if orientation not in (None, "ignore", "apply"):
            raise PlanError(f"decode: orientation must be 'ignore' or 'apply', got {orientation!r}")
        if channels not in DECODED:
            known = ", ".join(map(repr, DECODED))
            raise PlanError(f"decode: channels must be one of {known}, got {channels!r}")
        kept = self.limits if limits is None else limits
        named = _named(images=images, masks=masks, depths=depths)
        pictures = Pictures(named, _pairs("pairs", pairs), _scales(scale), _pairs("flip_pairs", flip_pairs))
        upright = turns_photos(self.source) if orientation is None else orientation == "apply"
        decoding = Decoding(DecodeMode(mode), kept, allow_truncated, upright, channels, pictures)
        return replace(self, decoding=decoding)

    @property
    def limits(self) -> DecodeLimits:
        """The limits of ``decode``.

        Examples
        --------
        >>> sp.Pipeline(sp.ImageFolder("photos")).decode("fast").limits.max_scans
        100
        """
        return self.decoding.limits

    def check_finite(self, *fields: str) -> Self:
        """Treat samples with NaN or infinity as bad. By default they pass.

        The check comes after all transforms of a sample and before functions of whole batches. It covers
        floats and complex numbers, arrays and tensors of them, and lists, tuples and dicts of these. Images
        that native code makes from bytes are always finite.

        Parameters
        ----------
        *fields : str
            Names of the fields to check. Default: all fields of a sample.

        Examples
        --------
        >>> source = sp.MapSource([{"x": 1.0}, {"x": float("nan")}])
        >>> with sp.Pipeline(source).check_finite().batch(2).loader(executor="thread") as loader:
        ...     loader.peek()
        Traceback (most recent call last):
            ...
        standpipe.errors.TransformError: ...
        """
        if wrong := [name for name in fields if not isinstance(name, str)]:
            raise PlanError(f"check_finite takes names of fields, got {wrong[0]!r}")
        return replace(self, finite=fields)

    def check_labels(self, num_classes: int, *, field: str = "label", ignore: int | None = None) -> Self:
        """Refuse labels outside 0 to ``num_classes`` − 1.

        If the labels are a column of the source, ``plan()`` checks all selected records and raises
        ``PlanError`` with the first invalid one. Labels that Python code makes or changes are checked per
        sample: a sample with an invalid label is bad.

        Parameters
        ----------
        num_classes : int
            Number of classes, such as the number of a model's outputs.
        field : str, default "label"
            The field of the labels, one or many per sample, such as a mask.
        ignore : int, optional
            A further valid number, such as a loss function's ``ignore_index``.

        Examples
        --------
        >>> sp.Pipeline(sp.Arrays(label=np.array([0, 1, 5]))).check_labels(3).batch(1).plan()
        Traceback (most recent call last):
            ...
        standpipe.errors.PlanError: ...
        """
        labels = Labels(field, num_classes, ignore)
        if not is_count(labels.classes, 1, 1 << 62):
            raise PlanError(f"check_labels: num_classes must be an integer from 1 on, got {num_classes!r}")
        if labels.ignore is not None and type(labels.ignore) is not int:
            raise PlanError(f"check_labels: ignore must be an integer or None, got {ignore!r}")
        return replace(self, labels=(*(each for each in self.labels if each.field != field), labels))


def _named(**kinds: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Return (field, kind) of each field that ``decode`` names. Raises ``PlanError`` for anything but names."""
    found: dict[str, str] = {}
    for kind, names in kinds.items():
        for name in () if names is None else names if isinstance(names, tuple | list) else (None,):
            if not isinstance(name, str) or found.setdefault(name, kind) != kind:
                raise PlanError(
                    f"decode({kind}={names!r}): give names of fields in a tuple, such as ('left', 'right'), each to "
                    "one parameter"
                )
    return tuple(found.items())


def _pairs(parameter: str, pairs: Any) -> Any:
    """Return a parameter of ``decode`` that is pairs. Raises ``PlanError`` unless all that is in them differs."""
    if pairs is None:
        return None
    kind, form = FORMS_OF_PAIRS[parameter]
    found = plain(pairs)
    if isinstance(found, tuple) and any(isinstance(each, str) for each in found):  # one pair of names
        found = (found,)
    are_pairs = isinstance(found, tuple) and all(isinstance(each, tuple) and len(each) == 2 for each in found)
    parts = [each for pair in found for each in pair] if are_pairs else [None]
    if not all(type(each) is kind for each in parts) or len({*parts}) < len(parts):
        raise PlanError(f"decode({parameter}={pairs!r}): give {form}")
    return found


def _scales(scale: Any) -> tuple[tuple[str, Fraction], ...]:
    """Return the scales of ``decode``. Raises ``PlanError`` for other numbers than n and 1 ÷ n."""
    found: dict[str, Fraction] = {}
    for name, number in scale.items() if isinstance(scale, Mapping) else [] if scale is None else [(None, 0)]:
        is_number = isinstance(number, int | float | Fraction) and 1 / 65 < number < 65
        exact = Fraction(number).limit_denominator(64) if is_number else Fraction(2, 3)
        is_one = 1 in (exact.numerator, exact.denominator) and abs(exact - number) < 1e-3
        if not isinstance(name, str) or not is_one:
            raise PlanError(
                f"decode(scale={scale!r}): give the sides of fields as a multiple of the reference's, an integer or "
                "1 ÷ an integer, up to 64, such as {'lr': 1 / 4}"
            )
        found[name] = exact
    return tuple(found.items())
