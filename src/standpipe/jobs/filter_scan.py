"""Run a filter function once on all samples, and write its results, one bit per record, to a file.

The samples come from a loader without shuffle.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from standpipe.errors import PlanError
from standpipe.loader.loader import Loader
from standpipe.pipeline.content_filter import KEPT_FIELD
from standpipe.pipeline.description import Description
from standpipe.plan.build import make_plan
from standpipe.plan.filter_results import (
    BLOCK,
    BLOCK_BYTES,
    DIGEST_BYTES,
    Question,
    Unscanned,
    digest_of_block,
    is_answered,
    whole_blocks,
)
from standpipe.plan.options import LoaderOptions
from standpipe.plan.order import planned_order
from standpipe.plan.plan import Plan
from standpipe.system.claims import NoRoom, claimed, publish_claimed
from standpipe.system.logs import logger

PROGRESS_S = 5.0  # time between two log lines about the progress

Made = TypeVar("Made")


def scan(pipeline: Description, options: LoaderOptions) -> None:
    """Run each filter function of the pipeline on all records that have no result yet: ``Pipeline.run_filters``."""
    _when_answered(lambda: planned_order(pipeline, pipeline.source.open()), options)


def plan_after_filters(pipeline: Description, options: LoaderOptions) -> Plan:
    """Run the pipeline's filter functions that have no results yet, then return the plan."""
    return _when_answered(lambda: make_plan(pipeline, options), options)


def _when_answered(make: Callable[[], Made], options: LoaderOptions) -> Made:
    """Call ``make`` and return its result. If it lacks a filter's results, run that filter and call it again."""
    while True:
        try:
            return make()
        except Unscanned as missing:
            question = missing.question
        _answer(question, options)


def _answer(question: Question, options: LoaderOptions) -> None:
    """Run a filter on the records without a result, and publish its file of results.

    It waits while another process does this. Raises ``PlanError`` if the results can't be stored.
    """
    try:
        with claimed(question.path, keep=True) as file:
            if is_answered(question):  # while this process waited
                return
            answers = _Answers(file, question)
            if answers.records < question.num_records:
                _ask(answers, question, options)
            publish_claimed(file, question.path)
    except NoRoom as error:
        raise PlanError(
            f"{question.text}: its results can't be stored: {os.fsdecode(question.path)} can't be written "
            f"({error}). Set XDG_CACHE_HOME to a folder that can be written"
        ) from error


def _ask(answers: _Answers, question: Question, options: LoaderOptions) -> None:
    log, name, total = logger(), question.condition.name, f"{question.num_records:,}"
    log.info("%s: filtering records %s to %s", name, f"{answers.records:,}", total)
    samples = question.pipeline.map(*question.condition.functions()).batch(BLOCK, last_batch="partial")
    begin = told = time.monotonic()
    first = answers.records
    with Loader(make_plan(samples, options.for_job())) as loader:
        loader.load_state_dict({**loader.state_dict(), "consumed": first})
        for batch in loader:
            answers.add(cast(NDArray[np.bool_], batch[KEPT_FIELD]))
            if (now := time.monotonic()) - told > PROGRESS_S:
                told, rate = now, (answers.records - first) / (now - begin)
                log.info(
                    "%s: %s of %s records, %s per second", name, f"{answers.records:,}", total, f"{rate:,.0f}"
                )


class _Answers:
    """A locked file of filter results, to which results are appended in blocks of 256 records.

    records  number of records that have a result in the file
    """

    def __init__(self, file: int, question: Question) -> None:
        self._file, self._header = file, question.header
        self._block = whole_blocks(file, question)
        self.records = min(self._block * BLOCK, question.num_records)
        try:
            os.ftruncate(file, len(self._header) + self._block * (BLOCK_BYTES + DIGEST_BYTES))
            if self._block == 0:
                self._write(self._header, 0)
        except OSError as error:
            raise NoRoom(error.strerror) from error

    def add(self, marks: NDArray[np.bool_]) -> None:
        """Append the results of a block of records, (256,) bool, fewer in the last block. Raises ``NoRoom``."""
        bits = np.packbits(marks, bitorder="little").tobytes().ljust(BLOCK_BYTES, b"\0")
        data = bits + digest_of_block(self._header, self._block, bits)
        try:
            self._write(data, len(self._header) + self._block * len(data))
        except OSError as error:
            raise NoRoom(error.strerror) from error
        self._block += 1
        self.records += len(marks)

    def _write(self, data: bytes, at_byte: int) -> None:
        while data:
            done = os.pwrite(self._file, data, at_byte)
            data, at_byte = data[done:], at_byte + done
