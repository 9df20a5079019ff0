"""Fixtures for tests of batches on devices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from late_device import LateStreams


@pytest.fixture
def late() -> Iterator[LateStreams]:
    streams = LateStreams()
    yield streams
    streams.end()
    assert not streams.pinned
