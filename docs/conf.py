"""Sphinx: ``make docs``. Pages are Markdown; the reference is read from docstrings, one page per public name."""

import inspect
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from sphinx.ext.napoleon import NumpyDocstring

project = "standpipe"
copyright = "The standpipe developers"
release = version_of("standpipe")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "figures"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"standpipe {release}"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#2563eb",
        "color-brand-content": "#2563eb",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7aa7ff",
        "color-brand-content": "#7aa7ff",
    },
}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
# until the repository is public
linkcheck_ignore = [r"https://github\.com/standpipe/.*"]

napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_typehints = "none"  # the docstrings have the types
# gigabytes, of which the pages show nothing
autodoc_mock_imports = ["jax", "ray", "torch"]
python_use_unqualified_type_names = True
maximum_signature_line_length = 80

# Classes that standpipe makes and hands out: their constructors are no part of the interface.
HANDED_OUT = (
    "standpipe.reports.",
    "standpipe.observe.",
    "standpipe.torch.BatchDataset",
    "standpipe.torch.TorchLoader",
)
HANDED_OUT += (
    "standpipe.jax.JaxLoader",
    "standpipe.Plan",
    "standpipe.MemoryForecast",
    "standpipe.MemoryLedger",
)
HANDED_OUT += (
    "standpipe.MemoryOwner",
    "standpipe.Tuning",
    "standpipe.Trial",
    "standpipe.Latency",
    "standpipe.BadSample",
)
HANDED_OUT += tuple(
    f"standpipe.{each}Stats" for each in ("", "Place", "Step", "Slot", "Worker")
)
HANDED_OUT += ("standpipe.SlowSample", "standpipe.Loader")


# Methods by which the engine uses what a user gives it. Only the pages of standpipe.contracts show them.
INSIDE = (
    *(
        "add_to",
        "applied_to",
        "check",
        "check_labels",
        "describe",
        "draw",
        "erasing",
        "for_kind",
        "images",
        "is_random",
        "known",
    ),
    *(
        "missing",
        "moves",
        "note",
        "open",
        "output_px",
        "planned",
        "reads",
        "rows",
        "scaled",
        "size_after",
        "stage",
        "stages",
    ),
    *(
        "table",
        "writes",
        "bytes_of",
        "for_job",
        "log_path",
        "tunes_workers",
        "kind",
        "subject",
        "at",
    ),
)
PYTHONS_OWN = (BaseException, dict, list, tuple)


def members(module: str, name: str) -> str:
    """Return the names of a class that its page shows: those of its ``__dir__``, if it has one."""
    shown = getattr(import_module(module), name)
    chosen = vars(shown).get("__dir__")
    names = dir(shown) if chosen is None else chosen(object.__new__(shown))
    ours = {
        each
        for base in shown.__mro__
        if base.__module__.startswith("standpipe") and base not in PYTHONS_OWN
        for each, value in vars(base).items()
        if callable(value) or isinstance(value, property | classmethod | staticmethod)
    }
    hidden = () if module == "standpipe.contracts" else INSIDE
    listed = [
        each
        for each in names
        if each in ours
        and not each.startswith("_")
        and each not in hidden
        and inspect.getdoc(getattr(shown, each))
    ]
    return ", ".join(listed)


autosummary_context = {"members_of": members}
suppress_warnings = ["config.cache"]  # a function can't be kept between builds


def hide_constructor(
    _app: Any,
    what: str,
    name: str,
    _obj: Any,
    _options: Any,
    signature: str | None,
    _returns: str | None,
) -> tuple[str, None] | None:
    """Leave out the signature of classes that only standpipe makes."""
    hidden = what in ("class", "exception") and (
        name in HANDED_OUT
        or name.startswith(tuple(each for each in HANDED_OUT if each.endswith(".")))
    )
    return ("", None) if hidden and signature and "Collector" not in name else None


def keep_colons(
    app: Any, what: str, _name: str, shown: Any, _options: Any, lines: list[str]
) -> None:
    """Read a property's docstring as any other: napoleon takes what is before a colon for a type."""
    if what == "property":
        lines[:] = NumpyDocstring(inspect.getdoc(shown) or "", app.config).lines()


def setup(app: Any) -> None:
    """Called by Sphinx."""
    # after napoleon
    app.connect("autodoc-process-docstring", keep_colons, priority=900)
    app.connect("autodoc-process-signature", hide_constructor)
