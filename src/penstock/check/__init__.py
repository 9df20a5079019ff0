"""Looking through all files of a source, for those that a loader would call bad."""

from penstock.check.files import check_files
from penstock.check.findings import CheckedFiles, FileFinding
from penstock.check.labels import LabelFinding

__all__ = ["CheckedFiles", "FileFinding", "LabelFinding", "check_files"]
