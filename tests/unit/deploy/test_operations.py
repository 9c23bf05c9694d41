"""docs/operations.md speaks of metrics, fields, files and log lines that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pydantic
import pytest

from streamfreq.config import Config
from streamfreq.records import TopicPartition
from streamfreq.telemetry import Metrics
from tests.unit.deploy import manifests
from tests.unit.deploy.manifests import ROOT

PAGE = ROOT / "docs" / "operations.md"
TEXT = PAGE.read_text(encoding="utf-8")
FOLDER_PAGE = manifests.FOLDER / "README.md"
CODE = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "streamfreq").rglob("*.py"))
)


def section(title: str) -> str:
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
    assert match, f"there is no section {title}"
    return match[1]


def shown_metrics() -> set[str]:
    """The names of all families of a daemon that has met everything, as Prometheus shows them."""
    metrics = Metrics("news")
    metrics.batch_counted("texts", records=1, tokens=1, bytes=1)
    metrics.set_lag(TopicPartition("texts", 0), 1)
    exposition, _ = metrics.exposition()
    return set(re.findall(r"^# TYPE (\S+) ", exposition.decode(), re.M))


def test_every_metric_that_is_named_exists() -> None:
    named = set(re.findall(r"\bstreamfreq_[a-z_]+", TEXT))
    assert len(named) > 10
    assert named - shown_metrics() == set()


def test_every_metric_that_tells_of_trouble_has_its_line() -> None:
    watched = section("What to watch")
    trouble = ("failures", "conflicts", "bad", "late", "age", "ready", "lag")
    for name in shown_metrics():
        made = name.endswith("_created")  # when a counter began, a line of its own
        if name.startswith("streamfreq_") and not made and any(word in name for word in trouble):
            assert f"| `{name}`" in watched, name


@pytest.mark.parametrize("page", [PAGE, FOLDER_PAGE], ids=lambda page: page.parent.name)
def test_every_field_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    config = Config.model_validate({"kafka": {"topics": ["texts"]}})
    sections = {
        name: type(value).model_fields
        for name, value in config
        if isinstance(value, pydantic.BaseModel)
    }
    found = re.findall(rf"\b({'|'.join(sections)})\.([a-z][a-z_]+)\b", text)
    assert found
    for name, field in found:
        if field not in ("yaml", "toml"):
            assert field in sections[name], f"{name}.{field}"


def test_every_default_that_is_named_is_the_default() -> None:
    units = {"s": 1.0, "min": 60.0}
    found = re.findall(r"^\| `(\w+)\.(\w+)` \((\d+) (s|min)\)", TEXT, re.M)
    assert len(found) >= 6
    config = Config.model_validate({"kafka": {"topics": ["texts"]}})
    for name, field, number, unit in found:
        value = getattr(getattr(config, name), field)
        seconds = value / 1000 if field.endswith("_ms") else value
        assert seconds == int(number) * units[unit], f"{name}.{field}"


def test_every_log_line_that_is_quoted_is_written_somewhere() -> None:
    # Texts that are split over lines of code come together again.
    joined = re.sub(r'"\s*\n\s*f?"', "", CODE)
    lines = re.findall(r"^\| `([^`]+)` \| ", section("What the log says"), re.M)
    assert len(lines) >= 10
    for line in lines:
        assert line in joined, line


@pytest.mark.parametrize("page", [PAGE, FOLDER_PAGE], ids=lambda page: page.parent.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.M)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        assert (page.parent / file).exists(), target
        if anchor and not file:
            assert anchor in anchors, target


def test_the_lag_threshold_is_the_formulas() -> None:
    """The comment in the manifest has the numbers that the page's formula takes."""
    text = (manifests.FOLDER / "scaledobject.yaml").read_text(encoding="utf-8")
    match = re.search(r"([\d,]+) x (\d+) s / 2", text)
    assert match
    (trigger,) = manifests.in_file("scaledobject.yaml")["spec"]["triggers"]
    rate, seconds = int(match[1].replace(",", "")), int(match[2])
    assert int(trigger["metadata"]["lagThreshold"]) == rate * seconds / 2
    assert manifests.configuration().schedule.commit_interval_seconds == seconds
