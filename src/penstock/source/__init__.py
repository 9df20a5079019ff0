"""The source place: which records exist, and where their bytes are."""

from penstock.source.arrays import Arrays
from penstock.source.concat import Concat, OpenConcat, open_concat
from penstock.source.filelist import FileList
from penstock.source.folder import ImageFolder
from penstock.source.indexed import Indexed

__all__ = ["Arrays", "Concat", "FileList", "ImageFolder", "Indexed", "OpenConcat", "open_concat"]
