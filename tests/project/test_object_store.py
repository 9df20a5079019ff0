"""The store of objects that tests use: its bytes, its credentials, and each fault of its proxy."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing
from pathlib import Path

import pytest

from object_store import CREDENTIALS, FaultProxy, ObjectStore, certificate, fault_proxy, in_child

DATA = bytes(range(256)) * 8
RANGE = {"Range": "bytes=100-299"}
GET = """
import json, sys, urllib.error, urllib.request
from datetime import timedelta
import obstore
from obstore.store import S3Store
store = S3Store("bucket", endpoint={endpoint!r}, client_options={{"allow_http": True}}, access_key_id={key!r},
    secret_access_key={secret!r}, region="us-east-1", virtual_hosted_style_request=False)
request = urllib.request.Request(obstore.sign(store, "GET", "a/b.bin", timedelta(minutes=5)))
request.add_header("Range", "bytes=100-299")
request.add_header("If-Match", {etag!r})
try:
    with urllib.request.urlopen(request) as answer:
        print(json.dumps([answer.status, answer.headers["Content-Range"], answer.headers["ETag"], list(answer.read())]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code]))
"""


def get(endpoint: str, secret: str = CREDENTIALS["AWS_SECRET_ACCESS_KEY"], etag: str = "*") -> list[object]:
    """GET a range by a signed URL."""
    program = GET.format(endpoint=endpoint, key=CREDENTIALS["AWS_ACCESS_KEY_ID"], secret=secret, etag=etag)
    answer: list[object] = json.loads(in_child(program))
    return answer


def test_signed_ranges_through_the_proxy(seaweed: ObjectStore) -> None:
    assert seaweed.put("a/b.bin", DATA) == "s3://bucket/a/b.bin"
    with fault_proxy(seaweed.port) as proxy:
        status, content_range, etag, data = get(proxy.endpoint)
        assert (status, content_range) == (206, f"bytes 100-299/{len(DATA)}")
        assert bytes(data) == DATA[100:300]  # type: ignore[arg-type]
        assert get(proxy.endpoint, etag=str(etag)) == [status, content_range, etag, data]
        assert get(proxy.endpoint, etag='"other"') == [412]
        assert get(proxy.endpoint, secret="wrong") == [403]
        proxy.faults.append("503")
        assert get(proxy.endpoint) == [503]
        assert proxy.requests == [("/bucket/a/b.bin", "bytes=100-299")] * 5


def plain(proxy: FaultProxy, tls: ssl.SSLContext | None = None) -> tuple[int, http.client.HTTPMessage, bytes]:
    """GET a range from a server that wants no credentials."""
    client = (
        http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=1)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=1, context=tls)
    )
    with closing(client):
        client.request("GET", "/buckets/bucket/a/b.bin?secret", headers=RANGE)
        answer = client.getresponse()
        return answer.status, answer.headers, answer.read()


def test_each_fault(seaweed: ObjectStore) -> None:
    seaweed.put("a/b.bin", DATA)
    whole, there = DATA[100:300], f"bytes 100-299/{len(DATA)}"
    with fault_proxy(seaweed.filer) as proxy:
        status, headers, body = plain(proxy)
        assert (status, headers["Content-Range"], body) == (206, there, whole)
        assert "ETag" in headers
        for fault, status in {
            "503": 503,
            "500": 500,
            "429": 429,
            "403": 403,
            "404": 404,
            "redirect": 302,
        }.items():
            proxy.faults.append(fault)
            answer = plain(proxy)
            assert answer[0] == status
        assert answer[1]["Location"] == f"http://127.0.0.1:{proxy.canary}/stolen"
        proxy.faults += ["200", "shifted", "noetag", "flip", "long"]
        status, headers, body = plain(proxy)
        assert (status, "Content-Range" in headers, body) == (200, False, whole)
        assert plain(proxy)[1]["Content-Range"] == f"bytes 101-300/{len(DATA)}"
        assert "ETag" not in plain(proxy)[1]
        assert plain(proxy)[2] == bytes([whole[0] ^ 1]) + whole[1:]
        assert plain(proxy)[2] == whole + b"x"
        for fault, error in {
            "short": http.client.IncompleteRead,
            "reset": ConnectionResetError,
            "stall": TimeoutError,
        }.items():
            proxy.faults.append(fault)
            with pytest.raises(error):
                plain(proxy)
        assert plain(proxy)[2] == whole
        assert {path for path, _ in proxy.requests} == {"/buckets/bucket/a/b.bin"}
        assert proxy.stolen == []


def test_a_certificate_of_its_own(seaweed: ObjectStore, tmp_path: Path) -> None:
    seaweed.put("a/b.bin", DATA)
    ca, server = certificate(tmp_path)
    with fault_proxy(seaweed.filer, server) as proxy:
        assert plain(proxy, ssl.create_default_context(cafile=ca))[2] == DATA[100:300]
        with pytest.raises(ssl.SSLCertVerificationError):
            plain(proxy, ssl.create_default_context())
