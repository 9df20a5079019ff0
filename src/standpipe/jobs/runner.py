"""Run a pipeline's methods: the only module that imports both the description and the parts that run it."""

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
    """The methods of ``standpipe.pipeline.running.Runner``; ``Pipeline`` documents the arguments."""

    def plan(self, pipeline: Pipeline, options: LoaderOptions) -> Plan:
        """Return the plan of a run."""
        return make_plan(pipeline, options)

    def loader(self, pipeline: Pipeline, options: LoaderOptions) -> Loader:
        """Run filters and fill caches where that must come first, then plan, and return the loader."""
        return Loader(filled(planned(pipeline, options)))

    def audit(
        self,
        pipeline: Pipeline,
        ranks: int,
        epochs: int,
        executor: Literal["process", "thread", "inline"] | None,
    ) -> AuditReport:
        """Count the rows that each rank gets."""
        return audit(pipeline, ranks=ranks, epochs=epochs, executor=executor)

    def run_filters(self, pipeline: Pipeline, options: LoaderOptions) -> None:
        """Run filters by content on all records."""
        scan(pipeline, options)

    def drawing(self, plan: Plan) -> tuple[str, ...] | None:
        """Return the names of functions that use global random generators, found with one sample."""
        from standpipe.engine.probe import drawing  # takes as long to import as the rest of the package

        return drawing(plan)


run_by(Jobs())
