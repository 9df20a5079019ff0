"""The ``standpipe`` command, with one module per subcommand.

Each has its help in ``HELP`` and ``DESCRIPTION``, its arguments in ``add_arguments``, and its work in ``run``.

Those modules import NumPy, Pillow and rich inside their functions, where they are needed: each costs about
0.1 s, and ``standpipe bench`` owes its first batch 0.6 s after the process starts.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

FAILED = 1
USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells count
PIPE_CLOSED = 141  # 128 + SIGPIPE
GROUPS = {  # the modules, in the order of the help
    "measure and look": ("bench", "doctor", "show", "explain"),
    "check and prepare data": ("scan", "index", "pack", "unpack", "verify", "synth"),
    "during training": ("top", "tune", "cache", "audit"),
}
EXAMPLES = """\
  standpipe bench photos       How fast do batches of images in photos/ come?
  standpipe doctor train.py    What is wrong with the DataLoaders in it?
"""
# What people write who know other tools, and our words for it, of which a command has some.
HABITS = {
    "--batch-size": ("--batch",),
    "--batchsize": ("--batch",),
    "--bs": ("--batch",),
    "--num-workers": ("--workers",),
    "--threads": ("--workers",),
    "--out": ("--output", "--report"),
    "--output": ("--report", "--dtype"),
    "--epochs": ("--seconds",),
}
WORDS = {"help": "--help", "version": "--version", "benchmark": "bench", "check": "scan", "train": "bench"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    argv  the arguments without the program's name; None takes them from ``sys.argv``

    0 done, 1 failed with a message on stderr (``standpipe scan``: 2, as 1 is its answer), 2 wrong usage, 130
    interrupted by Ctrl-C, 141 nobody reads our stdout any more. Errors that are no ``StandpipeError`` and name no file
    are bugs and keep their traceback.
    """
    if sys.stderr is None:  # closed, as by 2>&-
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (until the process ends)
    try:
        if argv is None:
            _insist_on_interrupts()
        code = _run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        print("\nstandpipe: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return PIPE_CLOSED
    return code


def _insist_on_interrupts() -> None:
    """Send Ctrl-C again if Python drops the KeyboardInterrupt, as inside a destructor or an import's callback."""

    def again(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 1e-3)
        else:
            sys.__unraisablehook__(dropped)

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.unraisablehook = again
    if callable(signal.getsignal(signal.SIGINT)):  # else it is ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(argv: list[str]) -> int:
    from standpipe import DecodeError, ReadError, StandpipeError
    from standpipe.cli.terminal import Unwritten, check_stdout, printable, written

    parser = _parser()
    failed = FAILED
    try:
        try:
            command = _command(parser, argv)
            argv = argv or ["--help"]
            own, of_script = _apart(argv)
            _check_options(command, own)
            args = parser.parse_args(own, argparse.Namespace(arguments=of_script))
            failed = args.failed
            check_stdout()
            code = int(args.run(args))
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else USAGE
            if code:
                return code
        check_stdout()
        with written():
            sys.stdout.flush()
    except Unwritten as error:
        _drop_stdout()
        return _fail(str(error), failed)
    except (ReadError, DecodeError) as error:
        if "large_image_memory=" in error.reason:  # a good file, for which there is no room
            return _fail(f"{error}; raise --memory", failed)
        return _fail(f"{error}; standpipe scan {printable(args.path)} finds all that are bad", failed)
    except StandpipeError as error:
        return _fail(str(error), failed)
    except OSError as error:
        if error.filename is None or isinstance(error, BrokenPipeError):
            raise
        return _fail(f"{error.strerror}: {printable(error.filename)}", failed)
    return code


def _parser() -> argparse.ArgumentParser:
    """Return the command's parser. Its default ``commands`` is a dict of the subcommands' parsers, by name."""
    parser = _Overview(prog="standpipe")
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    parser.set_defaults(failed=FAILED)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name in chain(*GROUPS.values()):
        module = importlib.import_module(f"standpipe.cli.{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.DESCRIPTION)
        command.set_defaults(run=getattr(module, "run", None))  # cache has commands of its own
        module.add_arguments(command)
    parser.set_defaults(commands=commands.choices)
    return parser


def _apart(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of ``doctor`` from those behind ``--``, which its script gets; other commands keep all."""
    if argv[:1] != ["doctor"] or "--" not in argv:
        return argv, []
    place = argv.index("--")
    return argv[:place], argv[place + 1 :]


def _command(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command in ``argv``; exit with a suggestion if a word names no command."""
    for word in argv:
        if not word.startswith("-"):
            commands = parser.get_default("commands")
            if commands is None:
                break
            if word not in commands:
                known = [WORDS[word]] if word in WORDS and "bench" in commands else []
                parser.error(_unknown("command", repr(word), list(commands), known))
            parser = commands[word]
    return parser


def _check_options(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Exit with a suggestion if a word in ``argv`` isn't an option of the command."""
    options = [each for each in parser._option_string_actions if each.startswith("--")]
    for word in argv:
        name = word.partition("=")[0]
        if name == "--":
            return
        habit = [each for each in HABITS.get(name.replace("_", "-"), ()) if each in options]
        if not name.startswith("--") or name in options:
            continue
        if (
            any(each.startswith(name) for each in options) and len(habit) < 2
        ):  # shortened, and it means one thing
            continue
        parser.error(_unknown("option", name, options, habit))


class _Parser(argparse.ArgumentParser):
    """An argument parser whose help, if stdout can't be written, ends in the error ``Unwritten``."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help to stdout. Raises ``Unwritten`` if stdout can't be written."""
        from standpipe.cli.terminal import written

        with written():
            print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        """Exit with a message, which says what to do if the shell expanded a pattern of files."""
        more = message.removeprefix("unrecognized arguments: ")
        if more != message and not more.startswith("-") and os.path.exists(more.split(" ")[-1]):  # noqa: PTH110
            message += "; put a pattern in quotation marks, such as 'train-*.tar'"
        self.exit(
            USAGE, f"{self.prog}: {message}. {self.prog} --help shows what there is\n".replace("?.", "?")
        )


class _Overview(_Parser):
    """The parser of the whole command, whose help has the commands in groups."""

    def format_help(self) -> str:
        """Return the commands, the most used first, with two examples."""
        parts = ["usage: standpipe COMMAND …\n\nstandpipe feeds training batches, in fixed memory.\n"]
        for title, names in GROUPS.items():
            helps = (importlib.import_module(f"standpipe.cli.{name}").HELP for name in names)
            lines = (f"    {name:8s}  {text}\n" for name, text in zip(names, helps, strict=True))
            parts.append(f"{title}:\n{''.join(lines)}")
        parts.append(f"examples:\n{EXAMPLES}")
        parts.append("standpipe COMMAND --help describes a command. --version prints the version.\n")
        return "\n".join(parts)


class _Version(argparse.Action):
    """``--version``, which looks the version up only when asked: importlib.metadata costs 20 ms."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        from standpipe.cli.terminal import written

        try:
            text = f"standpipe {version('standpipe')}"
        except PackageNotFoundError:
            text = "standpipe (not installed: run from its sources)"
        with written():
            print(text)
        parser.exit()


def _unknown(kind: str, word: str, known: list[str], habit: Sequence[str] = ()) -> str:
    names = {each.lstrip("-"): each for each in known}  # dashes, are in all options
    near = habit or [names[each] for each in difflib.get_close_matches(word.strip("'-"), names, n=1)]
    meant = " or ".join(map(repr, near) if kind == "command" else near)
    return f"no {kind} {word}; " + (f"did you mean {meant}?" if near else f"there are {', '.join(known)}")


def _fail(message: str, code: int) -> int:
    """Print ``message`` to stderr, with characters that could steer the terminal escaped; return ``code``."""
    from standpipe.cli.terminal import harmless, in_columns

    text = "standpipe: " + harmless(message, keep="\n")
    print(in_columns(text, sys.stderr), file=sys.stderr)
    return code


def _drop_stdout() -> None:
    """Let the interpreter's own flush at exit succeed, though the reader is gone, as in ``standpipe … | head``."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
