"""Looking through all files of a source, for those that a loader would call bad."""

from standpipe.check.files import check_files
from standpipe.check.findings import CheckedFiles, FileFinding
from standpipe.check.labels import LabelFinding

__all__ = ["CheckedFiles", "FileFinding", "LabelFinding", "check_files"]
