"""Addresses of objects that a plain GET can use: signed, where the store needs that."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from datetime import timedelta
from threading import Lock
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

SIGNED_S, USED_S = 3600, 600  # seconds for which an address is signed, and for which it is used


class Addresses:
    """The addresses of a store's objects. Only the fetch process has them, as they contain signatures.

    settings  the fields of the ``Store``
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings, self._lock = settings, Lock()
        self._stores: dict[str, Any] = {}
        self._known: dict[str, tuple[float, SplitResult]] = {}
        self._context: ssl.SSLContext | None = None

    def of(self, url: str) -> SplitResult:
        """Return the address of an object."""
        until_s, address = self._known.get(url, (0.0, None))
        if address is None or until_s < time.monotonic():
            with self._lock:
                address = self._made(urlsplit(url))
                self._known[url] = time.monotonic() + USED_S, address
        return address

    def renew(self) -> None:
        """Forget all signatures and credentials."""
        with self._lock:
            self._known.clear()
            self._stores.clear()

    def tls(self) -> ssl.SSLContext:
        """Return the settings of TLS, which always verify the store's certificate."""
        with self._lock:
            if self._context is None:
                self._context = ssl.create_default_context(cafile=self._settings.get("ca"))
            return self._context

    def _made(self, url: SplitResult) -> SplitResult:
        if url.scheme != "s3":
            return url._replace(path=quote(url.path))
        endpoint = self._settings.get("endpoint")
        if self._settings.get("anonymous"):
            base = endpoint or f"https://s3.{self._settings.get('region') or 'us-east-1'}.amazonaws.com"
            return urlsplit(f"{base.rstrip('/')}/{url.netloc}{quote(url.path)}")
        import obstore  # here: few stores need it, and it takes memory

        store = self._stores.get(url.netloc)
        if store is None:
            store = self._stores[url.netloc] = self._s3(url.netloc)
        signed: str = obstore.sign(store, "GET", url.path.lstrip("/"), timedelta(seconds=SIGNED_S))
        return urlsplit(signed)

    def _s3(self, bucket: str) -> Any:
        from obstore.store import S3Store

        given = self._settings
        options: dict[str, Any] = {
            "endpoint": given.get("endpoint"),
            "region": given.get("region"),
            "credential_provider": given.get("credentials"),
            "request_payer": True if given.get("requester_pays") else None,
        }
        path_style = given.get("path_style")
        if path_style is not None:
            options["virtual_hosted_style_request"] = not path_style
        plain = str(given.get("endpoint") or "").startswith("http://")
        known = {name: value for name, value in options.items() if value is not None}
        return S3Store(bucket, client_options={"allow_http": plain}, **known)
