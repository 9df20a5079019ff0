"""The source of Arrow IPC files and streams, which are mapped and read in place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.index.with_fields import shown_call
from standpipe.source.shards.names import check_shards, shard_paths, shards_text
from standpipe.source.tables.memory import MappedFile
from standpipe.source.tables.opened import IMAGE, OpenTable, check_values
from standpipe.system.paths import AnyPath, open_for_reading, path_text

MAGIC = b"ARROW1"  # at the beginning of a file, and not of a stream
METADATA = b"huggingface"


@dataclass(frozen=True, slots=True)
class Arrow:
    """Encoded images in Arrow IPC files or streams, which are read where they are.

    The column ``image`` has the images' bytes: binary, large binary, or a struct of ``bytes`` and ``path``, of which a
    row without bytes is the file at the path. It is a field, and so is every column of numbers without nulls, and every
    column of texts (string, large string), of which a batch has a list of str. A null text is an empty one, so that one
    gap doesn't cost all captions. Dictionaries are looked up. Files that Hugging Face's ``datasets`` wrote say which
    columns have further images, which are fields as well, and the names of classes. ``explain()`` names the columns
    that are left out.

    The files are mapped, and nothing is read before it is needed. A null image is a bad sample. The digest covers the
    numbers, and the lengths and places of images and texts in their files, but not the paths of the files.

    It needs the package ``pyarrow``.

    Parameters
    ----------
    files : path or sequence of paths
        Arrow files, such as ``"data-*.arrow"``, with wildcards, ranges and choices as for ``TarShards``, sorted by
        name. All have the same columns.
    image : str, default "image"
        The column that becomes the field ``image``.

    Raises
    ------
    PlanError
        By ``plan()``, for missing files, files that aren't Arrow's or differ in their columns, compressed ones, and
        tables without such a column.

    Examples
    --------
    >>> import pathlib, pyarrow as pa
    >>> photos = sorted(pathlib.Path("photos").rglob("*.jpg"))
    >>> table = pa.table({"image": [path.read_bytes() for path in photos], "label": [*range(24)]})
    >>> with pa.OSFile("photos.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
    ...     writer.write_table(table)
    >>> with sp.Pipeline(sp.Arrow("photos.arrow")).map(sp.CenterCrop(32)).batch(8).loader() as loader:
    ...     print(loader.peek()["label"])
    [0 1 2 3 4 5 6 7]
    """

    files: AnyPath | Sequence[AnyPath]
    image: str = IMAGE

    def open(self) -> OpenSource:
        """Map the files, and read their schemas and the places of their record batches.

        Raises ``PlanError``

        - if a file is missing, damaged, or isn't an Arrow file or stream, or has other columns than the first,
        - if a file is compressed,
        - if there is no column of encoded images of that name, or no record.
        """
        import pyarrow as pa

        check_shards(self.files, "Arrow")
        paths = shard_paths(self.files, "Arrow")
        tables, mapped = zip(*map(_mapped, paths), strict=True)
        try:
            table = pa.concat_tables(tables)
        except pa.ArrowInvalid as error:
            raise PlanError(
                f"{self.describe()}: the files differ in their columns: {error!s:.200}"
            ) from error
        opened = OpenTable.of(
            self.describe(), table, list(mapped), image=self.image, features=features_of(table.schema)
        )
        if opened.aside:
            raise PlanError(
                f"{self.describe()}: the images' record batches are compressed. Write the files again without "
                "compression, as images are compressed by themselves"
            )
        return opened

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return shown_call(self, shards_text(self.files))


def _mapped(path: bytes) -> tuple[Any, MappedFile]:
    """Map a file; return its table, and the file."""
    import pyarrow as pa

    open_for_reading(path).close()
    try:
        mapped = pa.memory_map(os.fsdecode(path))
        whole = mapped.read_buffer()
        read = pa.ipc.open_file if whole[: len(MAGIC)] == pa.py_buffer(MAGIC) else pa.ipc.open_stream
        table = read(whole).read_all()
    except (pa.ArrowException, OSError) as error:
        raise PlanError(
            f"{path_text(path)} can't be read as an Arrow file or stream: {error!s:.200}; write it with pyarrow.ipc, "
            "without compression"
        ) from error
    check_values(path_text(path), table)
    return table, MappedFile(path, whole.address, whole.address + whole.size)


def features_of(schema: Any) -> Mapping[str, Any]:
    """Return what Hugging Face's metadata say of columns, by name; nothing if there are none."""
    try:
        found = json.loads((schema.metadata or {})[METADATA])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def image_columns(path: bytes) -> list[str]:
    """Return the columns of an Arrow file that Hugging Face's metadata call images."""
    features = features_of(_mapped(path)[0].schema).items()
    return [
        name for name, feature in features if isinstance(feature, dict) and feature.get("_type") == "Image"
    ]
