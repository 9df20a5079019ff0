"""A folder of images, one subfolder per class."""

from __future__ import annotations

import os
from dataclasses import dataclass

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source._folder_subject import FolderSubject, but
from standpipe.source._listing import Listing, some
from standpipe.source._paths import AnyPath, absolute, shown


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """Images in class folders, as ``torchvision.datasets.ImageFolder`` reads them, in the same order.

    Fields are ``image``, an encoded image, and ``label``, () int64, the number of the record's class among
    the sorted names of root's subfolders. Records are all files at any depth below a class folder whose names
    end as those of a supported format do (``standpipe.formats``), in upper or lower case: torchvision's .jpg,
    .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff and .webp, and others such as .gif, .avif, .jp2 and .tga. They
    are sorted by (class, folder, name). Names are compared as bytes, which for UTF-8 is the order of
    torchvision; names in other encodings work too. Images directly in ``root`` beside class folders belong to
    no class and aren't records.

    The folder is walked once, into an index. Later starts use the index while the modification times of all
    folders are the same. Columns that ``build_index`` or ``standpipe index`` added are further fields.

    No sample is lost in silence:

    - A link to a folder is followed, unless it leads back to a folder that contains it.
    - A link with an image's name whose target is gone is a record; reading it is a ``ReadError``.
    - Any other link whose target is gone is a ``PlanError``: it may be a folder of images on a disk that
      isn't mounted, and as a class it would shift the labels of the others.
    - A pipe, socket or device with an image's name isn't a record and is never opened. ``explain()`` counts
      them and ``standpipe scan`` names them.
    - A folder that can't be listed is a ``PlanError``. One whose path is too long for the system is listed;
      each image in it is a record, and reading it is a ``ReadError``.

    Parameters
    ----------
    root : path
        Folder whose direct subfolders are the classes.
    allow_empty : bool, default False
        True: a class folder may contain no image; its label stays taken.
    index : path, optional
        Path of the folder's index file, outside of the folder. Default: next to the folder if it exists
        there, else in the user's cache folder, or in memory if it is small.

    Raises
    ------
    PlanError
        By ``plan()``, for a missing or empty folder and the cases above.

    Examples
    --------
    >>> plan = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8).plan()
    >>> plan.source.num_records, plan.classes
    (24, ('cat', 'dog'))
    """

    root: AnyPath
    allow_empty: bool = False
    index: AnyPath | None = None

    def open(self) -> OpenSource:
        """Find the folder's index, or list the folder and build one.

        Raises ``PlanError`` when ``root`` is missing, no folder, not readable or without class folders, when
        a class folder holds no image, and for the cases named above; and when columns were added to its index
        and it has other records now.
        """
        listing = Listing.open(self.subject())
        if not self.allow_empty:
            self._check_classes(listing)
        return listing

    def describe(self) -> str:
        """One line for ``explain()``."""
        empty = ", allow_empty=True" if self.allow_empty else ""
        index = "" if self.index is None else f", index='{shown(self.index)}'"
        return f"ImageFolder('{shown(self.root)}'{empty}{index})"

    def subject(self) -> FolderSubject:
        """The folder, for its index."""
        root = os.path.join(absolute(self.root, field="ImageFolder's root"), b"")  # noqa: PTH118 (pathlib has no bytes)
        index = None if self.index is None else absolute(self.index, field="ImageFolder's index")
        if index is not None and index.startswith(root):
            raise PlanError(
                f"ImageFolder(index='{shown(index)}') lies inside the folder, whose time it would change; name a "
                "place outside"
            )
        return FolderSubject(root, name=shown(self.root), index=index)

    def _check_classes(self, listing: Listing) -> None:
        """Raise ``PlanError`` when there are classes without an image."""
        facts, base = listing.index.facts, shown(listing.subject.base)
        assert facts.classes is not None
        empty = [facts.classes[label] for label in facts.empty]
        if empty:
            folders = tuple(f"{base}{name}/" for name in empty)
            special = sum(path.startswith(folders) for path in listing.skipped())
            raise PlanError(
                f"no image in {some(empty)}, below {base}{but(special)}: remove what is empty, or keep its label with "
                "ImageFolder(..., allow_empty=True)"
            )
