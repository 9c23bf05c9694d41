"""Masking: personal data replaced by placeholders."""

from streamfreq.text.masking.masker import PLACEHOLDERS, Masker

__all__ = ["PLACEHOLDERS", "Masker"]
