"""A pipeline's settings as plain data, which JSON can store: no code, no paths, with a version number."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Never, TypeVar, cast

from standpipe.batch.collate import Pad, Ragged
from standpipe.errors import PlanError
from standpipe.hints import ON_CPUS
from standpipe.order import Balance, Budget, Weights
from standpipe.spec import DecodeLimits, Labels, Pictures, Raise, Replace
from standpipe.transform import FIELD_KINDS, BatchFunction, Function, PerStep, Schedule, segments_of
from standpipe.transform.image import ImageTransform
from standpipe.transform.kernels.views import Repeat, Views
from standpipe.transform.pixels.compositions import Recent
from standpipe.transform.python.function import callable_name
from standpipe.transform.python.mixing import CutMix, MixUp

if TYPE_CHECKING:
    from standpipe.pipeline.description import Description

Described = TypeVar("Described", bound="Description")

VERSION = 1
SETTINGS = (
    Pad,
    Ragged,
    Balance,
    Weights,
    Budget,
    DecodeLimits,
    Labels,
    Raise,
    Replace,
    MixUp,
    CutMix,
    PerStep,
    Recent,
    Repeat,
    Schedule,
    Views,
)
MAPPING = (
    "dict"  # the name of a mapping, stored as a list of pairs: keys of JSON are strings, and may be sorted
)
INFINITIES = {"inf": math.inf, "-inf": -math.inf}  # JSON has no infinite numbers
KEYS = (
    *("version", "seed", "shuffle", "sample", "repeat_each", "transforms", "unmoved", "decode"),
    *("check_finite", "check_labels", "batch", "map_batch", "on_error"),
)


GROUPING = ("group_by", "group_factor")
MASKING = ("masks", "mask_ratio", "boxes_from")
OF_PICTURES = (
    *(each.plural for each in FIELD_KINDS),
    "pairs",
    "scale",
    "flip_pairs",
)  # parameters of ``decode``


class NoSource:
    """The source of a pipeline that was made from a recipe alone. It can't be opened."""

    def open(self) -> Never:
        """Raise ``PlanError``, which says how to give a source."""
        raise PlanError(
            "this pipeline was made from a recipe and has no source. Write Pipeline.from_dict(recipe, source=…)"
        )

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return "no source"


def as_dict(pipeline: Description) -> dict[str, Any]:
    """Return the settings of a pipeline as plain data.

    Raises ``PlanError`` for Python functions, and for values that JSON can't store.
    """
    decoding = pipeline.decoding
    batched = pipeline.batch_rows is not None or pipeline.budget is not None
    return {
        "version": VERSION,
        "seed": pipeline.seed,
        "shuffle": {"block": pipeline.block, "window": pipeline.window}
        if pipeline.shuffled and pipeline.sampling is None
        else None,
        "sample": _encoded(pipeline.sampling, "sample"),
        "repeat_each": pipeline.repeats,
        "transforms": [_encoded(each, "map") for each in pipeline.transforms],
        "unmoved": list(pipeline.unmoved),
        "decode": {
            "mode": decoding.mode.value,
            "limits": _encoded(decoding.limits, "decode"),
            "allow_truncated": decoding.allow_truncated,
            "orientation": "apply" if decoding.upright else "ignore",
            "channels": decoding.channels,
            **_pictures(decoding.pictures),
        },
        "check_finite": _encoded(pipeline.finite, "check_finite"),
        "check_labels": [_encoded(each, "check_labels") for each in pipeline.labels],
        "batch": {
            "batch_size": pipeline.batch_rows,
            "budget": _encoded(pipeline.budget, "batch"),
            **(
                {}
                if (groups := pipeline.groups) is None
                else {"group_by": groups.by, "group_factor": groups.factor}
            ),
            "batch_sampler": pipeline.batch_sampler,
            "collate": {
                name: "list" if how is list else _encoded(how, "collate")
                for name, how in pipeline.collate.items()
            },
            "instances": _encoded(pipeline.instances, "batch"),
            **({} if pipeline.masks is None else pipeline.masks.given),
            "last_batch": None if pipeline.last_batch is None else pipeline.last_batch.value,
        }
        if batched
        else None,
        "map_batch": [_encoded(each, "map_batch") for each in pipeline.batch_functions],
        "on_error": _encoded(pipeline.bad, "on_error"),
    }


