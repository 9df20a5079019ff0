"""A cache whose disk hangs: training goes on with right rows, without it, and nobody else is blamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from forked import output
from photos import age, write_photos

PLACES = {
    "files": ".cache(cache).map(*EVAL)",
    "images": ".map(*EVAL).cache(cache)",
    "samples": ".map(*EVAL).map(lambda image: image // 2, field='image').cache(cache)",
    "arrays": ".map(*EVAL).cache(cache)",
}
BEGIN = """
import logging
from photos import picture

EVAL = (sp.Resize(32), sp.CenterCrop(28))
SOURCE = sp.FileList({photos!r})
if {place!r} == "arrays":
    SOURCE = sp.Arrays(image=np.stack([picture(seed) for seed in range(24)]))
said = []

def batches(cache):
    pipeline = sp.Pipeline(SOURCE){stages}.batch(4)
    with pipeline.loader(memory="256MiB", num_workers=2) as loader:
        return [batch["image"].tobytes() for batch in loader], loader.stats()
"""
FILL = """
for _ in range(20):  # rows that found no room yet are kept in a later one
    _, stats = batches(sp.Cache("eval", memory="64kB", directory={memory!r}, spill={disk!r}, strict=True, version=1))
    if stats.cache_misses == 0:
        break
(session,) = sp.list_caches({memory!r})
assert session.sets[0].rows_on_disk > 1, session
"""
HANG = """
standpipe_log = logging.getLogger("standpipe")
standpipe_log.propagate = False
listening = logging.Handler()
listening.emit = lambda record: said.append(record.getMessage())
standpipe_log.addHandler(listening)
expected, _ = batches(sp.Cache("off", memory=0))
found, stats = batches(sp.Cache("eval", memory="64kB", directory={memory!r}, spill={disk!r}, strict=True, version=1))
assert found == expected
assert stats.cache_hits + stats.cache_misses >= 24, stats
assert stats.cache_misses > 0, stats
assert stats.stalled == 0, stats
print(*said, sep="\\n")
"""


@pytest.mark.parametrize("place", PLACES)
def test_disk_that_hangs_under_a_row(place: str, tmp_path: Path) -> None:
    photos, memory, disk = tmp_path / "photos", tmp_path / "memory", tmp_path / "disk"
    for folder in (photos, memory, disk):
        folder.mkdir()
    write_photos(photos, 24)
    age(*photos.glob("*.jpg"))
    names = {"photos": str(photos / "list.txt"), "memory": str(memory), "disk": str(disk), "place": place}
    begin = BEGIN.format(stages=PLACES[place], **names)
    output(begin + FILL.format(**names))
    text = output(begin + HANG.format(**names), environment={"STANDPIPE_FAULTS": "cache.disk=delay:3600s"})
    assert text == (
        "cache 'eval': its disk hangs, and is left alone. Rows that can't be read or stored come from their source\n"
    )
