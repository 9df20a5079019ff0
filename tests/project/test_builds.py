"""Tests of the versions of Python for which standpipe is built."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CMAKE = [sys.executable, "-m", "cmake"]
FREE_THREADED = "import sysconfig; sysconfig.get_config_vars().update(ABIFLAGS='t', Py_GIL_DISABLED=1)"


def test_a_wheel_for_free_threaded_python_is_refused_by_a_sentence(tmp_path: Path) -> None:
    program = (
        f"{FREE_THREADED}\nfrom scikit_build_core.build import build_wheel\nbuild_wheel({str(tmp_path)!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "standpipe doesn't support free-threaded Python yet: use" in done.stdout
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("environment", [False, True])
def test_cmake_refuses_an_unknown_choice_of_libjpeg(tmp_path: Path, environment: bool) -> None:
    done = subprocess.run(
        [*CMAKE, "-S", ROOT, "-B", tmp_path, *([] if environment else ["-DSTANDPIPE_LIBJPEG=statc"])],
        env=os.environ | {"STANDPIPE_LIBJPEG": "statc" if environment else "static"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "STANDPIPE_LIBJPEG must be static or system, got statc" in done.stderr


def test_cmake_refuses_a_libjpeg_that_is_not_turbo(tmp_path: Path) -> None:
    (tmp_path / "jpeglib.h").write_text("#define JPEG_LIB_VERSION 80\n")
    (tmp_path / "libjpeg.a").write_bytes(b"!<arch>\n")
    found = [f"-DJPEG_INCLUDE_DIR={tmp_path}", f"-DJPEG_LIBRARY={tmp_path}/libjpeg.a"]
    done = subprocess.run(
        [*CMAKE, "-S", ROOT, "-B", tmp_path / "build", "-DSTANDPIPE_LIBJPEG=system", *found],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert "isn't libjpeg-turbo 1.5 or newer" in told
    assert "apt-get install libjpeg-dev" in told


COPY_OBJECT = """#!/bin/sh
for word; do
    [ "$last" = -o ] && object=$word
    last=$word
done
case $object in
    */nanobind/src/*) built=$(echo "$BUILT"/CMakeFiles/*/.venv/lib/*/site-packages/nanobind/src/"${object##*/}") ;;
    *) built=$BUILT/$object ;;
