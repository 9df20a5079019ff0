"""Bad arrays: files of NumPy's that aren't what they say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from forked import output
from photos import encoded, picture, write_list

GOOD = encoded(picture(0), quality=90)

REFUSED_ARRAYS: Mapping[str, tuple[str, str]] = {
    "object dtype": (
        "{'descr': '|O', 'fortran_order': False, 'shape': (4,)}",
        "Python objects are never loaded",
    ),
    "product overflows": (
        "{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
        "73786976294838206",
    ),
    "product overflows to nothing": (
        "{'descr': '<i4', 'fortran_order': False, 'shape': (0, 99999999999999999999)}",
        "it has no rows, or its rows are empty",
    ),
    "a size that is none": (
        "{'descr': '<i4', 'fortran_order': False, 'shape': (True, 4)}",
        "isn't a .npy file",
    ),
    "more axes than there can be": (
        f"{{'descr': '<i4', 'fortran_order': False, 'shape': {(1,) * 70}}}",
        "isn't a .npy file",
    ),
    "header above 64 KB": (
        "{'descr': '<i4', 'fortran_order': False, 'shape': (4,)}".ljust(70_000),
        "isn't a .npy file",
    ),
    "C order, rows scattered": (
        "{'descr': '<i4', 'fortran_order': True, 'shape': (4, 4)}",
        "ascontiguousarray",
    ),
}


def npy(header: str, *, says_bytes: int | None = None) -> bytes:
    length = len(header) if says_bytes is None else says_bytes
    return b"\x93NUMPY\2\0" + length.to_bytes(4, "little") + header.encode() + bytes(64)


@pytest.mark.parametrize(("header", "says"), REFUSED_ARRAYS.values(), ids=REFUSED_ARRAYS.keys())
def test_npy_object_dtype_long_header_and_overflow(tmp_path: Path, header: str, says: str) -> None:
    """What isn't a plain array of numbers within its file is refused before a byte of it is used."""
    (tmp_path / "a.npy").write_bytes(npy(header))
    with pytest.raises(sp.PlanError, match=says):
        sp.Arrays(a=tmp_path / "a.npy").open()


def test_npy_header_of_4_gb_is_not_read(tmp_path: Path) -> None:
    """A file that says its header has 4 GB, and has them, costs no memory; as a column of an index neither."""
    path = tmp_path / "a.npy"
    path.write_bytes(npy("", says_bytes=(1 << 32) - 1))
    with path.open("ab") as file:
        file.truncate(5 << 30)
    write_list(tmp_path, [GOOD])
    text = output(
        f"""
from programs import peaks
before = peaks()
for use in (
    lambda: sp.Arrays(a={str(path)!r}).open(),
    lambda: sp.build_index(sp.FileList({str(tmp_path / "list.txt")!r}), columns={{"a": {str(path)!r}}}),
):
    try:
        use()
    except sp.PlanError as error:
        print("isn't a .npy file" in str(error))
print({{name: now - before[name] for name, now in peaks().items()}})
"""
    )
    *refusals, grown = text.splitlines()
    assert refusals == ["True", "True"]
    assert max(eval(grown).values()) < 64, grown


def test_npy_in_fortran_order(tmp_path: Path) -> None:
    """One number per record is the same in both orders; rows scattered over the file are refused, with what to do."""
    column, table = np.asfortranarray(np.arange(5)), np.asfortranarray(np.arange(20).reshape(5, 4))
    for name, array in (("column", column), ("table", table)):
        np.save(tmp_path / f"{name}.npy", array)
    assert sp.Arrays(a=tmp_path / "column.npy").open().column("a", 0, 5).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(sp.PlanError, match=r"table\.npy, isn't in C order.*np\.ascontiguousarray"):
        sp.Arrays(a=tmp_path / "table.npy").open()
    source = write_list(tmp_path, [GOOD] * 5)
    with pytest.raises(sp.PlanError, match=r"table\.npy, isn't in C order.*np\.ascontiguousarray"):
        sp.build_index(source, columns={"box": tmp_path / "table.npy"})
