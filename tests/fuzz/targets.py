"""The parsers of foreign bytes in Python: for each one, bytes to start from, and what all bytes must give.

A target raises nothing: it expects the errors that its parser may raise, and checks the result. It returns whether the
bytes were accepted. Private names are parsers that no public one reaches with the same bytes.
"""

from __future__ import annotations

import io
import json
import os
import random
import socket
import struct
import tarfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Protocol

import numpy as np
from PIL import Image

import standpipe as sp
from indexes import with_data
from photos import foreign_kinds, numbers, picture
from record_files import mds
from standpipe import _native
from standpipe.spec import DecodeMode, Decoding
from standpipe.system.faults import install_faults
from tars import shard


class Target(Protocol):
    """A parser that is given any bytes."""

    seeds: list[bytes]
    words: tuple[bytes, ...]

    def run(self, data: bytes) -> bool:
        """Parse them; whether they were taken. Raises for what must not be."""


@contextmanager
def named(data: bytes) -> Iterator[bytes]:
    """A file of these bytes that has a path as long as it is open."""
    file = os.memfd_create("fuzz", os.MFD_CLOEXEC)
    try:
        os.write(file, data)
        yield b"/proc/self/fd/%d" % file
    finally:
        os.close(file)


class Index:
    """Whole index files, of a list, a folder and a tar shard: as they are, and with their checksum made right again."""

    words = (
        b"null",
        b"true",
        b'"instances": 1',
        b'"',
        b"{}",
        b"[]",
        b'"<i8"',
        b'"shape": [',
        b'"folder"',
        b'"list"',
        b'"tar"',
        b"-1",
        b"NaN",
        b"..",
    )

    def __init__(self) -> None:
        from standpipe.source.index import file as index_file

        self._format = index_file
        folder = Path(mkdtemp(prefix="fuzz-"))
        for name in ("cat/0.jpg", "cat/deep/1.jpg", "dog/2.jpg"):
            (folder / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "photos" / name).write_bytes(b"")
        (folder / "list.txt").write_text("a.jpg\tcat\n../b.jpg\tdog\n/c.jpg\tcat\n")
        sources: list[Any] = [sp.FileList(folder / "list.txt"), sp.ImageFolder(folder / "photos")]
        columns = {"length": np.arange(3), "box": np.ones((3, 2), np.float32)}
        columns |= {"image_offset": np.arange(3), "image_length": np.arange(3) - 1}
        self.seeds = [sp.build_index(source, columns=columns).path.read_bytes() for source in sources]
        members = [(f"{name}.{kind}", b"1") for name in "ab" for kind in ("jpg", "cls", "seg.png", "txt")]
        path = shard(folder / "a.tar", [*members, ("c.txt", b""), *members])
        sources.append(sp.TarShards(path, fields={"image": "jpg", "label": "cls", "mask": "seg.png"}))
        self.seeds.append(sp.build_index(sources[-1], columns={"length": np.arange(4)}).path.read_bytes())
        self._subjects = [source.subject() for source in sources]
        self.seeds.append(self._with_instances(sources[0].subject(), folder))

    def _with_instances(self, subject: Any, folder: Path) -> bytes:
        """Return an index of the list with ragged columns and sizes."""
        from standpipe.source.index import instances, store

        def finish(writer: Any, facts: Any, draft: Any) -> Any:
            values = {"boxes": np.ones((5, 4), np.float32), "labels": np.arange(5)}
            columns = instances.write_instances(writer, np.array([2, 2, 5]), values)
            writer.add("sizes", np.ones((3, 2), "<u4"))
            return replace(facts, instances=columns, optional={"instances": 1, "sizes": 1})

        path = bytes(folder / "instances")
        store.build_shared(subject, path, finish)
        return Path(os.fsdecode(path)).read_bytes()

    def run(self, data: bytes) -> bool:
        good = self._use(data)
        size = self._format.PREAMBLE.size
        if len(data) <= size:
            return good
        facts_at = self._format.PREAMBLE.unpack(data[:size])[4]
        facts_at = max(size, facts_at if facts_at < len(data) else data.rfind(b'{"kind"'))
        data = self._format.preamble(len(data), facts_at, data[facts_at:]) + data[size:]
        return self._use(data) | self._use(self._sealed(data))

    def _sealed(self, data: bytes) -> bytes:
        """Return the index with the right checksum in each block."""
        with named(data) as path:
            try:
                sections = self._format.read_index(path).facts.sections
            except self._format.DamagedIndex:
                return data
        for section in sections.values():
            blocks = data[section.begin : section.begin + _native.sealed_size(section.size)]
            starts = range(0, len(blocks), _native.BLOCK_DATA_BYTES + 4)
            held = b"".join(blocks[at : at + _native.BLOCK_DATA_BYTES + 4][:-4] for at in starts)
            data = with_data(data, section, held)
        return data

    def _use(self, data: bytes) -> bool:
        from standpipe.source.index.listing import Listing
        from standpipe.source.shards.tar import TarListing

        with named(data) as path:
            try:
                index = self._format.read_index(path)
            except self._format.DamagedIndex:
                return False
        used = [
            self._ask(subject, index, TarListing.of(subject, index) if of_shards else Listing(subject, index))
            for subject in self._subjects
            if subject.kind == index.facts.kind
            # Other shards' indexes aren't opened.
            if not (of_shards := subject.kind == "tar") or self._fits(subject, index)
        ]
        return any(used)

    def _fits(self, subject: Any, index: Any) -> bool:
        try:
            return subject.objection(index) is None
        except sp.StandpipeError:
            return False

    def _ask(self, subject: Any, index: Any, opened: Any) -> bool:
        rows = np.unique([0, opened.num_records - 1, min(7, opened.num_records - 1)])
        for ask in (
            lambda: subject.objection(index),
            lambda: opened.digest,
            lambda: opened.fields,
            lambda: (opened.index_note, *opened.skipped()),
            lambda: opened.sizes(rows),
            lambda: opened.locate(rows),
            lambda: [opened.column(name, 0, min(opened.num_records, 9)) for name in opened.columns],
        ):
            try:
                ask()
            except sp.StandpipeError:
                continue
        try:
            paths = opened.paths(rows)
            assert opened.name(int(rows[0])).isprintable()
        except sp.StandpipeError:
            return False
        for path in (paths[row] for row in range(len(rows))):
            outside = path[len(subject.base) :] if path.startswith(subject.base) else path
            assert not subject.stays or (
                path.startswith(subject.base) and b".." not in outside.split(b"/")
            ), path
        return True


