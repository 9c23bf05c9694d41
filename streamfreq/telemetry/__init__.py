"""What the daemon tells about itself: metrics, health, logs. The only user of prometheus_client."""

from streamfreq.telemetry.health import Health, HealthReport
from streamfreq.telemetry.http import TelemetryServer
from streamfreq.telemetry.logs import add_secret, configure_logging, forget_secrets, redact
from streamfreq.telemetry.metrics import Metrics, resident_memory_bytes

__all__ = [
    "Health",
    "HealthReport",
    "Metrics",
    "TelemetryServer",
    "add_secret",
    "configure_logging",
    "forget_secrets",
    "redact",
    "resident_memory_bytes",
]
