"""Resume states: everything a run needs to go on, in one directory that is whole or not there."""

from trainer.resume.parts import Parts, read_parts, write_parts
from trainer.resume.store import ResumeStore, SavedState

__all__ = ["Parts", "ResumeStore", "SavedState", "read_parts", "write_parts"]
