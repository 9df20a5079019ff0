"""A listing of images with a second list, of their masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from standpipe.contracts import Encoded, Records
from standpipe.errors import PlanError
from standpipe.source.index.file import IndexFile
from standpipe.source.index.listing import Listing
from standpipe.source.index.store import Subject
from standpipe.spec import ArraySpec, Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class ListingWithMasks(Listing):
    """An ``OpenSource`` of images and their masks, which two lists name in the same order.

    masks  the listing of the masks
    """

    masks: Listing

    @classmethod
    def beside(cls, images: Listing, masks: Listing) -> ListingWithMasks:
        """Return a listing of both. Raises ``PlanError`` if the lists differ in length."""
        subject: Subject = images.subject
        index: IndexFile = images.index
        if images.num_records != masks.num_records:
            raise PlanError(
                f"FileList: the list of images has {images.num_records:,} lines and the list of masks "
                f"{masks.num_records:,}; line n of one belongs to line n of the other"
            )
        return cls(subject, index, masks)

    @property
    def fields(self) -> Mapping[str, ArraySpec | Encoded]:
        """The fields of the images' list, and ``mask``, encoded."""
        images = Listing.fields.fget(self)  # type: ignore[attr-defined]
        return {"image": images["image"], "mask": Encoded(), **images}

    @property
    def digest(self) -> str:
        """A digest of both lists."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        images = Listing.digest.fget(self)  # type: ignore[attr-defined]
        return blake2b(f"{images}, masks {self.masks.digest}".encode(), digest_size=16).hexdigest()

    @property
    def index_bytes(self) -> int:
        """Memory of both indexes in bytes."""
        images: int = Listing.index_bytes.fget(self)  # type: ignore[attr-defined]
        return images + self.masks.index_bytes

    @property
    def index_note(self) -> str:
        """The places and sizes of both indexes, for ``explain()``."""
        images = Listing.index_note.fget(self)  # type: ignore[attr-defined]
        return f"{images}; of masks: {self.masks.index_note}"

    def here(self) -> str:
        """Return the folders of relative paths, on which the digest doesn't depend."""
        return f"{Listing.here(self)}; {self.masks.here()}"

    def locate(self, indices: Int64Array) -> Records:
        """Return the records of the images' list, with the files of their masks."""
        records = Listing.locate(self, indices)
        masks = self.masks.locate(indices).files["image"]
        return replace(records, files={**records.files, "mask": masks})
