"""A report is one page that needs nothing else, says what was counted, and escapes what others wrote."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

import standpipe as sp
from observed import counters
from photos import numbers
from standpipe.observe import History
from standpipe.observe.charts import Axis, Curve, bucket_ends, histogram, over_time
from standpipe.observe.page import page
from standpipe.observe.report import by_column, known_of

EVIL = "\"><script>alert(1)</script>&amp;'<img src=x onerror=alert(2)>"
VOID = ("meta", "br", "hr", "img", "link", "input")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page(HTMLParser):
    """A page's tags, checked to be closed in turn, and its text by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)


def check_alone(page: Page, text: str) -> None:
    """Nothing is loaded from anywhere."""
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base"), tag
        assert not {"src", "href", "srcset", "xlink:href"} & attributes.keys(), attributes
        assert not any(name.startswith("on") for name in attributes), attributes
    assert "@import" not in text
    assert "url(" not in text
    assert len(page.texts["script"]) == len(page.texts["style"]) == 1
    policy = next(each["content"] for tag, each in page.tags if each.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run over photos with names that are HTML, some of which are no photos."""
    folder = tmp_path_factory.mktemp("report")
    for number in range(24):
        path = folder / "photos <b>&" / "cat" / (f"{number:02}" + EVIL.replace("/", "\\") + ".jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        if number % 8:
            Image.new("RGB", (32, 24), (number, 0, 0)).save(path)
        else:
            path.write_bytes(b"\xff\xd8\xff")
    pipeline = (
        sp.Pipeline(sp.ImageFolder(folder / "photos <b>&")).map(sp.Resize(16), sp.CenterCrop(16)).batch(4)
    )
    with pipeline.on_error(sp.Replace(at_most=0.5)).loader(memory="64MiB", num_workers=2) as loader:
        for _ in range(3):
            for _batch in loader:
                pass
    loader.report(folder / "report.html", folder / "report.json")
    return folder / "report.html"


def test_its_structure(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    page = Page(text)
    check_alone(page, text)
    titles = [
        "The six places and your step",
        "Over time",
        "How long it takes",
        "Memory",
        "Workers",
        "Slow and bad samples",
        "The plan",
    ]
    assert [title for title in page.texts["h2"] if title in titles] == titles
    kinds = [attributes["class"] for tag, attributes in page.tags if tag == "svg"]
    assert kinds.count("flow") == 1
    assert kinds.count("time") == 9
    assert kinds.count("histogram") >= 4
    names = ["source", "order", "read", "transform", "batch", "device", "your step"]
    assert [each for each in page.texts["text"] if each in names] == names


def test_what_others_wrote_is_text(written: Path) -> None:
    page = Page(written.read_text(encoding="utf-8"))
    cells = [cell for cell in page.texts["td"] if "onerror" in cell]
    assert cells
    assert all(EVIL.replace("/", "\\") in cell for cell in cells)
    assert [tag for tag, _ in page.tags if tag in ("img", "b")].count("img") == 0
    assert sum(tag == "script" for tag, _ in page.tags) == 1


def test_the_facts_beside_it(written: Path) -> None:
    known = json.loads(written.with_suffix(".json").read_text(encoding="ascii"))
    assert known["now"]["stats"]["step"]["rows"] == 3 * 24
    assert len(known["bad_samples"]) >= 3 * 3
    assert sum(known["bad_kinds"].values()) == len(known["bad_samples"])
    assert sum(known["history"]["rows"]) == pytest.approx(3 * 24, abs=0.01)
    assert sum(count for _, count in known["latencies"]["transform"]) >= 3 * 21
    assert known["plan"]["records"] == 24
    assert known["explain"].startswith("standpipe plan")
    assert {owner["name"] for owner in known["memory"]} >= {"slots", "index"}


def test_of_ten_million_rows_it_has_less_than_two_mb() -> None:
    def often_bad(sample: dict[str, object]) -> dict[str, object]:
        if hash(str(sample)) % 2:
            raise ValueError("a reason of some length, as an exception has it " * 3)
        return sample

    pipeline = sp.Pipeline(numbers(4000)).map(often_bad).on_error(sp.Replace(at_most=1.0)).batch(500)
    with pipeline.loader(memory="64MiB", num_workers=1, executor="thread") as loader:
        for _batch in loader:
            pass
        assert len(loader.bad_samples) > 900
    history = History()
    for second in range(0, 10_001, 2):
        history.add(counters(second, epoch=second // 100), second << 10)
    moments = history.moments
    assert sum(moment.rows for moment in moments) == pytest.approx(10_000_000)
    assert len(moments) > 300
    now = loader.snapshot()
    known = known_of(loader, now) | {"history": by_column(moments)}
    assert len(page(known, now, moments)) + len(json.dumps(known, indent=1)) < 2_000_000


def test_what_was_slow_is_a_table() -> None:
    loader = sp.Pipeline(numbers(8)).batch(4).loader(memory="64MiB")
    now = loader.snapshot()
    slow = {
        "what": "record 9", "index": 9, "path": EVIL, "doing": "the dataset", "worker": "thread 1", "seconds": 7.25
    }  # fmt: skip
    text = page(known_of(loader, now) | {"slow_samples": [slow]}, now, [])
    cells = Page(text).texts["td"]
    assert cells[cells.index("record 9") :][:5] == ["record 9", EVIL, "the dataset", "thread 1", "7.2"]


def test_before_anything_happened_it_is_a_page_too(tmp_path: Path) -> None:
    loader = sp.Pipeline(numbers(8)).batch(4).loader(memory="64MiB")
    loader.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    check_alone(Page(text), text)


@pytest.mark.parametrize("name", ["report", "report.js", "report.pdf"])
def test_another_ending_is_an_error(name: str, tmp_path: Path) -> None:
    loader = sp.Pipeline(numbers(8)).batch(4).loader(memory="64MiB")
    with pytest.raises(sp.PlanError, match=r"must end in \.html"):
        loader.report(tmp_path / "first.html", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "begins"), [("report.html", "<!doctype html>"), ("report.json", "{")])
def test_only_the_file_is_written_that_was_asked_for(name: str, begins: str, tmp_path: Path) -> None:
    loader = sp.Pipeline(numbers(8)).batch(4).loader(memory="64MiB")
    loader.report(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)


@pytest.mark.parametrize("names", [["report.html"], ["report.json"], ["report.json", "report.html"]])
def test_where_the_disk_is_full_the_report_before_stays(names: list[str], tmp_path: Path) -> None:
    """Of several that are written together all stay, though the first one has room."""
    loader = sp.Pipeline(numbers(8)).batch(4).loader(memory="64MiB")
    loader.report(tmp_path / "room.json")
    room = (tmp_path / "room.json").stat().st_size + 1000 if len(names) == 2 else 100
    (tmp_path / "room.json").unlink()
    for name in names:
        (tmp_path / name).write_text("before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))  # of bytes in a file
    try:
        with pytest.raises(sp.StandpipeError, match=rf"can't write .*{names[-1]}: File too large"):
            loader.report(*(tmp_path / name for name in names))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "before")


def test_a_chart_has_the_values_it_was_given() -> None:
    axis = Axis(4.0, ((2.0, 1),))
    drawn = over_time(axis, [0, 1, 3], [0, 50, 100], Curve("x", "rate", lambda value: f"{value:g}"))
    ((points,),) = [re.findall(r'polyline class="line rate" points="([^"]*)"', drawn)]
    places = [tuple(map(float, point.split(","))) for point in points.split()]
    assert [x for x, _ in places] == pytest.approx([axis.x(s) for s in (0, 1, 1, 3, 3, 4)], abs=0.1)
    heights = [120 - y for _, y in places[::2]]
    assert heights[0] == 0
    assert heights[1] == pytest.approx(heights[2] / 2, abs=0.1)
    assert 'data-shown="0|50|100"' in drawn
    assert "epoch 1" in drawn


def test_a_chart_has_no_line_where_there_is_nothing_to_draw() -> None:
    axis = Axis(36000.0)
    drawn = over_time(axis, [0, 9000, 18000], [1, None, 3], Curve("x", "rate", str))
    lines = re.findall(r'polyline class="line rate" points="([^"]*)"', drawn)
    assert [[float(point.split(",")[0]) for point in line.split()] for line in lines] == [
        pytest.approx([axis.x(begin), axis.x(end)], abs=0.1) for begin, end in ((0, 9000), (18000, 36000))
    ]
    assert 'data-shown="1|nothing|3"' in drawn
    assert re.search(r'x="95\d\.0" y="136.0" text-anchor="end">10:00:00<', drawn)  # and is not cut off


def test_since_the_last_batch_there_is_no_line() -> None:
    loader = sp.Pipeline(numbers(8)).batch(4).loader(memory="64MiB")
    for second in range(11):
        done = second // 4
        step = sp.StepStats(done, 256 * done, step_s=1.0 * done, wait_s=3.0 * done)
        loader.history.add(sp.Stats(time_s=1000.0 + second, step=step), 0)
    now, moments = loader.snapshot(), loader.history.moments
    text = page(known_of(loader, now), now, moments)
    assert f'data-shown="{"|".join(["64"] * 8 + ["nothing"] * 2)}"' in text
    assert f'data-shown="{"|".join(["75%"] * 8 + ["nothing"] * 2)}"' in text


def test_threads_that_had_nothing_to_do_are_a_number() -> None:
    loader = sp.Pipeline(numbers(8)).batch(4).loader(memory="64MiB")
    workers = (
        sp.WorkerStats("thread 1", 7, 0.5),
        *(sp.WorkerStats(f"reading thread {n}") for n in range(48)),
    )
    now = replace(loader.snapshot(), stats=sp.Stats(workers=workers))
    text = page(known_of(loader, now), now, [])
    assert "thread 1" in Page(text).texts["td"]
    assert "and 48 that had nothing to do" in Page(text).texts["p"]
    assert "reading thread" not in text


def test_slots_that_the_budget_would_allow_are_none_of_the_run() -> None:
    loader = sp.Pipeline(numbers(8)).batch(4).loader(memory="64MiB")
    now = replace(loader.snapshot(), stats=sp.Stats(slots=sp.SlotStats(most=71, ready=1, filling=2)))
    text = page(known_of(loader, now), now, [])
    assert "1 ready, 2 being made" in Page(text).texts["text"]
    assert ">1 of 71" not in text


def test_a_histogram_has_a_bar_for_each_count() -> None:
    latency = sp.Latency((0,) * 80 + (3, 0, 6) + (0,) * 126)
    drawn = histogram(latency, "x")
    heights = [float(height) for height in re.findall(r'class="bar".*? height="([\d.]+)"', drawn)]
    assert heights == pytest.approx([42, 84])
    assert "3 took up to" in drawn
    assert "<svg" in histogram(sp.Latency((5,)), "x")
    assert bucket_ends(209) == sorted(set(bucket_ends(209)))


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_shows_it_light_dark_and_in_print(written: Path, tmp_path: Path) -> None:
    def browse(*options: str) -> str:
        done = subprocess.run(
            [
                str(CHROMIUM),
                *("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
                *(f"--user-data-dir={tmp_path / 'profile'}", *options, written.as_uri()),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "CONSOLE" not in done.stderr, done.stderr  # neither errors of scripts nor refused loads
        return done.stdout

    colours = []
    for scheme in ("1", "0"):
        browse(f"--screenshot={tmp_path / 'shot.png'}", f"--blink-settings=preferredColorScheme={scheme}")
        with Image.open(tmp_path / "shot.png") as shot:
            colours.append(shot.convert("RGB").getpixel((2, 2)))
    assert colours == [(255, 255, 255), (20, 24, 28)]
    browse(f"--print-to-pdf={tmp_path / 'report.pdf'}")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    dom = browse("--dump-dom")
    assert dom.count("<svg") == written.read_text(encoding="utf-8").count("<svg")
