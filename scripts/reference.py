"""Write the reference pages that follow from code: docs/reference/cli.md from the commands' parsers, and
docs/reference/settings.md from the docstring of ``Pipeline.plan``:  python scripts/reference.py
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import standpipe as sp
from standpipe.cli import _parser
from standpipe.cli.task import WHERE

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
EXAMPLES = {  # a command line that the tests run, by command
    "synth": "standpipe synth some-photos --images 1000",
    "bench": "standpipe bench photos --batch 64 --memory 1GiB",
    "tune": "standpipe tune photos --batch 2 --seconds 1",
    "show": "standpipe show photos --output sheet.png",
    "explain": "standpipe explain photos --memory 1GiB",
    "audit": "standpipe audit photos --batch 1 --ranks 2",
    "index": "standpipe index train.txt",
    "scan": "standpipe scan photos",
    "pack": "standpipe pack photos shards --shard-size 1MiB",
    "unpack": "standpipe unpack shards restored",
    "verify": "standpipe verify shards",
    "cache create": "standpipe cache create eval --memory 64MiB --directory .",
    "cache list": "standpipe cache list --directory .",
    "cache info": "standpipe cache info eval --directory .",
    "cache fill": "standpipe cache fill photos --cache eval --task eval --directory .",
    "cache verify": "standpipe cache verify eval --directory .",
    "cache destroy": "standpipe cache destroy eval --directory .",
    "cache stop": "standpipe cache stop --directory .",
    "doctor": "standpipe doctor photos",
    "top": "standpipe top --once",
}
CLI = f"""# Command line

`standpipe COMMAND --help` shows the same as this page. Sizes are bytes or text such as `2GiB`; times are seconds unless the
option says otherwise.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed, with one line on stderr that says what, where and what to do; of `scan`, `cache verify` and `doctor`: something was found |
| 2 | wrong usage; of `scan`: failed |
| 130 | interrupted by Ctrl-C |
| 141 | the program that read the output has ended |

## Data

`PATH` is {WHERE}. [Sources](../guide/sources.md) describes each.

Names say what files are, and their first bytes where a name has no suffix, as `train-00000-of-01024`. Shards, TFRecord and Arrow
files can be a file, a folder of them, or a pattern such as `'train-*'` in quotation marks. A folder with several kinds of data is an
error, and so is a folder of several splits that `save_to_disk` wrote: name one of them.

In TFRecord files, the image is `image/encoded`, else the only feature that begins like an image, and the label is
`image/class/label`, else the only integer named `label`. The only column of images of MDS and Arrow files is the image. Where there are
several, `--field image=NAME` names it. `--field label=y` names the label of TFRecord files, MDS and tar shards in the same way.
"""
SETTINGS = """# Settings

## Settings of a loader

`pipeline.plan(…)` and `pipeline.loader(…)` take these arguments, all by name. `standpipe.torch.loader` and
`standpipe.jax.loader` pass them on.

| argument | type and default | meaning |
|---|---|---|
"""
ENVIRONMENT = """
## Environment variables

| variable | meaning |
|---|---|
| `STANDPIPE_LIBJPEG` | when standpipe is built: `static` decodes with the libjpeg-turbo that `scripts/libjpeg` builds, `system` with the system's. Default: the first of these that is there |
| `STANDPIPE_LIBJPEG_SOURCE` | for `scripts/libjpeg`: a source tarball of libjpeg-turbo at hand |
| `STANDPIPE_DECODER` | `libjpeg` decodes JPEGs by libjpeg-turbo alone, with the same pixels: [how decoding works](../understand/decoding.md). Default: standpipe's entropy decoder in front of it, where it is built in |
| `STANDPIPE_FAULTS` | for tests: errors that happen on purpose, as CONTRIBUTING.md says. Read when standpipe is first used |
| `XDG_CACHE_HOME` | the folder of indexes, results of filters and of `standpipe scan`: `standpipe/` in it. Default: `~/.cache` |
| `XDG_RUNTIME_DIR` | the folder in which loaders of one user share the machine, and `standpipe top` finds them. Default: a folder in `/dev/shm` |
| `PIP_EXTRA_INDEX_URL`, `PIP_FIND_LINKS` | pip's own: where `make test` finds PyTorch's CPU build |

Ranks come from the launcher's variables: [several GPUs](../guide/distributed.md) lists the launchers.

## Logs

The logger `standpipe` reports warnings: `logging.getLogger("standpipe").setLevel(logging.ERROR)` silences them.
"""


def cli_page() -> str:
    """Return the page of all commands and options."""
    commands: dict[str, argparse.ArgumentParser] = _parser().get_default("commands")
    return "\n".join([CLI, *(part for name, parser in commands.items() for part in sections(name, parser))])


def sections(name: str, parser: argparse.ArgumentParser, level: int = 2) -> Iterator[str]:
    """Yield the section of a command, and those of its own commands."""
    yield f"{'#' * level} {name}\n"
    yield f"{prose(parser.description)}\n"
    own = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if own:
        for word, child in own[0].choices.items():
            yield from sections(f"{name} {word}", child, level + 1)
        return
    yield "```console"
    yield f"$ {EXAMPLES[name]}"
    yield "```\n"
    rows = [each for each in parser._actions if "--help" not in each.option_strings]
    if rows:
        yield "| argument | meaning |\n|---|---|"
        helps = (prose(each.help).replace(prose(WHERE), "[data](#data)") for each in rows)
        yield from (f"| {written(each)} | {text} |" for each, text in zip(rows, helps, strict=True))
        yield ""


def written(action: argparse.Action) -> str:
    """Return an option or argument as it is written on a command line."""
    value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest)
    if not action.option_strings:
        return f"`{value}`" if action.nargs != "?" else f"`[{value}]`"
    takes = f" {value}" if action.nargs != 0 else ""
    return ", ".join(f"`{name}{takes}`" for name in action.option_strings)


def prose(text: str | None) -> str:
    """Return a help text as one line of Markdown."""
    return re.sub(
        r"(?<![\w`/-])(--[a-z-]+)", r"`\1`", " ".join((text or "").split()).replace("%%", "%")
    ).replace("|", "\\|")


def settings_page() -> str:
    """Return the page of a loader's settings and of environment variables."""
    text = inspect.getdoc(sp.Pipeline.plan) or ""
    parameters = text.partition("Parameters\n----------\n")[2].partition("\n**unknown")[0]
    rows = []
    for entry in re.split(r"\n(?=\S)", parameters):
        head, _, meaning = entry.partition("\n")
        name, _, kind = head.partition(" : ")
        plain = " ".join(meaning.split()).replace("``", "`").replace("|", "\\|")
        rows.append(f"| `{name}` | {kind} | {plain} |\n")
    return SETTINGS + "".join(rows) + ENVIRONMENT


PAGES = {"cli.md": cli_page, "settings.md": settings_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
