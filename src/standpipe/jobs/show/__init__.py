"""Draw the samples of a pipeline, for ``Pipeline.show``."""

from standpipe.jobs.show.samples import show
from standpipe.jobs.show.sheet import Sheet
