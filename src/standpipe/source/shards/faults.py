"""Say why tar shards can't be read, and what to do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from standpipe.errors import PlanError
from standpipe.system.paths import path_text

Fault = tuple[str, int, bytes, int, int]  # of ``_native.TarRecords``

FAULTS = {
    "compressed": "is compressed, and parts of a compressed shard can't be read alone; decompress it, for example with "
    "gunzip or zstd -d",
    "not_tar": "isn't a tar archive; unpack it, and give the folder to ImageFolder, or pack it with tar",
    "bad_header": "is damaged: the bytes there are no header of a member; copy it again",
    "no_end": "ends without the zeros that mark the end of a tar archive, so it may be cut; copy it again",
    "more": "goes on after its end mark, as two archives that were joined do; unpack both and pack them again",
    "zeros": "has more than 16 MiB of zeros where it should end, as a copy or download that isn't complete; copy it "
    "again",
    "too_long": "has a name or an extended header of more than a member's may have, 65,535 bytes and 1 MiB; pack it "
    "again",
    "sparse": "has a sparse member, which is stored without its holes; pack it again without tar's --sparse",
    "volumes": "is a part of an archive in several volumes; join them, or pack again without tar's --multi-volume",
}
MEMBER_FAULTS = {  # of a member; FIELD stands for the name of a field
    "missing": "has no FIELD next to it. Members of a record must follow one another, as tar --sort=name packs them; "
    "if some records have no FIELD, leave it out of fields= or instances=",
    "unexpected": "is a label, but the first record has none next to it. Members of a record must follow one another, "
    "as tar --sort=name packs them; to read no labels, pass fields={'image': 'jpg'}",
    "two": "is a second FIELD of its record; say which member is which field, such as fields={'image': 'jpg', "
    "'mask': 'png'}",
    "no_number": "isn't an integer of 64 bits as text, as a label must be. If it is a name, read its bytes as another "
    "field: fields={'image': 'jpg', 'name': 'cls'} and map(…, field='name')",
    "objects": "has Python objects, which standpipe never loads; save an array of numbers, or name the fields that you "
    "need, such as fields={'image': 'jpg', 'label': 'cls'}",
    "pickle": "may hold Python code, which standpipe never loads; name the fields that you need, such as "
    "fields={'image': 'jpg', 'label': 'cls'}",
}


def refuse(shard: bytes, size: int, fault: Fault, fields: Sequence[str]) -> NoReturn:
    """Raise the ``PlanError`` for a fault.

    size    bytes of the shard
    fields  names of the fields, in the order of ``_native.TarRecords``
    """
    what, at, member, number, code = fault
    named = f"the member {path_text(member)}" if member else "the member"
    if what == "cant_read":
        raise OSError(code, os.strerror(code))
    if what in FAULTS:
        last = f", {named}" if member else ""
        raise PlanError(f"{path_text(shard)} {FAULTS[what]} (byte {at:,}{last})")
    if what == "cut":
        says = f"says that it has {number:,} bytes" if number else "isn't complete"
        text = f"{says}, but the shard ends at byte {size:,}; it is cut: copy it again"
    else:
        text = MEMBER_FAULTS[what].replace("FIELD", fields[number] if what in ("missing", "two") else "")
    raise PlanError(f"{path_text(shard)} at byte {at:,}: {named} {text}")
