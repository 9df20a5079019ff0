"""However a program ends, it ends: promptly, with its own exit code, and with nothing left behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from PIL import Image

from programs import output, run

PROMPT_S = 8  # from the end's cause to the process's end, also on a busy machine
INTERRUPTED = -signal.SIGINT

# A loader whose filling waits until it is told: so its consumer waits in next().
STUCK = """
waits, go_on = threading.Event(), threading.Event()
now = threading.Lock()  # an interrupt does no harm to a lock, as it does inside an event's methods
now.acquire()
def block(rows):
    waits.set()
    go_on.wait()
loader = make(Watched(numbers(64), block))
"""

# Takes the time from the cause of the end to the exit, as far as Python sees it.
TIMED = """
import atexit
begin = [time.monotonic()]
atexit.register(lambda: print("took", time.monotonic() - begin[0], flush=True))
"""


def took_s(stdout: str) -> float:
    return float(stdout.split("took ")[1].split()[0])


def test_ctrl_c_in_next() -> None:
    done = run(
        TIMED
        + STUCK
        + """
iterator = iter(loader)
def strike():
    waits.wait()
    now.acquire()
    begin[0] = time.monotonic()
    interrupt()
threading.Thread(target=strike, daemon=True).start()
now.release()
next(iterator)
"""
    )
    assert done.returncode == INTERRUPTED
    assert "KeyboardInterrupt" in done.stderr
    # The filling thread is stuck in the source, which is said, and the loader gives it no more than its time.
    assert "still busy" in done.stderr
    assert took_s(done.stdout) < PROMPT_S


def test_a_thread_inside_pillow_when_the_interpreter_ends(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    (tmp_path / "list.txt").write_text("image.png\n")
    done = run(
        f"""
import standpipe.transform.decoders.foreign
from PIL import Image
inside, real = threading.Event(), Image.open
def stay(*arguments, **options):
    if threading.current_thread() is threading.main_thread():  # plan() looks at the image
        return real(*arguments, **options)
    inside.set()
    while True:  # it asks for the interpreter's lock again and again
        time.sleep(0.001)
Image.open = stay
class Late:
    def __del__(self, sleep=time.sleep):
        sleep(0.2)  # while the interpreter ends
late = Late()
os.chdir({str(tmp_path)!r})
pipeline = sp.Pipeline(sp.FileList('list.txt')).map(sp.CenterCrop(8)).batch(1)
loader = pipeline.loader(memory="64MiB", num_workers=1)
batches = iter(loader)
inside.wait()
"""
    )
    assert "still busy" in done.stderr
    assert "terminate called" not in done.stderr
    assert done.returncode == 0


def test_ctrl_c_in_the_loop() -> None:
    done = run(
        TIMED
        + """
for number, batch in enumerate(make()):
    if number == 5:
        begin[0] = time.monotonic()
        interrupt()
"""
    )
    assert done.returncode == INTERRUPTED
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert took_s(done.stdout) < PROMPT_S


def test_ctrl_c_inside_with() -> None:
    done = run("""
try:
    with make() as loader:
        for batch in loader:
            interrupt()
except KeyboardInterrupt:
    print(threading.active_count(), loader.state_dict()["consumed"])
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 2\n", "")


def test_after_an_interrupt_the_same_batch_comes() -> None:
    text = output(
        STUCK
        + """
iterator = iter(loader)
def strike():
    waits.wait()
    now.acquire()
    interrupt()
threading.Thread(target=strike, daemon=True).start()
try:
    now.release()
    next(iterator)
except KeyboardInterrupt:
    go_on.set()
    print(next(iterator)["index"].tolist() == loader.plan.order.indices(0, 0, 2).tolist())
"""
    )
    assert text == "True\n"


def test_signals_are_left_to_the_programs_own_threads() -> None:
    # The kernel may give a signal to any thread that doesn't block it, and only the main thread's wait ends then.
    text = output(
        """
others = set(os.listdir("/proc/self/task"))
loader = make()
next(iter(loader))
others |= {str(thread.native_id) for thread in threading.enumerate()}
def blocking():
    found = []
    for task in os.listdir("/proc/self/task"):
        if task not in others:
            with open(f"/proc/self/task/{task}/status") as file:
                mask = int(file.read().split("SigBlk:")[1].split()[0], 16)
            found.append((bool(mask >> signal.SIGINT - 1 & 1), bool(mask >> signal.SIGSEGV - 1 & 1)))
    return found

ends = time.monotonic() + 10
while blocking() != [(True, False)] * 2 and time.monotonic() < ends:
    os.sched_yield()  # a thread that begins blocks all for a moment
print(blocking(), signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
    )
    assert text == "[(True, False), (True, False)] set()\n"


def test_interrupts_at_any_moment_lose_no_batch() -> None:
    text = output("""
import random
inside = False
def ring(*_):  # late, where another thread was given the signal and the machine is busy
    if inside:
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, ring)
loader = make(numbers(4096), rows=1)
iterator, delivered, interrupts = iter(loader), [], 0
while len(delivered) < 4096:
    at = loader.state_dict()["consumed"]
    try:
        inside = True
        signal.setitimer(signal.ITIMER_REAL, 1e-6 + random.random() * 3e-4)
        batch = next(iterator)
        inside = False
    except KeyboardInterrupt:
        inside = False
        interrupts += 1
        if loader.state_dict()["consumed"] == at:
            continue
        batch = {"index": loader.plan.order.indices(0, at, at + 1)}  # it came just before the interrupt
    delivered.append(batch["index"].item())
