"""Check all files of a source: find the files that a loader would refuse."""

from standpipe.jobs.file_check.files import check_files
from standpipe.jobs.file_check.findings import FileCheckReport, FileFinding
from standpipe.jobs.file_check.labels import LabelFinding
