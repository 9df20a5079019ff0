"""``scripts/libjpeg``, here with small sources of its own, and the library that is linked."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from standpipe import _native

ROOT = Path(__file__).parents[2]
RECORD = ROOT / ".venv/.standpipe/libjpeg"  # what scripts/setup linked
PROJECT = """
cmake_minimum_required(VERSION 3.18)
set(VERSION {version})
project(libjpeg-turbo C)
add_library(jpeg-static STATIC jpeg.c)
set_target_properties(jpeg-static PROPERTIES OUTPUT_NAME jpeg)
file(WRITE ${{CMAKE_BINARY_DIR}}/jconfig.h "")
file(APPEND $ENV{{BUILDS}} "one more\\n")
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not (ROOT / ".venv/bin/ninja").exists(),
    reason="needs what scripts/setup installs",
)


def source(folder: Path, version: str = "3.1.99", code: str = "int jpeg;") -> Path:
    """A tarball with the folders and targets that libjpeg-turbo's have."""
    files = {"CMakeLists.txt": PROJECT.format(version=version), "jpeg.c": code}
    files |= {f"src/{name}.h": "" for name in ("jerror", "jmorecfg", "jpeglib", "jpegint")}
    path = folder / f"source-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"libjpeg-turbo-{version}/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


class Builds:
    """Runs of the script with a cache folder of their own, and apt without any mirror."""

    def __init__(self, folder: Path, tarball: Path | None) -> None:
        nothing = folder / "apt.conf"
        nothing.write_text('Dir::Etc::SourceList "/dev/null"; Dir::Etc::SourceParts "/dev/null";')
        self.cache = folder / "cache/standpipe"
        self.log = folder / "builds"
        self._env = os.environ | {
            "XDG_CACHE_HOME": str(folder / "cache"),
            "BUILDS": str(self.log),
            "APT_CONFIG": str(nothing),
            "STANDPIPE_LIBJPEG_SOURCE": "" if tarball is None else str(tarball),
        }

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [ROOT / "scripts/libjpeg", *words],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, error = process.communicate(timeout=120)
        return process.returncode, out.strip(), error

    def left(self) -> list[str]:
        """Return the names in the cache folder that aren't libraries."""
        names = sorted(path.name for path in self.cache.iterdir())
        return [name for name in names if not name.startswith("libjpeg-turbo-")]


def test_it_is_built_once_and_found_again(tmp_path: Path) -> None:
    builds = Builds(tmp_path, source(tmp_path))
    assert builds.run("--built") == (1, "", "")
    both = [builds.start(), builds.start()]  # at the same time
    folders = {process.communicate(timeout=120)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    (folder,) = map(Path, folders)
    assert builds.log.read_text() == "one more\n"
    assert folder.parent == builds.cache
    assert (folder / "lib/libjpeg.a").exists()
    assert {path.name for path in (folder / "include").iterdir()} == {
        "jconfig.h",
        "jerror.h",
        "jmorecfg.h",
        "jpeglib.h",
    }
    assert (folder / "internal/jpegint.h").exists()
    assert builds.run("--built") == builds.run() == (0, str(folder), "")
    assert builds.left() == ["libjpeg-turbo.lock", "libjpeg-turbo.named"]


def test_a_build_that_was_killed_isnt_taken_for_done(tmp_path: Path) -> None:
    builds = Builds(tmp_path, source(tmp_path))
    half = builds.cache / ".libjpeg-turbo.killed/done/lib"
    half.mkdir(parents=True)
    assert builds.run("--built")[0] == 1
    assert builds.run()[0] == 0
    assert builds.left() == ["libjpeg-turbo.lock", "libjpeg-turbo.named"]


def test_a_named_source_is_needed_once(tmp_path: Path) -> None:
    tarball = source(tmp_path)
    built = Builds(tmp_path, tarball).run()
    assert built[0] == 0
    tarball.unlink()
    later = Builds(tmp_path, None)
    assert later.run("--built") == later.run() == built


@pytest.mark.parametrize(
    ("version", "code", "said"),
    [
        ("2.1.5", "int jpeg;", "has version 2.1.5, and 3.1 or newer is needed"),
        ("3.1.99", "no C", "building version 3.1.99 failed"),
    ],
)
def test_a_source_that_cant_be_built_is_an_error_that_says_why(
    tmp_path: Path, version: str, code: str, said: str
) -> None:
    builds = Builds(tmp_path, source(tmp_path, version, code))
    status, out, error = builds.run()
    assert (status, out) == (1, "")
    assert said in error
    assert builds.left() == ["libjpeg-turbo.lock"]


def test_a_file_that_is_no_source_is_an_error_that_names_it(tmp_path: Path) -> None:
    missing = tmp_path / "missing.tar.gz"
    assert f"{missing} can't be read" in Builds(tmp_path, missing).run()[2]
    other = tmp_path / "other.tar.gz"
    other.write_bytes(b"something else")
    assert f"{other} isn't a tarball" in Builds(tmp_path, other).run()[2]


def test_where_no_mirror_has_the_source_it_says_so(tmp_path: Path) -> None:
    status, out, error = Builds(tmp_path, None).run()
    assert (status, out) == (1, "")
    assert "no mirror that apt knows gave the source of 3.1" in error


@pytest.mark.skipif(
    not RECORD.exists() or RECORD.read_text() == "system\n", reason="the system's libjpeg-turbo is linked"
)
def test_no_other_library_of_the_process_finds_its_symbols() -> None:
    assert shutil.which("nm")
    names = subprocess.run(["nm", "-D", _native.__file__], capture_output=True, text=True, check=True).stdout
    assert "jpeg_" not in names.replace("jpeg_library", "")


def test_the_stamp_of_the_build_includes_the_library(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in (
        "scripts/package_key",
        "native/image/jpeg.h",
        "CMakeLists.txt",
        "pyproject.toml",
        "constraints.txt",
    ):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    (copy / "src").mkdir()

    def key() -> str:
        return subprocess.run(
            [copy / "scripts/package_key"], capture_output=True, text=True, check=True
        ).stdout

    keys = [key()]
    (copy / ".venv/.standpipe").mkdir(parents=True)
    for library in ("system", "/some/folder"):
        (copy / ".venv/.standpipe/libjpeg").write_text(library)
        keys.append(key())
    assert len(set(keys)) == 3
