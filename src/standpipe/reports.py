"""Types of the reports that standpipe's functions return, for annotations."""

from standpipe.cache.sessions import CacheSession
from standpipe.cache.sets.facts import CachedSet
from standpipe.cache.sets.removal import CacheFreeReport
from standpipe.cache.verifying import CacheCheckReport, CacheSetCheckReport
from standpipe.jobs.audit import AuditReport
from standpipe.jobs.epoch_digest import EpochDigest
from standpipe.jobs.file_check import FileCheckReport, FileFinding, LabelFinding
from standpipe.jobs.fill_cache import CacheFillReport
from standpipe.jobs.packing.pack import PackReport
from standpipe.jobs.packing.unpack import UnpackReport
from standpipe.jobs.packing.verify import ShardCheckReport
from standpipe.jobs.read_speed import ReadReport
from standpipe.jobs.record_check import RecordCheckReport
from standpipe.jobs.show.sheet import Sheet
from standpipe.source import IndexCheckReport, IndexReport

__all__ = [
    "AuditReport",
    "CacheCheckReport",
    "CacheFillReport",
    "CacheFreeReport",
    "CacheSession",
    "CacheSetCheckReport",
    "CachedSet",
    "EpochDigest",
    "FileCheckReport",
    "FileFinding",
    "IndexCheckReport",
    "IndexReport",
    "LabelFinding",
    "PackReport",
    "ReadReport",
    "RecordCheckReport",
    "ShardCheckReport",
    "Sheet",
    "UnpackReport",
]
