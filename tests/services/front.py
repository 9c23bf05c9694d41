"""A proxy before a server: ends TLS where the server has none, and loses answers on demand."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

from tests.services.tls import Certificates


class Front:
    """Listens on a port of its own, with TLS when given certificates; passes bytes both ways."""

    def __init__(self, port: int, certificates: Certificates | None = None) -> None:
        self._port_behind = port
        self._context: ssl.SSLContext | None = None
        if certificates is not None:
            self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._context.load_cert_chain(certificates.certificate, certificates.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._lock = threading.Lock()
        self._to_lose: list[bytes] = []
        self.lost = 0
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Front:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # close() alone does not wake a thread that waits in accept() or recv().
        for one in [self._listener, *self._open]:
            _shut(one)
        for thread in self._threads:
            thread.join(timeout=5)
        for one in [self._listener, *self._open]:
            one.close()

    def lose_answer_to(self, *commands: bytes) -> None:
        """For each of `commands`: the server gets the next request that contains it, and its
        answer is lost with the connection.
        """
        with self._lock:
            self._to_lose += commands

    def _accept(self) -> None:
        while True:
            try:
                outside, _ = self._listener.accept()
            except OSError:
                return
            if self._context is not None:
                try:
                    outside = self._context.wrap_socket(outside, server_side=True)
                except OSError:
                    outside.close()
                    continue
            inside = socket.create_connection(("127.0.0.1", self._port_behind))
            self._open += [outside, inside]
            lose = threading.Event()
            for work in (
                threading.Thread(target=self._requests, args=(outside, inside, lose), daemon=True),
                threading.Thread(target=self._answers, args=(inside, outside, lose), daemon=True),
            ):
                self._threads.append(work)
                work.start()

    def _requests(
        self, source: socket.socket, target: socket.socket, lose: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                with self._lock:
                    for command in self._to_lose:
                        if command in data:
                            self._to_lose.remove(command)
                            self.lost += 1
                            lose.set()
                            break
                target.sendall(data)
        _shut(target)

    def _answers(self, source: socket.socket, target: socket.socket, lose: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := source.recv(65_536)) and not lose.is_set():
                target.sendall(data)
        _shut(target)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
