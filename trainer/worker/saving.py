"""What a resume state is made of, what an export says about itself, and when each is due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from accelerate import Accelerator
from torch import nn

from streamfreq import __version__
from streamfreq.clock import Clock
from streamfreq.config.show import show_config
from streamfreq.errors import ConfigError
from trainer.config import TrainerConfig
from trainer.export import copy_tokenizer, export_model, git_revision
from trainer.resume import ResumeStore, SavedState

log = logging.getLogger("trainer.worker")

_LIBRARIES = ("torch", "transformers", "accelerate", "peft", "numpy")


class Stateful(Protocol):
    """A part with a state of its own: dicts of JSON values, arrays and tensors."""

    def state_dict(self) -> Mapping[str, Any]:
        """The state to save."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """What has to be the same for a run to be gone on with, by the name of the field."""

    facts: Mapping[str, Any]

    def check(self, saved: Mapping[str, Any], output: str) -> None:
        """Raises ConfigError for the first fact that differs from the saved ones."""
        for name, value in self.facts.items():
            if saved.get(name) != value:
                raise ConfigError(
                    f"output: {output} holds a run with {name} = {saved.get(name)}, here it is "
                    f"{value}; name another output folder, or set {name} back"
                )


class Saver:
    """Saves and restores a whole run. Every process calls it at the same steps.

    after_load: called when model and optimizer are loaded, before the other parts are.
    """

    def __init__(
        self,
        config: TrainerConfig,
        accelerator: Accelerator,
        identity: Identity,
        parts: Mapping[str, Stateful],
        after_load: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._config = config
        self._accelerator = accelerator
        self._identity = identity
        self._parts = parts
        self._after_load = after_load
        self._clock = clock
        output = Path(config.output)
        self._store = ResumeStore(output / "resume", config.save.keep)
        self._models = output / "models"
        if accelerator.is_main_process:
            self._store.clean()
        accelerator.wait_for_everyone()

    def save(self, step: int) -> None:
        """Save the state behind `step`."""
        if self._accelerator.is_main_process:
            parts = {name: part.state_dict() for name, part in self._parts.items()}
            facts = {"step": step, "identity": dict(self._identity.facts)}
            self._store.save(step, {"run": facts, **parts}, self._write_weights)
        else:
            state = SavedState(step, self._store.temporary(step))
            self._write_weights(state.weights_folder)

    def restore(self) -> int:
        """Go on from the newest state; the step it was saved behind, 0 when there is none."""
        state = self._store.latest()
        if state is None:
            return 0
        parts = state.parts()
        self._identity.check(parts["run"]["identity"], self._config.output)
        self._accelerator.load_state(str(state.weights_folder))
        self._after_load()
        for name, part in self._parts.items():
            part.load_state_dict(parts[name])
        log.info("resumed behind step %d from %s", state.step, state.folder)
        return state.step

    def export(self, step: int, module: nn.Module, provenance: Mapping[str, Any]) -> None:
        """Export the model behind `step` for others to load."""
        accelerator = self._accelerator
        whole = accelerator.get_state_dict(module)
        if accelerator.is_main_process:
            model = accelerator.unwrap_model(module).model
            prefix = "model."
            state = {key.removeprefix(prefix): value for key, value in whole.items()}

            def write(folder: Path) -> None:
                model.save_pretrained(folder, state_dict=state)
                copy_tokenizer(Path(self._config.tokenizer_config.path).expanduser(), folder)

            export_model(
                self._models,
                step,
                self._config.save.keep_exports,
                {**self._origin(step), **provenance},
                write,
            )
        accelerator.wait_for_everyone()

    def _write_weights(self, folder: Path) -> None:
        self._accelerator.save_state(str(folder))
        self._accelerator.wait_for_everyone()

    def _origin(self, step: int) -> dict[str, Any]:
        return {
            "name": self._config.name,
            "step": step,
            "created_at_ms": self._clock.now_ms(),
            "streamfreq_version": __version__,
            "git_revision": git_revision(Path(__file__).parent),
            "libraries": {name: version(name) for name in _LIBRARIES},
            "configuration": show_config(self._config),
        }
