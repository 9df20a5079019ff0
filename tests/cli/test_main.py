from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from photos import write_photos
from standpipe import StandpipeError
from standpipe.cli import main
from standpipe.cli.terminal import print_json, printable, progress, say, verbatim


def run(
    *arguments: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
    )


def test_help_names_every_command() -> None:
    done = run("-m", "standpipe", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("synth", "bench", "show", "explain"):
        assert f"    {command} " in done.stdout


def test_version() -> None:
    done = run("-m", "standpipe", "--version")
    assert done.returncode == 0
    assert done.stdout.startswith("standpipe ")


def test_an_error_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("-m", "standpipe", "synth", str(tmp_path / "file"), "--images", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"standpipe: {tmp_path / 'file'} is a file; name a new folder\n"


def test_an_error_of_the_system_names_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "/proc/standpipe", "--images", "1"]) == 1
    message = capsys.readouterr().err
    assert "/proc/standpipe" in message
    assert "Traceback" not in message


def test_a_typo_suggests_the_nearest_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sytnh", "out"]) == 2
    message = capsys.readouterr().err
    assert "no command 'sytnh'; did you mean 'synth'?" in message
    assert main(["xyzzy"]) == 2
    assert "there are bench, doctor, show, explain, scan" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench", "photos", "--batchsize", "32"], "no option --batchsize; did you mean --batch?"),
        (["bench", "photos", "--batch-size=32"], "no option --batch-size; did you mean --batch?"),
        (["bench", "photos", "--batch_size", "32"], "no option --batch_size; did you mean --batch?"),
        (["bench", "--num_workers", "4", "photos"], "no option --num_workers; did you mean --workers?"),
        (["synth", "out", "--imagse", "3"], "no option --imagse; did you mean --images?"),
        (["synth", "out", "--xyzzy"], "no option --xyzzy; there are --help, --images, "),
        (["bench", "photos", "--out", "x.html"], "no option --out; did you mean --report?"),
        (["bench", "photos", "--epochs", "3"], "no option --epochs; did you mean --seconds?"),
        (["bench", "photos", "--epoch", "3"], "no option --epoch; there are --help, --field, "),
        (["cache", "list", "--dircetory", "."], "no option --dircetory; did you mean --directory?"),
    ],
)
def test_an_option_of_another_tool_or_with_a_typo_names_ours(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"standpipe {words[0]}")
    assert said.count("\n") == 1
    assert says in " ".join(said.split())


