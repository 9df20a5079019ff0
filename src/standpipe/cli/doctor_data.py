"""``standpipe doctor PATH``: examine a folder or list of images, and the machine that reads it."""

from __future__ import annotations

import argparse

import standpipe as sp
from standpipe.cli.bench_io import IoResult, measure_io
from standpipe.cli.findings import answer, print_findings
from standpipe.cli.task import standard_task
from standpipe.cli.terminal import COLUMNS, print_json, printable, say, say_wrapped, shortened, verbatim
from standpipe.doctor import Data, Host, Speeds, data_facts, host_facts, judge_data, look_at
from standpipe.units import several, show_bytes, show_seconds

SECONDS = 9.0  # for reading, decoding, and both, a third each
MOST_BAD = 0.5  # share of the files
TASK = {
    "field": (),
    "root": None,
    "no_labels": False,
    "task": "train",
    "batch": 64,
    "memory": None,
    "workers": "auto",
    "dtype": "float32",
    "decode": "exact",
    "seed": 0,
}


def run(args: argparse.Namespace) -> int:
    """Measure the images and the machine, and print the findings."""
    if args.arguments:
        raise sp.PlanError("arguments behind -- are for a script, but this isn't a script. Leave them out")
    each = (SECONDS if args.seconds is None else args.seconds) / 3
    task = argparse.Namespace(path=args.target, seconds=each, **TASK)
    # Bad files have their own finding, and must not end the measurement.
    try:
        measured = measure_io(task, standard_task(task).on_error(sp.Replace(at_most=MOST_BAD)))
    except sp.SampleError as error:  # of a copy, and each of few files is copied often
        raise sp.StandpipeError(
            f"more than {MOST_BAD:.0%} of these files can't be decoded: standpipe scan {printable(args.target)} says "
            "which, and what is wrong with each"
        ) from error
    host = host_facts(ranks=1)
    data = look_at(args.target, measured.plan, _speeds(measured), each)
    findings = judge_data(host, data)
    if args.json:
        print_json({**data_facts(host, data), "findings": [finding.facts() for finding in findings]})
    else:
        _print(host, data, measured.limit)
        print_findings(findings)
    return answer(findings)


def _speeds(measured: IoResult) -> Speeds:
    reads = measured.reads
    return Speeds(
        reads=reads.files_per_s,
        decode=measured.decode,
        both=measured.both,
        workers=measured.plan.num_workers,
        p50_s=reads.p50_s,
        p99_s=reads.p99_s,
        waited=reads.waited,
        failed=reads.failed,
        decoder=measured.plan.decoder_name,
    )


def _print(host: Host, data: Data, limit: str) -> None:
    """Print the report for people, within 80 columns."""
    speeds = data.speeds
    whole = data.images * data.bytes
    fit = "fit" if whole < host.memory_free else "don't fit"
    name = verbatim(shortened(printable(data.path), COLUMNS // 2))
    say(f"[bold]{name}[/bold]: {several(data.images, 'image')}, about {show_bytes(whole)}")
    formats = ", ".join(f"{name} {share:.0%}" for name, share in data.formats.items())
    file = f"a file       {show_bytes(data.bytes)}, {data.short_px:,.0f} px on its shorter side; {formats}"
    say_wrapped(file, 2, 15)
    say(
        f"  reads alone  [bold]{speeds.reads:,.0f}[/bold] images/s; a read takes {show_seconds(speeds.p50_s)}, "
        f"1 in 100 {show_seconds(speeds.p99_s)}"
    )
    say(f"  decode alone [bold]{speeds.decode:,.0f}[/bold] images/s, by {several(speeds.workers, 'thread')}")
    say(
        f"  both         [bold]{speeds.both:,.0f}[/bold] images/s, "
        f"an epoch in {show_seconds(data.images / speeds.both)}"
    )
    say(f"  decoder      {speeds.decoder}")
    say_wrapped(f"limit        {limit}", 2, 15)
    say(f"  CPUs         {host.cores} of {data.cpus}")
    say_wrapped(
        f"memory       {show_bytes(host.memory_free)} free of {show_bytes(host.memory)}: "
        f"all files {fit} in the page cache",
        2,
        15,
    )
    say(f"  /dev/shm     {show_bytes(host.shm_free)} free of {show_bytes(host.shm)}")
