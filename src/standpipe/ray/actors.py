"""Actors of a Ray cluster as a fleet: how they are started, asked, and found again after they died."""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import cloudpickle
import ray
from ray.exceptions import ActorHandleNotFoundError, ActorUnavailableError, RayError, RayTaskError

import standpipe as sp
from standpipe.carried import read
from standpipe.contracts import Fallback
from standpipe.plan.options import JobArguments
from standpipe.ray.maker import RayMaker

AT_ONCE = 64  # tasks that one actor may have, of all ranks together
OF_ACTORS = JobArguments.__annotations__.keys() - {"memory", "num_workers"}  # these have others for actors


@dataclass(frozen=True, kw_only=True)
class Actors:
    """Actors of a Ray cluster that make batches. ``start`` makes this value, and ``fleet=`` of a loader takes it.

    It can be pickled, so that tasks and actors of the same Ray job can use it, such as the workers of Ray Train.

    Attributes
    ----------
    makers : int
        Number of actors.
    fallback : {"local", "wait", "raise"}
        The reaction of a loader if no actor is left.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4)
    >>> with standpipe.ray.start(pipeline, actors=1, cpus_per_actor=2) as actors:
    ...     actors.makers, actors.workers
    (1, 2)
    """

    makers: int
    fallback: Fallback
    cpus: float
    memory: int | str
    pipeline: Any  # pickled, as bytes; of running actors, with the trainer's settings in Ray's object store
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    handles: tuple[Any, ...] = ()

    @property
    def workers(self) -> int:
        """Number of workers of all actors together."""
        return self.makers * int(self.settings["num_workers"])

    @property
    def shared(self) -> bool:
        """True if the actors are running, so that the loaders of all ranks use them."""
        return bool(self.handles)

    def describe(self) -> Sequence[str]:
        """Return the lines of ``explain()`` about the actors."""
        many = "1 Ray actor" if self.makers == 1 else f"{self.makers} Ray actors"
        whose = ", which several loaders may use" if self.handles else ""
        cpus = "1 CPU" if self.cpus == 1 else f"{self.cpus:g} CPUs"
        return [f"{many} with {cpus} and memory={self.memory!r} each{whose}"]

    def open(self, receiver: Any) -> OpenActors:
        """Connect a loader to the actors, and start them if they aren't running."""
        check_ray()
        running = self if self.handles else self.started()
        return OpenActors(running.handles, running.pipeline, receiver, owns=not self.handles)

    def started(self) -> Actors:
        """Return these actors, running. They end with the process that called this, or by ``close()``."""
        remote: Any = ray.remote  # its types don't know the argument
        actor = remote(concurrency_groups={"life": 1})(RayMaker)
        options = {
            "num_cpus": self.cpus,
            "memory": sp.LoaderOptions(memory=self.memory).bytes_of("memory"),
            "scheduling_strategy": "SPREAD",
            "max_concurrency": AT_ONCE,
            "max_restarts": -1,
            **self.options,
        }
        folder = os.getcwd()  # noqa: PTH109
        try:
            described = actor.options(**options)
        except (TypeError, ValueError) as error:
            raise sp.PlanError(f"Ray refuses ray_options={dict(self.options)!r}: {error}") from error
        handles = tuple(
            described.remote(number, sp.__version__, self.settings, folder) for number in range(self.makers)
        )
        # Not arguments of the actors: Ray may have deleted large ones when it starts an actor again.
        packed = bytes(cloudpickle.dumps(read())), self.pipeline
        return replace(self, handles=handles, pipeline=ray.put(packed))

    def close(self) -> None:
        """End the actors, for all loaders that use them."""
        if ray.is_initialized():  # else the call would look for another cluster
            with contextlib.suppress(ActorHandleNotFoundError):  # they ended with an earlier connection
                for handle in self.handles:
                    ray.kill(handle)

    def __enter__(self) -> Actors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenActors:
    """Actors that one loader uses. Reports come from Ray's threads.

    pipeline  a reference to the trainer's settings and the pipeline, pickled
    owns      True if the actors end with this loader
    """

    def __init__(self, handles: Sequence[Any], pipeline: Any, receiver: Any, *, owns: bool) -> None:
        self._handles, self._pipeline, self._receiver, self._owns = handles, pipeline, receiver, owns
        self._lock = threading.Lock()  # guards the three below
        self._lives = [0] * len(handles)  # how often each actor was lost
        self._waiting: dict[tuple[str, int, int], Any] = {}  # references whose results are awaited
        self._closed = False
        self._job = ray.get_runtime_context().get_job_id()
        for maker in range(len(handles)):
            self._greet(maker)

    def ask(self, maker: int, number: int, task: Any) -> None:
        """Send a task."""
        if not self._fails(maker, [number]):
            self._call(("make", maker, number), self._handles[maker].make.remote(task))

    def poke(self, maker: int) -> None:
        """Ask for a sign of life, in a thread of the actor that makes no batches."""
        with self._lock:
            asked = [number for kind, of, number in self._waiting if kind == "make" and of == maker]
        if not self._fails(maker, asked):
            method = self._handles[maker].alive.options(concurrency_group="life")
            self._call(("alive", maker, 0), method.remote())

    def _left(self) -> bool:
        """Return True if the connection to the cluster has ended: a call would join one, or hang in a later one."""
        return not ray.is_initialized() or ray.get_runtime_context().get_job_id() != self._job

    def _fails(self, maker: int, asked: Iterable[int]) -> bool:
        """Return True, and report these tasks as failed, if this process has left the cluster."""
        if not self._left():
            return False
        for number in asked:
            error = sp.PlanError("ray.shutdown() was called before the loader's end")
            self._receiver.failed(maker, number, error)
        return True

    def restart(self, maker: int) -> None:
        """Let Ray end the actor and start it again."""
        if self._left():
            return
        ray.kill(self._handles[maker], no_restart=False)
        self._lost(maker, self._lives[maker], "it was started again")

    def close(self) -> None:
        """Forget all tasks; end the actors that belong to this loader."""
        with self._lock:
            self._closed = True
            waiting = dict(self._waiting)
            self._waiting.clear()
        if self._left():
            return
        for (kind, _, _), reference in waiting.items():
            if kind == "hello":  # else Ray would repeat it, and print so
                ray.cancel(reference)
        if self._owns:
            for handle in self._handles:
                ray.kill(handle)

    def _greet(self, maker: int) -> None:
        """Ask an actor for its facts, which it gives when it is running: now, or after Ray has restarted it."""
        method = self._handles[maker].hello.options(max_task_retries=-1)
        self._call(("hello", maker, 0), method.remote(self._pipeline))

    def _call(self, key: tuple[str, int, int], reference: Any) -> None:
        with self._lock:
            if self._closed:
                return
            self._waiting[key] = reference
            life = self._lives[key[1]]
        reference.future().add_done_callback(partial(self._came, key, life))

    def _came(self, key: tuple[str, int, int], life: int, future: Future[Any]) -> None:
        """Report what an actor answered, or that it has ended."""
        kind, maker, number = key
        with self._lock:
            self._waiting.pop(key, None)
            if self._closed:
                return
        if self._fails(maker, [number] if kind == "make" else []):
            return
        try:
            result = future.result()
        except RayTaskError as error:
            if kind == "make":
                cause = error.cause
                self._receiver.failed(maker, number, cause if isinstance(cause, Exception) else error)
        except RayError as error:
            # Ray repeats hello until an actor is back: if that fails, there is no actor to wait for.
            ended = kind == "hello" and not isinstance(error, ActorUnavailableError)
            self._lost(maker, life, _reason(error), back=not ended)
            if ended:
                self._receiver.refused(maker, f"actor {maker}", sp.WorkerDiedError(f"actor {maker}: {error}"))
        except Exception as error:  # an answer that can't be unpickled here
            if kind == "make":
                self._receiver.failed(maker, number, error)
        else:
            self._report(key, life, result)

    def _report(self, key: tuple[str, int, int], life: int, result: Any) -> None:
        kind, maker, number = key
        if kind == "make" and result is None:  # it died while this loader awaited nothing from it
            self._lost(maker, life, "Ray has started it again")
        elif kind == "make":
            self._receiver.answered(maker, number, result)
        elif kind == "alive":
            self._receiver.alive(maker)
        else:
            name, facts = result
            if isinstance(facts, Exception):
                self._receiver.refused(maker, name, facts)
            else:
                self._receiver.joined(maker, name, facts)

    def _lost(self, maker: int, life: int, reason: str, *, back: bool = True) -> None:
        """Report an actor's end once, and wait until Ray has restarted it."""
        with self._lock:
            if self._closed or self._lives[maker] != life:
                return
            self._lives[maker] += 1
        self._receiver.lost(maker, reason)
        if back:
            self._greet(maker)


