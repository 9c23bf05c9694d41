"""Ids as text for people: by the snapshot's own labels, else by a tokenizer that fits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamfreq.cli.output import note, visible
from streamfreq.codec import Snapshot
from streamfreq.config import TokenizerConfig
from streamfreq.errors import SnapshotRefused

if TYPE_CHECKING:
    from streamfreq.tokenization.base import Tokenizer

TokenText = Callable[[int], str | None]


def token_text(snapshots: Sequence[Snapshot], config: TokenizerConfig, *, ids: bool) -> TokenText:
    """What gives the text of an id of these snapshots, None where nobody here knows it.

    The tokenizer is loaded when it is configured (or when the default happens to fit), not with
    `ids`. Raises SnapshotRefused when it is configured and has another fingerprint, ConfigError
    when it can't be loaded.
    """
    labels: dict[int, str] = {}
    for snapshot in snapshots:
        labels.update(snapshot.labels)
    tokenizer = None if ids else _fitting(snapshots[-1], config)
    if tokenizer is None and not ids and not labels:
        note(
            f"tokens are shown as ids: give --tokenizer PATH "
            f"(the snapshot was counted with {snapshots[-1].tokenizer_name or 'another one'})"
        )

    def text(token_id: int) -> str | None:
        label = labels.get(token_id)
        if label is not None or tokenizer is None:
            return label
        return tokenizer.token_text(token_id)

    return text


def shown(token: str | None, token_id: int) -> str:
    """A token in a table: its visible text, or its id."""
    return f"#{token_id}" if token is None else visible(token)


def _fitting(snapshot: Snapshot, config: TokenizerConfig) -> Tokenizer | None:
    configured = config != TokenizerConfig()
    if not configured and snapshot.tokenizer_name != config.path:
        return None
    from streamfreq.tokenization import load_tokenizer

    tokenizer = load_tokenizer(config)
    if tokenizer.fingerprint == snapshot.tokenizer_fingerprint:
        return tokenizer
    if not configured:
        return None
    raise SnapshotRefused(
        f"the snapshot was counted with tokenizer {snapshot.tokenizer_name} "
        f"{snapshot.tokenizer_fingerprint[:12]}, the configured one is {tokenizer.name} "
        f"{tokenizer.fingerprint[:12]}: give the right --tokenizer, or --ids to see ids"
    )
