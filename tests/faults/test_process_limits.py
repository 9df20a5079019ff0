"""As few open files as a system may allow, and memory that workers have to wait for."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

import standpipe as sp
from forked import output
from photos import encoded, picture, write_list, write_photos

FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
pipeline = sp.Pipeline(sp.FileList({path!r})).map(sp.CenterCrop(16))
settings = {{"executor": {executor!r}}}
if {executor!r} == "native":
    settings = {{}}
else:
    pipeline = pipeline.map(np.asarray, field="image")
try:
    with pipeline.batch(80).loader(memory="1GiB", num_workers=8, **settings) as loader:
        rows = [int(index) for _ in range(2) for batch in loader for index in batch["index"]]
        print(rows == 2 * list(range(160)), loader.stats().retries, loader.stats().deaths)
except sp.PlanError as error:
    print(error.__cause__, error)
"""


@pytest.mark.parametrize("executor", ["native", "thread", "process"])
def test_ulimit_n_of_256_and_8_workers(executor: str, tmp_path: Path) -> None:
    """Also while storage is slow, when native threads would have 128 files open beside those of the workers."""
    write_photos(tmp_path, 160)
    program = FEW_FILES.format(
        limit=256 if executor == "process" else 64, path=str(tmp_path / "list.txt"), executor=executor
    )
    slow = {"STANDPIPE_FAULTS": "read.pread=delay:20ms"} if executor == "native" else {}
    assert output(program, environment=slow) == "True 0 0\n"


@pytest.mark.parametrize("limit", [12, 24])
def test_file_limit_hit_says_the_limit_and_what_to_do(limit: int, tmp_path: Path) -> None:
    write_photos(tmp_path, 160)
    text = output(FEW_FILES.format(limit=limit, path=str(tmp_path / "list.txt"), executor="process"))
    assert f"too many open files: this process may have {limit} (ulimit -n)" in text
    assert text.endswith("Raise the limit, or use fewer workers\n")


def test_a_start_raises_the_limit_of_files_as_far_as_the_system_allows(tmp_path: Path) -> None:
    write_photos(tmp_path, 160)
    program = FEW_FILES.replace("({limit}, {limit})", "(24, 256)")
    text = output(program.format(path=str(tmp_path / "list.txt"), executor="process"))
    assert text == "True 0 0\n"


@pytest.mark.parametrize("executor", ["native", "thread"])
def test_a_run_goes_on_without_a_file_that_is_free(executor: str) -> None:
    """What looks at memory and tunes meanwhile comes again another time."""
    text = output(f"""
    import contextlib, resource
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(64.0)))
    if {executor!r} == "thread":
        pipeline = pipeline.map(np.negative, field="x")
    with pipeline.batch(4).loader(memory="256MiB") as loader:
        assert len(list(loader)) == 16
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        with contextlib.suppress(OSError):
            while True:
                os.open("/dev/null", os.O_RDONLY)
        begin = time.monotonic()
        while time.monotonic() < begin + 3:
            assert len(list(loader)) == 16
    print("done")
    """)
    assert text == "done\n"


def test_files_that_run_out_while_workers_start() -> None:
    """Others open them meanwhile: the system's refusal becomes the same error, and nothing of ours stays open."""
    text = output("""
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    opened = []

    class Greedy:
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return index

        def __getstate__(self):
            while len(os.listdir("/dev/fd")) < 243:
                opened.append(os.open("/dev/null", os.O_RDONLY))
            return {}

    loader = make(sp.MapSource(Greedy(), fields="x"), executor="process", num_workers=8, memory="512MiB")
    before = len(os.listdir("/dev/fd"))
    try:
        next(iter(loader))
    except sp.PlanError as error:
        print(str(error).startswith("too many open files: this process may have 256 (ulimit -n)"))
    gc.collect()
    print(len(os.listdir("/dev/fd")) == before + len(opened))
    """)
    assert text == "True\nTrue\n"


WAITS = """
import logging
class Log(logging.Handler):
    said = []
    def emit(self, record):
        self.said.append(record.getMessage())
logging.getLogger("standpipe").addHandler(Log())

def holds_up(label):
    from PIL import Image
    opened = Image.open
    if not hasattr(Image, "held_up"):
        Image.held_up = opened
        def open(file, *more, **other):
            image = opened(file, *more, **other)
            load = image.load
            def loads():
                if image.size == (1001, 1000):
                    with open_file({gate!r}, "rb"):
                        pass
                return load()
            image.load = loads
            return image
        open_file = __builtins__["open"] if isinstance(__builtins__, dict) else __builtins__.open
        Image.open = open
    return label

os.mkfifo({gate!r})
pipeline = sp.Pipeline(sp.FileList({path!r})).map(holds_up, field="label").map(sp.Resize((8, 8))).batch(6)
settings = {{"executor": {executor!r}, "slow_sample_s": 0.3, "large_image_memory": "12MiB", "memory": "256MiB"}}
with pipeline.loader(num_workers=3, **settings) as loader:
    batches = []
    consumer = threading.Thread(target=lambda: batches.append(next(iter(loader))))
    consumer.start()
    ends = time.monotonic() + 50
    def is_said(words):
        return any(words in text for text in Log.said)
    while not is_said("record 1,") and time.monotonic() < ends:
        time.sleep(0.05)
    time.sleep(1.0)  # three times what is slow
    file = os.open({gate!r}, os.O_RDWR)
    consumer.join(50)
    as_wanted = len(batches) == 1 and is_said("record 1,") and not is_said("waiting for memory")
    print("as wanted" if as_wanted else (len(batches), Log.said))
"""


def large_among_small(folder: Path) -> sp.FileList:
    """Six images, of which three need most of 12 MiB each."""
    files = [encoded(picture(seed), quality=90) for seed in range(6)]
    for place in (1, 3, 4):
        few = Image.fromarray(picture(place, 20, 20)).resize((1000 + place, 1000))
        files[place] = encoded(np.asarray(few), "PNG", compress_level=1)
    return write_list(folder, files)


def test_worker_killed_while_it_has_memory_that_others_wait_for(tmp_path: Path) -> None:
    """They go on with it, and the batches are the same."""
    once = tmp_path / "once"

    def kills(label: int) -> int:
        load = ImageFile.ImageFile.load

        def loads(image: ImageFile.ImageFile) -> Any:
            if image.size == (1001, 1000) and not once.exists():
                once.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return load(image)

        if os.getpid() != trainer and load.__name__ != "loads":
            ImageFile.ImageFile.load = loads  # type: ignore[method-assign]
        return label

    trainer = os.getpid()
    pipeline = sp.Pipeline(large_among_small(tmp_path)).map(kills, field="label").map(sp.Resize((8, 8)))
    pipeline = pipeline.repeat_each(4).batch(6)

    def batches(executor: str) -> tuple[list[bytes], int]:
        settings: dict[str, Any] = {"executor": executor, "large_image_memory": "12MiB", "memory": "256MiB"}
        with pipeline.loader(num_workers=3, **settings) as loader:
            made = [batch["image"].tobytes() for batch in loader]
            stats = loader.stats()
        return made, stats.deaths

    expected, _ = batches("thread")
    assert batches("process") == (expected, 1)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_samples_that_wait_for_memory_are_not_slow(executor: str, tmp_path: Path) -> None:
    """The one that has it is, and is named."""
    large_among_small(tmp_path)
    program = WAITS.format(gate=str(tmp_path / "gate"), path=str(tmp_path / "list.txt"), executor=executor)
    assert output(program) == "as wanted\n"
