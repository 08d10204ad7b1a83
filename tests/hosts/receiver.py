"""Somebody who is called: a real server, with a certificate of its own, that keeps what it was told."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

HOST = "hooks.example"  # and localhost: whom the certificate vouches for
PATIENCE = 20.0  # seconds; far more than any of it takes


class Call(Struct, frozen=True):
    """One call, as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class Answer(Struct, frozen=True):
    status: int = 204
    headers: dict[str, str] = {}
    body: bytes = b""


def make_certificate(folder: Path, host: str = HOST) -> tuple[Path, Path]:
    """One that vouches for itself, for this host and localhost."""
    certificate, key = folder / f"{host}.pem", folder / f"{host}.key"
    words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={host}"
    names = f"subjectAltName=DNS:{host},DNS:localhost,IP:127.0.0.1"
    subprocess.run(
        ["openssl", *words.split(), "-addext", names, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    return certificate, key


class Receiver:
    """Answers as it was told to, one answer after the other; then with 204."""

    def __init__(self, certificate: tuple[Path, Path] | None = None, port: int = 0) -> None:
        self.calls: list[Call] = []
        self.answers: deque[Answer] = deque()
        self.changed = threading.Condition()
        self.holds = threading.Event()  # set: answers go out; else they wait
        self.holds.set()
        self.most = self.now = 0  # calls at once
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who calls may break off
        self.scheme = "http"
        if certificate is not None:
            self.scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        port: int = self._server.server_address[1]
        return port

    def url(self, host: str = "localhost") -> str:
        return f"{self.scheme}://{host}:{self.port}/ring?key=1"

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["content-length"]))
        headers = {name.lower(): value for name, value in request.headers.items()}
        with self.changed:
            self.calls.append(Call(request.path, headers, body))
            self.now += 1
            self.most = max(self.most, self.now)
            answer = self.answers.popleft() if self.answers else Answer()
            self.changed.notify_all()
        self.holds.wait(PATIENCE)
        with self.changed:
            self.now -= 1
        request.send_response(answer.status)
        for name, value in (answer.headers | {"Content-Length": str(len(answer.body))}).items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(answer.body)

    def wait_for(self, many: int, seconds: float = PATIENCE) -> list[Call]:
        """So many calls."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.calls) >= many, seconds):
                raise TimeoutError(self.calls)
            return list(self.calls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.holds.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)


@contextmanager
def raw_server(answer: Any) -> Iterator[int]:
    """A port where `answer` does what it likes with each connection that is made."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                with line:
                    line.settimeout(PATIENCE)
                    try:
                        answer(line)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)
