"""The source place: which records exist, and where their bytes are."""

from penstock.source.arrays import Arrays
from penstock.source.filelist import FileList
from penstock.source.folder import ImageFolder
from penstock.source.indexed import Indexed

__all__ = ["Arrays", "FileList", "ImageFolder", "Indexed"]
