"""Bytes and seconds as people read them."""

import pytest

from standpipe.units import show_bytes, show_clock, show_seconds


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 s"),
        (4.2e-6, "4.2 µs"),
        (0.00123, "1.23 ms"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (119.6, "120 s"),
        (210, "3.5 min"),
        (9000, "2.5 h"),
        (360_000_000, "4,167 d"),
    ],
)
def test_a_duration_has_the_unit_that_makes_it_short(number: float, text: str) -> None:
    assert show_seconds(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(3.9, "3 s"), (123, "2:03"), (3723, "1:02:03")])
def test_a_time_since_the_start_is_as_on_a_clock(seconds: float, text: str) -> None:
    assert show_clock(seconds) == text


@pytest.mark.parametrize(
    ("number", "up", "text"),
    [
        (999, False, "999B"),
        (1535.9, False, "1.4KiB"),
        (1535, True, "1.5KiB"),
        (2000 << 40, False, "2000.0TiB"),
    ],
)
def test_bytes_are_rounded_down_or_up(number: float, up: bool, text: str) -> None:
    assert show_bytes(number, up=up) == text
