"""Metrics for other programs: Prometheus, and scalars for TensorBoard."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import standpipe as sp
from standpipe.observe.history import PLACES
from standpipe.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LABELS = ("loader", "rank")
COUNTERS: dict[str, tuple[str, Callable[[sp.Stats], float]]] = {
    "steps": ("Batches that the training loop took", lambda stats: stats.step.steps),
    "rows": ("Rows in them", lambda stats: stats.step.rows),
    "step_seconds": ("Seconds of the training loop's own", lambda stats: stats.step.step_s),
    "wait_seconds": ("Seconds that the training loop waited for batches", lambda stats: stats.step.wait_s),
    "read_bytes": ("Bytes of encoded samples that were read", lambda stats: stats.read.bytes),
    "bad_rows": ("Rows that could not be made", lambda stats: stats.bad),
    "read_opens": ("Files that were opened to read samples", lambda stats: stats.opens),
    "read_ranges": ("Byte ranges of files that were read", lambda stats: stats.ranges),
    "read_retries": ("Tries of reads after the first ones", lambda stats: stats.retries),
    "slow_samples": ("Samples, and other work, that took long", lambda stats: stats.slow),
    "stalled_samples": ("Of these, given up", lambda stats: stats.stalled),
    "worker_deaths": ("Worker processes that ended before their work was done", lambda stats: stats.deaths),
    "cache_hits": ("Rows that came from the cache", lambda stats: stats.cache_hits),
    "cache_misses": ("Rows that the cache didn't have", lambda stats: stats.cache_misses),
}
GAUGES: dict[str, tuple[str, Callable[[Snapshot], float]]] = {
    "epoch": ("Epoch of the next batch", lambda now: now.epoch),
    "epoch_step": ("Steps of it that were taken", lambda now: now.step),
    "memory_bytes": ("Memory of what memory= bounds", lambda now: now.memory),
    "memory_limit_bytes": ("What memory= allows", lambda now: now.limit),
    "slots_ready": ("Batches that are ready", lambda now: now.stats.slots.ready),
    "slots_lent": ("Batches that the training code holds", lambda now: now.stats.slots.lent),
}


class PrometheusCollector:
    """Metrics of loaders for a registry of ``prometheus_client``: ``pip install prometheus-client``.

    It keeps no loader alive, and reports nothing of a loader that was dropped. One collector serves all
    loaders of a registry.

    Parameters
    ----------
    **loaders : Loader
        The loaders, each under the value of its label ``loader``.

    Examples
    --------
    >>> import standpipe.observe
    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> registry = CollectorRegistry()
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     registry.register(standpipe.observe.PrometheusCollector(train=loader))
    ...     batches = list(loader)
    ...     text = generate_latest(registry).decode()
    >>> 'loader="train"' in text
    True
    """

    def __init__(self, **loaders: sp.Loader) -> None:
        self._loaders = {name: weakref.ref(loader) for name, loader in loaders.items()}

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics. The registry calls this."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        alive = {
            name: loader for name, reference in self._loaders.items() if (loader := reference()) is not None
        }
        shown = {(name, str(now.rank)): now for name, loader in alive.items() for now in [loader.snapshot()]}
        for name, (text, of) in COUNTERS.items():
            counter = CounterMetricFamily(f"standpipe_{name}", text, labels=LABELS)
            for labels, now in shown.items():
                counter.add_metric(labels, of(now.stats))
            yield counter
        for name, (text, value) in GAUGES.items():
            gauge = GaugeMetricFamily(f"standpipe_{name}", text, labels=LABELS)
            for labels, now in shown.items():
                gauge.add_metric(labels, value(now))
            yield gauge
        busy = CounterMetricFamily(
            "standpipe_busy_seconds",
            "Seconds of work, summed over a place's threads",
            labels=(*LABELS, "place"),
        )
        for labels, now in shown.items():
            for place in PLACES:
                busy.add_metric((*labels, place), getattr(now.stats, place).busy_s)
        yield busy


class Writer(Protocol):
    """The interface of TensorBoard's ``SummaryWriter`` and similar loggers."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Write one value of the series ``tag`` at a training step."""


def write_scalars(loader: sp.Loader, writer: Writer, step: int) -> None:
    """Write a loader's figures of the last ten seconds to TensorBoard. Call it every hundred steps or so.

    Parameters
    ----------
    loader : Loader
        The loader.
    writer : SummaryWriter
        torch's, or any object with ``add_scalar(tag, value, step)``.
    step : int
        The training step under which they are written.

    Examples
    --------
    >>> import standpipe.observe
    >>> class Writer:
    ...     def add_scalar(self, tag, value, step):
    ...         tags.append(tag)
    >>> tags = []
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     for step, batch in enumerate(loader):
    ...         standpipe.observe.write_scalars(loader, Writer(), step)
    >>> len(tags) > 0
    True
    """
    for tag, value in scalars(loader.snapshot()).items():
        writer.add_scalar(f"standpipe/{tag}", value, step)


def scalars(now: Snapshot) -> dict[str, float]:
    """Return the figures of a snapshot that ``write_scalars`` writes, by tag."""
    return {
        "rows_per_s": now.rows_per_s,
        "wait_share": now.recent.wait_share,
        "memory_share": now.memory_share,
        "batches_ready": now.recent.ready,
        "bad_rows": float(now.stats.bad),
        **{f"load/{place}": load for place, load in now.recent.load.items()},
    }
