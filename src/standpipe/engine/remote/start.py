"""Start a run whose batches a fleet makes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from standpipe import _native
from standpipe.engine.remote.agreement import difference
from standpipe.engine.remote.inbox import Inbox
from standpipe.engine.remote.jobs import refusal
from standpipe.engine.remote.workers import RemoteWorkers
from standpipe.engine.start import started
from standpipe.engine.start_common import new_ring, refusals
from standpipe.engine.watchdog.watch import OwnTask, Watch
from standpipe.engine.workers import CALLER, INTERRUPTED_S, Workers
from standpipe.errors import StalledError
from standpipe.order import Cursor
from standpipe.plan.build import measured_plan
from standpipe.plan.plan import Plan
from standpipe.system.logs import logger
from standpipe.system.user_warnings import warn_user


def in_fleet(
    plan: Plan, at: Cursor, bell: _native.Bell, watch: Watch
) -> tuple[Plan, Workers, _native.SlotRing]:
    """Start or find the makers of a fleet, and wait for the first one. See ``engine.start.started`` for the results.

    If none comes in time, the trainer's own workers are started, or ``StalledError`` is raised, as ``fallback`` says.
    Raises ``PlanError`` if a maker would make other batches.
    """
    assert plan.options.fleet is not None
    with refusals(plan):
        watch.start()
    inbox = Inbox(bell)
    fleet = plan.options.fleet.open(inbox)
    with contextlib.ExitStack() as unless_workers_have_it:
        unless_workers_have_it.callback(fleet.close)
        local: Workers | None = None
        try:
            name, facts = _first(plan, inbox, bell, watch)
        except StalledError as error:
            if plan.options.fleet.fallback != "local":
                raise
            logger().warning("%s. Workers here make the batches until a maker comes", error)
            plan, local, ring = started(plan, at, bell, watch)
            unless_workers_have_it.callback(local.close, 0)
        else:
            if plan.is_open:
                plan = measured_plan(plan, facts["measured"], facts["known_from"])
            if warning := facts.get("warning"):
                warn_user(warning)
            if (differs := difference(plan, name, facts)) is not None:
                raise differs
            with refusals(plan):
                ring = new_ring(plan, bell)
        with refusals(plan):
            workers = RemoteWorkers(plan, fleet, inbox, bell, watch, ring, local)
        unless_workers_have_it.pop_all()
    return plan, workers, ring


def _first(plan: Plan, inbox: Inbox, bell: _native.Bell, watch: Watch) -> tuple[str, Mapping[str, Any]]:
    """Wait for the first maker, and return its name and facts. Raises the error of one that can't start."""
    stalled: list[StalledError] = []

    def give_up(error: StalledError) -> None:
        stalled.append(error)
        bell.ring()

    least_s = plan.options.start_timeout_s or 0.0
    assert plan.options.fleet is not None
    text = f"the start of {plan.options.fleet.describe()[0]}"
    doing = "waiting for the first one, for which the cluster may have no room"
    with OwnTask(watch, text, doing, CALLER, end=give_up, least_s=least_s):
        seen = 0
        while (report := inbox.first()) is None:
            if stalled:
                raise stalled[0]
            seen = bell.wait_for(seen, INTERRUPTED_S)
        if isinstance(report.facts, Exception):
            raise refusal(report.facts)
        return report.name, report.facts
