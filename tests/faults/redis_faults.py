"""A client that fails on demand, and a server that answers everything with one error."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError

from streamfreq.config import RedisConfig
from streamfreq.redis_client import connect

OUTAGE = 10**9


class FailingClient:
    """Passes commands on to a real client until the time comes.

    `when` before: the command number `at` (from 1) never reaches the server. after: it is done, and
    its answer is lost. In both cases nothing gets through from then on, until `mend`.
    """

    def __init__(self, config: RedisConfig, at: int = OUTAGE, when: str = "before") -> None:
        self._client: Any = connect(config)
        self._at = at
        self._when = when
        self._between: dict[int, Callable[[], object]] = {}
        self.calls = 0

    def fail(self, step: int, when: str) -> None:
        """Fail before or after the command that is `step` commands from here."""
        self._at, self._when = self.calls + step, when

    def mend(self) -> None:
        self._at = OUTAGE

    def between(self, step: int, work: Callable[[], object]) -> None:
        """Do `work` before the command that is `step` commands from here."""
        self._between[self.calls + step] = work

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        # A script that the server does not know yet takes two commands; count it as one.
        if args[0] == "EVAL":
            self.calls -= 1
        self._between.pop(self.calls, lambda: None)()
        if self.calls > self._at or (self.calls == self._at and self._when == "before"):
            raise RedisConnectionError("the connection broke")
        answer = self._client.execute_command(*args, **options)
        if self.calls == self._at:
            raise RedisConnectionError("the connection broke")
        return answer

    def pipeline(self, transaction: Any = True) -> Any:
        return self._client.pipeline(transaction=transaction)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class AnsweringServer:
    """Listens, and answers each request with `answer`, as a server in trouble does."""

    def __init__(self, answer: str) -> None:
        self._answer = answer.encode() + b"\r\n"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> AnsweringServer:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)
        for one in [self._listener, *self._open]:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := connection.recv(65_536):
                # Each request begins with the number of its words: *3 and so on.
                requests = data.count(b"*")
                greetings = data.count(b"CLIENT")
                connection.sendall(b"+OK\r\n" * greetings)
                connection.sendall(self._answer * (requests - greetings))