def _pictures(pictures: Pictures) -> dict[str, Any]:
    """Return the parameters of ``decode`` that say which fields are pictures."""
    found: dict[str, Any] = {}
    for name, kind in pictures.named:
        found.setdefault(kind, []).append(name)
    if pictures.pairs is not None:
        found["pairs"] = [list(pair) for pair in pictures.pairs]
    if pictures.scale:
        found["scale"] = {name: float(scale) for name, scale in pictures.scale}
    if pictures.flip_pairs is not None:
        found["flip_pairs"] = [list(pair) for pair in pictures.flip_pairs]
    return found


def described_by(empty: Described, recipe: object) -> Described:
    """Return ``empty`` with the settings of a recipe. Raises ``PlanError`` for an invalid recipe.

    empty  a pipeline that has only a source
    """
    import standpipe.transform.converted.composition  # noqa: F401 (it imports all transforms)

    if not isinstance(recipe, Mapping):
        raise PlanError(f"from_dict takes the dict that to_dict() returned, got {type(recipe).__name__}")
    version = recipe.get("version")
    if type(version) is not int or version != VERSION:
        raise PlanError(
            f"the recipe has version {version!r}, and this standpipe reads version {VERSION}: install the standpipe "
            "that wrote the recipe, or write it again with to_dict()"
        )
    _known("the recipe", recipe, KEYS)
    pipeline = _ordered(empty, recipe)
    transforms = [_decoded(each, "transforms") for each in _listed(recipe, "transforms")]
    for each in transforms:
        if not isinstance(each, ImageTransform):
            raise PlanError(f"the recipe's transforms have {each!r}, which isn't a native transform")
        for _, (then,) in segments_of([each]):
            cast(ImageTransform, then).check()
    pipeline = pipeline.map(*transforms, unmoved=_listed(recipe, "unmoved"))
    pipeline = _decoding(pipeline, recipe.get("decode") or {})
    if recipe.get("check_finite") is not None:
        pipeline = pipeline.check_finite(*_listed(recipe, "check_finite"))
    for labels in (_decoded(each, "check_labels") for each in _listed(recipe, "check_labels")):
        _is(labels, (Labels,), "check_labels")
        pipeline = pipeline.check_labels(labels.classes, field=labels.field, ignore=labels.ignore)
    pipeline = _batched(pipeline, recipe.get("batch"))
    mixings = [_decoded(each, "map_batch") for each in _listed(recipe, "map_batch")]
    for mixing in mixings:
        _is(mixing, (MixUp, CutMix), "map_batch")
        mixing.check()
    pipeline = pipeline.map_batch(*mixings) if mixings else pipeline
    if (policy := recipe.get("on_error")) is not None:
        pipeline = pipeline.on_error(_decoded(policy, "on_error"))
    return pipeline


def _ordered(pipeline: Described, recipe: Mapping[str, Any]) -> Described:
    seed = recipe.get("seed", 0)
    if type(seed) is not int:
        raise PlanError(f"the recipe's seed must be an integer, got {seed!r}")
    pipeline = replace(pipeline, seed=seed)
    shuffle, sampling = recipe.get("shuffle"), _decoded(recipe.get("sample"), "sample")
    if isinstance(sampling, Balance):
        pipeline = pipeline.sample(seed=seed, balance=sampling.column, num_samples=sampling.samples)
    elif isinstance(sampling, Weights):
        pipeline = pipeline.sample(seed=seed, weights=sampling.weights, num_samples=sampling.samples)
    elif sampling is not None:
        raise PlanError(f"the recipe's sample must be Balance or Weights, got {sampling!r}")
    elif shuffle is not None:
        _known("the recipe's shuffle", shuffle, ("block", "window"))
        pipeline = pipeline.shuffle(seed=seed, **shuffle)
    repeats = recipe.get("repeat_each", 1)
    return pipeline if repeats == 1 else pipeline.repeat_each(repeats)


