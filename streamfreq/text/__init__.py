"""From a record's bytes to the text that is counted: decode, clean, mask.

The heavy libraries behind masking (phonenumbers, stdnum) are imported when a `Masker` is made.
"""

from streamfreq.text.cleaning import Cleaner
from streamfreq.text.masking import Masker
from streamfreq.text.pipeline import BadValue, PreparedBatch, TextPipeline

__all__ = ["BadValue", "Cleaner", "Masker", "PreparedBatch", "TextPipeline"]
