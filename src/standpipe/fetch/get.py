"""One try to get a range of an object by HTTP, straight into memory."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Callable
from urllib.parse import SplitResult

from standpipe.fetch.tries import FetchFault

READ_TIMEOUT_S = 2.0  # without a byte
MOST_DRAINED = 1 << 16  # bytes of an error's body that are read, so that the connection can be used again
RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
STATUS = {412: "changed", **dict.fromkeys((301, 302, 303, 307, 308), "redirect")}


class Connection:
    """The connection of one thread to the host that it has asked last."""

    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._tls = tls
        self._host = ("", "")
        self._http: http.client.HTTPConnection | None = None

    def read(
        self, url: SplitResult, etag: str, offset: int, out: memoryview, dropped: Callable[[], bool]
    ) -> None:
        """Read ``len(out)`` bytes from ``offset`` on. Raises ``FetchFault``; then ``out`` may be written in part.

        url      with the signature, if the store wants one
        etag     that the object must have; "": any
        dropped  returns True if nobody needs the bytes any more
        """
        try:
            self._body(self._answer(url, etag, offset, len(out)), out, dropped)
        except FetchFault as fault:
            if fault.kind not in ("503", "429"):
                self.close()
            raise
        except TimeoutError:
            self.close()
            raise FetchFault("timeout") from None
        except ssl.SSLCertVerificationError:
            self.close()
            raise FetchFault("certificate") from None
        except (ConnectionRefusedError, http.client.HTTPException, OSError) as error:
            self.close()
            broken = isinstance(error, ConnectionResetError | BrokenPipeError | http.client.HTTPException)
            raise FetchFault("reset" if broken else "connect") from None

    def close(self) -> None:
        """Close the connection, as its next bytes would belong to another answer."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _answer(self, url: SplitResult, etag: str, offset: int, length: int) -> http.client.HTTPResponse:
        target = f"{url.path}?{url.query}" if url.query else url.path
        headers = {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
        headers |= {"If-Match": etag} if etag else {}
        used = self._http is not None and self._host == url[:2]
        try:
            answer = self._asked(url, target, headers)
        except (ConnectionError, http.client.BadStatusLine):
            if not used:
                raise
            self.close()  # the store has closed an idle connection
            answer = self._asked(url, target, headers)
        if answer.status != 206:
            kind = STATUS.get(answer.status, str(answer.status))
            answer.read(MOST_DRAINED)
            if not answer.isclosed():
                self.close()
            wait = answer.getheader("Retry-After") or ""
            raise FetchFault(kind, float(wait) if wait.isdecimal() else 0.0)
        found = RANGE.fullmatch(answer.getheader("Content-Range") or "")
        if found is None or (int(found[1]), int(found[2])) != (offset, offset + length - 1):
            raise FetchFault("range")
        if etag and answer.getheader("ETag", etag) != etag:
            raise FetchFault("changed")
        if answer.length is not None and answer.length != length:
            raise FetchFault("range")
        return answer

    def _asked(self, url: SplitResult, target: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        if self._http is None or self._host != url[:2]:
            self.close()
            self._host = url[:2]
            self._http = (
                http.client.HTTPSConnection(url.netloc, timeout=READ_TIMEOUT_S, context=self._tls())
                if url.scheme == "https"
                else http.client.HTTPConnection(url.netloc, timeout=READ_TIMEOUT_S)
            )
        self._http.request("GET", target, headers=headers)
        return self._http.getresponse()

    def _body(self, answer: http.client.HTTPResponse, out: memoryview, dropped: Callable[[], bool]) -> None:
        done = 0
        while done < len(out):
            if dropped():
                raise FetchFault("dropped")
            count = answer.readinto(out[done:])
            if not count:
                raise FetchFault("short")
            done += count
        if answer.read(1):
            raise FetchFault("range")