def _decoding(pipeline: Described, settings: Mapping[str, Any]) -> Described:
    _known(
        "the recipe's decode",
        settings,
        ("mode", "limits", "allow_truncated", "orientation", "channels", *OF_PICTURES, "gpu"),
    )
    if settings.get("gpu") is not None:  # it is None in recipes that older versions wrote
        raise PlanError(
            f"the recipe's decode has 'gpu'. {ON_CPUS}: remove it, and the pixels are those of decode('exact')"
        )
    limits = _decoded(settings.get("limits"), "decode")
    if limits is not None:
        _is(limits, (DecodeLimits,), "decode")
    return pipeline.decode(
        settings.get("mode", "exact"),
        limits=limits,
        allow_truncated=settings.get("allow_truncated", False),
        orientation=settings.get("orientation", "ignore"),
        channels=settings.get("channels", "RGB"),
        **{name: settings.get(name) for name in OF_PICTURES},
    )


def _batched(pipeline: Described, settings: Mapping[str, Any] | None) -> Described:
    if settings is None:
        return pipeline
    names = (
        "batch_size",
        "budget",
        *GROUPING,
        *MASKING,
        "batch_sampler",
        "collate",
        "instances",
        "last_batch",
    )
    _known("the recipe's batch", settings, names)
    budget = _decoded(settings.get("budget"), "batch")
    within: dict[str, Any] = {}
    if budget is not None:
        _is(budget, (Budget,), "batch")
        within = {each.name: getattr(budget, each.name) for each in fields(budget)}
        within["budget"] = within.pop("most")
    given = settings.get("collate") or {}
    if not isinstance(given, Mapping):
        raise PlanError(f"the recipe's collate must be a dict, got {given!r:.80}")
    collate = {name: list if how == "list" else _decoded(how, "collate") for name, how in given.items()}
    return pipeline.batch(
        settings.get("batch_size"),
        batch_sampler=settings.get("batch_sampler", False),
        **{name: settings[name] for name in (*GROUPING, *MASKING) if name in settings},
        collate=collate or None,
        instances=_decoded(settings.get("instances"), "batch"),
        last_batch=settings.get("last_batch"),
        **within,
    )


def _encoded(value: Any, place: str) -> Any:
    """Return a value as plain data: a dataclass as its name and its parameters, a tuple as a list."""
    if isinstance(value, Enum):
        return _encoded(value.value, place)
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, tuple | list):
        return [_encoded(each, place) for each in value]
    if isinstance(value, Mapping):
        return {
            "name": MAPPING,
            "items": [[_encoded(part, place) for part in item] for item in value.items()],
        }
    if isinstance(value, BatchFunction) and value.mixing is not None:
        return _encoded(value.mixing, place)
    if isinstance(value, Function | BatchFunction):
        raise PlanError(
            f"{place}({callable_name(value.fn)}): a recipe is plain data without code, so it can't contain Python "
            "functions. Leave the function out, and add it again after Pipeline.from_dict(…)"
        )
    if _registered().get(type(value).__name__) is type(value):
        parameters = {name: _encoded(getattr(value, name), place) for name in _parameters(type(value))}
        return {"name": type(value).__name__, **parameters}
    raise PlanError(
        f"{place}: a recipe is plain data, and can't contain {value!r:.80} of {type(value).__name__}"
    )


