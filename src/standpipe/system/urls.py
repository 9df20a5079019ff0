"""Parse the URLs of objects in stores, and refuse those that aren't safe or that no part of standpipe reads."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote

from standpipe.errors import PlanError
from standpipe.spec import Store

BUCKETS = ("s3", "gs", "az")  # schemes whose host is a bucket or a container
SCHEMES = (*BUCKETS, "https", "http")
MEANT = {  # schemes of other programs
    **dict.fromkeys(("s3a", "s3n"), "s3"),
    "gcs": "gs",
    **dict.fromkeys(("azure", "abfs", "abfss", "wasb", "wasbs", "adl"), "az"),
}
IS_URL = re.compile(rb"(s3|gs|az|https?)://", re.IGNORECASE)
FORM = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)/?([^?#]*)(.*)", re.IGNORECASE | re.DOTALL)
BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{1,254}")
SERVER = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
ENCODED = re.compile(r"[!-~]*")  # what a path on a web server may have
LINK_LOCAL = tuple(
    map(ipaddress.ip_network, ("169.254.0.0/16", "100.100.100.200/32", "fe80::/10", "fd00:ec2::254/128"))
)
METADATA = ("metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal")


@dataclass(frozen=True, slots=True)
class Url:
    """The URL of an object, without credentials and without a query.

    scheme  one of ``SCHEMES``
    host    the bucket or container; of ``https`` and ``http`` the server, with its port if the URL has one
    path    the object's key, without a slash before it; of ``https`` and ``http`` as the URL has it, %-encoded
    """

    scheme: str
    host: str
    path: str

    @property
    def text(self) -> str:
        """The URL as text."""
        return f"{self.scheme}://{self.host}/{self.path}"

    @classmethod
    def parse(cls, url: object, *, field: str, is_endpoint: bool = False) -> Url:
        """Parse a URL. Errors contain neither its password nor its query.

        field        name of the argument, for errors
        is_endpoint  True for a server that the user trusts: it may be link-local

        Raises ``PlanError`` for other schemes, a user or password, a query, a ``..``, and for link-local servers.
        """
        text = _printable(url, field)
        found = FORM.fullmatch(text)
        if found is None:
            _refuse_form(text, field)
        scheme, host, path, rest = found[1].lower(), *found.groups()[1:]
        is_bucket = scheme in BUCKETS
        host = host if is_bucket else host.lower()
        shown = f"{field}: {scheme}://{host.rpartition('@')[2]}/{path}"
        if scheme not in SCHEMES:
            _refuse_scheme(scheme, shown)
        if "@" in host:
            raise PlanError(
                f"{shown} has a user or a password, which would be stored and printed. Leave it out, and give "
                "credentials by the environment, a profile or sp.Store(credentials=…)"
            )
        if rest:
            raise PlanError(
                f"{shown} has a query or a fragment, which may be secret. Leave out everything from the {rest[0]!r} on"
            )
        plain = path if is_bucket else unquote(path)
        if ({"", ".", ".."} & {*plain.rstrip("/").split("/")} and plain) or plain.endswith("//"):
            raise PlanError(
                f"{shown} has a folder without a name, or named . or ..; write the path without it"
            )
        if not (is_bucket or ENCODED.fullmatch(path)):
            raise PlanError(
                f"{shown} has characters that URLs can't have; write them as % and two digits, such as %20"
            )
        if (BUCKET if is_bucket else SERVER).fullmatch(host) is None:
            name = "name of a bucket" if is_bucket else "server"
            raise PlanError(
                f"{shown}: {host!r} isn't the {name}; write it as in s3://bucket/train-{{000..146}}.tar"
            )
        if not is_bucket and not is_endpoint and is_link_local(host):
            raise PlanError(
                f"{shown} is on a server of this machine's network alone, which may give away credentials. If your "
                "data is there, name the server as sp.Store(endpoint=…), and write the URL as s3://BUCKET/…"
            )
        return cls(scheme, host, path)


def checked_store(store: object, urls: Collection[bytes], *, call: str) -> Store | None:
    """Return the store of URLs, or None for paths. Raises ``PlanError`` for settings that a store can't have.

    urls  the URLs, or paths, of one source
    call  the source's name, for messages
    """
    if store is not None and not isinstance(store, Store):
        raise PlanError(f"{call}: store must be an sp.Store, got {type(store).__name__}")
    if not any(map(IS_URL.match, urls)):
        if store is not None:
            raise PlanError(
                f"{call}: store= is for URLs such as s3://bucket/train-000.tar; leave it out for files"
            )
        return None
    if other := [url for url in urls if url.startswith((b"gs:", b"az:"))]:
        raise PlanError(
            f"{call}: {os.fsdecode(other[0])}: objects of gs:// and az:// can't be fetched yet; use s3:// or https://"
        )
    store = store or Store()
    if store.profile is not None:
        raise PlanError(
            f"{call}: profile= of sp.Store can't be used yet; set credentials=, or AWS's variables"
        )
    if store.endpoint is not None:
        endpoint = Url.parse(store.endpoint, field=f"{call}: the endpoint of sp.Store", is_endpoint=True)
        if endpoint.scheme in BUCKETS:
            raise PlanError(
                f"{call}: the endpoint of sp.Store must be a server such as https://minio.example.com:9000, got "
                f"{endpoint.text}"
            )
    if store.credentials is not None and not callable(store.credentials):
        raise PlanError(
            f"{call}: credentials of sp.Store must be a function that returns them, so that they are stored nowhere, "
            f"got {type(store.credentials).__name__}"
        )
    if store.anonymous and (store.credentials is not None or store.profile is not None):
        raise PlanError(f"{call}: sp.Store has anonymous=True and credentials; leave one of them out")
    return store


def is_link_local(host: str) -> bool:
    """Return True for a server of link-local addresses, or one that gives a machine its credentials.

    host  the server, with or without a port; other spellings of an IPv4 address, such as 0xa9fea9fe, are recognised
    """
    name = host.strip("[]") if host.endswith("]") else host.rpartition(":")[0] or host
    name = name.strip("[]").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(name))
        except (OSError, ValueError):
            return name in METADATA
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address.sixtofour or address
    return any(address in network for network in LINK_LOCAL)


def common_folder(folders: Collection[bytes]) -> bytes:
    """Return the folder that has all of ``folders``, with a slash at the end: paths, or URLs of one bucket or server.

    Raises ``PlanError`` for URLs of several buckets, or URLs beside paths.
    """
    stores = {_store_of(folder) for folder in folders}
    if len(stores) > 1:
        first, second, *_ = sorted(stores)
        names = [each.decode() or "files of this machine" for each in (first, second)]
        raise PlanError(
            f"shards are in {names[0]} and in {names[1]}; make a source of each, and join them with sp.Concat"
        )
    (store,) = stores
    return (
        store + os.path.commonpath([folder[len(store) :] or b"/" for folder in folders]).rstrip(b"/") + b"/"
    )


def _store_of(folder: bytes) -> bytes:
    """Return scheme and host of a URL; nothing for a path."""
    return b"/".join(folder.split(b"/", 3)[:3]) if IS_URL.match(folder) else b""


def _printable(url: object, field: str) -> str:
    """Return a URL as text."""
    if isinstance(url, os.PathLike):
        raise PlanError(f"{field}: pathlib makes one slash of the two in a URL; give the URL as a str")
    try:
        text = url.decode() if isinstance(url, bytes) else url
    except UnicodeDecodeError:
        raise PlanError(f"{field}: a URL must be UTF-8, got {url!r:.80}") from None
    if not isinstance(text, str) or not text.isprintable():
        kind = (
            "has characters that can't be printed" if isinstance(text, str) else f"is a {type(url).__name__}"
        )
        raise PlanError(f"{field} must be a URL such as s3://bucket/train-{{000..146}}.tar; this one {kind}")
    return text


def _refuse_form(text: str, field: str) -> NoReturn:
    """Raise the ``PlanError`` for a text without ``://``."""
    scheme, colon, _ = text.partition(":")
    if colon and scheme.lower() == "pipe":
        raise PlanError(
            f"{field}: standpipe runs no commands such as pipe:…; give the URL, such as s3://bucket/train-000.tar"
        )
    if colon and scheme.lower() in (*SCHEMES, "file"):
        raise PlanError(f"{field}: the URL of scheme {scheme!r} needs two slashes after the colon")
    raise PlanError(f"{field} must be a URL such as s3://bucket/train-{{000..146}}.tar")


def _refuse_scheme(scheme: str, shown: str) -> NoReturn:
    """Raise the ``PlanError`` for a scheme that isn't read."""
    if scheme == "file":
        raise PlanError(f"{shown} is a file of this machine; give its path, without file://")
    if scheme in MEANT:
        raise PlanError(
            f"{shown}: write {MEANT[scheme]}:// instead of {scheme}://, with bucket or container as host"
        )
    raise PlanError(
        f"{shown}: standpipe reads {'://, '.join(SCHEMES[:-1])}:// and {SCHEMES[-1]}://. Mount it or copy it, and give "
        "the path; or fetch images in a dataset of yours, MapSource(dataset, encoded='image')"
    )
