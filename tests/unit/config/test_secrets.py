"""A canary stands wherever a secret may stand; nothing that people see shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.config.fields import dotted, field_paths, is_secret
from streamfreq.config.load import load_config, show_config
from streamfreq.config.secrets import looks_secret, redact_url, secret_texts
from streamfreq.errors import ConfigError

CANARY = "c4n4ry-sEcrEt"
SECRET_FIELDS = sorted(dotted(path) for path in field_paths() if is_secret(path))


def test_the_secret_fields_are_these() -> None:
    assert SECRET_FIELDS == ["kafka.sasl_password", "kafka.ssl_password", "redis.password"]


def test_fields_whose_names_look_secret_are_secret() -> None:
    for path in field_paths():
        assert looks_secret(str(path[-1])) == is_secret(path), dotted(path)


@pytest.mark.parametrize(
    "settings",
    [
        *([f"{field}={CANARY}"] for field in SECRET_FIELDS),
        [f"redis.url=redis://me:{CANARY}@localhost:6379/0"],
        [f"redis.url=redis://:{CANARY}@localhost"],
        [f"redis.url=redis://{CANARY}@localhost"],
        [f"redis.url=rediss://u:a@{CANARY}/#b@localhost:1"],
        [f"redis.url=unix:///run/redis.sock?password={CANARY}"],
        [f"redis.url=u:{CANARY}@localhost"],
        [f"kafka.options.sasl_plain_password={CANARY}"],
        [f"kafka.options={{sasl_oauth_token='{CANARY}'}}"],
        [f"kafka.options.jaas_config={CANARY}"],
        [f"kafka.options={{nested={{client_secret='{CANARY}'}}}}"],
        [f"kafka.options.proxy=socks5://u:{CANARY}@proxy:1080"],
    ],
)
def test_show_config_hides_secrets(settings: list[str]) -> None:
    config = load_config(None, overrides=["kafka.topics=t", *settings], env={})
    text = show_config(config)
    assert CANARY not in text
    assert "********" in text
    assert load_config_is_valid_toml(text)


@pytest.mark.parametrize(
    "settings",
    [
        *([f"{field}.deeper={CANARY}"] for field in SECRET_FIELDS),
        *([f"{field}={CANARY}", f"{field}.deeper=1"] for field in SECRET_FIELDS),
        [f"kafka={CANARY}"],
        [f"redis={CANARY}"],
        [f"redis={{url=['redis://:{CANARY}@h']}}"],
        [f"redis={{url={{x='{CANARY}'}}}}"],
        [f"kafka={{sasl_password=['{CANARY}']}}"],
        [f"kafka={{sasl_password={{x='{CANARY}'}}}}"],
        [f"kafka.options={CANARY}"],
        [f"kafka.pasword={CANARY}"],
        [f"kafka.sasl_pasword={{x='{CANARY}'}}"],
        [f"redis.pass={CANARY}"],
        [f"redis.token={CANARY}"],
        [f"pasword={CANARY}"],
        [f"redis.url=redis://:{CANARY}@h", "redis.timeout_ms=0"],
        [f"redis.password={CANARY}", "redis.timeout_ms=x", "redis.cluster=maybe"],
        [f"kafka.sasl_password {CANARY}"],
        [f"={CANARY}"],
    ],
)
@pytest.mark.parametrize("by", ["set", "env", "file"])
def test_no_error_shows_a_secret(settings: list[str], by: str, tmp_path: Path) -> None:
    path, overrides, env = None, ["kafka.topics=t"], {}
    if by == "set":
        overrides += settings
    elif by == "env":
        overrides += ["kafka.max_poll_records=0"]
        for setting in settings:
            key, _, value = setting.partition("=")
            env["STREAMFREQ__" + key.replace(".", "__")] = value
    else:
        overrides += ["kafka.max_poll_records=0"]
        path = tmp_path / "c.toml"
        lines = []
        for setting in settings:
            key, _, value = setting.partition("=")
            quoted = value if value.startswith("{") else f'"{value}"'
            lines.append(f"{key} = {quoted}")
        path.write_text("\n".join(lines))
    if by == "env" and any("=" not in setting for setting in settings):
        pytest.skip("a variable always has a value")
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides=overrides, env=env)
    assert CANARY not in str(caught.value)


@given(
    scheme=st.sampled_from(["redis://", "rediss://", "unix://", ""]),
    user=st.text(alphabet="abc%20", max_size=5),
    before=st.text(max_size=8),
    after=st.text(max_size=8),
)
def test_a_password_with_any_characters_is_hidden(
    scheme: str, user: str, before: str, after: str
) -> None:
    assert CANARY not in redact_url(f"{scheme}{user}:{before}{CANARY}{after}@host:6379/0")


def test_urls_without_a_password_stay_as_they_are() -> None:
    for url in (
        "redis://localhost:6379/0",
        "unix:///run/r.sock?db=1",
        "memory://x",
        "redis://[::1]",
    ):
        assert redact_url(url) == url


def test_secret_texts_finds_every_spelling() -> None:
    config = load_config(
        None,
        overrides=[
            "kafka.topics=t",
            "kafka.sasl_password=one",
            "redis.password=two",
            "redis.url=redis://u:thr%2Fee@h",
            "kafka.options={sasl_plain_password='four', x={token='five'}, client_id='no'}",
        ],
        env={},
    )
    assert set(secret_texts(config)) == {"one", "two", "thr%2Fee", "thr/ee", "four", "five"}


def load_config_is_valid_toml(text: str) -> bool:
    import tomllib

    return bool(tomllib.loads(text))