class Answers:
    """The stored answers of a filter: a block counts only if its digest is that of its marks."""

    words = (b"pskept1\n",)

    def __init__(self) -> None:
        from standpipe.pipeline.content_filter import ByContent
        from standpipe.plan import filter_results

        self._results = filter_results
        pipeline = sp.Pipeline(numbers(1000)).filter(len)
        (condition,) = pipeline.selections
        assert isinstance(condition, ByContent)
        self._question = filter_results.Question(
            sp.Pipeline(numbers(1000)), condition, "fuzz", "source", 1000
        )
        header = self._question.header
        blocks = [bytes([number]) * filter_results.BLOCK_BYTES for number in range(self._question.blocks)]
        whole = header + b"".join(
            bits + filter_results.digest_of_block(header, number, bits) for number, bits in enumerate(blocks)
        )
        self.seeds = [whole, whole[:100], header]

    def run(self, data: bytes) -> bool:
        filter_results, question = self._results, self._question
        with named(data) as path:
            file = os.open(path, os.O_RDONLY)
            try:
                found = filter_results.whole_blocks(file, question)
                marks = sum(len(piece) for piece in filter_results._marks(file, question))
            finally:
                os.close(file)
        size = filter_results.BLOCK_BYTES + filter_results.DIGEST_BYTES
        assert 0 <= found <= question.blocks
        assert marks <= question.num_records
        assert found == 0 or data.startswith(question.header)
        for number in range(found):
            at = len(question.header) + number * size
            bits, digest = (
                data[at : at + filter_results.BLOCK_BYTES],
                data[at + filter_results.BLOCK_BYTES : at + size],
            )
            assert filter_results.digest_of_block(question.header, number, bits) == digest
        return found == question.blocks


class Npy:
    """``.npy`` files: an array within the file, or a ``PlanError``."""

    words = (
        b"'|O'",
        b"'<f8'",
        b"(0,)",
        b"(-1,)",
        b"True",
        b"'shape': (",
        b"L",
        b"[('a', '<i4')]",
        b"(((",
        b"\x93NUMPY",
    )

    def __init__(self) -> None:
        self.seeds = []
        for array in (np.arange(6), np.zeros((3, 2, 2), np.uint8), np.asfortranarray(np.ones((2, 3), "f4"))):
            for version in ((1, 0), (2, 0)):
                out = io.BytesIO()
                np.lib.format.write_array(out, array, version=version)
                self.seeds.append(out.getvalue())

    def run(self, data: bytes) -> bool:
        with named(data) as path, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of headers that Python 2 wrote
            try:
                opened = sp.Arrays(a=path).open()
            except sp.PlanError:
                return False
            records = opened.locate(np.array([0, opened.num_records - 1]))
            spec = opened.fields["a"]
            assert isinstance(spec, sp.ArraySpec)
            assert opened.num_records * int(np.prod(spec.shape)) * spec.dtype.itemsize <= len(data)
            for rows in records.rows.values():
                rows.array.sum()  # every byte of it is in the file
        return True


