"""The server that a configuration names; its URL is never quoted, since it may hold a password."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from streamfreq.config import RedisConfig
from streamfreq.errors import ConfigError

_SCHEMES = ("redis", "rediss", "unix")
_CERT_REQS = ("none", "optional", "required")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server is and how to talk to it."""

    scheme: str
    host: str = "localhost"
    port: int = 6379
    path: str = ""
    db: int = 0
    username: str = ""
    password: str = ""
    cert_reqs: str = "required"
    check_hostname: bool = True

    @property
    def name(self) -> str:
        """The URL without user, password and options."""
        if self.scheme == "unix":
            return f"unix://{self.path}" + (f"?db={self.db}" if self.db else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.db}"


def parse_endpoint(config: RedisConfig) -> Endpoint:
    """The endpoint of `redis.url`; raises ConfigError, which does not quote the URL."""
    try:
        parts = urlsplit(config.url)
        port, host = parts.port or 6379, parts.hostname
    except ValueError:
        raise ConfigError(
            "redis.url: host or port can't be read; write redis://HOST:PORT/DB, and give a "
            "password with / : @ or # as redis.password"
        ) from None
    if parts.scheme not in _SCHEMES:
        raise ConfigError(
            "redis.url: must begin with redis://, rediss:// (TLS), unix:// or memory://"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _check_options(options)
    unix = parts.scheme == "unix"
    path = unquote(parts.path)
    if unix and (not path or parts.hostname):
        raise ConfigError("redis.url: write unix:///path/to/the.sock")
    number = options.get("db", "0" if unix else path.strip("/") or "0")
    if not (number.isascii() and number.isdigit()):
        raise ConfigError("redis.url: the database must be a number, as in redis://HOST:PORT/0")
    if config.cluster and (unix or int(number)):
        raise ConfigError(
            "redis.cluster: a cluster has no Unix socket and only database 0; "
            "give redis.url as redis://HOST:PORT"
        )
    return Endpoint(
        parts.scheme,
        host=unquote(host or "localhost"),
        port=port,
        path=path if unix else "",
        db=int(number),
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        cert_reqs=options.get("ssl_cert_reqs", "required"),
        check_hostname=options.get("ssl_check_hostname", "true") == "true",
    )


def _check_options(options: dict[str, str]) -> None:
    allowed = {"db": None, "ssl_cert_reqs": _CERT_REQS, "ssl_check_hostname": ("true", "false")}
    for name, value in options.items():
        if name not in allowed:
            raise ConfigError(
                f"redis.url: unknown option; allowed after the ? are {', '.join(allowed)}"
            )
        values = allowed[name]
        if values is not None and value not in values:
            raise ConfigError(f"redis.url: {name} must be one of {', '.join(values)}")


def tls_options(config: RedisConfig, endpoint: Endpoint) -> dict[str, Any]:
    """What redis-py wants for TLS; raises ConfigError for a file that is not there."""
    files = {
        "ssl_cafile": config.ssl_cafile,
        "ssl_certfile": config.ssl_certfile,
        "ssl_keyfile": config.ssl_keyfile,
    }
    for name, path in files.items():
        if path and not Path(path).is_file():
            raise ConfigError(f"redis.{name}: there is no file {path}")
    if endpoint.scheme != "rediss":
        return {}
    return {
        "ssl": True,
        "ssl_ca_certs": config.ssl_cafile or None,
        "ssl_certfile": config.ssl_certfile or None,
        "ssl_keyfile": config.ssl_keyfile or None,
        "ssl_cert_reqs": endpoint.cert_reqs,
        "ssl_check_hostname": endpoint.check_hostname and endpoint.cert_reqs != "none",
    }
