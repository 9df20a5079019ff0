"""Reading threads start when storage turns out slow, and change nothing but the time it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import standpipe as sp
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
#include <sys/resource.h>
#include <unistd.h>

/* How often a thread has waited here, and how many have at once. */
static _Thread_local long waits;
static atomic_int waiting;
atomic_int most_waiting;

static void begin_wait(void) {
    const int now = atomic_fetch_add(&waiting, 1) + 1;
    int most = most_waiting;
    while (now > most && !atomic_compare_exchange_weak(&most_waiting, &most, now)) continue;
}

static void end_wait(void) {
    ++waits;
    atomic_fetch_sub(&waiting, 1);
}

static atomic_int opens;

/* The first SLOW_OPENS opens of photos take 5 ms each. */
static void delay_open(const char *path) {
    const size_t length = strlen(path);
    if (length < 5 || strcmp(path + length - 4, ".jpg") != 0) return;
    if (atomic_fetch_add(&opens, 1) >= atoi(getenv("SLOW_OPENS"))) return;
    begin_wait();
    usleep(5000);
    end_wait();
}

/* The first read of half a million bytes takes half a second, or as long as 700 photos more are opened; those that
   begin meanwhile end with it. */
static void delay_read(size_t count) {
    static atomic_int begun, over;
    if (count < 500000 || over || !getenv("SLOW_READS")) return;
    begin_wait();
    if (atomic_fetch_add(&begun, 1) == 0) {
        const int enough = opens + 700;
        for (int i = 0; i < 500 && opens < enough; ++i) usleep(1000);
        over = 1;
    }
    while (!over) usleep(1000);
    end_wait();
}

/* With ONLY_SLOW, nothing else makes a thread give up its core: on a busy machine locks of the kernel do. */
int getrusage(__rusage_who_t who, struct rusage *usage) {
    int (*real)(__rusage_who_t, struct rusage *) = dlsym(RTLD_NEXT, "getrusage");
    const int result = real(who, usage);
    if (who == RUSAGE_THREAD && getenv("ONLY_SLOW")) usage->ru_nvcsw = waits;
    return result;
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


def slow(library: Path, *, opens: int) -> dict[str, str]:
    """The environment of a program for which so many opens are slow."""
    libraries = " ".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))
    return {"LD_PRELOAD": libraries, "SLOW_OPENS": str(opens)}


def never_slow(library: Path) -> dict[str, str]:
    """The environment of a program that takes no read for a slow one, however busy the machine is."""
    return slow(library, opens=0) | {"ONLY_SLOW": ""}


PROGRAM = """
import ctypes, hashlib
pipeline = sp.Pipeline(sp.FileList({path!r})).map(sp.RandomResizedCrop(16)).batch({rows})
digest, ahead = hashlib.blake2b(), []
with pipeline.loader(**{settings!r}) as loader:
    for batch in loader:
        digest.update(batch["image"])
        ahead.append(loader.stats().reading_ahead)
print(digest.hexdigest())
print(ahead[-1])
print(ctypes.c_int.in_dll(ctypes.CDLL(None), "most_waiting").value)
"""


def test_slow_opens_are_read_ahead_and_give_the_same_bytes(tmp_path: Path, slow_files: Path) -> None:
    write_list(tmp_path, [encoded(picture(seed)) for seed in range(160)])
    path, settings = str(tmp_path / "list.txt"), {"memory": "64MiB", "num_workers": 2}
    program = PROGRAM.format(path=path, rows=8, settings=settings)
    digest, ahead, _ = output(program, environment=never_slow(slow_files)).splitlines()
    assert ahead == "False"
    slow_digest, ahead, most = output(program, environment=slow(slow_files, opens=1 << 30)).splitlines()
    assert ahead == "True"
    assert int(most) > 2, "each decoding thread waited for its own files"
    assert slow_digest == digest


def test_reading_threads_that_hold_all_buffers_while_decoding_threads_read_themselves(
    tmp_path: Path, slow_files: Path
) -> None:
    # Slow opens, so that files are read ahead; six large files that are slow and hold nearly all buffers; more
    # than enough small ones to end reading ahead; and a large one, for which there is no buffer yet.
    small = [encoded(picture(seed, 16, 16)) for seed in range(20)]
    large = [small[0] + bytes(600_000)]
    source = write_list(tmp_path, [*small, *small, *6 * large, *120 * small, *large])
    pipeline = sp.Pipeline(source).map(sp.RandomResizedCrop(16)).batch(2447)
    settings: dict[str, object] = {"num_workers": 1, "large_image_memory": "8MiB"}
    with pytest.raises(sp.BudgetError) as caught:
        pipeline.plan(memory=1, **settings)
    settings["memory"] = caught.value.smallest_bytes
    program = PROGRAM.format(path=str(tmp_path / "list.txt"), rows=2447, settings=settings)
    digest, ahead, _ = output(program, environment=never_slow(slow_files)).splitlines()
    assert ahead == "False"
    slow_reads = slow(slow_files, opens=40) | {"SLOW_READS": "", "ONLY_SLOW": ""}
    slow_digest, ahead, most = output(program, environment=slow_reads).splitlines()
    assert int(most) > 1, "reading ahead didn't begin"
    assert ahead == "False", "reading ahead never ended"
    assert slow_digest == digest
