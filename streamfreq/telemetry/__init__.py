"""What the daemon tells about itself: metrics and health. The only user of prometheus_client."""

from streamfreq.telemetry.health import Health, HealthReport
from streamfreq.telemetry.http import TelemetryServer
from streamfreq.telemetry.metrics import Metrics, resident_memory_bytes

__all__ = [
    "Health",
    "HealthReport",
    "Metrics",
    "TelemetryServer",
    "resident_memory_bytes",
]
