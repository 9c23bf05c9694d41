"""Loading: what wins, what each source may look like, and what a mistake says."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.config import Config
from streamfreq.config.load import load_config, show_config
from streamfreq.config.secrets import secret_texts
from streamfreq.errors import ConfigError

TOPIC = ("kafka.topics=t",)


def problems(**kwargs: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(None, **{"env": {}, **kwargs})  # type: ignore[arg-type]
    return str(caught.value).splitlines()


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "streamfreq.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_each_source_overrides_the_one_before(write) -> None:
    path = write('job = "file"\n[kafka]\ntopics = ["file"]\ngroup_id = "file"\n')
    env = {"STREAMFREQ__KAFKA__TOPICS": "env", "STREAMFREQ__KAFKA__GROUP_ID": "env"}
    config = load_config(path, overrides=["kafka.topics=set"], env=env)
    assert (config.job, config.kafka.group_id, config.kafka.topics) == ("file", "env", ["set"])


def test_the_last_override_wins() -> None:
    config = load_config(None, overrides=["kafka.topics=a", "kafka.topics=b,c"], env={})
    assert config.kafka.topics == ["b", "c"]


@pytest.mark.parametrize(
    "name",
    ["STREAMFREQ__TEXT__LOWERCASE", "streamfreq__text__lowercase", "Streamfreq__Text__LowerCase"],
)
def test_variables_are_read_in_any_case(name: str) -> None:
    assert load_config(None, overrides=TOPIC, env={name: "true"}).text.lowercase


def test_variables_keep_the_case_that_the_file_gives_a_free_name(write) -> None:
    path = write('[kafka]\ntopics = ["t"]\n[weights.Rare]\nfloor = 0.5\n')
    config = load_config(path, env={"STREAMFREQ__WEIGHTS__RARE__STRENGTH": "0.25"})
    assert (config.weights["Rare"].floor, config.weights["Rare"].strength) == (0.5, 0.25)


def test_a_whole_section_comes_before_its_fields() -> None:
    env = {
        "STREAMFREQ__KAFKA__TOPICS": "b",
        "STREAMFREQ__KAFKA": '{topics = ["a"], group_id = "g"}',
    }
    config = load_config(None, env=env)
    assert (config.kafka.topics, config.kafka.group_id) == (["b"], "g")


def test_other_variables_are_left_alone() -> None:
    env = {"STREAMFREQ_DEBUG": "1", "STREAMFREQX__A": "1", "PATH": "/bin"}
    assert load_config(None, overrides=TOPIC, env=env) == load_config(None, overrides=TOPIC, env={})


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMFREQ__KAFKA__TOPICS", "from-process")
    assert load_config(None).kafka.topics == ["from-process"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("job=2024", "2024"),
        ("job=true", "true"),
        ('job="quoted"', "quoted"),
        ("kafka.topics=a, b,", ["a", "b"]),
        ('kafka.topics=["a,b", "c"]', ["a,b", "c"]),
        ("kafka.topics=2024", ["2024"]),
        ("kafka.max_poll_records=1_000", 1000),
        ("kafka.options={client_id = 'x', linger = 1.5}", {"client_id": "x", "linger": 1.5}),
        ("kafka.options.api_version=2.6.0", {"api_version": "2.6.0"}),
        ("kafka.options.retries=3", {"retries": 3}),
        ("counting.half_lives=5m,inf", [300.0, math.inf]),
        ("counting.half_lives=60", [60.0]),
        ("counting.half_lives=[60, '1h', inf]", [60.0, 3600.0, math.inf]),
        ("schedule.commit_interval_seconds=2m", 120.0),
        ("counting.max_lateness_seconds=inf", math.inf),
        ("text.lowercase=true", True),
        ("text.mask=all", ["email", "phone", "url", "ip", "card", "cn_id", "iban"]),
        ("counting.device=cuda:1", "cuda:1"),
        ("value.text_field=a=b", "a=b"),
        ("value.text_field=", ""),
    ],
)
def test_values_by_the_type_of_their_field(setting: str, value: object) -> None:
    config: object = load_config(None, overrides=[*TOPIC, setting], env={})
    for name in setting.partition("=")[0].split(".")[:2]:
        config = getattr(config, name)
    assert config == value
    assert type(config) is type(value)


@pytest.mark.parametrize("password", ['"quoted"', "123", " spaces ", "a=b", "{x=1}", "nan", "[1]"])
def test_passwords_are_taken_as_they_are(password: str) -> None:
    config = load_config(
        None,
        overrides=[*TOPIC, f"kafka.sasl_password={password}"],
        env={"STREAMFREQ__REDIS__PASSWORD": password},
    )
    assert config.redis.password.get_secret_value() == password
    assert config.kafka.sasl_password.get_secret_value() == password


def test_a_byte_order_mark_is_no_mistake(write) -> None:
    assert load_config(write(b'\xef\xbb\xbfjob = "a"\n'), overrides=TOPIC, env={}).job == "a"


def test_commands_that_read_no_source_need_none() -> None:
    config = load_config(None, env={}, needs_source=False)
    assert config.kafka.topics == []
    assert load_config(None, overrides=TOPIC, env={}) != config


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["kafka.topcs=a"], "kafka.topcs: no such field; did you mean kafka.topics?"),
        (["topics=a"], "topics: no such field; did you mean kafka.topics?"),
        (["kafak.topics=a"], "kafak: no such field; did you mean kafka?"),
        (["source.zzz=a"], "source.zzz: no such field; there are kind"),
        (["kafka.max_poll_records=0"], "kafka.max_poll_records = 0: must be at least 1"),
        (["kafka.max_poll_records=few"], 'kafka.max_poll_records = "few": must be a whole number'),
        (["kafka.max_poll_records=1.5"], "kafka.max_poll_records = 1.5: must be a whole number"),
        (["kafka.lookback_half_lives=0"], "kafka.lookback_half_lives = 0: must be above 0"),
        (["weights.a.strength=2"], "weights.a.strength = 2: must be at most 1"),
        (
            ["counting.decay={alpha=1, window_seconds=1}"],
            "counting.decay.alpha = 1: must be below 1",
        ),
        (["text.lowercase=maybe"], 'text.lowercase = "maybe": must be true or false'),
        (["source.kind=kafak"], "must be kafka or files; did you mean kafka?"),
        (["kafka.start=Latest"], "did you mean latest?"),
        (["text.mask=emial"], 'text.mask[0] = "emial": must be email, phone'),
        (["counting.half_lives=5m,soon"], 'counting.half_lives[1] = "soon": must be a duration'),
        (["counting.half_lives=1h,60m"], "counting: half_lives must differ from each other"),
        (["counting.half_lives="], "counting: half_lives needs at least one duration"),
        (["schedule.commit_interval_seconds=-1"], "must be a duration above 0"),
        (["schedule.commit_interval_seconds=-1s"], "must be a duration like"),
        (["job=a b"], "job = \"a b\": must be letters, digits, '.', '_' or '-'"),
        (["weights.a b.floor=1"], "weights.a b: the name must be letters"),
        (["kafka=a"], "kafka: must be a table"),
        (["kafka.topics.b=1"], "kafka.topics is no table: give it whole"),
        (["counting.decay=5"], "counting.decay: must be a table"),
        (["weights.a.product=[{scheme='idff'}]"], "did you mean idf?"),
        (["weights.a.product=[{}]"], "weights.a.product[0].scheme is required"),
        (
            ["weights.a.product=[{scheme='idf', params={x=nan}}]"],
            "params.x = nan: must be a number",
        ),
        (["value.on_bad=dead-letter"], "value: dead-letter needs dead_letter_topic"),
        (["kafka.topic_pattern=x"], "kafka.topics or kafka.topic_pattern: give exactly one"),
        (["source.kind=files"], "files.paths: name at least one file"),
        (["noequals"], "--set number 2: write it KEY=VALUE"),
        (["=a"], "--set number 2: write it KEY=VALUE"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_allowed(
    settings: list[str], expected: str
) -> None:
    lines = problems(overrides=[*TOPIC, *settings])
    assert len(lines) == 1
    assert expected in lines[0]


def test_every_mistake_has_a_line_with_its_origin(write) -> None:
    path = write('jbo = "a"\n[kafka]\ntopics = ["t"]\nmax_poll_records = 0\n')
    with pytest.raises(ConfigError) as caught:
        load_config(
            path,
            overrides=["kafka.max_poll_interval_ms=1", "nothing"],
            env={"Streamfreq__Source__Kind": "x"},
        )
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    origins = {
        "jbo": str(path),
        "kafka.max_poll_records": str(path),
        "kafka.max_poll_interval_ms": "--set kafka.max_poll_interval_ms",
        "source.kind": "Streamfreq__Source__Kind",
    }
    for field, origin in origins.items():
        assert any(line.startswith(field) and line.endswith(f"(from {origin})") for line in lines)


def test_long_values_are_cut() -> None:
    (line,) = problems(overrides=[*TOPIC, f"job={'a b ' * 500}"])
    assert len(line) < 250


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job = \n", "not valid TOML"),
        ("[kafka\n", "line 1"),
        ('a = "x"\na = "y"\n', "line 2"),
        (b"job = '\xff'\n", "not UTF-8 at byte 7"),
        ("a = " + "[" * 5000, "not valid TOML"),
    ],
)
def test_a_file_that_is_no_toml(write, text: str | bytes, expected: str) -> None:
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={})
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}: ")
    assert expected in line


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: no such file; `streamfreq init"):
        load_config(tmp_path / "gone.toml", env={})
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(tmp_path, env={})


def loaded(setting: str) -> tuple[Config | None, str]:
    """The configuration that a setting gives, or what the refusal says."""
    try:
        return load_config(None, overrides=[*TOPIC, setting], env={}), ""
    except ConfigError as error:
        return None, str(error)


def round_trips(config: Config) -> bool:
    """What is shown is the same configuration, but for secrets, which are shown as stars."""
    shown = show_config(config)
    again = Config.model_validate(tomllib.loads(shown))
    return again == config if not secret_texts(config) else show_config(again) == shown


@given(key=st.text(max_size=30), value=st.text(max_size=40))
def test_any_override_is_taken_or_refused_in_lines(key: str, value: str) -> None:
    for setting in (f"{key}={value}", f"kafka.{key}={value}", f"weights.{key}={value}"):
        config, message = loaded(setting)
        assert message if config is None else round_trips(config)


@given(value=st.text(max_size=40))
def test_any_value_of_any_kind_of_field(value: str) -> None:
    for key in (
        "job",
        "kafka.group_id",
        "kafka.topics",
        "kafka.options.x",
        "kafka.max_poll_records",
        "text.lowercase",
        "counting.half_lives",
        "weights.a.strength",
        "value.text_field",
    ):
        config, message = loaded(f"{key}={value}")
        if config is None:
            assert key.rpartition(".")[0] in message
        else:
            assert round_trips(config)


@pytest.mark.parametrize(
    "setting",
    [
        "tokenizer.threads=100000",
        "schedule.shutdown_timeout_seconds=inf",
        "schedule.shutdown_timeout_seconds=1e12",
        "counting.half_lives=1e300d",
        "counting.half_lives=1e400",
    ],
)
def test_a_value_that_the_machine_cannot_bear_is_refused_by_name(setting: str) -> None:
    config, message = loaded(setting)
    assert config is None
    assert setting.partition("=")[0].split(".")[0] in message
    assert "\n" not in message
