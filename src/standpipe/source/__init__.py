"""The source place: the records of a data set, and where their bytes are stored."""

from standpipe.source._index_store import is_settled
from standpipe.source._paths import shown
from standpipe.source.arrays import Arrays
from standpipe.source.claims import NoRoom, cache_folder, claimed, is_believed, published
from standpipe.source.concat import Concat, OpenConcat, OpenDatasets, open_concat
from standpipe.source.filelist import FileList
from standpipe.source.fixed import FixedRecords
from standpipe.source.folder import ImageFolder
from standpipe.source.idx import IdxFiles
from standpipe.source.index import IndexReport, build_index
from standpipe.source.index_check import IndexCheckReport, verify_index
from standpipe.source.indexed import KEY, NAMES, MapSource
from standpipe.source.packed import SharedList, share_list
from standpipe.source.stream import IterableSource, Stream, StreamEnded
from standpipe.source.tar import TarShards

__all__ = [
    "KEY",
    "NAMES",
    "Arrays",
    "Concat",
    "FileList",
    "FixedRecords",
    "IdxFiles",
    "ImageFolder",
    "IndexCheckReport",
    "IndexReport",
    "IterableSource",
    "MapSource",
    "NoRoom",
    "OpenConcat",
    "OpenDatasets",
    "SharedList",
    "Stream",
    "StreamEnded",
    "TarShards",
    "build_index",
    "cache_folder",
    "claimed",
    "is_believed",
    "is_settled",
    "open_concat",
    "published",
    "share_list",
    "shown",
    "verify_index",
]
