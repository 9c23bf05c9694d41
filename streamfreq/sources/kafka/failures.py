"""The Kafka client's exceptions as ours: one line each, naming the brokers and the way out."""

from __future__ import annotations

import kafka.errors as kafka_errors

from streamfreq.config import KafkaConfig
from streamfreq.errors import ConfigError, DataRefused, ServiceUnavailable, StreamfreqError
from streamfreq.sources.kafka.client_log import last_failure
from streamfreq.sources.kafka.options import servers

_WRONG_CONFIG = (
    kafka_errors.KafkaConfigurationError,
    kafka_errors.InconsistentGroupProtocolError,
    kafka_errors.InvalidGroupIdError,
    kafka_errors.InvalidSessionTimeoutError,
    kafka_errors.InvalidTopicError,
    ValueError,
    TypeError,
    AssertionError,
)
_CHECK_LOGIN = "check kafka.sasl_username, sasl_password and sasl_mechanism"
_NO_ANSWER = (
    kafka_errors.KafkaTimeoutError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.RequestTimedOutError,
)
_BAD_LOG = (
    kafka_errors.CorruptRecordError,
    kafka_errors.LogTruncationError,
    kafka_errors.UnsupportedCodecError,
)


def unreachable(config: KafkaConfig) -> StreamfreqError:
    """No broker answers, or it refuses us: what the client has told of it."""
    failure = last_failure()
    if failure is not None and not isinstance(failure, _NO_ANSWER):
        return translate(failure, config)
    words = "" if failure is None else " ".join(str(failure).split())
    if "socket disconnected" in words and config.security_protocol.startswith("SASL"):
        # Of an answer that comes together with the end of the connection the client reads nothing.
        return ServiceUnavailable(
            f"Kafka at {servers(config)} closed the connection, as it does to refuse a login; "
            f"{_CHECK_LOGIN}"
        )
    why = f" ({words})" if words else ""
    return ServiceUnavailable(
        f"Kafka at {servers(config)} can't be reached{why}; "
        "is it running, and is kafka.bootstrap_servers right?"
    )


def translate(error: Exception, config: KafkaConfig) -> StreamfreqError:
    """Our exception for one of the client's; the messages hold no secrets."""
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return ConfigError(
            f"kafka.sasl_mechanism = {config.sasl_mechanism!r}: Kafka at {servers(config)} does "
            "not offer it"
        )
    name = type(error).__name__
    text = " ".join(str(error).split())
    if isinstance(error, _WRONG_CONFIG):
        return ConfigError(f"the Kafka client refuses the section [kafka]: {text or name}")
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return ServiceUnavailable(
            f"Kafka at {servers(config)} refused the login of user "
            f"{config.sasl_username!r} by {config.sasl_mechanism}; {_CHECK_LOGIN}"
        )
    if isinstance(error, kafka_errors.AuthorizationError):
        return ServiceUnavailable(
            f"Kafka at {servers(config)} does not allow it ({text or name}); "
            "ask for the right to read these topics in this group"
        )
    if isinstance(error, _BAD_LOG):
        return DataRefused(f"Kafka's log can't be read: {text or name}{_codec_hint(error)}")
    if isinstance(error, _NO_ANSWER):
        return unreachable(config)
    return ServiceUnavailable(f"Kafka at {servers(config)} failed: {text or name}; it is retried")


def _codec_hint(error: Exception) -> str:
    if isinstance(error, kafka_errors.UnsupportedCodecError):
        return "; install the extra `compression`: pip install 'streamfreq[compression]'"
    return ""
