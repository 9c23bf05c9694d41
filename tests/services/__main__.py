"""Throwaway services: `python -m tests.services kafka | redis`, in the foreground.

`kafka --run CMD ARGS...` starts a broker, runs `CMD ARGS... --kafka HOST:PORT`, stops the broker
and ends with the command's exit code. Any other words are a command that is run as it is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

_USAGE = "usage: python -m tests.services kafka [--run CMD ARGS...] | redis | CMD ARGS..."


def _end(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run_with_broker(command: list[str]) -> int:
    from tests.services.kafka import KafkaBroker

    with (
        KafkaBroker() as broker,
        subprocess.Popen([*command, "--kafka", broker.bootstrap]) as child,
    ):
        # Ctrl-C reaches the child by itself; it ends in its own time, then the broker.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        return child.wait()


def main(words: list[str]) -> int:
    """Run what the words say; the exit code."""
    for ending in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore SIGINT
        signal.signal(ending, _end)
    try:
        match words:
            case ["kafka"]:
                from tests.services.kafka import serve_kafka

                serve_kafka()
            case ["kafka", "--run", *command] if command:
                return _run_with_broker(command)
            case ["redis"]:
                from tests.services.redis import serve_redis

                serve_redis()
            case [] | ["kafka" | "redis" | "-h" | "--help", *_]:
                print(_USAGE, file=sys.stderr)
                return 2
            case command:
                os.execvp(command[0], command)
    except KeyboardInterrupt:
        return 0
    except Exception as error:
        from tests.services.kafka import BrokerMissingError

        if not isinstance(error, BrokerMissingError):
            raise
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
