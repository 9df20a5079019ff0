"""Sphinx: ``make docs``. Pages are Markdown, the reference is read from docstrings."""

import re
from importlib.metadata import version as version_of
from typing import Any

project = "standpipe"
copyright = "The standpipe developers"
release = version_of("standpipe")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Feeds training batches to accelerators", "fixed_sidebar": True}
html_show_sourcelink = False
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 80

ROW = re.compile(r"(?P<name>[^\s`].*?) {2,}(?P<meaning>\S.*)")


def columns_to_list(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Turn the two columns of our docstrings (``name  meaning``, continued by indentation) into a list."""
    shown: list[str] = []
    in_list = False
    for line in lines:
        if row := ROW.fullmatch(line):
            if not in_list and shown and shown[-1]:
                shown.append("")
            shown.append(f"* ``{row['name']}``: {row['meaning']}")
            in_list = True
        elif in_list and line.startswith("  "):
            shown.append(f"  {line.strip()}")
        else:
            if in_list and line:
                shown.append("")
            shown.append(line)
            in_list = False
    lines[:] = shown


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", columns_to_list)
