"""Implement the methods of ``Pipeline`` that run something, such as ``plan()`` and ``loader()``.

Only this module imports both the description of pipelines and the parts that run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from standpipe.jobs.fill_cache import filled
from standpipe.jobs.filter_scan import planned, scan
from standpipe.loader.loader import Loader
from standpipe.pipeline.pipeline import Pipeline
from standpipe.pipeline.running import run_by
from standpipe.plan.audit import AuditReport, audit
from standpipe.plan.build import make_plan
from standpipe.plan.options import LoaderOptions
from standpipe.plan.plan import Plan
from standpipe.plan.travel import sent
from standpipe.spec import AnyArray, ExecutorName

if TYPE_CHECKING:
    from standpipe.engine.remote.maker import BatchMaker
    from standpipe.jobs.show import Sheet


class Jobs:
    """The ``Runner`` that ``Pipeline`` calls for its methods. ``Pipeline`` documents the arguments."""

    def plan(self, pipeline: Pipeline, options: LoaderOptions) -> Plan:
        """Return the plan of a run."""
        return make_plan(pipeline, options)

    def loader(self, pipeline: Pipeline, options: LoaderOptions) -> Loader:
        """Run missing filters, plan, fill a ``scope="node"`` cache if needed, and return the loader."""
        return Loader(filled(planned(pipeline, options)))

    def audit(
        self,
        pipeline: Pipeline,
        ranks: int,
        epochs: int,
        executor: ExecutorName | None,
    ) -> AuditReport:
        """Return a report of the records that each rank gets, for ``Pipeline.audit``."""
        return audit(pipeline, ranks=ranks, epochs=epochs, executor=executor)

    def run_filters(self, pipeline: Pipeline, options: LoaderOptions) -> None:
        """Run the pipeline's filter functions on all records that have no result yet."""
        scan(pipeline, options)

    def drawing(self, plan: Plan) -> tuple[str, ...] | None:
        """Make one sample, and return the names of functions that use global random generators; None if unknown."""
        from standpipe.engine.probe import drawing  # takes as long to import as the rest of the package

        return drawing(plan)

    def maker(self, plan: Plan) -> BatchMaker:
        """Start the workers of a plan, and return what makes batches with them, for ``Plan.maker``."""
        from standpipe.engine.remote.maker import BatchMaker  # training doesn't need it

        return BatchMaker(sent(plan))

    def apply(self, pipeline: Pipeline, images: Sequence[Any]) -> dict[str, AnyArray]:
        """Return the batch of given images, for ``Pipeline.apply``."""
        from standpipe.jobs.apply import apply  # training doesn't need it

        return apply(pipeline, images)

    def show(self, pipeline: Pipeline, n: int, steps: bool, epoch: int | Sequence[int]) -> Sheet:
        """Return a picture of an epoch's first samples, for ``Pipeline.show``."""
        from standpipe.jobs.show import show  # training doesn't need it

        return show(pipeline, n, steps, epoch)


run_by(Jobs())