esac
cp "$built" "$object" 2>/dev/null || exec "$@"
"""


def test_a_wheel_is_built_from_the_source_package_alone(tmp_path: Path) -> None:
    """``python -m build`` makes the source package, and the wheel from it, without a network.

    The package holds each native source as it is here, so an object that ``scripts/setup`` compiled stands for one of
    the package's own: a copy saves two minutes. A small ``.venv`` stands for the real one, in which looking for what
    git ignores takes ten seconds.
    """
    tree = tmp_path / "tree"
    # Tests that run beside this one write to the last four.
    left_out = shutil.ignore_patterns(
        ".git", ".venv", "build", "tests", "__pycache__", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, tree, ignore=left_out)
    for name in (".venv", "build", "tests"):
        (tree / name).mkdir()
        (tree / name / "file").touch()
    environment = {
        name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"
    }  # the tests' own
    built = subprocess.run(
        [ROOT / "scripts" / "libjpeg", "--built"], env=environment, capture_output=True, check=False
    )
    launcher = tmp_path / "copy_object"
    launcher.write_text(COPY_OBJECT)
    launcher.chmod(0o755)
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", tree],
        env=environment
        | {
            "STANDPIPE_LIBJPEG": "static" if built.returncode == 0 else "system",
            "CMAKE_CXX_COMPILER_LAUNCHER": str(launcher),
            "BUILT": str(next((ROOT / "build").glob(f"{tag}-{tag}-*"), tmp_path)),
            "PIP_NO_INDEX": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (source,) = (tmp_path / "dist").glob("standpipe-*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("standpipe-*.whl")
    with tarfile.open(source) as archive:
        contents = {
            member.name.partition("/")[2]: file.read()
            for member in archive
            if (file := archive.extractfile(member))
        }
    names = contents.keys()
    native = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for path in (ROOT / "native").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert {name: data for name, data in contents.items() if name.startswith("native/")} == native
    assert {"README.md", "LICENSE", "CMakeLists.txt", "scripts/libjpeg", "src/standpipe/__init__.py"} <= names
    assert not {
        name for name in names if name.startswith(("tests/", "build/", "dist/", ".venv", "docs/_build"))
    }
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert {"standpipe/py.typed", "standpipe/_native.pyi", "_standpipe_command/__init__.py"} <= inside
    assert not {
        name for name in inside if not name.startswith(("standpipe/", "_standpipe_command/", "standpipe-"))
    }
    assert not {name for name in inside if name.endswith(".md")}  # pages for who works on the code
    assert [name for name in inside if name.startswith("standpipe/_native.") and name.endswith(".so")]


class Setup:
    """``scripts/setup`` in a folder where all is done but the choice of libjpeg, and apt has no mirror."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        for name in ("native", "src/standpipe", "bin", ".venv/bin", ".venv/.standpipe"):
            (folder / name).mkdir(parents=True)
        for name in ("CMakeLists.txt", "pyproject.toml", "constraints.txt"):
            (folder / name).touch()
        self.be(
            ".venv/bin/python", f'exec "{sys.executable}" "$@"'
        )  # by a link it would be Debian's, without pip
        self.be("bin/date", "echo $DATE")
        self.be("bin/nasm", "")
        nothing = folder / "apt.conf"
        nothing.write_text('Dir::Etc::SourceList "/dev/null"; Dir::Etc::SourceParts "/dev/null";')
        self._env = os.environ | {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "CXX": "true",
            "XDG_CACHE_HOME": str(folder / "cache"),
            "APT_CONFIG": str(nothing),
            "STANDPIPE_LIBJPEG": "",
            "STANDPIPE_LIBJPEG_SOURCE": "",
        }
        self.stamp("venv", str(folder))
        self.stamp("build", hashlib.sha256(b"").hexdigest()[:16])
        self.stamp("libjpeg", "system")
        self.stamp("package", subprocess.check_output([folder / "scripts/package_key"], text=True).strip())

    def be(self, name: str, text: str) -> None:
        """Write a program; those in bin come before the machine's."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def stamp(self, name: str, text: str) -> None:
        (self.folder / ".venv/.standpipe" / name).write_text(text + "\n")

    def run(self, date: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.folder / "scripts/setup"],
            env=self._env | {"DATE": date} | environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.mark.skipif(sys.platform != "linux", reason="setup is for Linux")
def test_a_build_of_libjpeg_that_failed_is_tried_again_the_next_day_or_when_asked(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    tries = "building libjpeg-turbo"
    retry = "couldn't be built today. To try again before tomorrow: STANDPIPE_LIBJPEG=static make"
    first, second = setup.run("2026-01-01"), setup.run("2026-01-01")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert tries in first.stdout
    assert "no mirror that apt knows" in first.stderr
    assert tries not in second.stdout
    assert retry in second.stdout
    assert tries in setup.run("2026-01-02").stdout
    asked = setup.run("2026-01-02", STANDPIPE_LIBJPEG="static")
    assert asked.returncode == 1
    assert tries in asked.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="setup is for Linux")
def test_setup_takes_no_free_threaded_python(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("native", "src", "free"):
        (tmp_path / name).mkdir()
    for name in ("CMakeLists.txt", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    (tmp_path / "free" / "sitecustomize.py").write_text(FREE_THREADED)
    done = subprocess.run(
        [tmp_path / "scripts" / "setup"],
        env=os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "free")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer with the global interpreter lock" in done.stderr
    assert not (tmp_path / ".venv").exists()
