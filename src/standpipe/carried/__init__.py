"""Settings and values that a script has set before a loader starts, on their way to worker processes.

The trainer reads them without importing anything. No worker process runs the main module.
"""

from standpipe.carried.holding import Held, Report
from standpipe.carried.trainer import Carried, read
