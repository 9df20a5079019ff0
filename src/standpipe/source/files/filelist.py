"""A text file that lists images, one per line, with or without labels."""

from __future__ import annotations

import os
from dataclasses import dataclass

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.files.list_subject import ListSubject
from standpipe.source.index.listing import Listing
from standpipe.source.index.masks import ListingWithMasks
from standpipe.system.paths import AnyPath, absolute, path_text


@dataclass(frozen=True, slots=True)
class FileList:
    """Images that a text file lists: one ``path`` or ``path label`` per line, in the list's order.

    The fields are ``image``, an encoded image, and, if the list has labels, ``label``, () int64. Columns that
    ``build_index`` or ``standpipe index`` added are further fields, and so is ``mask`` with a second list.

    - Lines end with LF or CR LF and contain no other CR. Paths are bytes, in the file system's encoding. A
      UTF-8 byte order mark before the first line is skipped, and so are lines with only spaces and tabs.
      There are no comments and no quotes, since a path may start with ``#`` or ``"``.
    - In a line with a tab, the label follows the last tab, and the path is everything before it. In other
      lines the label follows the last space, and spaces at the end of path and label are dropped. Spaces
      before a path belong to it. So a path with spaces needs a tab before its label, or ``labels=False``.
    - Either every line has a label, or none. Without labels there is no field ``label``.
    - Labels are numbers if all are integers (digits, perhaps after a ``-``), from -2^63 to 2^63 - 1. If none
      is an integer, they are class names: ``classes`` has them sorted by their bytes, and ``label`` is a
      name's place there. A list with both is an error. So is a class name with an image's suffix, which looks
      like a part of a path.
    - Links are followed, wherever they lead.
    - A file may be listed more than once. A missing file is an error when it is read.
    - A list is read once, into an index. Later runs use the index while the list's size, modification time
      and inode are the same. Paths are still read from the list: to change it while it is in use, write a new
      file beside it and rename that.

    Parameters
    ----------
    path : path
        The list.
    root : path, optional
        The folder of all paths: they are relative to it, without a ``..``. Default: relative paths start from
        the list's own folder, and a path may lead anywhere.
    labels : bool, default True
        False: every line is a path, including its spaces and tabs.
    index : path, optional
        Path of the list's index file. Default: beside the list if it exists there, else in the user's cache
        folder, or in memory if it is small.
    mask : path, optional
        A list of the images' masks, one path per line, in the order of the images. Then ``mask`` is a field as
        well, an encoded image. Relative paths start from ``root``, or from the folder of this second list.

    Raises
    ------
    PlanError
        By ``plan()``, for a missing list, or for a line that breaks these rules, with its number.

    Examples
    --------
    >>> plan = sp.Pipeline(sp.FileList("list.txt")).map(sp.CenterCrop(32)).batch(8).plan()
    >>> plan.source.num_records, plan.classes
    (24, ('cat', 'dog'))

    Images with masks, from two folders with files of the same names:

    >>> import pathlib
    >>> images = sorted(pathlib.Path("photos").rglob("*.jpg"))
    >>> _ = pathlib.Path("images.txt").write_text("".join(f"{path}\\n" for path in images))
    >>> masks = [f"masks/{path.stem}.png" for path in images]
    >>> _ = pathlib.Path("masks.txt").write_text("".join(f"{path}\\n" for path in masks))
    >>> sorted(sp.FileList("images.txt", mask="masks.txt").open().fields)
    ['image', 'mask']
    """

    path: AnyPath
    root: AnyPath | None = None
    labels: bool = True
    index: AnyPath | None = None
    mask: AnyPath | None = None

    def open(self) -> OpenSource:
        """Find the list's index, or read the list and build one.

        Raises ``PlanError``

        - if the list is missing, not readable or empty,
        - for the first line with a NUL byte, a CR, no path, more than 65,535 bytes, a path out of ``root``,
          or a label that doesn't fit, with file and line,
        - if columns were added to its index, and the list has other records now,
        - if the list of masks has another number of lines.
        """
        images = Listing.open(self.subject())
        if self.mask is None:
            return images
        masks = FileList(self.mask, self.root, labels=False)
        return ListingWithMasks.beside(images, Listing.open(masks.subject()))

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        root = "" if self.root is None else f", root='{path_text(self.root)}'"
        labels = "" if self.labels else ", labels=False"
        index = "" if self.index is None else f", index='{path_text(self.index)}'"
        mask = "" if self.mask is None else f", mask='{path_text(self.mask)}'"
        return f"FileList('{path_text(self.path)}'{root}{labels}{index}{mask})"

    def subject(self) -> ListSubject:
        """Open the list, as the subject of an index."""
        if not isinstance(self.labels, bool):
            raise PlanError(
                f"FileList: labels must be True or False, got {self.labels!r}; the list itself has the labels"
            )
        path = absolute(self.path, field="FileList's path")
        base = os.path.dirname(path)  # noqa: PTH120
        if self.root is not None:
            base = absolute(self.root, field="FileList's root")
        base = os.path.join(base, b"")  # noqa: PTH118 (pathlib has no bytes)
        index = None if self.index is None else absolute(self.index, field="FileList's index")
        return ListSubject.open(
            path,
            base,
            name=path_text(self.path),
            labels=self.labels,
            stays=self.root is not None,
            index=index,
        )
