"""Run a pipeline's methods: the one module that knows the description and all that comes after it."""

from __future__ import annotations

from typing import Literal

from standpipe.jobs.fill_cache import filled
from standpipe.jobs.filter_scan import planned, scan
from standpipe.loader.loader import Loader
from standpipe.pipeline.pipeline import Pipeline
from standpipe.pipeline.running import run_by
from standpipe.plan.audit import AuditReport, audit
from standpipe.plan.build import make_plan
from standpipe.plan.options import LoaderOptions
from standpipe.plan.plan import Plan


class Jobs:
    """``Runner`` says what each does, ``Pipeline`` what its arguments mean."""

    def plan(self, pipeline: Pipeline, options: LoaderOptions) -> Plan:
        """Plan a run."""
        return make_plan(pipeline, options)

    def loader(self, pipeline: Pipeline, options: LoaderOptions) -> Loader:
        """Scan and fill what has to come first, then plan and run."""
        return Loader(filled(planned(pipeline, options)))

    def audit(
        self,
        pipeline: Pipeline,
        ranks: int,
        epochs: int,
        executor: Literal["process", "thread", "inline"] | None,
    ) -> AuditReport:
        """Count what ranks get."""
        return audit(pipeline, ranks=ranks, epochs=epochs, executor=executor)

    def run_filters(self, pipeline: Pipeline, options: LoaderOptions) -> None:
        """Ask filters by content about all records."""
        scan(pipeline, options)

    def drawing(self, plan: Plan) -> tuple[str, ...] | None:
        """Find functions that use global random generators, by one sample."""
        from standpipe.engine.probe import drawing  # takes as long to import as the rest of the package

        return drawing(plan)


run_by(Jobs())