@pytest.mark.parametrize(
    "arguments", [["synth"], ["synth", "out", "--images", "many"], ["synth", "out", "--imagse", "3"]]
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "standpipe synth --help shows" in capsys.readouterr().err


def test_the_command_alone_shows_its_commands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert (
        text.index("measure and look:")
        < text.index(" bench ")
        < text.index(" doctor ")
        < text.index(" scan ")
    )
    assert "standpipe doctor train.py " in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_pattern_without_quotation_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = [str(tmp_path / f"{number}.tar") for number in range(2)]
    for path in shards:
        Path(path).touch()
    assert main(["explain", *shards]) == 2
    assert "put a pattern in quotation marks, such as 'train-*.tar'" in capsys.readouterr().err


def test_ctrl_c_is_130_without_a_traceback() -> None:
    script = (
        "import signal, sys\n"
        "from standpipe.cli import main\n"
        "from standpipe.cli.synth import folder\n"
        "folder.synthesize = lambda *_: signal.raise_signal(signal.SIGINT)\n"
        "sys.exit(main(['synth', 'nowhere', '--images', '1']))\n"
    )
    done = run("-c", script)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "\nstandpipe: interrupted\n"


def test_ctrl_c_where_python_drops_it() -> None:
    script = (
        "import signal, sys, threading\n"
        "from standpipe.cli import main\n"
        "from standpipe.cli.synth import folder\n"
        "class Ends:\n"
        "    def __del__(self):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "def synthesize(*_):\n"
        "    Ends()\n"
        "    threading.Event().wait(60)\n"
        "folder.synthesize = synthesize\n"
        "sys.argv[1:] = ['synth', 'nowhere', '--images', '1']\n"
        "sys.exit(main())\n"
    )
    done = run("-c", script)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "\nstandpipe: interrupted\n"


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run("-m", "standpipe", "--version", stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk of Linux's")  # noqa: PTH110
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("command", "code"),
    [(["--version"], 1), (["--help"], 1), (["cache", "list", "-h"], 1), (["scan", "photos"], 2)],
)
def test_a_full_disk_is_one_line(
    command: list[str], code: int, unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no answer of ``scan``, whose 1 says that there are bad files."""
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    write_photos(folder, 2)
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = run("-m", "standpipe", *command, stdout=full.fileno(), folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        code,
        "standpipe: can't write to stdout: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--version", 1),
        ("--help", 1),
        ("scan nowhere", 2),
        ("top --json", 1),
        ("cache list", 1),
        ("sytnh", 2),
    ],
)
def test_a_closed_stdout_is_one_sentence(command: str, code: int) -> None:
    script = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = run("-c", script, "-m", "standpipe", *command.split())
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if code != 2 or command.startswith("scan"):
        assert done.stderr.endswith(
            "standpipe: can't write to stdout: it is closed; for no output, say >/dev/null\n"
        )


def test_a_closed_stderr_stays_silent() -> None:
    script = "import os, sys; os.close(2); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = run("-c", script, "-m", "standpipe", "audit", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")


def test_ctrl_c_while_it_is_imported() -> None:
    script = (
        "import signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'standpipe.cli':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "from _standpipe_command import main\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "main()\n"
    )
    done = run("-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nstandpipe: interrupted\n")


def test_a_folder_that_has_no_room_is_a_sentence(tmp_path: Path) -> None:
    script = (
        "import resource, sys\n"
        "from standpipe.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # of bytes in a file\n"
        "sys.exit(main(['synth', 'made', '--images', '1']))\n"
    )
    done = run("-c", script, folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "standpipe: can't write made/.standpipe-synth.json: File too large\n",
    )


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            ["explain"],
            "the index of {photos} can't be stored, not even in memory: File too large; raise this",
        ),
        (["index", "--verify"], "No usable temporary directory found in "),
    ],
)
def test_files_that_may_not_grow_are_a_sentence(command: list[str], says: str, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "cat").mkdir(parents=True)
    write_photos(photos / "cat", 2)
    if command[0] == "index":
        assert main(["index", str(photos)]) == 0
    script = (
        "import resource, sys\n"
        "from standpipe.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # of bytes in a file\n"
        f"sys.exit(main({[command[0], str(photos), *command[1:]]}))\n"
    )
    done = run("-c", script, folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("standpipe: " + says.format(photos=photos))


def test_what_would_steer_a_terminal_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise StandpipeError("ValueError: \x1b[31mred\x07\nand a line")

    monkeypatch.setattr("standpipe.cli.synth.folder.synthesize", fail)
    assert main(["synth", "nowhere", "--images", "1"]) == 1
    assert capsys.readouterr().err == "standpipe: ValueError: \\x1b[31mred\\x07\nand a line\n"


def test_at_a_terminal_lines_break_between_words(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        run("-m", "standpipe", "bench", "absent", stderr=theirs, folder=tmp_path)
        os.close(theirs)
        lines = terminal.read(4096).decode().splitlines()
    assert " ".join(map(str.strip, lines)) == (
        f"standpipe: can't read {tmp_path}/absent/: No such file or directory; check the path, and that its disk is "
        "mounted"
    )
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines)
    assert len(lines) > 1


def test_a_bad_sample_says_how_to_find_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "empty.jpg").touch()
    assert main(["bench", str(tmp_path), "--seconds", "0.1"]) == 1
    assert capsys.readouterr().err == (
        f"standpipe: empty file (transform, record 0, {tmp_path}/cat/empty.jpg); "
        f"standpipe scan {tmp_path} finds all that are bad\n"
    )


@pytest.mark.parametrize("name", ["large.png", "large.jpg"])
def test_a_good_file_without_room_is_answered_with_memory(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name a PNG is planned for; a PNG of another name is only found by reading it."""
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (2000, 2000)).save(tmp_path / "cat" / name, "PNG")
    words = [
        "bench",
        str(tmp_path),
        "--batch",
        "2",
        "--memory",
        "30MiB",
        "--workers",
        "1",
        "--seconds",
        "0.1",
    ]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "scan" not in said
    if name == "large.png":
        words[words.index("--memory") + 1] = re.findall("need memory='(.+)',", said)[0]
        assert main(words) == 0
    else:
        assert said.endswith("; raise --memory\n")


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("standpipe.cli.synth.folder.synthesize", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["synth", "nowhere", "--images", "1"])


def test_the_command_line_imports_nothing_slow_by_itself() -> None:
    # measured against what a pipeline costs anyway
    script = (
        "import sys, standpipe\n"
        "standpipe.Pipeline\n"
        "before = set(sys.modules)\n"
        "from standpipe.cli import main\n"
        "main(['--help'])\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "sys.exit(f'imported {new}' if new & {'numpy', 'PIL', 'rich', 'torch'} else 0)\n"
    )
    done = run("-c", script)
    assert done.stderr == ""
    assert done.returncode == 0


def test_the_package_imports_nothing_slow_that_few_need() -> None:
    script = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        "import standpipe\n"
        "new = set(sys.modules) - before\n"
        "slow = {'PIL', 'importlib.metadata', 'numpy.ma', 'numpy.random', 'rich', 'sqlite3', 'tarfile', 'torch'}\n"
        "sys.exit(f'imported {new & slow}' if new & slow else 0)\n"
    )
    assert run("-c", script).stderr == ""


