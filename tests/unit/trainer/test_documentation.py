"""The examples of docs/trainer.md run as they stand, on a small model and a store in memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from torch.utils.data import Dataset

from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.snapshots import open_snapshots
from tests.architecture.source_files import ROOT
from tests.unit.trainer.models.test_models import NEW
from tests.unit.trainer.runs import make_snapshot, make_tokenizer, texts
from trainer.config import ModelConfig
from trainer.models import load_model

TEXT = (ROOT / "docs" / "trainer.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
V = 512

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Rows(Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if index >= len(self):
            raise IndexError
        ids = torch.arange(index, index + 8)
        return {"input_ids": ids, "labels": ids}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    load_model(ModelConfig.model_validate({"new": NEW}), 0, V).save_pretrained(folder)
    make_tokenizer(folder)
    return folder


@pytest.mark.parametrize("number", range(3))
def test_an_example_runs_as_it_stands(number: int, model_folder: Path, tmp_path: Path) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    url = f"memory://docs-{number}"
    store = open_snapshots(RedisConfig(url=url), SnapshotsConfig(), "news")
    store.publish(make_snapshot(model_folder / "tokenizer.json", texts(50)), 1)
    code = EXAMPLES[number]
    for written, used in (
        ("redis://localhost:6379/0", url),
        ("/models/my-model", str(model_folder)),
        ("runs/hf", str(tmp_path)),
        ("report_to=[]", "report_to=[], use_cpu=True, disable_tqdm=True, save_strategy='no'"),
    ):
        code = code.replace(written, used)
    given: dict[str, Any] = {
        "dataset": Rows(),
        "batches": [torch.arange(16).reshape(2, 8) for _ in range(3)],
    }
    exec(compile(code, f"docs/trainer.md example {number}", "exec"), given)
    weights = given["weights"]
    weights.wait(20)
    assert weights.version == 1
    weights.close()


def test_there_are_three_examples() -> None:
    assert len(EXAMPLES) == 3
