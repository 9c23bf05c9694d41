"""`TokenWeights`: live token weights in any training loop."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from streamfreq.clock import Clock, SystemClock
from streamfreq.config import RedisConfig, SnapshotsConfig, TokenizerConfig
from streamfreq.errors import ConfigError
from streamfreq.snapshots import SnapshotStore, open_snapshots
from streamfreq.tokenization import load_tokenizer
from trainer.config import TokenWeightsConfig
from trainer.token_weights.puller import Puller
from trainer.token_weights.recipe import Recipe, check_recipe
from trainer.token_weights.tables import TokenTables
from trainer.token_weights.terms import Terms


class TokenWeights:
    """The weights of the newest snapshot, swapped in only by `refresh`.

    >>> with TokenWeights.follow("memory://docs", "news", fingerprint="f", vocab_size=4) as weights:
    ...     changed = weights.refresh()  # at a step boundary; never waits for the store
    ...     weights.weights.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, puller: Puller, tables: TokenTables, clock: Clock) -> None:
        self._puller = puller
        self._tables = tables
        self._clock = clock
        puller.start()

    @classmethod
    def follow(
        cls,
        store: str | RedisConfig,
        job: str,
        *,
        vocab_size: int,
        tokenizer: str = "",
        fingerprint: str = "",
        device: torch.device | str = "cpu",
        pull_interval_seconds: float = 10.0,
        weights: TokenWeightsConfig | None = None,
    ) -> Self:
        """Follow the snapshots of `job` in a store: its URL (redis://, rediss://, unix://).

        vocab_size: the model's (`model.config.vocab_size`), which may be padded. tokenizer: the
        model's, a path or hub name; or fingerprint: the hex digest that `streamfreq snapshot
        show` prints. Snapshots of another tokenizer are refused. weights: the recipe, by default
        rarity by the longest horizon times emergence. A `RedisConfig` in place of the URL says
        all else about the connection. Raises ConfigError for what can't be right; a store that
        is away is no error.
        """
        settings = RedisConfig(url=store) if isinstance(store, str) else store
        snapshots = open_snapshots(settings, SnapshotsConfig(), job)
        recipe = weights or TokenWeightsConfig()
        check_recipe(recipe)
        terms = None
        if tokenizer:
            loaded = load_tokenizer(TokenizerConfig(path=tokenizer))
            fingerprint = loaded.fingerprint
            if recipe.terms_file:
                terms = Terms.load(
                    recipe.terms_file, loaded, recipe.terms_boost, recipe.terms_max_share
                )
        elif recipe.terms_file:
            raise ConfigError("weights.terms_file needs the tokenizer; give tokenizer=PATH")
        if not fingerprint:
            raise ConfigError("give the model's tokenizer (a path or hub name) or its fingerprint")
        return cls.of_store(
            snapshots,
            fingerprint,
            Recipe(recipe, vocab_size=vocab_size, terms=terms),
            vocab_size=vocab_size,
            device=device,
            pull_interval_seconds=pull_interval_seconds,
        )

    @classmethod
    def of_store(
        cls,
        store: SnapshotStore,
        fingerprint: str,
        recipe: Recipe,
        *,
        vocab_size: int,
        device: torch.device | str = "cpu",
        pull_interval_seconds: float = 10.0,
        clock: Clock | None = None,
    ) -> Self:
        """The same over any snapshot store, such as a `MemorySnapshotStore`."""
        clock = clock or SystemClock()
        puller = Puller(store, fingerprint, recipe, pull_interval_seconds, device, clock)
        return cls(puller, TokenTables.neutral(vocab_size, device), clock)

    def refresh(self) -> bool:
        """Swap in the newest weights, if there are others; call it between two steps.

        Raises ConfigError while no snapshot could be used with this model.
        """
        newer = self._puller.take()
        if newer is None:
            return False
        self._tables = newer
        return True

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the first snapshot and swap it in; whether there is one."""
        if not self.version:
            self._puller.wait_first(timeout_seconds)
            self.refresh()
        return bool(self.version)

    @property
    def tables(self) -> TokenTables:
        """All tables in use; version 0: neutral, no snapshot came yet."""
        return self._tables

    @property
    def weights(self) -> Tensor:
        """The weights in use, float32 (V,): a new tensor with each version."""
        return self._tables.weights_V

    @property
    def version(self) -> int:
        """Of the snapshot in use; 0: none."""
        return self._tables.version

    @property
    def age_seconds(self) -> float | None:
        """Since the snapshot in use was published; None without one."""
        if not self.version:
            return None
        return max(0.0, (self._clock.now_ms() - self._tables.created_at_ms) / 1000)

    @property
    def refused(self) -> int:
        """How many versions were refused: damaged, of another tokenizer, or unfit later on."""
        return self._puller.refused

    @property
    def away(self) -> bool:
        """Whether the store could not be reached the last time."""
        return self._puller.away

    def close(self) -> None:
        """Stop following; the weights in use stay as they are."""
        self._puller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