print(delivered == loader.plan.order.indices(0, 0, 4096).tolist(), interrupts > 0)
""")
    assert text == "True True\n"


def test_an_exception_in_the_loop_keeps_its_traceback() -> None:
    done = run("""
def step(batch):
    raise ValueError("the loss is not finite")
for batch in make():
    step(batch)
""")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ValueError: the loss is not finite\n")
    assert "in step" in done.stderr
    assert "standpipe" not in done.stderr


def test_a_traceback_that_holds_the_iterator() -> None:
    text = output("""
def train():
    loader = make()
    iterator = iter(loader)
    next(iterator)
    raise ValueError
try:
    train()
except ValueError as error:
    kept = error
print(threading.active_count() > 1)
""")
    assert text == "True\n"


@pytest.mark.parametrize(
    "program",
    [
        "loader = make(); iterator = iter(loader)",
        "iterator = iter(make()); batch = next(iterator)",
        "loader = make(); list(loader)",
        "loader = make()",
        "kept = list(make())",
        "loader = make(); next(iter(loader)); loader.cycle = loader",
        "batch = next(iter(make()))\nbatch['cycle'] = batch",
        "loader = make()\nfor batch in loader: break\nsys.exit()",
        "loader = make()\nfor batch in loader: del loader; break",
        "loader = make(); next(iter(loader)); loader.close(); loader.close()",
        "with make() as loader: next(iter(loader))\nloader.close()",
        "with make() as loader, loader: next(iter(loader))",
    ],
)
def test_a_program_ends_in_silence(program: str) -> None:
    begin = time.monotonic()
    assert output(program) == ""
    assert time.monotonic() - begin < 10


def test_exit_codes_are_the_programs_own() -> None:
    assert run("loader = make(); next(iter(loader)); sys.exit(7)").returncode == 7
    assert run("loader = make(); next(iter(loader)); os._exit(8)").returncode == 8
    assert run("loader = make(); next(iter(loader)); os.kill(os.getpid(), 15)").returncode == -15


def test_the_end_of_the_program_while_a_daemon_thread_iterates() -> None:
    text = output("""
ready = threading.Event()
def train():
    try:
        for epoch in range(1_000_000):
            for batch in make_once:
                ready.set()
    except sp.StandpipeError:
        pass
make_once = make()
threading.Thread(target=train, daemon=True).start()
ready.wait()
print("end")
""")
    assert text == "end\n"


def test_the_end_of_the_program_while_a_daemon_thread_waits() -> None:
    done = run(
        TIMED
        + STUCK
        + """
threading.Thread(target=lambda: next(iter(loader), None), daemon=True).start()
waits.wait()
begin[0] = time.monotonic()
"""
    )
    assert done.returncode == 0
    assert took_s(done.stdout) < PROMPT_S


def test_close_from_another_thread_wakes_the_consumer() -> None:
    text = output(
        STUCK
        + """
def end():
    waits.wait()
    closer = threading.Thread(target=loader.close)
    closer.start()
    go_on.set()
    closer.join()
thread = threading.Thread(target=end)
thread.start()
try:
    next(iter(loader))
except sp.StandpipeError as error:
    print(error)
thread.join()
print(threading.active_count())
"""
    )
    assert text == "the loader is closed\n1\n"


def test_closing_while_batches_come_and_go() -> None:
    text = output("""
for _ in range(60):
    loader = make(rows=1)
    thread = threading.Timer(0.002, loader.close)
    thread.start()
    kept = []
    try:
        while True:
            for batch in loader:
                assert batch["x"].item() == 3 * batch["index"].item()
                kept = [*kept[-5:], batch]
    except sp.StandpipeError as error:
        assert "closed" in str(error), error
    thread.join()
    for batch in kept:
        assert batch["x"].item() == 3 * batch["index"].item()
print(threading.active_count())
""")
    assert text == "1\n"


CENSUS = """
def census():
    looks = [(len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))) for _ in range(50)]
    return tuple(map(min, zip(*looks)))  # for a moment a file of /proc may be open