class Idx:
    """IDX files: records within the file, or a ``PlanError``."""

    words = (b"\0\0\x08\x01", b"\0\0\x0e\x03", b"\0\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\x1f\x8b")

    def __init__(self) -> None:
        kinds = {0x08: "u1", 0x0B: ">i2", 0x0E: ">f8"}
        shapes = ((6,), (3, 2, 2), (1, 1, 1, 5))
        self.seeds = [
            struct.pack(f">4B{len(shape)}I", 0, 0, code, len(shape), *shape) + np.ones(shape, kind).tobytes()
            for code, kind in kinds.items()
            for shape in shapes
        ]

    def run(self, data: bytes) -> bool:
        with named(data) as path:
            try:
                opened = sp.IdxFiles(a=os.fsdecode(path)).open()
            except sp.PlanError:
                return False
            assert opened.num_records <= len(data)
            records = opened.locate(np.array([0, opened.num_records - 1]))
            spec = opened.fields["a"]
            assert isinstance(spec, sp.ArraySpec)
            for values in (*records.plain.values(), *(rows.array for rows in records.rows.values())):
                assert (values.shape, values.dtype) == ((2, *spec.shape), spec.dtype)
            for name in opened.columns:
                assert len(opened.column(name, 0, opened.num_records)) == opened.num_records
        return True


class Tar:
    """Tar shards: images within the shard, whose names are found again, or a ``PlanError``.

    With checksums as they are, and with those that the headers should have.
    """

    words = (
        *(
            b"ustar\x0000",
            b"ustar  \0",
            b"./././@LongLink",
            b"9 size=5\n",
            b"17 path=long.jpg\n",
            b"77777777777\0",
        ),
        *(b"\x80" + bytes(7) + b"\x7f\xff\xff\xff", b"GNU.sparse.major", b".jpg\0", b".cls\0", bytes(512)),
    )

    def __init__(self) -> None:
        members: list[tuple[str | bytes, bytes]] = [
            (f"{name}.{kind}", b"12") for name in ("a", "d/b", "c" * 120) for kind in ("jpg", "cls", "txt")
        ]
        folder = Path(mkdtemp(prefix="fuzz-"))
        kinds = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        self.seeds = [
            shard(folder / "a.tar", members[: 6 if kind == tarfile.USTAR_FORMAT else 9], kind).read_bytes()[
                : 24 * 512
            ]
            for kind in kinds
        ]
        self._fields = (None, {"image": "jpg", "mask": "txt.png"}, {"image": "jpg"})

    def run(self, data: bytes) -> bool:
        fixed = bytearray(data)
        for at in range(0, len(data) - 511, 512):
            if any(fixed[at : at + 512]):
                fixed[at + 148 : at + 156] = b" " * 8
                fixed[at + 148 : at + 156] = b"%06o\0 " % sum(fixed[at : at + 512])
        fixed += bytes(1024)
        taken = [self._read(each, fields) for each in (data, bytes(fixed)) for fields in self._fields]
        return any(taken)

    def _read(self, data: bytes, fields: Any) -> bool:
        with named(data) as path:
            try:
                opened = sp.TarShards(path, fields=fields).open()
            except sp.PlanError:
                return False
            assert opened.num_records <= len(data) // 512
            rows = np.arange(opened.num_records)
            for files in opened.locate(rows).files.values():
                assert (files.offset % 512 == 0).all()
                assert (files.length >= 0).all()
                assert (files.offset + files.length <= len(data)).all()
            for row in rows.tolist():
                name = opened.name(row)
                assert name is not None
                assert ".jpg" in name.lower() or fields is None
        return True


class Mds:
    """MDS shards and their index.json, in one string: samples inside of the shard, or a ``PlanError``."""

    words = (
        *(
            b"null",
            b"-1",
            b"1e999",
            b"[" * 2000,
            b"{}",
            b"../",
            b'"bytes": ',
            b'"samples": ',
            b'"zstd"',
            b'"jpeg"',
        ),
        *(b'"int"', b'"ndarray:uint8:0"', b"\0\0\0\0", b"\xff\xff\xff\xff", b"\1\0\0\0"),
    )

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="fuzz-"))
        columns = {"x": "jpeg", "y": "int", "z": "ndarray:uint8:2"}
        mds(self._folder, columns, [{"x": b"image" * n, "y": n, "z": [n, n]} for n in range(1, 4)])
        self._index, self._shard = self._folder / "index.json", self._folder / "shard.00000.mds"
        whole = self._shard.read_bytes()
        self.seeds = [len(whole).to_bytes(2, "little") + whole + self._index.read_bytes()]

    def run(self, data: bytes) -> bool:
        size = int.from_bytes(data[:2], "little")
        self._shard.write_bytes(data[2 : 2 + size])
        self._index.write_bytes(data[2 + size :])
        try:
            opened = sp.MDS(self._folder).open()
        except sp.PlanError:
            return False
        for files in opened.locate(np.arange(opened.num_records)).files.values():
            assert (files.offset >= 0).all()
            assert (files.offset + files.length <= len(data[2 : 2 + size])).all()
        return True