def _decoded(value: Any, place: str, annotation: str = "") -> Any:
    """Return the value that ``_encoded`` made plain. ``annotation``: that of the parameter, whose value it is."""
    if isinstance(value, list | tuple):
        return [_decoded(each, place, annotation) for each in value]
    if isinstance(value, str) and value in INFINITIES and "float" in annotation:
        return INFINITIES[value]
    if not isinstance(value, Mapping):
        return value
    if value.get("name") == MAPPING:
        return _mapping(value, place, annotation)
    kinds = _registered()
    kind = kinds.get(str(value.get("name")))
    if kind is None:
        raise PlanError(
            f"the recipe's {place} has the name {value.get('name')!r}, which this standpipe doesn't know. "
            + _nearest(str(value.get("name")), sorted(kinds), "It knows")
        )
    given = {name: each for name, each in value.items() if name != "name"}
    wanted = _parameters(kind)
    _known(f"{kind.__name__} of the recipe", given, tuple(wanted))
    for name, (_, required) in wanted.items():
        if name not in given and required:
            raise PlanError(f"{kind.__name__} of the recipe has no {name!r}. Add it")
    made = {
        # A schedule's values are of the parameter that it is given for.
        name: _decoded(each, place, annotation if kind is Schedule else wanted[name][0])
        for name, each in given.items()
    }
    return _views(made["views"]) if kind is Views else kind(**made)


def _mapping(value: Mapping[str, Any], place: str, annotation: str) -> dict[Any, Any]:
    """Return the dict that ``_encoded`` stored as a list of pairs."""
    _known(f"the recipe's {place}", value, ("name", "items"))
    items = _listed(value, "items")
    for item in items:
        if not isinstance(item, list | tuple) or len(item) != 2 or not isinstance(item[0], int | str):
            raise PlanError(
                f"the recipe's {place} has a dict with the item {item!r:.80}. Write a list [key, value]"
            )
    return {key: _decoded(each, place, annotation) for key, each in items}


def _views(views: object) -> Views:
    if not isinstance(views, dict) or not all(isinstance(name, str) for name in views):
        raise PlanError(f"the recipe's Views must have a dict of names to views, got {views!r:.80}")
    return Views(**views)


def _parameters(kind: type[Any]) -> dict[str, tuple[str, bool]]:
    """Return a class's parameters by name, each with its annotation, and True if it has no default."""
    if kind is Views:  # no dataclass, as its views are keywords
        return {"views": ("Sequence", True)}
    return {
        each.name: (str(each.type), each.default is MISSING and each.default_factory is MISSING)
        for each in fields(kind)
    }


def _registered() -> dict[str, type[Any]]:
    """Return the classes that a recipe may contain, by name: all native transforms, and ``SETTINGS``."""
    return {each.__name__: each for each in (*SETTINGS, *_transforms(ImageTransform))}


def _transforms(base: type[Any]) -> Iterator[type[Any]]:
    for each in base.__subclasses__():
        own = each.__module__.startswith("standpipe.") and not each.__name__.startswith("_")
        if own and is_dataclass(each):
            yield each
        yield from _transforms(each)


def _known(owner: str, given: object, names: tuple[str, ...]) -> None:
    if not isinstance(given, Mapping):
        raise PlanError(f"{owner} must be a dict, got {given!r:.80}")
    if unknown := [name for name in given if name not in names]:
        raise PlanError(
            f"{owner} has an unknown parameter {unknown[0]!r}. "
            + _nearest(str(unknown[0]), names, "Its parameters are")
        )


def _nearest(given: str, names: Sequence[str], introduction: str) -> str:
    """Return a sentence with the names that a misspelt one may mean, or with all names."""
    meant = difflib.get_close_matches(given, names, 2)
    return f"Did you mean {' or '.join(meant)}?" if meant else f"{introduction} {', '.join(names)}"


def _listed(recipe: Mapping[str, Any], name: str) -> list[Any]:
    given = recipe.get(name, [])
    if not isinstance(given, list | tuple):
        raise PlanError(f"the recipe's {name} must be a list, got {given!r:.80}")
    return list(given)


def _is(value: object, kinds: tuple[type, ...], place: str) -> None:
    if not isinstance(value, kinds):
        names = " or ".join(each.__name__ for each in kinds)
        raise PlanError(f"the recipe's {place} must have {names}, got {value!r:.80}")
