"""URLs are parsed into scheme, host and path. Those that aren't safe are refused, and no secret is in an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from standpipe.system.urls import SCHEMES, Url, common_folder, is_link_local

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("text", "scheme", "host", "path"),
    [
        ("s3://bucket/a/b-000.tar", "s3", "bucket", "a/b-000.tar"),
        ("S3://My.Bucket_1/a b/ü.tar", "s3", "My.Bucket_1", "a b/ü.tar"),
        ("gs://bucket/a", "gs", "bucket", "a"),
        ("az://$web/a", "az", "$web", "a"),
        ("https://Example.com:8443/a%20b/c.tar", "https", "example.com:8443", "a%20b/c.tar"),
        ("http://127.0.0.1:9000/a@b:c", "http", "127.0.0.1:9000", "a@b:c"),
        ("http://[::1]:80/a", "http", "[::1]:80", "a"),
        ("s3://bucket/folder/", "s3", "bucket", "folder/"),
        ("s3://bucket", "s3", "bucket", ""),
        (b"s3://bucket/..a/b..", "s3", "bucket", "..a/b.."),
    ],
)
def test_it_is_taken_apart(text: str | bytes, scheme: str, host: str, path: str) -> None:
    url = Url.parse(text, field="shards")
    assert (url.scheme, url.host, url.path) == (scheme, host, path)
    assert url.text == f"{scheme}://{host}/{path}"
    assert Url.parse(url.text, field="shards") == url


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            f"s3://user:{SECRET}@bucket/a",
            r"s3://bucket/a has a user or a password.*sp.Store\(credentials=…\)",
        ),
        (f"https://{SECRET}@example.com/a", r"https://example.com/a has a user"),
        (f"https://example.com/a.tar?X-Amz-Signature={SECRET}", r"a.tar has a query.*from the '\?' on"),
        (f"https://example.com/a.tar#{SECRET}", r"from the '#' on"),
        (f"http://user:{SECRET}@example.com?a={SECRET}", r"http://example.com/ has a user"),
        ("s3://bucket/a/../b", r"named \. or \.\.; write the path without it"),
        ("s3://bucket/..", r"named \. or"),
        ("s3://bucket//a", r"without a name"),
        ("s3://bucket/a//", r"without a name"),
        ("https://example.com/a/%2e%2E/b", r"named \. or \.\."),
        ("https://example.com/a%2F..%2Fb", r"named \. or \.\."),
        ("https://example.com/a b", r"write them as % and two digits"),
        (
            "pipe:curl -s https://example.com/a.tar",
            r"standpipe runs no commands such as pipe:…; give the URL",
        ),
        ("file:///etc/passwd", r"give its path, without file://"),
        ("s3a://bucket/a", r"write s3:// instead of s3a://"),
        ("gcs://bucket/a", r"write gs:// instead of gcs://"),
        ("abfs://container/a", r"write az:// instead of abfs://"),
        ("hf://datasets/a", r"reads s3://, gs://, az://, https:// and http://\. Mount it or copy it"),
        ("s3::https://bucket/a", r"needs two slashes"),
        ("s3:/bucket/a", r"needs two slashes"),
        (Path("s3://bucket/a"), r"give the URL as a str"),
        ("/data/a.tar", r"must be a URL such as"),
        ("s3:///a", r"'' isn't the name of a bucket"),
        ("s3://b!cket/a", r"isn't the name of a bucket"),
        ("https://exa mple.com/a", r"isn't the server"),
        ("https://example.com:port/a", r"isn't the server"),
        ("s3://bucket/a\nb", r"can't be printed"),
        (b"s3://bucket/\xff", r"must be UTF-8"),
        (7, r"this one is a int"),
        (
            "http://169.254.169.254/latest/meta-data",
            r"may give away credentials.*sp.Store\(endpoint=…\)",
        ),
    ],
)
def test_others_are_refused_without_their_secrets(text: object, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says) as found:
        Url.parse(text, field="TarShards' shards")
    assert str(found.value).startswith("TarShards' shards")
    assert SECRET not in str(found.value)


LINK_LOCAL_HOSTS = [
    *(
        "169.254.169.254",
        "169.254.0.1:80",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "169.254.43518",
    ),
    *("[fe80::1]", "[fe80::1]:80", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "[2002:a9fe:a9fe::]"),
    *("metadata.google.internal", "metadata.google.internal.:80", "100.100.100.200"),
]


@pytest.mark.parametrize("host", LINK_LOCAL_HOSTS)
def test_link_local_servers_are_refused_unless_they_are_the_endpoint(host: str) -> None:
    assert is_link_local(host)
    with pytest.raises(sp.PlanError, match="may give away credentials"):
        Url.parse(f"http://{host}/a", field="shards")
    assert Url.parse(f"http://{host}/a", field="shards", is_endpoint=True).host == host
    assert not any(
        map(is_link_local, ("127.0.0.1", "10.0.0.1:80", "[::1]:80", "example.com", "metadata.com"))
    )


@given(
    st.one_of(
        st.text(),
        st.binary(),
        st.from_regex(r"(s3|gs|https?|file|pipe):/{0,3}[a-z@:.?#/\[%0-9]{0,20}", fullmatch=True),
    )
)
def test_any_text_is_a_url_or_refused(text: str | bytes) -> None:
    try:
        url = Url.parse(text, field="shards")
    except sp.PlanError:
        return
    assert url.scheme in SCHEMES
    assert not {"", ".", ".."} & {*url.path.rstrip("/").split("/")} or url.path == ""
    assert not {*url.text} & {*"?#"}
    assert "@" not in url.host
    assert Url.parse(url.text, field="shards") == url


def test_the_folder_of_all_urls() -> None:
    assert common_folder([b"s3://b/a/x", b"s3://b/a/y/z"]) == b"s3://b/a/"
    assert common_folder([b"s3://b/ab", b"s3://b/ac"]) == b"s3://b/"
    assert common_folder([b"s3://b"]) == b"s3://b/"
    assert common_folder([b"https://h:1/a"]) == b"https://h:1/a/"
    assert common_folder([b"/data/a", b"/data/b"]) == b"/data/"
    assert common_folder([b"/"]) == b"/"
    for others in ([b"s3://b/a", b"s3://c/a"], [b"s3://b/a", b"gs://b/a"], [b"s3://b/a", b"/a"]):
        with pytest.raises(sp.PlanError, match=r"make a source of each, and join them with sp\.Concat"):
            common_folder(others)