class Checksums:
    """The list of a packed shard's checksums: the files that were packed, or an error."""

    words = (
        b"# end\n",
        b"# standpipe pack 1: records 0 to 2\n",
        b" 99999999999 ",
        b" 0 ",
        b"-1",
        b"0" * 9,
        b"\n",
    )

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="fuzz-"))
        self._photos = {f"cat/{n}.jpg": bytes([n]) * 700 for n in range(3)}
        for name, content in self._photos.items():
            (self._folder / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / "photos" / name).write_bytes(content)
        sp.pack_shards(sp.ImageFolder(self._folder / "photos"), self._folder / "shards")
        self._sums = self._folder / "shards/shard-000000.crc32c"
        self.seeds = [self._sums.read_bytes()]

    def run(self, data: bytes) -> bool:
        self._sums.write_bytes(data)
        try:
            good = sp.verify_shards(self._folder / "shards", num_workers=1).ok
        except sp.StandpipeError:
            good = False
        with TemporaryDirectory(dir=self._folder) as restored:
            with suppress(sp.StandpipeError):
                sp.unpack_shards(self._folder / "shards", restored, num_workers=1)
            if good:
                found = {name: (Path(restored) / name).read_bytes() for name in self._photos}
                assert found == self._photos
        return good


class State:
    """States, as JSON says them, with values that JSON has no word for: taken whole, or a ``StateError``."""

    words = (
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"NaN",
        b"{}",
        b"[]",
        b'"array"',
        b'"bytes"',
        b'"deep"',
        b'"reweigh"',
    )

    def __init__(self) -> None:
        mix = sp.Mixture([(sp.Pipeline(numbers(20)), 1), (sp.Pipeline(numbers(30)), 2)])
        self._loader = sp.Pipeline(mix).batch(2).loader(memory="64MiB", num_workers=1)
        self.seeds = [json.dumps(self._loader.state_dict()).encode()]
        self._loader.skip_steps(3)
        self._loader.reweigh([2, 1])
        self.seeds.append(json.dumps(self._loader.state_dict()).encode())
        self._loader.reweigh([0.5, 0.25])
        self.seeds.append(json.dumps(self._loader.state_dict()).encode())

    def run(self, data: bytes) -> bool:
        try:
            state = json.loads(data, object_hook=self._with_odd)
        except (ValueError, RecursionError):
            return False
        before = self._loader.state_dict()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of another decoder
            try:
                self._loader.load_state_dict(state)
            except sp.StateError:
                assert self._loader.state_dict() == before
                return False
        after = self._loader.state_dict()
        self._loader.load_state_dict(after)
        assert self._loader.state_dict() == after
        with suppress(sp.StateError):
            sp.check_states([state, after])
        return True

    def _with_odd(self, values: dict[str, Any]) -> dict[str, Any]:
        deep: Any = []
        for _ in range(2000):
            deep = [deep]
        odd = {"array": np.arange(3), "bytes": b"\xff", "deep": deep}
        return {
            key: odd.get(value, value) if isinstance(value, str) else value for key, value in values.items()
        }


class Conditions:
    """Conditions of ``filter``: marks for all records, or a ``PlanError``."""

    words = (
        *(
            b" and ",
            b" or ",
            b"not ",
            b" in [",
            b"(",
            b")",
            b"label",
            b"x",
            b"flag",
            b"'cat'",
            b"//0",
            b"%",
            b"-",
            b"~",
        ),
        *(
            b"9223372036854775807",
            b"1e308",
            b"lambda:",
            b"**",
            b"if",
            b":=",
            b"f'{x}'",
            b"\\",
            b"\n",
            b"\0",
            b"0x",
            b"1_0",
        ),
    )

    def __init__(self) -> None:
        source = sp.Arrays(
            label=np.arange(9), x=np.linspace(-1, 1, 9), big=np.full(9, 1 << 62), flag=np.arange(9) % 2 == 0
        )
        self._pipeline = sp.Pipeline(source)
        self.seeds = [
            text.encode()
            for text in (
                "label < 3 and x >= 0.5",
                "label in [1, 2, 3] or not flag",
                "(label + 1) * 2 // 3 % 4 - -x != 7",
                "0 <= label < 5 and (x < 1 or flag)",
                "big * 4 > 0",
                "(" * 150 + "label" + ")" * 150 + " == 1",
                "not " * 500 + "flag",
                "label == " + "-" * 3000 + "1",
                " + ".join(["label"] * 1000) + " > 3",
            )
        ]

    def run(self, data: bytes) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler: "is" with a literal, escapes
            try:
                plan = (
                    self._pipeline.filter(data.decode("utf-8", "surrogateescape"))
                    .batch(1)
                    .plan(memory="64MiB")
                )
            except sp.PlanError:
                return False
        assert 1 <= plan.order.num_positions <= 9
        return True


