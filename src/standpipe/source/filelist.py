"""A text file that lists images, one per line, with or without labels."""

from __future__ import annotations

import os
from dataclasses import dataclass

from standpipe.contracts import OpenSource
from standpipe.source._list_subject import ListSubject
from standpipe.source._listing import Listing
from standpipe.source._paths import AnyPath, absolute, shown


@dataclass(frozen=True, slots=True)
class FileList:
    """Images that a text file lists: one ``path`` or ``path label`` per line, in the list's order.

    Fields are ``image``, an encoded image, and, if the list has labels, ``label``, () int64. Columns that
    ``build_index`` or ``standpipe index`` added are further fields.

    - Paths are bytes, in the file system's encoding; a UTF-8 byte order mark before the first line is
      skipped. Lines end with LF or CR LF and contain no other CR. Lines of nothing but spaces and tabs are
      skipped. There are no comments and no quotes, since a path may start with ``#`` or ``"``.
    - With a tab in the line, the label follows the last tab, and the path is everything before it, exactly.
      Otherwise the label follows the last space, and neither path nor label ends with a space. Spaces before
      a path belong to it. So a path with spaces needs a tab before its label, or ``labels=False``.
    - A list has a label in every line or in none. Without any, there is no field ``label``.
    - Labels are numbers if all are integers (digits, perhaps after a ``-``), from -2^63 to 2^63 - 1. If none
      is an integer they are class names: ``classes`` has them sorted by their bytes, and ``label`` is a
      name's place there. A mixture is an error, and so is a name with an image's suffix, which is half a
      path.
    - Links are followed, wherever they lead.
    - Files may be listed more than once. A missing file is an error when it is read.
    - A list is read once, into an index. Later starts use the index while the list's size, modification time
      and inode are the same. Paths are read from the list itself: while it is in use, write another list
      beside it and rename that.

    Parameters
    ----------
    path : path
        The list.
    root : path, optional
        Folder that all paths start from and stay in: none is absolute or has a ``..``. Default: relative
        paths start from the list's own folder, and a path may lead anywhere.
    labels : bool, default True
        False: every line is a path and nothing else, including spaces and tabs.
    index : path, optional
        Path of the list's index file. Default: beside the list if it exists there, else in the user's cache
        folder, or in memory if it is small.

    Raises
    ------
    PlanError
        By ``plan()``, for a missing list or a line that breaks these rules, with its number.

    Examples
    --------
    >>> plan = sp.Pipeline(sp.FileList("list.txt")).map(sp.CenterCrop(32)).batch(8).plan()
    >>> plan.source.num_records, plan.classes
    (24, ('cat', 'dog'))
    """

    path: AnyPath
    root: AnyPath | None = None
    labels: bool = True
    index: AnyPath | None = None

    def open(self) -> OpenSource:
        """Find the list's index, or read the list and build one.

        Raises ``PlanError`` when it is missing, not readable or empty, and with file and line for the first
        line that holds a NUL byte, a CR or no path, is longer than 65,535 bytes, leads out of ``root``, or
        whose label doesn't fit; and when columns were added to its index and it has other records now.
        """
        return Listing.open(self.subject())

    def describe(self) -> str:
        """One line for ``explain()``."""
        root = "" if self.root is None else f", root='{shown(self.root)}'"
        labels = "" if self.labels else ", labels=False"
        index = "" if self.index is None else f", index='{shown(self.index)}'"
        return f"FileList('{shown(self.path)}'{root}{labels}{index})"

    def subject(self) -> ListSubject:
        """The list, opened, for its index."""
        path = absolute(self.path, field="FileList's path")
        base = os.path.dirname(path)  # noqa: PTH120
        if self.root is not None:
            base = absolute(self.root, field="FileList's root")
        base = os.path.join(base, b"")  # noqa: PTH118 (pathlib has no bytes)
        index = None if self.index is None else absolute(self.index, field="FileList's index")
        return ListSubject.open(
            path, base, name=shown(self.path), labels=self.labels, stays=self.root is not None, index=index
        )
