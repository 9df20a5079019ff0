"""The native parser of lists by itself: how the bytes come in chunks changes nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from standpipe import _native  # no public name says where its chunks end
from standpipe.formats import SUFFIXES

PIECES = [b"a.jpg", b"/b", b"\xff", b"7", b"-12", b"cat", b" ", b"\t", b"\n", b"\r\n", b"\r", b"\n\n", b"\0"]


def taken(content: bytes, cuts: list[int], *, labels: bool) -> tuple[object, ...]:
    """Return everything that is read from a list whose first chunks end at ``cuts``."""
    lines, at = _native.ListLines(labels, SUFFIXES), 0
    places: list[int] = []
    values: list[int] = []
    paths = b""
    for end in [*sorted(cuts), len(content)]:
        text = np.frombuffer(content[at:end], np.uint8)
        used = lines.take(text, at, end == len(content))
        assert 0 <= used <= len(text)
        at += used
        places += lines.places.tolist()
        values += lines.labels.tolist()
        paths += lines.paths.tobytes()
        if lines.fault is not None:
            break
    else:
        assert at == len(content)
    return places, values, paths, lines.names, lines.fault, lines.has_labels


@given(
    content=st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join) | st.binary(max_size=100),
    fractions=st.lists(st.floats(0, 1), max_size=5),
    labels=st.booleans(),
)
def test_chunks_change_nothing(content: bytes, fractions: list[float], labels: bool) -> None:
    cuts = [round(fraction * len(content)) for fraction in fractions]
    assert taken(content, cuts, labels=labels) == taken(content, [], labels=labels)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b/c.jpg"]), st.sampled_from([b"x", b"y"])), max_size=20))
def test_places_lead_to_the_paths(rows: list[tuple[bytes, bytes]]) -> None:
    content = b"".join(b"%s\t%s\n" % row for row in rows)
    places, labels, paths, names, fault, has_labels = taken(content, [], labels=True)
    assert fault is None
    assert has_labels == bool(rows)
    assert isinstance(places, list)
    found = [content[place & (2**48 - 1) :][: place >> 48] for place in places]
    assert found == [path for path, _ in rows]
    assert paths == b"".join(found)
    assert isinstance(labels, list)
    assert isinstance(names, list)
    assert [names[label] for label in labels] == [name for _, name in rows]