def _reason(error: RayError) -> str:
    return str(error).strip().partition("\n")[0]


def check_ray() -> None:
    """Raise ``PlanError`` unless this process is part of a Ray cluster."""
    if not ray.is_initialized():
        raise sp.PlanError("standpipe.ray needs a connection to a cluster: call ray.init(address=…) first")
    client: Any = ray.util.client.ray
    if client.is_connected():
        raise sp.PlanError(
            "standpipe.ray doesn't work through Ray Client (ray://), whose proxy would pickle and copy batches. Run "
            "the trainer on a node of the cluster, which may have 0 CPUs: ray start --address=… --num-cpus=0"
        )


class _Packing(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickler that sets ``shares`` if it pickles a CPU tensor in shared memory."""

    shares = False

    def reducer_override(self, value: Any) -> Any:
        """Return how to pickle a value, as the ``pickle`` module defines it."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.layout == torch.strided:
            self.shares |= value.device.type == "cpu" and value.is_shared()
        return super().reducer_override(value)


def _packed(pipeline: sp.Pipeline) -> bytes:
    """Return the pickled pipeline. Warn if actors get copies of tensors in shared memory."""
    out = io.BytesIO()
    packing = _Packing(out, protocol=5)
    packing.dump(pipeline)
    if packing.shares:
        warnings.warn(
            "the pipeline has tensors in shared memory, share_memory_(). Ray actors get copies, so they don't see "
            "what this process writes later, and it doesn't see what they write. Workers of this machine do: leave "
            "the actors out, or don't change such tensors while actors run",
            stacklevel=4,
        )
    return out.getvalue()


def described(
    pipeline: sp.Pipeline,
    actors: int,
    cpus_per_actor: float,
    memory_per_actor: int | str,
    fallback: Fallback,
    ray_options: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> Actors:
    """Return actors that aren't running yet. Raises ``PlanError`` for invalid arguments."""
    if not isinstance(pipeline, sp.Pipeline):
        raise sp.PlanError(f"standpipe.ray takes a Pipeline, not a {type(pipeline).__name__}")
    if not isinstance(actors, int) or isinstance(actors, bool) or actors < 1:
        raise sp.PlanError(
            f"actors must be an integer from 1, or what standpipe.ray.start() returned, got {actors!r}"
        )
    valid = isinstance(cpus_per_actor, int | float) and not isinstance(cpus_per_actor, bool)
    if not valid or not 0 < cpus_per_actor < math.inf:
        raise sp.PlanError(f"cpus_per_actor must be a number above 0, got {cpus_per_actor!r}")
    sp.LoaderOptions(memory=memory_per_actor)
    if sp.LoaderOptions.of(settings).executor == "inline":
        raise sp.PlanError(
            "executor='inline' makes samples in this thread, so actors can't run it. Leave it out"
        )
    if ray_options is not None and not isinstance(ray_options, Mapping):
        raise sp.PlanError(f"ray_options must be a dict of options, got {ray_options!r}")
    if {"lifetime", "name"} & set(ray_options or {}):
        raise sp.PlanError(
            "actors have no names and end with the process that starts them: leave name and lifetime out of "
            "ray_options="
        )
    try:
        packed = _packed(pipeline)
    except Exception as error:
        raise sp.PlanError(
            f"the pipeline can't be sent to Ray actors: {error}. Create what can't be pickled in the dataset or "
            "function itself, at its first use"
        ) from error
    own = {name: settings[name] for name in OF_ACTORS & settings.keys()}
    return Actors(
        makers=actors,
        fallback=fallback,
        cpus=cpus_per_actor,
        memory=memory_per_actor,
        pipeline=packed,
        settings={
            **own,
            "memory": memory_per_actor,
            "num_workers": max(int(cpus_per_actor), 1),
            "prefetch": 3,
            "check_generators": False,
        },
        options=dict(ray_options or {}),
    )


def start(
    pipeline: sp.Pipeline,
    actors: int = 8,
    *,
    cpus_per_actor: float = 1,
    memory_per_actor: int | str = "1GiB",
    fallback: Fallback = "local",
    ray_options: Mapping[str, Any] | None = None,
    **settings: Unpack[sp.LoaderArguments],
) -> Actors:
    """Start actors that make batches for several loaders, such as one for each rank of a job.

    Each loader takes them by ``fleet=``: ``pipeline.loader(fleet=actors)``, ``standpipe.torch.loader(pipeline,
    fleet=actors)``. The loaders may differ in rank, world size and device. The actors end with the process that
    started them, or by ``close()``, which also the end of a ``with`` block calls.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline, with the batch size of one rank.
    actors : int, default 8
        Number of actors.
    cpus_per_actor : float, default 1
        CPUs that Ray reserves for an actor, and number of its workers, at least 1.
    memory_per_actor : int or str, default "1GiB"
        Most bytes that an actor's workers and slots may take. Ray reserves them as its resource ``memory``.
    fallback : {"local", "wait", "raise"}, default "local"
        The reaction if no actor is left for two seconds. ``"local"``: the loader's own workers go on until an actor is
        back; they begin if no actor starts in ``stall_timeout_s``, or ``start_timeout_s`` if that is more.
        ``"wait"``: wait, for at most ``stall_timeout_s``, or ``start_timeout_s`` if that is more. ``"raise"``:
        the batch is a ``WorkerDiedError``; the next ``next()`` tries it again.
    ray_options : mapping, optional
        Further options of the actors, as Ray's ``options()`` takes them: ``scheduling_strategy`` for placement groups
        and node affinity, ``resources``, ``runtime_env``.
    **settings
        Arguments of ``Pipeline.loader`` that concern workers: ``executor``, ``reads``, ``stall_timeout_s``, …

    Returns
    -------
    Actors

    Raises
    ------
    PlanError
        Without a connection to a cluster, and for invalid arguments.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2)
    >>> with standpipe.ray.start(pipeline, actors=1) as actors:
    ...     for rank in range(2):
    ...         with pipeline.shard(rank, 2).loader(fleet=actors, memory="256MiB") as loader:
    ...             print([batch["x"].tolist() for batch in loader])
    [[0, 1], [4, 5]]
    [[2, 3], [6, 7]]
    """
    check_ray()
    return described(
        pipeline, actors, cpus_per_actor, memory_per_actor, fallback, ray_options, settings
    ).started()
