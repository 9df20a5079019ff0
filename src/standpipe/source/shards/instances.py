"""Read the instances of tar shards' records from a JSON member of each, and write them into their index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.source.annotations.json_targets import JsonTargets
from standpipe.source.annotations.paired import MOST_BYTES, image_sizes
from standpipe.source.annotations.table import MOST, Faults, optional_groups
from standpipe.source.index.file import Column, Facts, read_fully
from standpipe.source.index.writer import IndexWriter
from standpipe.source.targets import BoxForm
from standpipe.spec import Int64Array
from standpipe.system.paths import open_for_reading, path_text, reading

NO_SIZE = (1, 1)  # of an image that can't be read: when it is read, it is a bad sample


class MemberInstances:
    """Writes the instances of records that are taken from shards, and the sizes of their images.

    extension  that of the members
    fields     names of the records' other fields
    """

    def __init__(
        self, writer: IndexWriter, name: str, extension: str, form: BoxForm, fields: Sequence[str]
    ) -> None:
        self._writer, self._extension, self._form = writer, extension, form
        self._targets = JsonTargets(form, fields)
        self._faults = Faults(name)
        self._total = self._most = 0
        self._columns: dict[str, Column] = {}

    def add(self, shard: bytes, images: Int64Array, members: Int64Array) -> None:
        """Read the members of records, and the headers of their images.

        shard    path of the records' shard
        images   (2, n) offsets and lengths of the images in it
        members  (2, n) offsets and lengths of the JSON members
        """
        sizes = image_sizes([shard] * images.shape[1], self._faults, images.T.tolist())
        is_known = sizes[:, 0] > 0
        with open_for_reading(shard) as file, reading(shard):
            for (offset, length), readable in zip(members.T.tolist(), is_known.tolist(), strict=True):
                try:
                    if length > MOST_BYTES:
                        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
                    text = read_fully(file.fileno(), length, offset)
                    self._targets.read(text if readable else None)
                except ValueError as error:
                    raise PlanError(
                        f"{path_text(shard)} at byte {offset:,}: a member .{self._extension} can't be read as "
                        f"instances: {error}"
                    ) from None
        sizes[~is_known] = NO_SIZE
        found = self._targets.take(
            Paths.pack([]),
            sizes,
            lambda image, instance: (
                f"{path_text(shard)} at byte {members[0, image]:,}, .{self._extension}: instance {instance}"
            ),
        )
        found = found.valid(self._faults, self._form.invalid)
        columns, each = found.write_rows(self._writer, self._total)
        self._columns |= columns
        self._most = max(self._most, int(each.max(initial=0)))
        self._total += len(found.rows)

    def finish(self, facts: Facts) -> Facts:
        """Write all faults; return an index's facts with those of instances."""
        if not self._targets.columns:
            raise PlanError(f"{self._faults.name}: no member .{self._extension} has any instances")
        counts = self._faults.finish(self._writer, self._form.invalid) | {MOST: self._most}
        return replace(
            facts,
            seen={**facts.seen, **counts},
            optional=optional_groups(has_masks=self._form.instance_masks),
            instances=self._columns,
        )
