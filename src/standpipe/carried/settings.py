"""The known settings of libraries: how each is read in the trainer, and set in a worker process."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a module. It is read and set only in processes that have imported the module.

    module  name of the module, which ``read`` and ``write`` get as their first argument
    name    what a script calls or sets, for reports
    read    returns the setting, as a value that can be pickled and compared
    write   sets it to such a value
    """

    module: str
    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]


def _attribute(module: str, name: str) -> Setting:
    return Setting(
        module, f"{module}.{name}", lambda m: getattr(m, name), lambda m, value: setattr(m, name, value)
    )


def _pair(module: str, getter: str, setter: str) -> Setting:
    """Return a setting with one function to read and one to set it."""
    return Setting(
        module,
        f"{module}.{setter}",
        lambda m: getattr(m, getter)(),
        lambda m, value: getattr(m, setter)(value),
    )


def _warning_filters(warnings: Any) -> list[tuple[str, str, str, str, int]]:
    """Return the filters, with names of categories: a category's module needn't be imported for its filter."""

    def text(pattern: re.Pattern[str] | str | None) -> str:
        return pattern.pattern if isinstance(pattern, re.Pattern) else pattern or ""

    return [
        (action, text(message), f"{category.__module__}:{category.__qualname__}", text(module), line)
        for action, message, category, module, line in list(warnings.filters)
    ]


def _filter_warnings(warnings: Any, filters: list[tuple[str, str, str, str, int]]) -> None:
    warnings.resetwarnings()
    for action, message, category, module, line in filters:
        owner, _, name = category.partition(":")
        if isinstance(kind := getattr(sys.modules.get(owner), name, None), type):
            warnings.filterwarnings(action, message, kind, module, line, append=True)


def _loggers(logging: Any) -> tuple[int, dict[str, tuple[int, bool, bool]]]:
    """Return the level of ``logging.disable``, and by logger its level, and if it propagates and is disabled."""
    known = {"": logging.root, **logging.root.manager.loggerDict}
    return logging.root.manager.disable, {
        name: (each.level, each.propagate, each.disabled)
        for name, each in known.items()
        if isinstance(each, logging.Logger)
    }


def _set_loggers(logging: Any, given: tuple[int, dict[str, tuple[int, bool, bool]]]) -> None:
    below, loggers = given
    logging.disable(below)
    here = _loggers(logging)[1]
    usual = (logging.NOTSET, True, False)
    for name, facts in loggers.items():
        if here.get(name, usual) != facts:
            logger = logging.getLogger(name)
            logger.setLevel(facts[0])
            _, logger.propagate, logger.disabled = facts


def _decimal_context(decimal: Any) -> tuple[Mapping[str, Any], list[str]]:
    context = decimal.getcontext()
    facts = {
        name: getattr(context, name) for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
    }
    return facts, sorted(signal.__name__ for signal, is_set in context.traps.items() if is_set)


def _set_decimal_context(decimal: Any, given: tuple[Mapping[str, Any], list[str]]) -> None:
    facts, traps = given
    decimal.setcontext(decimal.Context(**facts, traps=[getattr(decimal, name) for name in traps]))


def _image_formats(image: Any) -> dict[str, tuple[Any, Any, list[str]]]:
    """Return the formats that aren't Pillow's own: by name, two functions, and the endings of file names."""
    return {
        name: (*functions, sorted(end for end, format in list(image.EXTENSION.items()) if format == name))
        for name, functions in list(image.OPEN.items())
        if not getattr(functions[0], "__module__", "").startswith("PIL.")
    }


def _register_formats(image: Any, formats: Mapping[str, tuple[Any, Any, list[str]]]) -> None:
    if formats:
        image.preinit()  # otherwise Pillow's own formats would be tried after these
    for name, (factory, accept, endings) in formats.items():
        image.register_open(name, factory, accept)
        image.register_extensions(name, endings)


def _deterministic(torch: Any) -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


# Not in the list: the number of threads, which num_workers= decides; the default device, as a GPU's memory would be
# taken by each worker; states of random generators, which the seed determines. The environment, the working folder
# and sys.path travel before.
SETTINGS = (
    _attribute("sys", "argv"),
    _pair("sys", "getrecursionlimit", "setrecursionlimit"),
    _pair("sys", "get_int_max_str_digits", "set_int_max_str_digits"),
    _attribute("tempfile", "tempdir"),
    _pair("socket", "getdefaulttimeout", "setdefaulttimeout"),
    _pair("csv", "field_size_limit", "field_size_limit"),
    Setting(
        "locale",
        "locale.setlocale",
        lambda m: m.setlocale(m.LC_ALL),
        lambda m, value: m.setlocale(m.LC_ALL, value),
    ),
    Setting("warnings", "warnings.filters", _warning_filters, _filter_warnings),
    Setting("logging", "levels of loggers", _loggers, _set_loggers),
    Setting("decimal", "decimal.setcontext", _decimal_context, _set_decimal_context),
    Setting("numpy", "numpy.seterr", lambda m: m.geterr(), lambda m, value: m.seterr(**value)),
    Setting(
        "numpy",
        "numpy.set_printoptions",
        lambda m: m.get_printoptions(),
        lambda m, value: m.set_printoptions(**value),
    ),
    _attribute("PIL.Image", "MAX_IMAGE_PIXELS"),
    Setting("PIL.Image", "PIL.Image.register_open", _image_formats, _register_formats),
    _attribute("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"),
    _attribute("PIL.ImageFile", "MAXBLOCK"),
    _attribute("PIL.PngImagePlugin", "MAX_TEXT_CHUNK"),
    _attribute("PIL.PngImagePlugin", "MAX_TEXT_MEMORY"),
    _attribute("PIL.GifImagePlugin", "LOADING_STRATEGY"),
    _attribute("PIL.TiffImagePlugin", "READ_LIBTIFF"),
    _pair("torch", "get_default_dtype", "set_default_dtype"),
    _pair("torch", "is_grad_enabled", "set_grad_enabled"),
    _pair("torch", "get_float32_matmul_precision", "set_float32_matmul_precision"),
    Setting(
        "torch",
        "torch.use_deterministic_algorithms",
        _deterministic,
        lambda m, value: m.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    _pair("torchvision", "get_image_backend", "set_image_backend"),
)