class Faults:
    """Texts of STANDPIPE_FAULTS: rules, or a ``ValueError``. An empty item changes nothing."""

    words = (
        b"read.open",
        b"worker.row",
        b"=eio",
        b"=delay:",
        b"5ms",
        b"@",
        b"@#",
        b"*",
        b";",
        b"seed=",
        b"log=",
        b"0.5",
    )

    def __init__(self) -> None:
        self.seeds = [
            b"read.open=eio@3;worker.row=kill@17",
            b" read.pread = delay:5ms@0.01 ; read.bytes=corrupt@1.0;seed=7;",
            b"index.read=short@#12*2;ledger.write=enospc*1;log=faults.log",
        ]

    def run(self, data: bytes) -> bool:
        text = os.fsdecode(data)
        taken = [self._is_read(each) for each in (text, text + ";", " ;" + text)]
        assert len(set(taken)) == 1
        return taken[0]

    def _is_read(self, text: str) -> bool:
        try:
            install_faults(text)
        except ValueError:
            return False
        return True


class Excluded:
    """Files that list records to leave out: what stays is some of the records, or a ``PlanError``."""

    words = (
        b'{"index": ',
        b'"path": null',
        b'{"source": "',
        b"NaN",
        b"1e3",
        b"-1",
        b"[" * 200,
        b"\xef\xbb\xbf",
        b"\n\n",
    )

    def __init__(self) -> None:
        source = numbers(20)
        self._pipeline = sp.Pipeline(source)
        lines = [{"source": source.open().digest}, *({"index": index, "path": None} for index in (3, 19, 0))]
        self.seeds = [
            b"3\n17\n4\n",
            b"".join(json.dumps(line).encode() + b"\n" for line in lines),
            b'{"rank": 0, "epoch": 1, "index": 7, "path": null, "reason": "empty file"}\n',
        ]

    def run(self, data: bytes) -> bool:
        with named(data) as path:
            try:
                plan = self._pipeline.exclude(os.fsdecode(path)).batch(1).plan(memory="64MiB")
            except sp.PlanError:
                return False
        assert 1 <= plan.order.num_positions <= 20
        return True


class Messages:
    """A message's header and table, with its own payload behind them: objects, or one of the two errors.

    The payload is a pickle, which may do anything: the ends of a channel trust one another.
    """

    words = (struct.pack("<QI", 1 << 62, 1), struct.pack("<QQ", 1 << 63, 1 << 63), b"\xff" * 8)

    def __init__(self) -> None:
        from standpipe.engine.processes import messages

        self._messages = messages
        large = messages.parcel([np.zeros(100_000, np.uint8), np.ones(5_000)])
        assert large.file is not None
        self._file = large.file
        end = messages._HEADER.size + 2 * messages._PLACE.size
        self._payload = large.data[end:]
        self.seeds = [large.data[:end], messages.encoded({"rows": [1, 2, 3]})[: messages._HEADER.size]]

    def run(self, data: bytes) -> bool:
        alone, with_file = (self._received(data, files) for files in ([], [self._file]))
        return alone or with_file

    def _received(self, data: bytes, files: list[int]) -> bool:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(theirs, [data[:1024] + self._payload], files)
            theirs.shutdown(socket.SHUT_WR)
            try:
                self._messages.receive(ours)
            except (self._messages.Ended, self._messages.UnpicklableMessage):
                return False
        return True


class Samples:
    """Samples as a cache keeps them: one that can be kept again, or the error; views within the bytes, no code run."""

    words = (
        *(b'"%s"' % word for word in (b"<f8", b"|O8", b"<U1", b"int64", b"RGB", b"1", b"P", b"pickle")),
        *(
            b'["%s",' % kind
            for kind in (b"list", b"tuple", b"int", b"number", b"scalar", b"array", b"tensor")
        ),
        *(b"[1,2]", b"[-1]", b"[]", b"{}", b"null", b"NaN", b"1e999", b"[" * 2000, b"9" * 30),
    )

    def __init__(self) -> None:
        from standpipe.engine.python import stored

        self._stored = stored
        image = {
            "image": picture(3, 5, 7),
            "label": 7,
            "name": "é",
            "none": None,
            "x": 0.5,
            "z": 1j,
            "raw": b"ab",
        }
        parts = {"deep": [(True, False), {"a": np.float32(2)}], "big": 1 << 90, "cut": np.arange(9)[::2]}
        pictures = {mode: Image.new(mode, (5, 3)) for mode in stored.MODES}
        self.seeds = [
            stored.to_bytes(sample, form).tobytes()
            for sample, form in zip((image, parts, pictures), stored.FORMS, strict=True)
        ]

    def run(self, data: bytes) -> bool:
        given = np.frombuffer(bytearray(data), np.uint8)
        try:
            sample, form = self._stored.from_bytes(given)
        except self._stored.NotStored:
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is no number, when it is turned into another kind
            again = self._stored.to_bytes(sample, form)
            found, form_again = self._stored.from_bytes(again)
        assert list(found) == list(sample)
        assert form_again is form
        assert np.array_equal(self._stored.to_bytes(found, form), again)
        for value in sample.values():
            assert not isinstance(value, np.ndarray) or not value.size or np.shares_memory(value, given)
        return True


