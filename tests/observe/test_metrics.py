"""Prometheus scrapes what a loader did, and TensorBoard is written what it does."""

from __future__ import annotations

import gc
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import standpipe as sp
from photos import numbers
from standpipe.observe import PrometheusCollector, write_scalars


def make(rows: int = 64) -> sp.Loader:
    return sp.Pipeline(numbers(rows)).batch(4).loader(memory="64MiB", num_workers=1)


def test_prometheus_scrapes_all_loaders() -> None:
    registry = CollectorRegistry()
    with make() as train, make(32) as valid:
        registry.register(PrometheusCollector(train=train, valid=valid))
        for loader in (train, valid):
            for _batch in loader:
                pass
        server, thread = start_http_server(0, "127.0.0.1", registry)
        try:
            with urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    rows = {sample.labels["loader"]: sample.value for sample in families["standpipe_rows"].samples}
    assert rows == {"train": 64, "valid": 32}
    assert {sample.labels["rank"] for sample in families["standpipe_rows"].samples} == {"0"}
    limits = {sample.value for sample in families["standpipe_memory_limit_bytes"].samples}
    assert limits == {64 << 20}
    places = {sample.labels["place"] for sample in families["standpipe_busy_seconds"].samples}
    assert places == {"order", "read", "transform", "batch", "device"}
    assert text.count("# TYPE standpipe_rows_total counter") == 1


def test_of_a_loader_that_is_gone_nothing_is_told() -> None:
    registry = CollectorRegistry()
    loader = make()
    registry.register(PrometheusCollector(train=loader))
    del loader
    gc.collect()
    assert registry.get_sample_value("standpipe_rows_total", {"loader": "train", "rank": "0"}) is None


def test_two_collectors_of_one_registry_are_refused() -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(PrometheusCollector(train=make()))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(PrometheusCollector(valid=make()))


def test_scalars_are_written_for_a_step() -> None:
    class Writer:
        """Takes down what it is given."""

        def __init__(self) -> None:
            self.written: dict[str, tuple[float, int]] = {}

        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            self.written[tag] = (scalar_value, global_step)

    writer = Writer()
    with make() as loader:
        for _batch in loader:
            pass
        write_scalars(loader, writer, 16)
    assert {step for _, step in writer.written.values()} == {16}
    assert writer.written["standpipe/rows_per_s"][0] > 0
    assert 0 <= writer.written["standpipe/wait_share"][0] <= 1
    assert {f"standpipe/load/{place}" for place in ("read", "transform")} <= writer.written.keys()
