"""The image, the compose file and their configuration fit each other and the package."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from streamfreq.config import Config
from streamfreq.config.load import ENV_PREFIX, load_config, load_sections
from trainer.cli import COMMANDS
from trainer.cli.settings import ENV_PREFIX as TRAINER_PREFIX
from trainer.config import TrainerConfig

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
TRAINER_EXAMPLE = ROOT / "deploy" / "trainer.toml"
EXAMPLE = ROOT / "deploy" / "streamfreq.toml"

Mapping = dict[str, Any]

TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}
DURATION = {"type": "string", "pattern": r"^(\d+(ms|us|s|m|h))+$"}
COMMAND = {"anyOf": [TEXT, TEXTS]}
HEALTHCHECK = {
    "type": "object",
    "properties": {
        "test": {
            "type": "array",
            "prefixItems": [{"enum": ["NONE", "CMD", "CMD-SHELL"]}],
            "items": TEXT,
            "minItems": 1,
        },
        "interval": DURATION,
        "timeout": DURATION,
        "start_period": DURATION,
        "retries": {"type": "integer", "minimum": 1},
        "disable": {"type": "boolean"},
    },
    "additionalProperties": False,
}
DEVICE = {
    "type": "object",
    "properties": {
        "driver": TEXT,
        "count": {"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1}]},
        "capabilities": TEXTS,
    },
    "required": ["capabilities"],
    "additionalProperties": False,
}
SERVICE = {
    "type": "object",
    "properties": {
        "image": {"type": "string", "pattern": r"^[a-z0-9./_-]+(:[A-Za-z0-9._-]+)?$"},
        "build": {
            "type": "object",
            "properties": {"context": TEXT, "dockerfile": TEXT, "args": {"type": "object"}},
            "required": ["context"],
            "additionalProperties": False,
        },
        "command": COMMAND,
        "entrypoint": COMMAND,
        "environment": {
            "type": "object",
            "patternProperties": {"^[A-Z][A-Z0-9_]*$": {"type": "string"}},
            "additionalProperties": False,
        },
        "ports": {
            "type": "array",
            "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+(-\d+)?:\d+$"},
        },
        "volumes": {
            "type": "array",
            "items": {"type": "string", "pattern": r"^[^:]+:/[^:]+(:ro|:rw)?$"},
        },
        "tmpfs": {"type": "array", "items": {"type": "string", "pattern": "^/"}},
        "depends_on": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "condition": {
                        "enum": [
                            "service_started",
                            "service_healthy",
                            "service_completed_successfully",
                        ]
                    }
                },
                "required": ["condition"],
                "additionalProperties": False,
            },
        },
        "healthcheck": HEALTHCHECK,
        "profiles": TEXTS,
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "stop_grace_period": DURATION,
        "shm_size": {"type": "string", "pattern": r"^\d+(b|k|m|g|kb|mb|gb)$"},
        "init": {"type": "boolean"},
        "read_only": {"type": "boolean"},
        "deploy": {
            "type": "object",
            "properties": {
                "resources": {
                    "type": "object",
                    "properties": {
                        "reservations": {
                            "type": "object",
                            "properties": {"devices": {"type": "array", "items": DEVICE}},
                            "additionalProperties": False,
                        }
                    },
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        },
    },
    "anyOf": [{"required": ["image"]}, {"required": ["build"]}],
    "additionalProperties": False,
}
COMPOSE_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {
            "type": "object",
            "patternProperties": {"^[a-zA-Z0-9._-]+$": SERVICE},
            "additionalProperties": False,
        },
        "volumes": {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
    },
    "required": ["services"],
    "additionalProperties": False,
}
"""The parts of the compose specification that the file uses, each as the specification has it."""


@pytest.fixture(scope="module")
def compose() -> Mapping:
    content: Mapping = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def services(compose: Mapping) -> dict[str, Mapping]:
    found: dict[str, Mapping] = compose["services"]
    return found


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions: name and argument, continued lines joined."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    without_comments = "\n".join(
        line for line in text.splitlines() if not line.lstrip().startswith("#")
    )
    joined = re.sub(r"\\\n\s*", " ", without_comments)
    pairs = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(name.upper(), argument) for name, argument in pairs]


def arguments(instructions: list[tuple[str, str]], name: str) -> list[str]:
    return [argument for found, argument in instructions if found == name]


def locked_version(package: str) -> str:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    match = re.search(rf"^{re.escape(package)}==([^\s;]+)", lock, re.MULTILINE)
    assert match, f"{package} is not in requirements.lock"
    return match[1]


def test_the_schema_can_refuse(compose: Mapping) -> None:
    def broken(**changes: Any) -> Mapping:
        service = {**compose["services"]["redis"], **changes}
        return {**compose, "services": {"redis": service}}

    jsonschema.validate(broken(), COMPOSE_SCHEMA)
    refused: list[Mapping] = [
        {"restart": "never"},
        {"ports": ["6379:6379"]},
        {"depends_on": {"kafka": {"condition": "ready"}}},
        {"stop_grace_period": 45},
        {"helthcheck": {}},
    ]
    for changes in refused:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken(**changes), COMPOSE_SCHEMA)


def test_compose_follows_the_specification(compose: Mapping) -> None:
    jsonschema.Draft202012Validator.check_schema(COMPOSE_SCHEMA)
    jsonschema.validate(compose, COMPOSE_SCHEMA)


def test_compose_names_what_it_uses(compose: Mapping, services: dict[str, Mapping]) -> None:
    for name, service in services.items():
        for other, wanted in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if wanted["condition"] == "service_healthy":
                assert "test" in services[other]["healthcheck"]
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            exists = (ROOT / source).is_file() if source.startswith("./") else True
            assert exists, source
            assert source.startswith("./") or source in compose["volumes"]
        if build := service.get("build"):
            assert (ROOT / build["context"] / build["dockerfile"]).is_file()


def test_images_from_elsewhere_are_pinned(services: dict[str, Mapping]) -> None:
    for name, service in services.items():
        if "build" not in service:
            tag = service["image"].partition(":")[2]
            assert re.fullmatch(r"\d+\.\d+\.\d+\S*", tag), f"{name}: {service['image']}"


def test_the_broker_is_of_the_line_that_the_tests_use(services: dict[str, Mapping]) -> None:
    (pom,) = (ROOT / "tests").rglob("pom.xml")
    match = re.search(
        r"<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)</version>",
        _with_properties(pom.read_text(encoding="utf-8")),
    )
    assert match
    for name in ("kafka", "topic"):
        image, _, tag = services[name]["image"].partition(":")
        assert image == "apache/kafka"
        assert tag.split(".")[:2] == match[1].split(".")[:2]


def _with_properties(pom: str) -> str:
    """The POM with each ${name} replaced by its property."""
    for name, value in re.findall(r"<([\w.-]+)>([^<>$]+)</\1>", pom):
        pom = pom.replace("${" + name + "}", value)
    return pom


def test_kafka_is_a_kraft_broker_with_room_for_its_internal_topics(
    services: dict[str, Mapping],
) -> None:
    environment = services["kafka"]["environment"]
    assert environment["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert not any("ZOOKEEPER" in name for name in environment)
    listeners = {
        part.split("://")[0]: part.rsplit(":", 1)[1]
        for part in environment["KAFKA_LISTENERS"].split(",")
    }
    for part in environment["KAFKA_ADVERTISED_LISTENERS"].split(","):
        name, _, address = part.partition("://")
        assert listeners[name] == address.rsplit(":", 1)[1]
    protocols = dict(
        pair.split(":") for pair in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
    )
    assert set(protocols) == set(listeners)
    for name in ("OFFSETS_TOPIC", "TRANSACTION_STATE_LOG"):
        assert environment[f"KAFKA_{name}_REPLICATION_FACTOR"] == "1"
    assert environment["KAFKA_LOG_DIRS"] in services["kafka"]["volumes"][0]


def test_redis_keeps_what_it_is_given(services: dict[str, Mapping]) -> None:
    command = services["redis"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert services["redis"]["volumes"] == ["redis-data:/data"]


@pytest.mark.parametrize(
    ("service", "prefix", "root", "file"),
    [
        ("daemon", ENV_PREFIX, Config, EXAMPLE),
        ("trainer", TRAINER_PREFIX, TrainerConfig, TRAINER_EXAMPLE),
    ],
)
def test_variables_are_fields_and_the_configuration_loads(
    services: dict[str, Mapping], service: str, prefix: str, root: type, file: Path
) -> None:
    environment: dict[str, str] = services[service]["environment"]
    assert all(name.startswith(prefix) for name in environment)
    config = load_sections(root, file, env=environment, prefix=prefix)
    for name, value in environment.items():
        found: Any = config
        for part in name.removeprefix(prefix).lower().split("__"):
            assert part in type(found).model_fields, name
            found = getattr(found, part)
        assert found in (value, [value])


def test_the_configuration_fits_the_services(services: dict[str, Mapping]) -> None:
    daemon = services["daemon"]
    config = load_config(EXAMPLE, env=daemon["environment"])
    kafka = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"://{config.kafka.bootstrap_servers[0]}" in kafka
    command = services["topic"]["command"]
    assert config.kafka.topics == [command[command.index("--topic") + 1]]
    grace = re.fullmatch(r"(\d+)s", daemon["stop_grace_period"])
    assert grace
    assert int(grace[1]) > config.schedule.shutdown_timeout_seconds


def test_the_trainer_fits_the_daemon(services: dict[str, Mapping]) -> None:
    daemon = load_config(EXAMPLE, env=services["daemon"]["environment"])
    environment = services["trainer"]["environment"]
    trainer = load_sections(TrainerConfig, TRAINER_EXAMPLE, env=environment, prefix=TRAINER_PREFIX)
    assert trainer.subscriber.job == daemon.job
    assert trainer.kafka.topics == daemon.kafka.topics
    assert (trainer.value, trainer.text) == (daemon.value, daemon.text)
    assert trainer.redis.url == daemon.redis.url
    (port,) = services["trainer"]["ports"]
    assert port.endswith(f":{trainer.monitors.http_port}")
    volumes = services["trainer"]["volumes"]
    assert any(trainer.output.startswith(volume.split(":")[1]) for volume in volumes)


def test_each_of_many_daemons_gets_a_port_of_the_host(services: dict[str, Mapping]) -> None:
    """`docker compose up --scale daemon=N`: a single port of the host would go to one only."""
    daemon = services["daemon"]
    port = load_config(EXAMPLE, env=daemon["environment"]).telemetry.http_port
    (published,) = daemon["ports"]
    match = re.fullmatch(r"127\.0\.0\.1:(\d+)-(\d+):(\d+)", published)
    assert match, published
    first, last, inside = map(int, match.groups())
    assert (first, inside) == (port, port)
    command = services["topic"]["command"]
    partitions = int(command[command.index("--partitions") + 1])
    assert last - first + 1 == partitions
    assert "container_name" not in daemon


def test_the_example_alone_is_a_valid_configuration() -> None:
    data = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    assert Config.model_validate(data).job == "compose"
    assert load_config(EXAMPLE, env={}).telemetry.log_format == "json"


def _host_path(daemon: Mapping, path: str) -> str:
    """Where a mounted file lies in the repository."""
    for volume in daemon["volumes"]:
        source, target = volume.split(":")[:2]
        if target == path:
            return str(ROOT / source)
    return path


def test_the_daemons_command_line_parses(
    services: dict[str, Mapping], instructions: list[tuple[str, str]]
) -> None:
    from streamfreq.cli import cli

    (entrypoint,) = arguments(instructions, "ENTRYPOINT")
    assert json.loads(entrypoint) == ["streamfreq"]
    (image_command,) = arguments(instructions, "CMD")
    daemon = services["daemon"]
    assert json.loads(image_command) == daemon["command"]
    name, *rest = [_host_path(daemon, argument) for argument in daemon["command"]]
    with cli.make_context("streamfreq", [name, *rest]) as context:
        command = cli.get_command(context, name)
        assert command is not None
        parsed = command.make_context(name, rest, parent=context)
        assert str(EXAMPLE) in {str(value) for value in parsed.params.values()}


def test_the_trainers_command_exists(services: dict[str, Mapping]) -> None:
    trainer = services["trainer"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "scripts"
    ]
    assert trainer["entrypoint"][0] in scripts
    assert trainer["command"][0] in COMMANDS
    assert _host_path(trainer, trainer["command"][2]) == str(TRAINER_EXAMPLE)
    assert trainer["profiles"] == ["trainer"]
    assert trainer["shm_size"]
    (device,) = trainer["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


def test_the_base_is_pinned_to_the_locked_torch(instructions: list[tuple[str, str]]) -> None:
    (base,) = arguments(instructions, "ARG")
    assert arguments(instructions, "FROM") == ["${BASE}"]
    match = re.fullmatch(
        r"BASE=pytorch/pytorch:([\d.]+)-cuda([\d.]+)-cudnn(\d+)-runtime(@sha256:[0-9a-f]{64})?",
        base,
    )
    assert match, base
    assert match[1] == locked_version("torch")
    assert match[2] == ".".join(locked_version("cuda-toolkit").split(".")[:2])
    assert match[3] == locked_version("nvidia-cudnn-cu13").split(".")[0]


def test_the_image_does_not_run_as_root(instructions: list[tuple[str, str]]) -> None:
    user = arguments(instructions, "USER")[-1]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    names = [name for name, _ in instructions]
    after_user = names[len(names) - names[::-1].index("USER") :]
    assert "RUN" not in after_user
    assert "ENTRYPOINT" in after_user


def test_packages_come_from_the_lock_file(instructions: list[tuple[str, str]]) -> None:
    installs = [text for text in arguments(instructions, "RUN") if "pip install" in text]
    packages, project = installs
    assert "--require-hashes" in packages
    assert "-r requirements.lock" in packages
    assert "--no-deps" in project
    for text in installs:
        assert "--no-build-isolation" in text, "a build environment would be filled unhashed"
    assert locked_version("setuptools")


def test_no_compiler_comes_in(instructions: list[tuple[str, str]]) -> None:
    for text in arguments(instructions, "RUN"):
        assert not re.search(r"apt(-get)? install", text)


def test_layers_are_ordered_for_the_cache(instructions: list[tuple[str, str]]) -> None:
    flat = [f"{name} {argument}" for name, argument in instructions]
    lock = next(i for i, line in enumerate(flat) if line.startswith("COPY requirements.lock"))
    install = next(i for i, line in enumerate(flat) if "--require-hashes" in line)
    sources = next(i for i, line in enumerate(flat) if line.startswith("COPY streamfreq"))
    assert lock < install < sources


def test_what_is_copied_exists_and_is_let_through(instructions: list[tuple[str, str]]) -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    copied = [
        source
        for text in arguments(instructions, "COPY")
        for source in text.split()[:-1]
        if not source.startswith("--")
    ]
    assert {"requirements.lock", "streamfreq", "trainer", "pyproject.toml"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source


def test_signals_and_health_checks_reach_the_daemon(instructions: list[tuple[str, str]]) -> None:
    for name in ("ENTRYPOINT", "CMD"):
        (argument,) = arguments(instructions, name)
        assert isinstance(json.loads(argument), list), "the exec form"
    (health,) = arguments(instructions, "HEALTHCHECK")
    port = load_config(EXAMPLE, env={}).telemetry.http_port
    assert f"http://127.0.0.1:{port}/healthz" in health
    assert arguments(instructions, "EXPOSE") == [str(port)]
    script = json.loads(health[health.index("[") :])
    compile(script[2], "healthcheck", "exec")
