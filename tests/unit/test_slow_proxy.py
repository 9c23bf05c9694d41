"""The proxy of the chaos trial: passes bytes on, and refuses, hangs and delays on demand."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.services.slow_proxy import SlowProxy

PATIENCE = 10.0


@pytest.fixture
def proxy() -> Iterator[SlowProxy]:
    """A proxy before a server that echoes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def echo(one: socket.socket) -> None:
        with one:
            while data := one.recv(65_536):
                one.sendall(data)

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(one,), daemon=True).start()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    with SlowProxy(listener.getsockname()[1]) as made:
        yield made
    listener.shutdown(socket.SHUT_RDWR)
    server.join(PATIENCE)
    listener.close()


def connect(proxy: SlowProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE)


def ask(connection: socket.socket, words: bytes) -> bytes:
    connection.sendall(words)
    answer = b""
    while len(answer) < len(words) and (data := connection.recv(65_536)):
        answer += data
    return answer


def test_bytes_pass_both_ways_unchanged(proxy: SlowProxy) -> None:
    words = bytes(range(256)) * 1_000
    with connect(proxy) as one, connect(proxy) as other:
        assert ask(one, words) == words
        assert ask(other, b"b") == b"b"


def test_cut_breaks_what_is_open_and_refuses_what_is_new_until_it_is_mended(
    proxy: SlowProxy,
) -> None:
    with connect(proxy) as one:
        assert ask(one, b"a") == b"a"
        proxy.cut()
        assert no_answer(one)
    assert refused(proxy)
    proxy.mend()
    with connect(proxy) as one:
        assert ask(one, b"c") == b"c"


def refused(proxy: SlowProxy) -> bool:
    try:
        with connect(proxy) as one:
            return no_answer(one)
    except ConnectionError:
        return True


def no_answer(connection: socket.socket) -> bool:
    try:
        return ask(connection, b"x") == b""
    except ConnectionError:
        return True


def test_hang_keeps_connections_and_loses_nothing(proxy: SlowProxy) -> None:
    with connect(proxy) as one:
        assert ask(one, b"a") == b"a"
        proxy.hang()
        one.sendall(b"b")
        one.settimeout(0.3)
        with pytest.raises(TimeoutError):
            one.recv(10)
        one.settimeout(PATIENCE)
        proxy.mend()
        assert one.recv(10) == b"b"


def test_an_answer_is_held_back_for_the_delay(proxy: SlowProxy) -> None:
    proxy.delay_seconds = 0.2
    with connect(proxy) as one:
        begun = time.monotonic()
        assert ask(one, b"a") == b"a"
        assert time.monotonic() - begun >= 0.2