class Foreign:
    """Images of other formats than JPEG: Pillow's own pixels, announced before they are there, or an error."""

    words = (
        b"IHDR",
        b"IDAT",
        b"IEND",
        b"acTL",
        b"tRNS",
        b"VP8X",
        b"ANMF",
        b"GIF89a",
        b"II*\0",
        b"MM\0*",
        b"P6\n",
    )

    def __init__(self) -> None:
        from standpipe.transform.decoders import foreign

        self._foreign = foreign
        self._decoding = Decoding(
            DecodeMode.EXACT, sp.DecodeLimits(max_pixels=1 << 20), allow_truncated=False
        )
        self.seeds = foreign_kinds(picture(1, 13, 17))
        frames = [Image.fromarray(picture(seed, 13, 17)) for seed in range(3)]
        for kind in ("GIF", "WEBP", "TIFF", "PNG"):
            out = io.BytesIO()
            frames[0].save(out, kind, save_all=True, append_images=frames[1:])
            self.seeds.append(out.getvalue())

    def run(self, data: bytes) -> bool:
        said: list[tuple[int, int]] = []

        def reserve(height: int, width: int, frame_bytes: int) -> str:
            assert frame_bytes >= 3 * height * width
            said.append((height, width))
            return ""

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, of what it reads over
            try:
                made = self._foreign.decode_foreign(
                    np.frombuffer(data, np.uint8), self._decoding, reserve
                ).pixels
            except self._foreign.Undecodable:
                return False
            with Image.open(io.BytesIO(data)) as image:
                image.info.pop("transparency", None)
                expected = np.asarray(image.convert("RGB"))
        assert said
        assert made.dtype == np.uint8
        assert made.size <= 3 << 20
        assert np.array_equal(made, expected)
        return True


class Manifests:
    """The JSON manifests of a cache's sessions, sets and users: taken, or a problem that is listed."""

    words = (
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b'"',
        b"{}",
        b"[]",
        b"[" * 2000,
        b'"../.."',
        b"1e999",
        b"-1",
    )

    def __init__(self) -> None:
        from caches import fill, opened
        from standpipe.cache.files import users

        self._users = users
        self._folder = TemporaryDirectory(dir="/dev/shm")  # files are written some hundred times a second
        self._directory = Path(self._folder.name)
        cache = sp.Cache("fuzz", "1MiB", directory=self._directory, spill=self._directory)
        with opened(cache) as found:
            fill(found, range(4))
        (self._user,) = self._directory.rglob("users")
        names = ("session.json", "set.json", "totals.json")
        self._files = [next(self._directory.rglob(name)) for name in names]
        self.seeds = [file.read_bytes() for file in self._files]

    def run(self, data: bytes) -> bool:
        taken = False
        padded = data[: self._users.FILE_BYTES - 9].ljust(self._users.FILE_BYTES - 9)
        (self._user / "one").write_bytes(b"%08x\n" % zlib.crc32(padded) + padded)
        for file, good in zip(self._files, self.seeds, strict=True):
            file.write_bytes(data)
            (session,) = sp.list_caches(self._directory)
            taken = taken or not session.problems
            json.dumps(session.facts())
            file.write_bytes(good)
        assert all(file.exists() for file in self._files)
        return taken


class Snapshots:
    """A loader's file, which ``standpipe top`` reads of other processes: as it is, and with any snapshot in it."""

    words = (b"null", b"true", b"NaN", b"1e999", b'"', b"{}", b"[]", b"[" * 2000, b"-1", b"9" * 30)

    def __init__(self) -> None:
        from observed import shown, small_plan
        from standpipe.cli import top
        from standpipe.observe import posted
        from standpipe.system import published

        self._posted, self._published, self._top = posted, published, top
        whole = shown(small_plan()).as_json()
        self.seeds = [whole, published.line_of(whole)]

    def run(self, data: bytes) -> bool:
        taken = False
        for file in (data, self._published.line_of(data)):
            message = self._published.message_in(file)
            try:
                now = self._posted.Snapshot.from_json(message or data)
            except self._posted.Foreign:
                continue
            found = self._posted.Found(1.0, now)
            for pid in (None, found.pid):
                assert all(line.isprintable() for line in self._top.text([found], pid).splitlines())
            taken = True
        return taken


