"""The example file, the reference and --show-config agree with the sections."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from streamfreq.config import Config
from streamfreq.config.example import example_config
from streamfreq.config.fields import children, dotted, field_paths, is_section
from streamfreq.config.ineffective import _RULES, ineffective
from streamfreq.config.load import load_config, show_config
from streamfreq.config.reference import configuration_markdown
from streamfreq.config.toml import toml_value

DOCS = Path(__file__).resolve().parents[3] / "docs"
FULL = {"job": "my-job", "kafka": {"topics": ["my-topic"]}}


def test_the_example_loads(tmp_path: Path) -> None:
    path = tmp_path / "example.toml"
    path.write_text(example_config())
    config = load_config(path, env={})
    assert config == Config.model_validate(FULL)
    assert ineffective(config) == []


def test_the_commented_values_of_the_example_are_the_defaults(tmp_path: Path) -> None:
    lines = example_config().splitlines()
    uncommented = [re.sub(r"^#(?! )|^#(?=  \S|\])", "", line) for line in lines]
    without_sample = [line for line in uncommented if not line.startswith("decay = ")]
    path = tmp_path / "example.toml"
    path.write_text("\n".join(without_sample))
    assert load_config(path, env={}) == Config.model_validate(FULL)


def test_the_example_names_every_field_with_its_help() -> None:
    text = example_config()
    sections = re.split(r"^\[", text, flags=re.MULTILINE)
    by_name = {section.partition("]")[0]: section for section in sections[1:]}
    for name, field in Config.model_fields.items():
        if not is_section(field.annotation):
            continue
        for child in children(field.annotation):
            assert re.search(rf"^#?{child} = ", by_name[name], re.MULTILINE), f"{name}.{child}"
    assert re.search(r"^#product = \[", by_name["weights.default"], re.MULTILINE)


def test_every_field_has_a_docstring() -> None:
    for path in field_paths():
        *above, name = path
        owner = Config
        for part in above:
            owner = owner.model_fields[part].annotation  # type: ignore[assignment]
            if not is_section(owner):
                owner = owner.__args__[0]  # type: ignore[attr-defined]
        field = owner.model_fields[str(name)]
        assert field.description or is_section(field.annotation), dotted(path)


def test_the_reference_is_up_to_date() -> None:
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == configuration_markdown(), (
        "run: python -m streamfreq.config.reference > docs/configuration.md"
    )


def test_the_reference_names_every_field() -> None:
    text = configuration_markdown()
    for path in field_paths():
        if len(path) == 2:
            assert f"`{dotted(path)}`" in text


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["counting.half_lives=1234567.5,inf,1ms", "counting.decay={alpha=0.5, window_seconds=7}"],
        ["weights.a.product=[{scheme='idf'}]", "weights.b-c.strength=0.5", "job=x.y"],
        ["kafka.options={'a.b' = [1, {c = 'd\"e'}], f = true, g = 1e300}"],
        ['value.text_field="tab\\tline\\nquote\\"back\\\\slash\\u0001\\u007f"', "text.mask=all"],
        ["source.kind=files", "files.paths=ü.txt,b", "kafka.topics="],
    ],
)
def test_show_config_loads_as_the_same_configuration(settings: list[str]) -> None:
    config = load_config(None, overrides=["kafka.topics=t", *settings], env={})
    assert Config.model_validate(tomllib.loads(show_config(config))) == config


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (["files.records_per_second=5"], ["files.records_per_second"]),
        (["source.kind=files", "files.paths=x"], ["kafka.topics"]),
        (["kafka.lookback_half_lives=5"], ["kafka.lookback_half_lives"]),
        (["kafka.lookback_half_lives=5", "kafka.start=lookback"], []),
        (["kafka.sasl_password=x", "kafka.sasl_username=y"], 2 * ["kafka.sasl_"]),
        (["kafka.sasl_password=x", "kafka.security_protocol=SASL_SSL"], []),
        (["kafka.ssl_cafile=x", "kafka.security_protocol=SASL_PLAINTEXT"], ["kafka.ssl_cafile"]),
        (["value.time_field=ts"], ["value.time_field"]),
        (["value.time_unit=s", "value.format=json"], ["value.time_unit"]),
        (["value.time_unit=s", "value.format=json", "value.time_field=ts"], []),
        (["value.dead_letter_topic=x"], ["value.dead_letter_topic"]),
        (["value.dead_letter_topic=x", "value.on_bad=dead-letter"], []),
        (["text.phone_regions=FR"], ["text.phone_regions"]),
        (["text.phone_regions=FR", "text.mask=phone"], []),
        (["tokenizer.path=gpt2", "tokenizer.words_rows=2"], ["tokenizer.words_rows"]),
        (["tokenizer.words_rows=2"], []),
        (["tokenizer.engine=reference"], ["tokenizer.engine"]),
        (["tokenizer.tiktoken_encoding=o200k_base"], ["tokenizer.tiktoken_encoding"]),
        (["counting.on_late=drop"], ["counting.on_late"]),
        (["counting.on_late=drop", "counting.max_lateness_seconds=1h"], []),
        (["redis.url=memory://x", "redis.timeout_ms=700"], ["redis.timeout_ms"]),
        (["redis.ssl_cafile=x"], ["redis.ssl_cafile"]),
        (["redis.ssl_cafile=x", "redis.url=rediss://h"], []),
        (
            ["schedule.publish_cron=* * * * *", "schedule.publish_interval_seconds=5s"],
            ["schedule.publish_interval_seconds"],
        ),
        (["telemetry.http_port=-1", "telemetry.http_host=0.0.0.0"], ["telemetry.http_host"]),
        (["weights.a.strength=0", "weights.a.floor=0.5"], ["weights.a"]),
    ],
)
def test_options_without_effect_are_named(settings: list[str], fields: list[str]) -> None:
    lines = ineffective(load_config(None, overrides=["kafka.topics=t", *settings], env={}))
    assert len(lines) == len(fields)
    for line, field in zip(sorted(lines), sorted(fields), strict=True):
        assert line.startswith(field)
        assert "no effect: " in line


def test_every_rule_names_a_field_that_is_there() -> None:
    names = {dotted(path) for path in field_paths()}
    for rule in _RULES:
        assert any(name.startswith(rule.fields.rstrip("*")) for name in names), rule.fields


def test_what_toml_has_no_form_for_is_refused() -> None:
    with pytest.raises(TypeError):
        toml_value(None)
