"""Tar shards of URLs: an index of a copy gives the same records, and nothing is asked of the store to plan them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from photos import encoded, picture
from programs import output
from tars import shard

SECRET = "s3cr3t"
STORE = sp.Store(
    endpoint=f"https://{SECRET}.example.com:9000",
    region=SECRET,
    credentials=lambda: {"access_key_id": SECRET},
    ca=f"/{SECRET}.pem",
)
URLS = "s3://bucket/data/train-{000..002}.tar"


@pytest.fixture
def local(tmp_path: Path) -> sp.TarShards:
    """Three shards with two records each, which have an index with checksums."""
    for number in range(3):
        members = [
            (f"{2 * number + each}.{kind}", encoded(picture(each)) if kind == "jpg" else b"%d" % number)
            for each in range(2)
            for kind in ("jpg", "cls")
        ]
        shard(tmp_path / f"train-{number:03}.tar", members)
    source = sp.TarShards(tmp_path / "train-{000..002}.tar", index=tmp_path / "index")
    sp.build_index(source, checksums=True)
    return source


def remote(
    local: sp.TarShards, shards: str | list[str] = URLS, store: sp.Store | None = STORE
) -> sp.TarShards:
    return sp.TarShards(shards, index=local.index, store=store)


def test_records_are_those_of_the_copy(local: sp.TarShards, tmp_path: Path) -> None:
    ours, theirs, at = local.open(), remote(local).open(), np.array([5, 0, 3])
    assert theirs.digest == ours.digest
    assert theirs.column("label", 0, 6).tolist() == [0, 0, 1, 1, 2, 2]
    before, after = (opened.locate(at).files["image"] for opened in (ours, theirs))
    assert [after.paths[row] for row in range(3)] == [
        b"s3://bucket/data/train-%03d.tar" % number for number in (2, 0, 1)
    ]
    for name in ("offset", "length", "crc32c"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert after.mtime_ns is None
    assert theirs.name(0) == f"s3://bucket/data/train-000.tar at byte {after.offset[1]:,}"
    (tmp_path / "train-000.tar").unlink()  # nothing is read of it
    assert remote(local).open().digest == ours.digest


def test_the_store_is_known_and_in_no_text(local: sp.TarShards) -> None:
    assert local.open().store is None
    assert remote(local).open().store is STORE
    assert remote(local, store=None).open().store == sp.Store()
    pipeline = sp.Pipeline(remote(local)).map(sp.CenterCrop(32)).batch(2)
    plan = pipeline.plan()
    bare = sp.Pipeline(remote(local, store=None)).map(sp.CenterCrop(32)).batch(2).plan()
    copy = sp.Pipeline(local).map(sp.CenterCrop(32)).batch(2).plan()
    assert plan.digest == bare.digest == copy.digest
    shown = f"{plan.explain()} {pipeline.to_dict()} {plan!r} {remote(local)!r} {STORE}"
    assert SECRET not in shown
    assert "store=Store(endpoint, region, credentials, ca)" in plan.explain()


def test_planning_connects_to_nothing(local: sp.TarShards, tmp_path: Path) -> None:
    program = f"""
import sys
import standpipe as sp

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise SystemExit(f"{{event}} {{arguments}}")

sys.addaudithook(refuse)
source = sp.TarShards("{URLS}", index="{tmp_path}/index", store=sp.Store(endpoint="http://127.0.0.1:9"))
print(sp.Pipeline(source).map(sp.CenterCrop(32)).batch(2).plan().source.num_records, "obstore" in sys.modules)
"""
    assert output(program).strip() == "6 False"


@pytest.mark.parametrize(
    ("shards", "store", "says"),
    [
        ("s3://bucket/train-*.tar", None, r"stores aren't listed; name the shards by braces"),
        ("s3://bucket", None, r"s3://bucket/ is no shard"),
        ("s3://bucket/train-{000..002}.idx", None, r"only lists shards or their members; name the shards"),
        ("s3://bucket/train.json", None, r"only lists shards or their members; name the shards"),
        ("s3://bucket/folder/", None, r"s3://bucket/folder/ is no shard"),
        (
            ["s3://aa/1.tar", "s3://bb/1.tar"],
            None,
            r"shards are in s3://aa and in s3://bb; make a source of each",
        ),
        (["s3://aa/1.tar", "/data/1.tar"], None, r"shards are in files of this machine and in s3://aa"),
        ("s3://user:s3cr3t@bucket/a.tar", None, r"has a user or a password"),
        ("s3://bucket/a/../b.tar", None, r"named \. or \.\."),
        (
            "s3://bucket/other.tar",
            None,
            r"and .*index doesn't fit: it is the index of other shards; index a copy",
        ),
        (URLS, "https://example.com", r"store must be an sp.Store, got str"),
        (URLS, sp.Store(endpoint="s3://bucket"), r"must be a server such as"),
        (URLS, sp.Store(endpoint="https://a:s3cr3t@host"), r"endpoint of sp.Store: .* has a user"),
        (URLS, sp.Store(credentials={"key": SECRET}), r"credentials of sp.Store must be a function"),  # type: ignore[arg-type]
        (URLS, sp.Store(anonymous=True, credentials=dict), r"anonymous=True and credentials"),
        ("gs://bucket/train-{0..2}.tar", None, r"gs:// and az:// can't be fetched yet"),
        (URLS, sp.Store(profile="me"), r"profile= of sp.Store can't be used yet"),
        ("/data/a.tar", sp.Store(), r"store= is for URLs such as"),
        ("/data/a.json", sp.Store(), r"store= is for URLs such as"),
    ],
)
def test_others_are_refused(local: sp.TarShards, shards: str, store: sp.Store | None, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says) as found:
        remote(local, shards, store).open()
    assert SECRET not in str(found.value)


def test_an_index_is_needed(tmp_path: Path) -> None:
    with pytest.raises(sp.PlanError, match=r"needs an index on this machine; index a copy"):
        sp.TarShards(URLS).open()
    with pytest.raises(
        sp.PlanError, match=r"can't be indexed where it is; index a copy with standpipe index"
    ):
        sp.build_index(sp.TarShards(URLS, index=tmp_path / "index"))
    assert not [*tmp_path.iterdir()]


def test_a_link_local_endpoint_may_be_given(local: sp.TarShards) -> None:
    assert remote(local, store=sp.Store(endpoint="http://169.254.1.1:9000")).open().num_records == 6
