"""Reading threads start when storage turns out slow, and change nothing but the time it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import penstock as ps
from photos import encoded, picture, write_list
from programs import output

SLOW_FILES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int due(atomic_int *count, const char *name) {
    return atomic_fetch_add(count, 1) < atoi(getenv(name));
}

/* The first SLOW_OPENS opens of photos take 5 ms each. */
static void delay_open(const char *path) {
    static atomic_int opens;
    const size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".jpg") == 0 && due(&opens, "SLOW_OPENS")) usleep(5000);
}

/* The first SLOW_READS reads of half a million bytes take 1 s each. */
static void delay_read(size_t count) {
    static atomic_int reads;
    if (count > 500000 && due(&reads, "SLOW_READS")) usleep(1000000);
}

#define SLOW_OPEN(name)                                                             \
    int name(const char *path, int flags, ...) {                                    \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);              \
        va_list rest;                                                               \
        va_start(rest, flags);                                                      \
        const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;     \
        va_end(rest);                                                               \
        delay_open(path);                                                           \
        return real(path, flags, mode);                                             \
    }
#define SLOW_READ(name)                                                             \
    ssize_t name(int file, void *out, size_t count, off_t offset) {                 \
        ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, #name);      \
        delay_read(count);                                                          \
        return real(file, out, count, offset);                                      \
    }

SLOW_OPEN(open)
SLOW_OPEN(open64)
SLOW_READ(pread)
SLOW_READ(pread64)
"""


@pytest.fixture(scope="module")
def slow_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.c").write_text(SLOW_FILES)
    library = folder / "slow.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, folder / "slow.c", "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


def slow(library: Path, *, opens: int, reads: int = 0) -> dict[str, str]:
    """The environment of a program for which so many opens and reads are slow."""
    libraries = " ".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))
    return {"LD_PRELOAD": libraries, "SLOW_OPENS": str(opens), "SLOW_READS": str(reads)}


PROGRAM = """
import hashlib
pipeline = ps.Pipeline(ps.FileList({path!r})).map(ps.RandomResizedCrop(16)).batch({rows})
digest, ahead, begin = hashlib.blake2b(), [], time.monotonic()
with pipeline.loader(**{settings!r}) as loader:
    for batch in loader:
        digest.update(batch["image"])
        ahead.append(loader.stats().reading_ahead)
    print(digest.hexdigest())
    print(ahead[-1], loader.stats().read.busy_s > 1.3 * (time.monotonic() - begin))
"""


def test_slow_opens_are_read_ahead_and_give_the_same_bytes(tmp_path: Path, slow_files: Path) -> None:
    write_list(tmp_path, [encoded(picture(seed)) for seed in range(160)])
    path, settings = str(tmp_path / "list.txt"), {"memory": "64MiB", "workers": 2}
    program = PROGRAM.format(path=path, rows=8, settings=settings)
    digest, how = output(program).splitlines()
    assert how == "False False"
    slow_digest, how = output(program, environment=slow(slow_files, opens=1 << 30)).splitlines()
    assert how == "True True", "each decoding thread waited for its own files"
    assert slow_digest == digest


def test_reading_threads_that_hold_all_buffers_while_decoding_threads_read_themselves(
    tmp_path: Path, slow_files: Path
) -> None:
    # Slow opens, so that files are read ahead; six large files that are slow and hold nearly all buffers; more
    # than enough small ones to end reading ahead; and a large one, for which there is no buffer yet.
    small = [encoded(picture(seed, 16, 16)) for seed in range(20)]
    large = [small[0] + bytes(600_000)]
    source = write_list(tmp_path, [*small, *small, *6 * large, *60 * small, *large])
    pipeline = ps.Pipeline(source).map(ps.RandomResizedCrop(16)).batch(1247)
    settings: dict[str, object] = {"workers": 1, "side_memory": "8MiB"}
    with pytest.raises(ps.BudgetError) as caught:
        pipeline.plan(memory=1, **settings)
    settings["memory"] = caught.value.smallest_bytes
    program = PROGRAM.format(path=str(tmp_path / "list.txt"), rows=1247, settings=settings)
    digest, how = output(program).splitlines()
    assert how == "False False"
    ended = False
    for _ in range(8):  # on a busy machine reads of files in memory take long too, and reading ahead goes on
        slow_digest, how = output(program, environment=slow(slow_files, opens=40, reads=6)).splitlines()
        assert slow_digest == digest
        assert how.endswith("True"), "reading ahead didn't begin"
        ended = how.startswith("False")
        if ended:
            break
    assert ended, "reading ahead never ended"
