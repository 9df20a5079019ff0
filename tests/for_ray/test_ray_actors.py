"""Batches of a Ray cluster: the same bytes, whatever is killed."""

from __future__ import annotations

import decimal
import importlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from fleets import of_batch
from photos import WAIT_S

ray = pytest.importorskip("ray")

from ray.util.placement_group import placement_group, remove_placement_group  # noqa: E402
from ray.util.scheduling_strategies import (  # noqa: E402
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

import standpipe.ray  # noqa: E402
import standpipe.torch  # noqa: E402
from standpipe.ray.maker import RayMaker  # noqa: E402 (to say that it has another version)

ACTOR = {"cpus_per_actor": 0.25, "memory_per_actor": "150MiB"}
MEMORY = "400MiB"


def first(actors: standpipe.ray.Actors, number: int) -> standpipe.ray.Actors:
    """Some of the actors, as a fleet of their own."""
    return replace(actors, makers=number, handles=actors.handles[:number])


def processes(actors: standpipe.ray.Actors) -> list[int]:
    """The processes of all actors."""
    hellos = [handle.hello.options(max_task_retries=-1) for handle in actors.handles]
    greeted = ray.get([hello.remote(actors.pipeline) for hello in hellos])
    return [int(re.search(r"process (\d+)", name)[1]) for name, _ in greeted]  # type: ignore[index]


def has_ended(process: int) -> bool:
    """Wait for the end of a process, which isn't a child of this one."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    ended = bool(waiting.poll(WAIT_S * 1000))
    os.close(descriptor)
    return ended


@pytest.mark.parametrize("number", [1, 3, 8])
def test_batches_are_those_of_this_process(
    number: int, actors: standpipe.ray.Actors, pipeline: sp.Pipeline, expected: list[str]
) -> None:
    with standpipe.ray.loader(pipeline, first(actors, number), memory=MEMORY) as loader:
        assert [of_batch(batch) for _ in range(2) for batch in loader] == expected
        many = f"{number} Ray actor{'s' if number > 1 else ''}"
        assert f"{many} with 0.25 CPUs and memory='150MiB' each" in loader.explain()


def test_the_trainer_says_which_fields_must_fit_the_image(nodes: Any) -> None:
    """An actor doesn't know which of them are delivered."""
    image = np.zeros((8, 12, 12, 3), np.uint8)
    source = sp.Arrays(image=image, label=np.arange(8), boxes=np.zeros((8, 4)))
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(4)
    with pytest.raises(sp.PlanError, match=r"^CenterCrop\(size=8\) moves .* but not the field 'boxes'"):
        standpipe.ray.loader(pipeline, 1, memory=MEMORY)
    with standpipe.ray.start(pipeline, 1, fallback="wait", **ACTOR) as one:
        batches = standpipe.torch.loader(pipeline, fleet=one, memory=MEMORY)
        assert [len(images) for images, _ in batches] == [4, 4]
        batches.close()


def test_a_run_resumes_with_other_actors_and_without_any(
    actors: standpipe.ray.Actors, pipeline: sp.Pipeline, expected: list[str]
) -> None:
    found: list[str] = []
    state: dict[str, object] | None = None
    for number, steps in ((3, 5), (0, 5), (1, 5), (8, 9)):
        options: dict[str, Any] = {"fleet": first(actors, number)} if number else {"num_workers": 1}
        with pipeline.loader(memory=MEMORY, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            found += [of_batch(batch) for batch in loader.steps(steps)]
            state = loader.state_dict()
    assert found == expected


@pytest.mark.parametrize("killed", [1, 2, 4])
def test_nothing_is_lost_or_repeated_when_actors_are_killed(
    killed: int, actors: standpipe.ray.Actors, pipeline: sp.Pipeline, expected: list[str]
) -> None:
    four = first(actors, 4)
    found, running = [], processes(four)
    with standpipe.ray.loader(pipeline, four, memory=MEMORY) as loader:
        for epoch in range(2):
            for batch in loader:
                found.append(of_batch(batch))
                if epoch == 0 and len(found) == 5:
                    for process in running[:killed]:
                        os.kill(process, signal.SIGKILL)
        if killed == 4:  # others may make all the rest before Ray has found that one is dead
            assert loader.stats().deaths >= 1
    assert found == expected


def test_an_actor_that_died_while_a_loader_asked_for_nothing_is_greeted_again(
    actors: standpipe.ray.Actors, pipeline: sp.Pipeline, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    one = first(actors, 1)
    with standpipe.ray.loader(pipeline, one, memory=MEMORY, prefetch=1) as loader:
        batches = iter(loader)
        found = [of_batch(next(batches))]
        with standpipe.ray.loader(pipeline, one, memory=MEMORY) as other:
            assert len(list(other)) == 12  # after them, the first loader awaits nothing
        ray.kill(one.handles[0], no_restart=False)
        ray.get(one.handles[0].alive.options(max_task_retries=-1).remote())
        found += [of_batch(batch) for batch in batches]
        assert loader.stats().deaths == 1
    assert found == expected[:12]
    assert "is started again after" not in caplog.text  # it would be killed under other loaders


def test_ranks_share_actors_also_from_tasks_of_the_cluster(
    actors: standpipe.ray.Actors, pipeline: sp.Pipeline
) -> None:
    @ray.remote(num_cpus=0.1)
    def train(rank: int, shared: standpipe.ray.Actors, of_all: sp.Pipeline) -> list[int]:
        with standpipe.ray.loader(of_all.shard(rank, 2), shared, memory="400MiB") as loader:
            return [int(index) for batch in loader for index in batch["index"]]

    indices = ray.get([train.remote(rank, actors, pipeline) for rank in range(2)])
    with pipeline.shard(1, 2).loader(num_workers=1) as loader:
        assert indices[1] == [int(index) for batch in loader for index in batch["index"]]
    assert sorted(indices[0] + indices[1]) == list(range(48))


def test_ray_places_actors_as_its_options_say(nodes: Any, pipeline: sp.Pipeline) -> None:
    def group_of(actor: Any) -> Any:
        return ray.util.get_current_placement_group()

    group = placement_group([{"CPU": 0.25, "memory": 150 << 20}])
    options = {"scheduling_strategy": PlacementGroupSchedulingStrategy(group)}
    with standpipe.ray.start(pipeline, 1, ray_options=options, **ACTOR) as started:
        assert ray.get(started.handles[0].__ray_call__.remote(group_of)).id == group.id
    remove_placement_group(group)


def test_actors_for_a_node_that_is_not_there_are_an_error(nodes: Any, pipeline: sp.Pipeline) -> None:
    options = {"scheduling_strategy": NodeAffinitySchedulingStrategy("ab" * 28, soft=False)}
    with (
        standpipe.ray.loader(pipeline, 1, memory=MEMORY, ray_options=options, **ACTOR) as loader,
        pytest.raises(sp.WorkerDiedError, match=r"(?s)actor 0: .*node"),
    ):
        iter(loader)


class Missing:
    """A source whose files only one process sees."""

    def __init__(self, source: Any, process: int) -> None:
        self._source, self._process = source, process

    def describe(self) -> str:
        return str(self._source.describe())

    def open(self) -> Any:
        if os.getpid() != self._process:
            raise sp.PlanError("there is no folder '/photos'")
        return self._source.open()


def test_a_path_that_a_node_lacks_is_an_error_at_the_start(nodes: Any) -> None:
    source: Any = Missing(sp.Arrays(x=np.arange(8)), os.getpid())
    with (
        standpipe.ray.loader(sp.Pipeline(source).batch(2), 1, memory=MEMORY, **ACTOR) as loader,
        pytest.raises(
            sp.PlanError, match=r"actor 0 on node [\d.]+ \(process \d+\): there is no folder '/photos'"
        ),
    ):
        iter(loader)


def test_another_version_is_refused_with_both_named(nodes: Any, actors: standpipe.ray.Actors) -> None:
    _, error = RayMaker(4, "0.0.1", actors.settings, "/").hello(ray.get(actors.pipeline))
    assert re.fullmatch(
        rf"actor 4 on node [\d.]+ \(process {os.getpid()}\): it has standpipe {sp.__version__}, and the trainer has "
        r"0\.0\.1\. Install the same version",
        str(error),
    )


def test_actors_that_cannot_start_are_an_error_with_the_reason(nodes: Any, tmp_path: Path) -> None:
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('this one is broken')")
    options = {"runtime_env": {"env_vars": {"PYTHONPATH": str(tmp_path)}}}
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2)
    with (
        standpipe.ray.loader(pipeline, 1, memory=MEMORY, ray_options=options, **ACTOR) as loader,
        pytest.raises(sp.WorkerDiedError, match=r"(?s)actor 0: .*this one is broken"),
    ):
        iter(loader)


def test_padding_is_marked_and_a_look_takes_no_batch(nodes: Any) -> None:
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(10))).batch(4)
    with standpipe.ray.loader(pipeline, 1, memory=MEMORY, **ACTOR) as loader:
        assert [loader.peek()["x"].tolist() for _ in range(2)] == [[0, 1, 2, 3]] * 2
        batches = [(batch["x"].tolist(), batch["valid"].tolist()) for batch in loader]
        assert [x for xs, valid in batches for x, real in zip(xs, valid, strict=True) if real] == [*range(10)]
        assert len(batches) == len(loader) == 3