def is_as_before():
    ends = time.monotonic() + 10
    while (more := [now for now, then in zip(census(), before) if now > then]) and time.monotonic() < ends:
        os.sched_yield()  # native threads say that they are done just before they are gone
    return not more or (census(), before, os.listdir("/proc/self/task"), [t.name for t in threading.enumerate()])
"""


def test_a_thousand_breaks_leave_no_thread_and_no_descriptor() -> None:
    program = """
import logging
from standpipe.observe import loaders

logging.getLogger("standpipe").setLevel("ERROR")  # it says once what iter() does after a break
loader = make()
next(iter(loader))
while not any(found.pid == os.getpid() for found in loaders()):
    os.sched_yield()  # a thread opens the file that tells other processes of the loader
before = census()
for _ in range(1000):
    for batch in loader:
        break
print(is_as_before(), loader.epoch)
"""
    assert output(CENSUS + program) == "True 1000\n"


def test_a_hundred_loaders_leave_no_thread_and_no_descriptor() -> None:
    program = """
before = census()
for number in range(100):
    loader = make()
    next(iter(loader))
    if number % 2:
        loader.close()
    del loader
print(is_as_before())
"""
    assert output(CENSUS + program) == "True\n"


FORK = """
loader = make()
iterator = iter(loader)
batch = next(iterator)
child = os.fork()
"""


@pytest.mark.parametrize("leave", ["sys.exit(5)", "os._exit(5)"])
def test_a_forked_child_gets_an_error_and_ends(leave: str) -> None:
    text = output(
        FORK
        + f"""
if child == 0:
    import logging
    logging.getLogger("standpipe").setLevel("ERROR")  # it says once what iter() does after a break
    for attempt in (lambda: next(iterator), lambda: next(iter(loader)), loader.stats):
        try:
            attempt()
        except sp.StandpipeError as error:
            print("fork" in str(error), flush=True)
    loader.state_dict()
    del batch
    loader.close()
    with make() as own:
        print(len(list(own)), flush=True)
    {leave}
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(iterator)), flush=True)
"""
    )
    assert text == "True\nTrue\nTrue\n32\n5 31\n"


def test_children_forked_at_any_moment_end() -> None:
    text = output("""
loader = make(rows=1)
codes = set()
def train():
    while not done:
        for batch in loader:
            pass
done = False
thread = threading.Thread(target=train)
thread.start()
for _ in range(7):  # each takes a tenth of a second's work, beside threads that leave it no CPU
    child = os.fork()
    if child == 0:
        kept = gc.get_objects()
        loader.close()
        del kept, loader
        gc.collect()
        sys.exit(3)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done = True
thread.join()
print(codes)
""")
    assert text == "{3}\n"


def test_a_loader_that_nobody_started_survives_a_fork() -> None:
    text = output("""
loader = make()
child = os.fork()
rows = len(list(loader))
status = os.waitpid(child, 0)[1] if child else None  # before it prints: not both at once
print(rows, status, flush=True)
""")
    assert text == "32 None\n32 0\n"


def test_two_loaders_at_once() -> None:
    text = output("""
one, two = make(), make(numbers(32), rows=1)
for a, b in zip(one, two, strict=True):
    assert a["x"][:, 0].tolist() == (3 * a["index"]).tolist()
    assert b["x"][:, 0].tolist() == (3 * b["index"]).tolist()
print(one.epoch, two.epoch)
""")
    assert text == "1 1\n"


def test_a_loader_inside_a_thread() -> None:
    text = output("""
def train(number):
    with make(numbers(32 + number)) as loader:
        for epoch in range(3):
            for batch in loader:
                assert batch["x"][:, 0].tolist() == (3 * batch["index"]).tolist()
    trained.append(number)
trained = []
threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(trained))
""")
    assert text == "[0, 1, 2, 3]\n"


def test_a_loop_inside_a_loop_over_another_loader() -> None:
    text = output("""
train, test = make(), make(numbers(8))
for batch in train:
    assert len(list(test)) == 4
print(test.epoch)
""")
    assert text == "32\n"


def test_when_the_system_allows_no_more_threads() -> None:
    done = run("""
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
loader = make(numbers(64), num_workers=4000, memory="16GiB")
try:
    next(iter(loader))
except sp.StandpipeError as error:
    print("the system refused" in str(error), "4000 workers" in str(error), type(error.__cause__))
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True <class 'RuntimeError'>\n", "")


def test_when_there_are_no_more_descriptors() -> None:
    text = output("""
import resource
import standpipe.engine.run  # as every first batch does
loader = make()
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1,) * 2)
try:
    next(iter(loader))
except sp.StandpipeError as error:
    print("too many open files" in str(error), "ulimit -n" in str(error))
""")
    assert text == "True True\n"
