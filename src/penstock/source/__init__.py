"""The source place: which records exist, and where their bytes are."""

from penstock.source._index_store import is_settled
from penstock.source._paths import shown
from penstock.source.arrays import Arrays
from penstock.source.claims import NoRoom, cache_folder, claimed, is_believed, published
from penstock.source.concat import Concat, OpenConcat, OpenDatasets, open_concat
from penstock.source.filelist import FileList
from penstock.source.folder import ImageFolder
from penstock.source.index import BuiltIndex, CheckedIndex, build_index, verify_index
from penstock.source.indexed import NAMES, Indexed
from penstock.source.packed import PackedList, pack_list
from penstock.source.stream import Iterable, Stream, StreamEnded

__all__ = [
    "NAMES",
    "Arrays",
    "BuiltIndex",
    "CheckedIndex",
    "Concat",
    "FileList",
    "ImageFolder",
    "Indexed",
    "Iterable",
    "NoRoom",
    "OpenConcat",
    "OpenDatasets",
    "PackedList",
    "Stream",
    "StreamEnded",
    "build_index",
    "cache_folder",
    "claimed",
    "is_believed",
    "is_settled",
    "open_concat",
    "pack_list",
    "published",
    "shown",
    "verify_index",
]