def test_actors_end_with_a_trainer_that_is_killed(nodes: Any, tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import os, re, signal, numpy as np, ray, standpipe as sp, standpipe.ray
        ray.init(address={nodes.address!r}, log_to_driver=False)
        pipeline = sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4)
        loader = standpipe.ray.loader(pipeline, 1, memory="300MiB", cpus_per_actor=0.5, memory_per_actor="150MiB")
        next(iter(loader))
        print(re.search(r"process ([0-9]+)", loader.stats().workers[0].name)[1], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert has_ended(int(done.stdout.split()[-1]))


@pytest.mark.parametrize("joins_again", [False, True])
def test_the_end_of_the_connection_is_an_error_and_no_other_cluster_is_joined(
    nodes: Any, joins_again: bool
) -> None:
    program = textwrap.dedent(f"""
        import numpy as np, ray, standpipe as sp, standpipe.ray
        ray.init({nodes.address!r}, log_to_driver=False)
        pipeline = sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(2)
        with standpipe.ray.start(pipeline, 1, cpus_per_actor=0.25, memory_per_actor="150MiB") as actors:
            with standpipe.ray.loader(pipeline, actors, memory="400MiB", slow_sample_s=0.01) as loader:
                batches = iter(loader)
                next(batches)
                ray.shutdown()
                if {joins_again}:
                    ray.init({nodes.address!r}, log_to_driver=False)
                try:
                    print(len(list(batches)))
                except sp.PlanError as error:
                    print(error)
        print(ray.is_initialized())
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "ray.shutdown() was called before" in done.stdout, done.stderr
    assert done.stdout.split()[-1] == str(joins_again)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"actors": 0}, "actors must be an integer from 1"),
        ({"cpus_per_actor": 0}, "cpus_per_actor must be a number above 0"),
        ({"cpus_per_actor": float("nan")}, "cpus_per_actor must be a number above 0"),
        ({"executor": "inline"}, "actors can't run it"),
        ({"ray_options": {"lifetime": "detached"}}, "leave name and lifetime out of"),
        ({"ray_options": {"name": "mine"}}, "actors have no names"),
        ({"ray_options": 3}, "ray_options must be a dict"),
        ({"memory_per_actor": "much"}, "memory"),
        ({"fallback": "none"}, "fallback must be 'local', 'wait' or 'raise'"),
    ],
)
def test_invalid_arguments_are_refused(nodes: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        standpipe.ray.loader(sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2), **arguments)


def test_arguments_of_actors_are_refused_before_they_start(nodes: Any, pipeline: sp.Pipeline) -> None:
    with pytest.raises(sp.PlanError, match=r"Ray refuses ray_options=.*nmu_cpus"):
        standpipe.ray.start(pipeline, 1, ray_options={"nmu_cpus": 1})
    with pytest.raises(TypeError, match="num_workers="):
        standpipe.ray.start(pipeline, 1, num_wrkers=2)
    with pytest.raises(sp.PlanError, match="actors can't run it"):
        standpipe.ray.start(pipeline, 1, executor="inline")


def test_a_budget_that_is_too_small_names_its_argument(nodes: Any) -> None:
    large = sp.Pipeline(sp.Arrays(x=np.zeros((8, 1 << 20)))).batch(8)
    small = {**ACTOR, "memory_per_actor": "40MiB"}
    with (
        standpipe.ray.loader(large, 1, memory="1GiB", **small) as loader,  # type: ignore[arg-type]
        pytest.raises(sp.PlanError, match="An actor's budget is memory_per_actor="),
    ):
        next(iter(loader))


def test_streams_are_refused(nodes: Any) -> None:
    stream = sp.Pipeline(sp.IterableSource(lambda: iter([{"x": 1}] * 8))).batch(2)
    with pytest.raises(sp.PlanError, match="a fleet can't make these batches: a stream has a place"):
        standpipe.ray.loader(stream)


def test_tensors_in_shared_memory_are_copies_with_a_warning(nodes: Any) -> None:
    torch = pytest.importorskip("torch")
    for tensor in (torch.zeros(2), torch.eye(2).to_sparse()):
        standpipe.ray.loader(sp.Pipeline(sp.MapSource([tensor], fields="x")).batch(1), 1)
    shared = sp.Pipeline(sp.MapSource([torch.zeros(2).share_memory_()], fields="x")).batch(1)
    with pytest.warns(UserWarning, match="tensors in shared memory.*Ray actors get copies") as caught:
        standpipe.ray.loader(shared, 1)
    assert [warning.filename for warning in caught] == [__file__]


def test_ray_client_is_refused(nodes: Any) -> None:
    pytest.importorskip("grpc")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = f"""
        import os, ray, standpipe as sp, standpipe.ray
        from ray._private.client_mode_hook import disable_client_hook
        from ray.util.client import ray as client
        from ray.util.client.server.server import serve

        def connect(*_, **__):
            with disable_client_hook():
                return ray.init({nodes.address!r}, log_to_driver=False)

        server = serve("127.0.0.1", {port}, connect)
        client._inside_client_test = True  # a server and its client in one process
        client.connect("127.0.0.1:{port}")
        try:
            standpipe.ray.loader(sp.Pipeline(sp.Arrays(x=[1, 2])).batch(2))
        except sp.PlanError as error:
            print(error, flush=True)
        os._exit(0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert "standpipe.ray doesn't work through Ray Client (ray://)" in done.stdout, done.stderr


def test_actors_have_what_the_script_has_set(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_a_script.py").write_text("SIZE, WAYS = 1, {}\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = importlib.import_module("of_a_script")
    config.SIZE, config.WAYS["a"] = 7, (1, 2)

    def set_up() -> None:
        os.environ["OF_A_SCRIPT"] = "1"

    def seen(x: int) -> list[int]:
        set_up_here = int(os.environ.get("OF_A_SCRIPT", 0))
        return [config.SIZE, len(config.WAYS), decimal.getcontext().prec, set_up_here]

    pipeline = sp.Pipeline(sp.MapSource([{"x": x} for x in range(4)])).map(seen, field="x").batch(4)
    options = {"runtime_env": {"env_vars": {"PYTHONPATH": str(tmp_path)}}}
    with decimal.localcontext() as context:
        context.prec = 5
        with standpipe.ray.loader(
            pipeline, 1, cpus_per_actor=0.25, memory="256MiB", ray_options=options, initializer=set_up
        ) as loader:
            assert next(iter(loader))["x"] == [[7, 1, 5, 1]] * 4
    assert "OF_A_SCRIPT" not in os.environ
