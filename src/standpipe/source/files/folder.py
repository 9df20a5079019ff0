"""The source of a folder of images with one subfolder per class, or of folders of pairs."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.files.folder_subject import FolderSubject, but
from standpipe.source.files.partners import check_partners
from standpipe.source.index.listing import Listing, some
from standpipe.source.index.with_fields import Further, set_arguments, shown_call
from standpipe.system.paths import AnyPath, absolute, path_text


@dataclass(frozen=True, slots=True, init=False)
class ImageFolder:
    """Images in class folders, like ``torchvision.datasets.ImageFolder``, in the same order.

    The fields are ``image``, an encoded image, and ``label``, () int64, the number of the record's class
    among the sorted names of root's subfolders. Columns that ``build_index`` or ``standpipe index`` added are
    further fields.

    Records are the files at any depth below a class folder whose names have the suffix of a supported format
    (``standpipe.formats``), in upper or lower case: torchvision's .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif,
    .tiff and .webp, and others such as .gif, .avif, .jp2 and .tga. Images directly in ``root`` belong to no
    class and aren't records.

    With further folders, such as ``right="photos/right"``, a record has several images: those of the same path
    below their folders, up to the suffix, such as ``cat/001.jpg`` and ``cat/001.png``. Each folder must have a
    partner for each image. Such folders may also have all images directly in ``root``, without class folders;
    then there is no ``label``. Files of other names need lists: ``FileList(images, right=…)``.

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
    others : tuple of (str, path), optional
        Further folders as pairs, in the form in which the attribute ``others`` has them.
    **fields : path
        Further folders by the name of their field, an identifier. Each is a field as well, an encoded image.

    Raises
    ------
    PlanError
        By ``plan()``, for a missing or empty folder, for images without a partner in a further folder, and in the
        cases above. At once for a field's name that isn't an identifier, or that every record has.
    TypeError
        For a misspelt parameter, such as ``alow_empty=True``.

    Examples
    --------
    >>> plan = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8).plan()
    >>> plan.source.num_records, plan.classes
    (24, ('cat', 'dog'))

    Pairs of images, here with files of the same names:

    >>> import shutil
    >>> for side in ("left", "right"):
    ...     _ = shutil.copytree("photos/cat", f"pairs/{side}")
    >>> source = sp.ImageFolder("pairs/left", right="pairs/right").open()
    >>> source.num_records, sorted(source.fields)
    (12, ['image', 'right'])
    """

    root: AnyPath
    allow_empty: bool
    index: AnyPath | None
    others: Further

    def __init__(
        self,
        root: AnyPath,
        *,
        allow_empty: bool = False,
        index: AnyPath | None = None,
        others: Further = (),
        **fields: AnyPath,
    ) -> None:
        set_arguments(self, dict(others) | fields, root=root, allow_empty=allow_empty, index=index)

    def open(self) -> OpenSource:
        """Find the folders' indexes, or list the folders and build them.

        Raises ``PlanError``

        - if a folder is missing, not a folder or not readable, or a single one has no class folders,
        - if a class folder has no image, and in the cases that the class names,
        - if an image has no partner in a further folder,
        - if columns were added to its index, and the folder has other records now.
        """
        listing = Listing.open(self.subject())
        if not self.allow_empty:
            self._check_classes(listing)
        others = {}
        for name, subject in self.further():
            others[name] = Listing.open(subject)
            check_partners(listing, others[name], name)
        return listing.beside(others)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return shown_call(self, f"'{path_text(self.root)}'")

    def further(self) -> list[tuple[str, FolderSubject]]:
        """Return each further folder, as the subject of an index, and the name of its field."""
        return [(name, replace(ImageFolder(path).subject(), flat=True)) for name, path in self.others]

    def subject(self) -> FolderSubject:
        """Return the folder, as the subject of an index."""
        root = os.path.join(absolute(self.root, field="ImageFolder's root"), b"")  # noqa: PTH118 (pathlib has no bytes)
        index = None if self.index is None else absolute(self.index, field="ImageFolder's index")
        if index is not None and index.startswith(root):
            raise PlanError(
                f"ImageFolder(index='{path_text(index)}') is inside the folder and would change its modification time; "
                "use a path outside"
            )
        return FolderSubject(root, name=path_text(self.root), index=index, flat=bool(self.others))

    def _check_classes(self, listing: Listing) -> None:
        """Raise ``PlanError`` if a class has no image."""
        base, classes = path_text(listing.subject.base), listing.classes or ()
        empty = [classes[label] for label in listing.index.facts.empty]
        if empty:
            folders = tuple(f"{base}{name}/" for name in empty)
            special = sum(path.startswith(folders) for path in listing.skipped())
            raise PlanError(
                f"no image in {some(empty)}, below {base}{but(special)}: remove empty class folders, or keep their "
                "labels with ImageFolder(..., allow_empty=True)"
            )
