"""Start a run whose batches a fleet makes."""

from __future__ import annotations

from standpipe import _native
from standpipe.engine.remote.agreement import difference
from standpipe.engine.remote.inbox import Inbox, Joined, Refused, Report
from standpipe.engine.remote.jobs import refusal
from standpipe.engine.remote.workers import RemoteWorkers
from standpipe.engine.start_common import new_ring, refusals
from standpipe.engine.watchdog.watch import Watch
from standpipe.engine.workers import CALLER, INTERRUPTED_S, Workers
from standpipe.errors import StalledError
from standpipe.plan.build import measured_plan
from standpipe.plan.plan import Plan
from standpipe.system.user_warnings import warn


def in_fleet(plan: Plan, bell: _native.Bell, watch: Watch) -> tuple[Plan, Workers, _native.SlotRing]:
    """Start or find the makers of a fleet, and wait for the first one. See ``engine.start.started`` for the results.

    Raises ``PlanError`` if a maker would make other batches, and ``StalledError`` if none comes.
    """
    assert plan.options.fleet is not None
    with refusals(plan):
        watch.start()
    inbox = Inbox(bell)
    fleet = plan.options.fleet.open(inbox)
    try:
        first, reports = _first(plan, inbox, bell, watch)
        if plan.is_open:
            plan = measured_plan(plan, first.facts["measured"], first.facts["known_from"])
        if warning := first.facts.get("warning"):
            warn(warning)
        if (error := difference(plan, first.name, first.facts)) is not None:
            raise error
        inbox.put_back(reports)
        with refusals(plan):
            ring = new_ring(plan, bell)
            return plan, RemoteWorkers(plan, fleet, inbox, bell, watch, ring), ring
    except BaseException:
        fleet.close()
        raise


def _first(plan: Plan, inbox: Inbox, bell: _native.Bell, watch: Watch) -> tuple[Joined, list[Report]]:
    """Wait for the first maker; return its report, and all reports so far. Raises the error of one that can't start."""
    stalled: list[StalledError] = []
    reports: list[Report] = []

    def give_up(error: StalledError) -> None:
        stalled.append(error)
        bell.ring()

    least_s = plan.options.start_timeout_s or 0.0
    assert plan.options.fleet is not None
    text = f"the start of {plan.options.fleet.describe()[0]}"
    doing = "waiting for the first one, for which the cluster may have no room"
    with watch.own_task(text, doing, CALLER, give_up=give_up, least_s=least_s):
        seen = 0
        while True:
            for report in inbox.take():
                reports.append(report)
                if isinstance(report, Refused):
                    raise refusal(report.error)
                if isinstance(report, Joined):
                    return report, reports
            if stalled:
                raise stalled[0]
            seen = bell.wait_for(seen, INTERRUPTED_S)
