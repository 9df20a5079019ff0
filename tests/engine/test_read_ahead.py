"""Reading threads start when storage turns out slow, and change nothing but the time it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from photos import encoded, picture, write_list
from programs import output

SLOW_OPENS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opening a photo takes 5 ms: always, or for the first SLOW of every PERIOD opens. */
static void delay(const char *path) {
    static atomic_int opens;
    const size_t length = strlen(path);
    if (length < 4 || strcmp(path + length - 4, ".jpg") != 0) return;
    const int number = atomic_fetch_add(&opens, 1) % atoi(getenv("PERIOD"));
    if (number < atoi(getenv("SLOW"))) usleep(5000);
}

#define SLOW_OPEN(name)                                                          \
    int name(const char *path, int flags, ...) {                                 \
        static int (*real)(const char *, int, ...);                              \
        if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list rest;                                                            \
        va_start(rest, flags);                                                   \
        const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;  \
        va_end(rest);                                                            \
        delay(path);                                                             \
        return real(path, flags, mode);                                          \
    }

SLOW_OPEN(open)
SLOW_OPEN(open64)
"""


@pytest.fixture(scope="module")
def slow_opens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.c").write_text(SLOW_OPENS)
    library = folder / "slow.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, folder / "slow.c", "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


def preloaded(library: Path, *, slow: int, period: int) -> dict[str, str]:
    libraries = " ".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))
    return {"LD_PRELOAD": libraries, "SLOW": str(slow), "PERIOD": str(period)}


EPOCHS = """
import hashlib
source = ps.FileList({path!r})
pipeline = ps.Pipeline(source).shuffle(seed=1).map(ps.RandomResizedCrop(16)).batch(8)
digest, ahead = hashlib.blake2b(), 0
with pipeline.loader(**{settings!r}) as loader:
    for epoch in range({epochs}):
        for batch in loader:
            digest.update(batch["image"])
            ahead |= 1 << loader.stats().reading_ahead
print(digest.hexdigest(), ahead)
"""
WARM, AHEAD, BOTH = 1, 2, 3


def bytes_and_ways(program: str, environment: dict[str, str] | None = None) -> tuple[str, int]:
    digest, ways = output(program, environment=environment).split()
    return digest, int(ways)


def test_slow_opens_are_read_ahead_and_give_the_same_bytes(tmp_path: Path, slow_opens: Path) -> None:
    write_list(tmp_path, [encoded(picture(seed)) for seed in range(96)])
    settings = {"memory": "64MiB", "workers": 2}
    program = EPOCHS.format(path=str(tmp_path / "list.txt"), settings=settings, epochs=3)
    digest, ways = bytes_and_ways(program)
    assert ways == WARM
    assert bytes_and_ways(program, preloaded(slow_opens, slow=1, period=1)) == (digest, ways | AHEAD)


def test_storage_that_is_slow_now_and_then_with_buffers_for_few_files(tmp_path: Path, slow_opens: Path) -> None:
    # Reading threads can hold all buffers when the decoding threads begin to read by themselves again.
    write_list(tmp_path, [encoded(picture(seed)) + bytes(500_000) for seed in range(96)])
    settings = {"memory": "28MiB", "workers": 2, "side_memory": "8MiB"}
    program = EPOCHS.format(path=str(tmp_path / "list.txt"), settings=settings, epochs=60)
    digest, ways = bytes_and_ways(program)
    assert bytes_and_ways(program, preloaded(slow_opens, slow=60, period=1500)) == (digest, ways | BOTH)
