"""/metrics, /healthz and /readyz over plain HTTP, served by a daemon thread."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from urllib.parse import urlsplit

from streamfreq.config import TelemetryConfig
from streamfreq.errors import ConfigError
from streamfreq.telemetry.health import Health
from streamfreq.telemetry.metrics import Metrics

log = logging.getLogger("streamfreq.telemetry")

_TEXT = "text/plain; charset=utf-8"
_REQUEST_SECONDS = 10.0
_CLOSE_SECONDS = 5.0

Answer = tuple[HTTPStatus, bytes, str]


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD on three paths; everything else is 404 or 501."""

    server: _Server
    timeout = _REQUEST_SECONDS
    protocol_version = "HTTP/1.1"
    server_version = "streamfreq"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        path = urlsplit(self.path).path
        status, body, content_type = self.server.answer(path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A scrape every few seconds is no news."""
        log.debug(format, *args)


class _Server(socketserver.ThreadingTCPServer):
    """One daemon thread per connection; a client that hangs up is no news either."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, host: str, port: int, metrics: Metrics, health: Callable[[], Health]
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._metrics = metrics
        self._health = health
        super().__init__((host, port), _Handler)

    def answer(self, path: str, accept: str) -> Answer:
        """Status, body and content type for a path."""
        try:
            if path == "/metrics":
                # The gauge says what /readyz would say now, even if no loop is left to set it.
                self._metrics.set_ready(self._health().report().ready)
                body, content_type = self._metrics.exposition(accept)
                return HTTPStatus.OK, body, content_type
            if path == "/healthz":
                return self._judged(self._health().report().not_alive)
            if path == "/readyz":
                return self._judged(self._health().report().not_ready)
        except Exception as error:
            log.exception("%s could not be answered", path)
            return HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}\n".encode(), _TEXT
        return HTTPStatus.NOT_FOUND, b"try /metrics, /healthz or /readyz\n", _TEXT

    def _judged(self, reasons: tuple[str, ...]) -> Answer:
        if not reasons:
            return HTTPStatus.OK, b"ok\n", _TEXT
        line = "; ".join(" ".join(reason.split()) for reason in reasons)
        return HTTPStatus.SERVICE_UNAVAILABLE, f"{line}\n".encode(), _TEXT

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections break; that is the client's affair."""
        log.debug("connection from %s broke", client_address, exc_info=True)


class TelemetryServer:
    """Serves from the moment it is made until `close`; with port -1 it does nothing.

    Raises ConfigError when the configured address can't be used.
    """

    def __init__(
        self, config: TelemetryConfig, metrics: Metrics, health: Callable[[], Health]
    ) -> None:
        self._server: _Server | None = None
        if config.http_port < 0:
            return
        try:
            self._server = _Server(config.http_host, config.http_port, metrics, health)
        except socket.gaierror as error:
            raise ConfigError(
                f"telemetry.http_host = {config.http_host!r}: no such address here "
                f"({error.strerror}); use 127.0.0.1, or 0.0.0.0 for all"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"telemetry.http_port = {config.http_port}: can't listen on "
                f"{config.http_host}:{config.http_port} ({error.strerror}); choose another port, "
                "0 for any free one, or -1 for none"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="telemetry-http", daemon=True
        )
        self._thread.start()
        log.info("metrics and health on http://%s:%d", config.http_host, self.port)

    @property
    def port(self) -> int:
        """The port it listens on; -1 when there is no server."""
        return -1 if self._server is None else int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening and wait for the thread. Closing twice is allowed."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            self._thread.join(_CLOSE_SECONDS)

    def __enter__(self) -> TelemetryServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