def test_training_on_photos_imports_nothing_slow_that_few_need(tmp_path: Path) -> None:
    write_photos(tmp_path, 3)
    script = (
        "import sys, standpipe as sp\n"
        f"photos = sp.Pipeline(sp.FileList({str(tmp_path / 'list.txt')!r}))\n"
        "pipeline = photos.shuffle(seed=1).map(sp.CenterCrop(8)).batch(2)\n"
        "with pipeline.loader(memory='80MiB', num_workers=1) as loader:\n"
        "    next(iter(loader))\n"
        "slow = {'PIL', 'numpy.ma', 'numpy.random', 'tarfile'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    assert run("-c", script).stderr == ""


def test_names_that_are_imported_at_first_use_are_found_before() -> None:
    script = (
        "import standpipe\n"
        "assert set(standpipe.__all__) <= set(dir(standpipe))\n"
        "assert 'pack_shards' not in vars(standpipe)\n"
        "from standpipe import pack_shards\n"
        "assert pack_shards is standpipe.pack_shards is vars(standpipe)['pack_shards']\n"
    )
    assert run("-c", script).stderr == ""


def test_say_is_plain_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    say("[bold]7[/bold] of [8, 9] in [red]" + verbatim("a [dim] [/folder] \\[bold]") + "[/red]")
    assert capsys.readouterr().out == "7 of [8, 9] in a [dim] [/folder] \\[bold]\n"


def test_rich_shows_what_verbatim_protects() -> None:
    rich_text = pytest.importorskip("rich.text")
    for text in ("a [dim] b", "[/x]", "\\[bold]", "\\\\[red]", "[1]", "plain"):
        assert rich_text.Text.from_markup(verbatim(text), emoji=False).plain == text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a\xff.jpg", "a\\xff.jpg"),
        (os.fsdecode(b"a\xff.jpg"), "a\\xff.jpg"),
        ("a\nb", "a\\nb"),
        ("猫", "猫"),
    ],
)
def test_printable(name: str | bytes, shown: str) -> None:
    assert printable(name) == shown


def test_json_is_one_line_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"path": "caf\udce9/猫"})
    line = capsys.readouterr().out
    assert line.isascii()
    assert line.count("\n") == 1
    assert json.loads(line) == {"path": "caf\udce9/猫"}


def test_short_tasks_show_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("counting", 3) as advance:
        for done in range(1, 4):
            advance(done)
    assert capsys.readouterr() == ("", "")


def test_long_tasks_tell_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = iter([0.0, 1.0, 5.0, 6.0, 20.0])
    monkeypatch.setattr("standpipe.cli.terminal.time.monotonic", lambda: next(now_s))
    with progress("counting", 4) as advance:
        for done in range(1, 5):
            advance(done)
    assert capsys.readouterr().err == "counting: 2 of 4\ncounting: 4 of 4\n"
