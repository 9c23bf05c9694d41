"""What the commands of both programs are made of: the group, shared options, hidden secrets."""

from streamfreq.commands.ending import Ending
from streamfreq.commands.examples import write_example
from streamfreq.commands.group import INTERRUPTED, LazyGroup, run_program, version_option
from streamfreq.commands.options import ConfigArguments, config_options, json_option
from streamfreq.commands.secrets import blotted, forget_secrets, keep_secret

__all__ = [
    "INTERRUPTED",
    "ConfigArguments",
    "Ending",
    "LazyGroup",
    "blotted",
    "config_options",
    "forget_secrets",
    "json_option",
    "keep_secret",
    "run_program",
    "version_option",
    "write_example",
]
