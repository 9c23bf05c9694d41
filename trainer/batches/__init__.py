"""The stream as blocks of tokens, and the rows of each step; each knows how to go on."""

from trainer.batches.mixing import Mixer, Row
from trainer.batches.packer import Packer, Specials
from trainer.batches.stream import BlockStream, Read, StreamStats

__all__ = ["BlockStream", "Mixer", "Packer", "Read", "Row", "Specials", "StreamStats"]
