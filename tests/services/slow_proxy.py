"""A TCP proxy before a server, which refuses, hangs or slows down on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

CHUNK = 65_536


class SlowProxy:
    """Listens on a port of its own and passes bytes on to `port` of 127.0.0.1.

    `delay_seconds` holds back each piece of an answer. `cut()` refuses every connection, and breaks
    those that are open, until `mend()`. `hang()` keeps them open and passes nothing on.
    """

    def __init__(self, port: int) -> None:
        self.delay_seconds = 0.0
        self._behind = port
        self._cut = threading.Event()
        self._flowing = threading.Event()
        self._flowing.set()
        self._ended = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def __enter__(self) -> SlowProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._flowing.set()
        _shut(self._listener)
        self._listener.close()
        self._break_all()

    def cut(self) -> None:
        """Nobody gets through, as with a host that is down."""
        self._cut.set()
        self._break_all()

    def hang(self) -> None:
        """Everybody waits, as with a host that has stopped."""
        self._flowing.clear()

    def mend(self) -> None:
        """As if nothing had been."""
        self.delay_seconds = 0.0
        self._cut.clear()
        self._flowing.set()

    def _break_all(self) -> None:
        with self._lock:
            broken, self._open = self._open, set()
        for one in broken:
            _shut(one)

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                outside, _ = self._listener.accept()
            except OSError:
                return
            if self._cut.is_set():
                _reset(outside)
                continue
            try:
                inside = socket.create_connection(("127.0.0.1", self._behind), timeout=5)
            except OSError:
                _reset(outside)
                continue
            inside.settimeout(None)
            with self._lock:
                self._open |= {outside, inside}
            for source, target, slow in ((outside, inside, False), (inside, outside, True)):
                threading.Thread(
                    target=self._pass_on, args=(source, target, slow), daemon=True
                ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, slow: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self._flowing.wait()
                if slow and self.delay_seconds:
                    time.sleep(self.delay_seconds)
                target.sendall(data)
        for one in (source, target):
            _shut(one)
        with self._lock:
            self._open -= {source, target}
        source.close()


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def _reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # No time to linger: the peer sees a reset, as from a host without a listener.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    one.close()
