"""Receives large answers straight into the client's buffer, while other threads run.

Client 3.0.12 reads a socket in pieces of 4 KiB, each a call that gives up the interpreter's lock
and has to get it back; it joins them, and copies the whole three times more with the lock held.
Here the kernel fills the frame that is under way, without the lock, and records are views into it.
The frame's last byte goes the client's way, which then finds it complete. TLS stays as it is.
"""

from __future__ import annotations

from typing import Any

from kafka.errors import KafkaConnectionError
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.frame import KafkaBytes

_PIECE_BYTES = 1 << 16
"""What is received at once outside of a frame, and what is worth a view instead of a copy."""


def receive_directly(manager: Any) -> None:
    """Make the plain connections that this manager opens from now on receive so."""
    build = manager._build_transport

    async def built(*args: Any, **named: Any) -> Any:
        transport = await build(*args, **named)
        if type(transport) is KafkaTCPTransport:
            transport.__class__ = _DirectTransport
        return transport

    manager._build_transport = built


class _DirectTransport(KafkaTCPTransport):  # type: ignore[misc]
    """The client's transport over plain TCP."""

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        """What the client's parser is to see, and what went wrong."""
        try:
            if self._fill_frame():
                return b"", None
            data = self._sock.recv(_PIECE_BYTES)
        except (BlockingIOError, InterruptedError):
            return b"", None
        except Exception as error:
            return b"", KafkaConnectionError(error)
        return data, None if data else KafkaConnectionError("socket disconnected")

    def _fill_frame(self) -> bool:
        """Receive into the frame under way, up to its last byte; whether anything came."""
        parser = getattr(self._protocol, "parser", None)
        if parser is None or not parser._receiving:
            return False
        frame = parser._rbuffer
        at, last = frame.tell(), len(frame) - 1
        if at >= last:
            return False
        frame.__class__ = _Frame
        with memoryview(frame) as view, view[at:last] as room:
            received = self._sock.recv_into(room)
        if not received:
            raise ConnectionError("socket disconnected")
        frame.seek(at + received)
        return True


class _Frame(KafkaBytes):  # type: ignore[misc]
    """The client's buffer of one answer, which is not written to any more once it is read."""

    def read(self, nbytes: int | None = None) -> Any:
        """The next bytes; where they are many, as a view."""
        start, size = self.tell(), len(self)
        stop = size if nbytes is None else min(size, start + nbytes)
        self.seek(stop)
        view = memoryview(self)[start:stop]
        return view if stop - start >= _PIECE_BYTES else bytes(view)
