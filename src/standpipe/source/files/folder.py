"""The source of a folder of images with one subfolder per class."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.files.folder_subject import FolderSubject, but
from standpipe.source.index.listing import Listing, some
from standpipe.system.paths import AnyPath, absolute, path_text


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """Images in class folders, like ``torchvision.datasets.ImageFolder``, in the same order.

    The fields are ``image``, an encoded image, and ``label``, () int64, the number of the record's class
    among the sorted names of root's subfolders. Columns that ``build_index`` or ``standpipe index`` added are
    further fields.

    Records are the files at any depth below a class folder whose names have the suffix of a supported format
    (``standpipe.formats``), in upper or lower case: torchvision's .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif,
    .tiff and .webp, and others such as .gif, .avif, .jp2 and .tga. Images directly in ``root`` belong to no
    class and aren't records.

    Records are sorted by (class, folder, name). Names are compared as bytes, which for UTF-8 is torchvision's
    order. Names in other encodings work too.

    The folder is walked once, into an index. Later runs use the index while the modification times of all
    folders are the same.

    No sample is dropped silently:

    - A link to a folder is followed, unless it leads back to a folder that contains it.
    - A link with an image's name whose target is gone is a record; reading it is a ``ReadError``.
    - Any other link whose target is gone is a ``PlanError``: it may be a folder of images on a disk that
      isn't mounted, and as a class it would shift the labels of the others.
    - A pipe, socket or device with an image's name isn't a record and is never opened. ``explain()`` counts
      them and ``standpipe scan`` names them.
    - A folder that can't be listed is a ``PlanError``, and so is one whose path is too long for the system. An
      image whose path is too long is a record; reading it is a ``ReadError``.

    Parameters
    ----------
    root : path
        Folder whose direct subfolders are the classes.
    allow_empty : bool, default False
        True: a class folder may have no image; its label is still counted.
    index : path, optional
        Path of the folder's index file, outside of the folder. Default: beside the folder if it exists there,
        else in the user's cache folder, or in memory if it is small.

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
    _: KW_ONLY
    allow_empty: bool = False
    index: AnyPath | None = None

    def open(self) -> OpenSource:
        """Find the folder's index, or list the folder and build one.

        Raises ``PlanError``

        - if ``root`` is missing, not a folder, not readable or without class folders,
        - if a class folder has no image, and in the cases that the class names,
        - if columns were added to its index, and the folder has other records now.
        """
        listing = Listing.open(self.subject())
        if not self.allow_empty:
            self._check_classes(listing)
        return listing

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        empty = ", allow_empty=True" if self.allow_empty else ""
        index = "" if self.index is None else f", index='{path_text(self.index)}'"
        return f"ImageFolder('{path_text(self.root)}'{empty}{index})"

    def subject(self) -> FolderSubject:
        """Return the folder, as the subject of an index."""
        root = os.path.join(absolute(self.root, field="ImageFolder's root"), b"")  # noqa: PTH118 (pathlib has no bytes)
        index = None if self.index is None else absolute(self.index, field="ImageFolder's index")
        if index is not None and index.startswith(root):
            raise PlanError(
                f"ImageFolder(index='{path_text(index)}') is inside the folder and would change its modification time; "
                "use a path outside"
            )
        return FolderSubject(root, name=path_text(self.root), index=index)

    def _check_classes(self, listing: Listing) -> None:
        """Raise ``PlanError`` if a class has no image."""
        facts, base = listing.index.facts, path_text(listing.subject.base)
        assert facts.classes is not None
        empty = [facts.classes[label] for label in facts.empty]
        if empty:
            folders = tuple(f"{base}{name}/" for name in empty)
            special = sum(path.startswith(folders) for path in listing.skipped())
            raise PlanError(
                f"no image in {some(empty)}, below {base}{but(special)}: remove empty class folders, or keep their "
                "labels with ImageFolder(..., allow_empty=True)"
            )