class Annotations:
    """Annotation files: each input as COCO's JSON, as a label file, a description and an XML file of two images."""

    words = (
        *(
            b"null",
            b"true",
            b"NaN",
            b"-Infinity",
            b"1e999",
            b'"',
            b"{}",
            b"[]",
            b"[" * 3000,
            b"-1",
            b"9" * 5000,
        ),
        *(
            b"0.5 ",
            b"nan",
            b"\n",
            b"<object>",
            b"</object>",
            b"<!DOCTYPE a>",
            b"&amp;",
            b"<a>" * 40,
            b"names: [a]\n",
        ),
    )

    def __init__(self) -> None:
        from standpipe.source.annotations import coco, voc, yolo

        folder = Path(mkdtemp(prefix="fuzz-"))
        jpeg = io.BytesIO()
        Image.fromarray(picture(1, height_px=30, width_px=40)).save(jpeg, "JPEG")
        for name in ("images/a.jpg", "images/b.jpg", "JPEGImages/a.jpg", "JPEGImages/b.jpg"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(jpeg.getvalue())
        for name in ("labels", "Annotations"):
            (folder / name).mkdir()
        (folder / "labels/b.txt").write_text("0 0.5 0.5 0.5 0.5 0.5 0.5 2")
        (folder / "right.yaml").write_text("train: images\nnames: [a, b]\nkpt_shape: [1, 3]\n")
        self._json = folder / "coco.json"
        self._files = {
            self._json: coco.Coco(folder / "images", self._json, crowd="keep"),
            folder / "labels/a.txt": yolo.YoloLabels(folder / "right.yaml"),
            folder / "data.yaml": yolo.YoloLabels(folder / "data.yaml"),
            folder / "Annotations/a.xml": voc.PascalVoc(folder, difficult="keep"),
        }
        images = [
            {"id": n, "file_name": f"{name}.jpg", "height": 30, "width": 40} for n, name in enumerate("ab")
        ]
        each = [
            {
                "id": n,
                "image_id": n % 2,
                "category_id": 1 + n % 2,
                "bbox": [n, 1.5, 9 + n, 8],
                "area": 4,
                "iscrowd": 0,
            }
            for n in range(6)
        ]
        names = [{"id": n, "name": name} for n, name in ((1, "cat"), (2, "dog"))]
        whole = {"images": images, "annotations": each, "categories": names}
        each[0]["keypoints"], each[1]["keypoints"] = [3, 4, 2, 1, 1, 1], []
        box = "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>9</xmax><ymax>8</ymax></bndbox>"
        things = "".join(
            f"<object><name>{name}</name>{box}<difficult>0</difficult></object>\n" for name in "ab"
        )
        self.seeds = [
            json.dumps(whole).encode(),
            json.dumps(dict(reversed(whole.items())), indent=1).encode(),
            b"0 0.5 0.5 0.25 0.5 0.5 0.5 2\n1 0.25 0.5 0.125 0.5 0.1 0.5 1\n",
            b"path: .\ntrain: images\nnames:\n  0: a\n  1: b\nkpt_shape: [1, 3]\n",
            f"<annotation><filename>a.jpg</filename>{things}</annotation>".encode(),
        ]

    def run(self, data: bytes) -> bool:
        from standpipe.source.annotations.listing import AnnotationListing
        from standpipe.source.index.store import build_unnamed
        from standpipe.source.index.writer import IndexStorage

        taken = False
        for file, source in self._files.items():
            content = self._twisted(data) if file == self._json and not data.startswith(b"{") else data
            file.write_bytes(content)
            try:
                subject: Any = source.subject()
                opened = AnnotationListing(subject, build_unnamed(subject, IndexStorage(None)))
            except sp.PlanError:
                continue
            finally:
                file.unlink()
            records = opened.locate(np.arange(opened.num_records))
            ragged, sizes = records.ragged, opened.sizes(records.index)
            rows = np.repeat(records.index, np.diff(ragged["boxes"].ends, prepend=0))
            assert sizes is not None
            boxes, limits = ragged["boxes"].values, sizes[rows][:, ::-1]
            assert (boxes >= 0).all()
            assert (boxes[:, :2] < boxes[:, 2:]).all()
            assert (boxes[:, 2:] <= limits).all()
            labels = ragged["labels"].values
            assert (labels >= 0).all()
            assert opened.classes is None or (labels < len(opened.classes)).all()
            assert all(text.isprintable() for text in opened.skipped())
            if file == self._json:
                self._compare(content, records, rows)
            taken = taken or file.suffix != ".txt"  # each line that can't be used is a fault, in any file
        return taken

    def _twisted(self, data: bytes) -> bytes:
        """Return the first seed with one to three other values, as a function of ``data``."""
        draw, whole = random.Random(data), json.loads(self.seeds[0])
        for _ in range(draw.randint(1, 3)):
            twist(draw, draw.choice(whole[draw.choice(sorted(whole))]))
        return json.dumps(whole).encode()

    def _compare(self, data: bytes, records: Any, rows: Any) -> None:
        """Check that each box is one that the file has for this annotation and image."""
        pairs = json.loads(data.decode("utf-8-sig"), object_pairs_hook=list)
        items = [dict(item) for key, value in pairs if key == "annotations" for item in value]
        known = {
            (item["id"], item["image_id"], *(np.float32(max(side, 0)) for side in item["bbox"][:2]))
            for item in items
            if len(item.get("bbox", ())) == 4 and all(abs(side) <= 1e9 for side in item["bbox"][:2])
        }
        found = zip(
            records.ragged["id"].values.tolist(),
            records.plain["image_id"][rows].tolist(),
            *records.ragged["boxes"].values[:, :2].T.tolist(),
            strict=True,
        )
        assert {*found} <= known


def twist(draw: random.Random, place: Any) -> None:
    """Give a value in a JSON object or list, or in a list inside it, another value."""
    key = draw.choice(sorted(place)) if isinstance(place, dict) else draw.randrange(len(place))
    while isinstance(place[key], list) and place[key] and draw.random() < 0.7:
        place, key = place[key], draw.randrange(len(place[key]))
    values = (
        *(None, True, -1, 0, 1, 2, 1e999, -1e9, float("nan"), 0.5, 1 << 63, 10**25),
        *("", "b.jpg", "../x", [], {}, [5, 6, 7, 8], [0] * 9, draw.randrange(60)),
    )
    place[key] = draw.choice(values)


class Instances:
    """A JSON object with an image's instances: its boxes are valid, and other images keep theirs."""

    words = Annotations.words[:11]

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="fuzz-"))
        jpeg = io.BytesIO()
        Image.fromarray(picture(1, height_px=30, width_px=40)).save(jpeg, "JPEG")
        self._image = jpeg.getvalue()
        each = [
            {"bbox": [n, 1.5, 9 + n, 8], "category_id": n, "area": 4, "keypoints": [3, 4, 2, 1, 1, 1]}
            for n in range(2)
        ]
        columns = {"boxes": [[1, 2, 30, 20], [0, 0, 9, 9]], "labels": [3, 4], "area": [4, 5]}
        columns["keypoints"] = [[[1, 1, 2], [3, 3, 1]]] * 2  # type: ignore[assignment,list-item]
        self.seeds = [json.dumps(target).encode() for target in (columns, each, {"annotations": each})]

    def run(self, data: bytes) -> bool:
        from standpipe.source.index.store import build_unnamed
        from standpipe.source.index.writer import IndexStorage
        from standpipe.source.shards.tar import TarListing

        first, last = self.seeds[:2]
        draw, whole = random.Random(data), json.loads(first)
        if draw.random() < 0.5:
            twist(draw, whole)
            data = json.dumps(whole).encode()
        path = self._folder / "a.tar"
        pairs = enumerate((first, data, last))
        shard(
            path, [member for n, text in pairs for member in ((f"{n}.jpg", self._image), (f"{n}.json", text))]
        )
        try:
            subject = sp.TarShards(path, instances="json").subject()
            opened = TarListing.of(subject, build_unnamed(subject, IndexStorage(None)))
        except sp.PlanError:
            return False
        assert all(text.isprintable() for text in opened.skipped())
        ragged = opened.locate(np.arange(3)).ragged
        boxes, ends = ragged["boxes"].values, ragged["boxes"].ends
        assert ((boxes[:, :2] >= 0) & (boxes[:, :2] < boxes[:, 2:]) & (boxes[:, 2:] <= [40, 30])).all()
        assert np.isfinite(ragged["keypoints"].values).all()
        assert boxes[:2].tolist() == [[1, 2, 30, 20], [0, 0, 9, 9]]
        assert boxes[ends[1] :].tolist() == [[0, 1.5, 9, 9.5], [1, 1.5, 11, 9.5]]
        assert ragged["labels"].values[ends[1] :].tolist() == [0, 1]
        return True


TARGETS: dict[str, Callable[[], Target]] = {
    "annotations": Annotations,
    "instances": Instances,
    "index": Index,
    "answers": Answers,
    "npy": Npy,
    "idx": Idx,
    "tar": Tar,
    "mds": Mds,
    "checksums": Checksums,
    "state": State,
    "conditions": Conditions,
    "faults": Faults,
    "excluded": Excluded,
    "messages": Messages,
    "samples": Samples,
    "foreign": Foreign,
    "manifests": Manifests,
    "snapshots": Snapshots,
}
