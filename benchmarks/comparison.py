"""Measure standpipe beside torch, DALI, MindSpore and tf.data: rate, memory, first batch, resume, damaged photos.

The task: read a JPEG file, RandomResizedCrop(224), a flip with probability 1/2, ImageNet's normalisation, float32
batches of 256 in host memory, two workers each (tf.data chooses its own). Files are in the page cache. Every run has
its own process. This process reads the proportional set size of each run, workers included, twice a second.

An epoch has ten links to each photo. Resume: a run of batches of 32 stops after 140 batches, and a new process
continues from its state, or as the library's documentation says. Damaged: 40 photos, of which the second is cut short
and another is a text.

``--python DALI=PATH`` names the Python that has a loader; torch is in this one. ``--output FILE`` writes the figures as
JSON. From benchmarks/results/comparison.json, ``docs/pictures/plots.py`` draws the plots and writes the table of
docs/comparison.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from _measure import MIB, Figure, add_pythons, column, facts, in_turn, parser, pythons, report
from _peers import LOADERS

from standpipe.cli.bench import process_tree, proportional_bytes

SAMPLE_S = 0.5
LINKS = 10
STOP = 140  # batches of 32 before a run is resumed
PEERS = Path(__file__).parent / "_peers.py"


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument(
        "--workers", type=int, default=2, metavar="N", help="workers of each loader (default: 2)"
    )
    arguments.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="seconds per run (default: 20)"
    )
    add_pythons(arguments, LOADERS)
    arguments.add_argument("--output", type=Path, metavar="FILE", help="write all figures to a JSON file")
    args = arguments.parse_args()
    known = {"standpipe": sys.executable, "torch": sys.executable} | pythons(args)
    with tempfile.TemporaryDirectory() as folder:
        linked, damaged = links(Path(args.path), Path(folder)), damaged_photos(Path(args.path), Path(folder))
        rate = ("rate", linked, "--seconds", args.seconds, "--workers", args.workers)
        rates = in_turn(args.rounds, {name: partial(run, known, name, *rate) for name in known})
        results: dict[str, Any] = {}
        for name, runs in rates.items():
            state = ("--batch", 32, "--skip", STOP, "--state", f"{folder}/state", "--workers", args.workers)
            expected = run(known, name, "save", linked, *state)
            resumed = [run(known, name, "resume", linked, *state) for _ in range(args.rounds)]
            results[name] = {
                "runs": runs,
                "resume_s": column(resumed, "resume_s"),
                "same_samples": all(each["labels"] == expected["labels"] for each in resumed),
                "same_pixels": all(each["pixels"] == expected["pixels"] for each in resumed),
                "damaged": shortened(run(known, name, "damaged", damaged, "--batch", 8), folder),
            }
    if args.output is not None:
        about = facts("torch", "torchdata", "pillow") | {"loader_versions": versions(known)}
        about["command"] = "python benchmarks/comparison.py PATH --output benchmarks/results/comparison.json"
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps({**about, "loaders": results}, indent=1) + "\n", encoding="utf-8")
    header = [
        "",
        "images/s",
        "peak PSS MiB",
        "first batch s",
        "resume s",
        "the exact rest",
        "a damaged photo",
    ]
    table = [
        [
            name,
            Figure(column(each["runs"], "images_per_s")),
            Figure(column(each["runs"], "peak_pss_mib")),
            Figure(column(each["runs"], "first_batch_s"), ".2f"),
            Figure(each["resume_s"], ".2f"),
            rest(each),
            "named" if ".jpg" in each["damaged"]["error"] else "not named",
        ]
        for name, each in results.items()
    ]
    report(
        args,
        header,
        table,
        f"train, float32, batch 256, {args.workers} workers",
        packages=("torch", "pillow"),
    )


def rest(result: dict[str, Any]) -> str:
    """Say how much of the next batch is the same after a resume."""
    if result["same_pixels"]:
        return "yes"
    return "the samples, not their crops" if result["same_samples"] else "no"


def run(pythons: dict[str, str], name: str, task: str, folder: object, *arguments: object) -> dict[str, Any]:
    """Run one loader in its own process; return what it prints, with its memory over time."""
    command = [pythons[name], PEERS, name, task, folder, *arguments, "--began", time.time()]
    began = time.time()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=err)
        memory = []
        while process.poll() is None:
            now_mib = sum(map(proportional_bytes, process_tree(process.pid))) / MIB
            memory.append((round(time.time() - began, 2), round(now_mib, 1)))
            try:
                process.wait(SAMPLE_S)
            except subprocess.TimeoutExpired:
                continue
        out.seek(0), err.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("{")]
        if not lines:
            raise SystemExit(f"{name} failed at {task}:\n{err.read()[-2000:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    if task == "rate":
        result |= {"memory": memory, "peak_pss_mib": max(mib for _, mib in memory)}
    return result


def links(photos: Path, folder: Path) -> Path:
    """Make a folder with several links to each photo, so that an epoch is long."""
    for photo in sorted(photos.glob("*/*")):
        for number in range(LINKS):
            link = folder / "linked" / photo.parent.name / f"{number}-{photo.stem}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(photo.resolve())
    return folder / "linked"


def damaged_photos(photos: Path, folder: Path) -> Path:
    """Make a folder of 40 photos, of which the second is cut short and the 21st is a text."""
    made = folder / "damaged" / "class"
    made.mkdir(parents=True)
    for number, photo in enumerate(sorted(photos.glob("*/*"))[:40]):
        encoded = photo.read_bytes()
        kept = {1: encoded[: len(encoded) // 2], 20: b"This is no photo.\n"}.get(number, encoded)
        (made / f"{number:02}.jpg").write_bytes(kept)
    return made.parent


def shortened(result: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return a result whose error has the lines that name the cause, without paths of this machine."""
    lines = [line.strip() for line in result["error"].splitlines()]
    causes = [line for line in lines if not line.startswith(("File", "Original", "data =", "^", "~"))]
    told = " ".join(dict.fromkeys(filter(None, causes)))
    return result | {"error": told.replace(folder, "…").replace(str(PEERS.parent.parent), "…")}


def versions(pythons: dict[str, str]) -> dict[str, str]:
    """Return the version of each loader's package."""
    packages = {"DALI": "nvidia-dali-cuda120", "MindSpore": "mindspore", "tf.data": "tensorflow-cpu"}
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    return {
        name: subprocess.run(
            [python, "-c", code, packages.get(name, name)], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name, python in pythons.items()
    }


if __name__ == "__main__":
    main()
