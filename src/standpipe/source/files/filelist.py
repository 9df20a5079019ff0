"""A text file that lists images, one per line, with or without labels."""

from __future__ import annotations

import os
from dataclasses import dataclass

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.annotations.json_lines import lines_subject
from standpipe.source.annotations.listing import AnnotationListing, AnnotationSubject
from standpipe.source.files.list_subject import ListSubject
from standpipe.source.index.listing import Listing
from standpipe.source.index.store import open_index
from standpipe.source.index.with_fields import Further, set_arguments, shown_call
from standpipe.source.targets import BoxForm, BoxFormat, Invalid
from standpipe.system.paths import AnyPath, absolute, path_text


@dataclass(frozen=True, slots=True, init=False)
class FileList:
    """Images that a text file lists: one ``path`` or ``path label`` per line, in the list's order.

    The fields are ``image``, an encoded image, and, if the list has labels, ``label``, () int64. Columns that
    ``build_index`` or ``standpipe index`` added are further fields, and so are the images of further lists. With
    ``instances=`` each image has boxes, labels and other values of M objects, as those of ``Coco``.

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
    others : tuple of (str, path), optional
        Further lists as pairs, in the form in which the attribute ``others`` has them.
    instances : path, optional
        A text file with the boxes of each image, in JSON: line n is for line n of the list, and has an object as the
        members of ``TarShards(instances=…)`` have it, such as ``{"boxes": [[1, 2, 30, 40]], "labels": [7]}``, or
        ``{"boxes": [], "labels": []}`` for none. A file of lines is soon written from arrays or a table; it can be
        read in pieces, and an index of it knows when it changed. The lines and the headers of all images are read
        once, into an index. The list has no labels then, and there are no further lists.
    box_format, normalized, invalid, instance_masks
        As for ``TarShards``.
    **fields : path
        Further lists by the name of their field, such as ``right="right.txt"`` or ``mask="masks.txt"``: one path
        per line, in the order of the images. Each is a field as well, an encoded image. Relative paths start
        from ``root``, or from the folder of their own list. A name is an identifier.

    Raises
    ------
    PlanError
        By ``plan()``, for a missing list, for a line that breaks these rules, with its number, and for lists or
        instances of different lengths. At once for a field's name that isn't an identifier, or that every record has.
    TypeError
        For a misspelt parameter, such as ``labls=False``.

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

    Images with boxes, from arrays:

    >>> import json
    >>> boxes = [np.array([[4, 5, 24, 15]])] * len(images)
    >>> lines = [json.dumps({"boxes": each.tolist(), "labels": [3]}) for each in boxes]
    >>> _ = pathlib.Path("boxes.jsonl").write_text("\\n".join(lines))
    >>> sorted(sp.FileList("images.txt", instances="boxes.jsonl").open().fields)
    ['boxes', 'image', 'labels']
    """

    path: AnyPath
    root: AnyPath | None
    labels: bool
    index: AnyPath | None
    others: Further
    instances: AnyPath | None
    box_format: BoxFormat | None
    normalized: bool
    invalid: Invalid
    instance_masks: bool

    def __init__(
        self,
        path: AnyPath,
        root: AnyPath | None = None,
        labels: bool = True,
        index: AnyPath | None = None,
        *,
        others: Further = (),
        instances: AnyPath | None = None,
        box_format: BoxFormat | None = None,
        normalized: bool = False,
        invalid: Invalid = "clip",
        instance_masks: bool = False,
        **fields: AnyPath,
    ) -> None:
        set_arguments(
            self,
            dict(others) | fields,
            path=path,
            root=root,
            labels=labels,
            index=index,
            instances=instances,
            box_format=box_format,
            normalized=normalized,
            invalid=invalid,
            instance_masks=instance_masks,
        )

    def open(self) -> OpenSource:
        """Find the lists' indexes, or read the lists and build them.

        Raises ``PlanError``

        - if a list is missing, not readable or empty,
        - for the first line with a NUL byte, a CR, no path, more than 65,535 bytes, a path out of ``root``,
          or a label that doesn't fit, with file and line,
        - if columns were added to its index, and the list has other records now,
        - if a further list or the file of instances has another number of lines,
        - for the first line of instances with another form, and for a wrong box with ``invalid="error"``.
        """
        subject = self.subject()
        if isinstance(subject, AnnotationSubject):
            return AnnotationListing(subject, open_index(subject))
        images = Listing.open(subject)
        others = {}
        for name, subject in self.further():
            others[name] = other = Listing.open(subject)
            if other.num_records != images.num_records:
                raise PlanError(
                    f"FileList: {path_text(self.path)} has {images.num_records:,} lines, and {name}="
                    f"'{subject.name}' {other.num_records:,}; line n of one belongs to line n of the other"
                )
        return images.beside(others)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return shown_call(self, f"'{path_text(self.path)}'")

    def further(self) -> list[tuple[str, ListSubject]]:
        """Return each further list, as the subject of an index, and the name of its field."""
        return [(name, FileList(path, self.root, labels=False)._list()) for name, path in self.others]

    def subject(self) -> ListSubject | AnnotationSubject:
        """Open the list, and the file of instances if there is one, as the subject of an index."""
        if self.instances is None:
            return self._list()
        form = BoxForm(self.box_format, self.normalized, self.invalid, self.instance_masks).check("FileList")
        if self.others:
            raise PlanError(
                "FileList: a list with instances= has one image per line; leave out the further lists"
            )
        images = Listing.open(FileList(self.path, self.root, self.labels)._list())
        if images.index.facts.label is not None:
            raise PlanError(
                f"FileList: the lines of {path_text(self.path)} have labels; with instances= only objects have "
                "labels. Write paths alone, or labels=False if all of a line is a path"
            )
        lines = absolute(self.instances, field="FileList's instances")
        return lines_subject(images, lines, form, self._index())

    def _index(self) -> bytes | None:
        return None if self.index is None else absolute(self.index, field="FileList's index")

    def _list(self) -> ListSubject:
        if not isinstance(self.labels, bool):
            raise PlanError(
                f"FileList: labels must be True or False, got {self.labels!r}; the list itself has the labels"
            )
        path = absolute(self.path, field="FileList's path")
        base = os.path.dirname(path)  # noqa: PTH120
        if self.root is not None:
            base = absolute(self.root, field="FileList's root")
        base = os.path.join(base, b"")  # noqa: PTH118 (pathlib has no bytes)
        return ListSubject.open(
            path,
            base,
            name=path_text(self.path),
            labels=self.labels,
            stays=self.root is not None,
            index=self._index(),
        )
