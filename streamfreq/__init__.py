"""streamfreq: exponentially decayed token counts over Kafka streams, published as snapshots."""

from importlib.metadata import version

__version__ = version("streamfreq")
