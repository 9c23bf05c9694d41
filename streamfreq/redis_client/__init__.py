"""The connection to Redis, and the one place where its errors become ours.

Any server that speaks the protocol will do (Redis 6 or later, Valkey); redis-py is imported when a
connection is made. Commands are repeated after a lost connection or a timeout, with jittered
exponential back-off, so whatever is sent through here must be safe to send twice.
"""

from streamfreq.redis_client.client import (
    RETRIES,
    Client,
    Script,
    call,
    connect,
    describe,
    is_memory,
    ping,
    run,
    server_name,
)

__all__ = [
    "RETRIES",
    "Client",
    "Script",
    "call",
    "connect",
    "describe",
    "is_memory",
    "ping",
    "run",
    "server_name",
]
