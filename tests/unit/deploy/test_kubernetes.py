"""The manifests mean what they should: they fit each other, the image, and the configuration."""

from __future__ import annotations

import http.client
import re
from typing import Any

import pytest

from streamfreq.cli import cli
from streamfreq.cli.checks import run_checks
from streamfreq.config import FilesConfig, SourceConfig
from streamfreq.config.load import ENV_PREFIX, ineffective
from streamfreq.telemetry import Health, Metrics, TelemetryServer
from tests.unit.deploy import manifests
from tests.unit.deploy.manifests import ROOT, Manifest
from tests.unit.deploy.schemas import HOST_PORT

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
NEEDS_MORE_THAN_KUBERNETES = {"ScaledObject", "PodMonitor"}


@pytest.fixture(scope="module")
def deployment() -> Manifest:
    return manifests.in_file("deployment.yaml")


@pytest.fixture(scope="module")
def pod(deployment: Manifest) -> Manifest:
    found: Manifest = deployment["spec"]["template"]
    return found


@pytest.fixture(scope="module")
def container() -> Manifest:
    return manifests.container()


@pytest.fixture(scope="module")
def scaled() -> Manifest:
    return manifests.in_file("scaledobject.yaml")


@pytest.fixture(scope="module")
def trigger(scaled: Manifest) -> Manifest:
    (only,) = scaled["spec"]["triggers"]
    found: Manifest = only
    return found


# What is applied


def test_everything_is_applied_but_examples_and_what_needs_an_operator() -> None:
    kustomization = manifests.in_file("kustomization.yaml")
    applied = set(kustomization["resources"])
    assert applied <= set(manifests.files())
    text = (manifests.FOLDER / "kustomization.yaml").read_text(encoding="utf-8")
    offered = set(re.findall(r"^ *# - (\S+\.yaml)$", text, re.MULTILINE))
    left_out = set(manifests.files()) - applied - offered - {"kustomization.yaml"}
    assert left_out == {"secret.example.yaml"}, "a placeholder must not replace a real secret"
    for name in offered:
        assert manifests.in_file(name)["kind"] in NEEDS_MORE_THAN_KUBERNETES


def test_the_config_map_is_the_file_that_is_checked_here(pod: Manifest) -> None:
    (generated,) = manifests.in_file("kustomization.yaml")["configMapGenerator"]
    assert [manifests.FOLDER / name for name in generated["files"]] == [manifests.CONFIG]
    volumes = {item["name"]: item for item in pod["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == generated["name"]


def test_the_image_is_replaced_by_one_with_a_registry_and_a_tag(container: Manifest) -> None:
    (image,) = manifests.in_file("kustomization.yaml")["images"]
    assert image["name"] == container["image"]
    assert "/" in image["newName"]
    assert image["newTag"] not in ("", "latest")


# Names


def test_labels_agree(deployment: Manifest, pod: Manifest) -> None:
    labels = pod["metadata"]["labels"]
    spread = [rule["labelSelector"] for rule in pod["spec"]["topologySpreadConstraints"]]
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        manifests.in_file("service.yaml")["spec"]["selector"],
        manifests.in_file("poddisruptionbudget.yaml")["spec"]["selector"]["matchLabels"],
        manifests.in_file("podmonitor.yaml")["spec"]["selector"]["matchLabels"],
        *(selector["matchLabels"] for selector in spread),
    ]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels.items()


def test_ports_agree_with_the_configuration(pod: Manifest, container: Manifest) -> None:
    port = manifests.configuration().telemetry.http_port
    (named,) = container["ports"]
    assert named["containerPort"] == port
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(port)
    (service,) = manifests.in_file("service.yaml")["spec"]["ports"]
    assert service["port"] == port
    assert service["targetPort"] == named["name"]
    (endpoint,) = manifests.in_file("podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == named["name"]
    assert endpoint["path"] == pod["metadata"]["annotations"]["prometheus.io/path"]


def test_secrets_come_from_one_secret_and_name_secret_fields(container: Manifest) -> None:
    example = manifests.in_file("secret.example.yaml")
    keys = set()
    for variable in container["env"]:
        if "valueFrom" in variable:
            reference = variable["valueFrom"]["secretKeyRef"]
            assert reference["name"] == example["metadata"]["name"]
            assert reference["optional"] is True
            keys.add(reference["key"])
    assert keys == set(example["stringData"])
    config = manifests.configuration({key: f"secret of {key}" for key in keys})
    assert config.redis.password.get_secret_value() == "secret of redis-password"
    assert config.kafka.sasl_password.get_secret_value() == "secret of kafka-sasl-password"
    plain = [variable["name"] for variable in container["env"] if "value" in variable]
    assert not any("PASSWORD" in name for name in plain)


# The daemon


def test_the_configuration_loads_and_every_option_of_it_has_an_effect() -> None:
    config = manifests.configuration()
    assert config.job == "news"
    assert ineffective(config) == []
    for name in manifests.environment({"redis-password": "x", "kafka-sasl-password": "x"}):
        if name.startswith(ENV_PREFIX):
            section, field = name.removeprefix(ENV_PREFIX).lower().split("__")
            assert field in type(getattr(config, section)).model_fields


def test_check_passes_every_part_that_needs_no_service() -> None:
    config = manifests.configuration()
    without_services = config.model_copy(
        update={
            "source": SourceConfig(kind="files"),
            "files": FilesConfig(paths=[str(manifests.CONFIG)]),
            "redis": config.redis.model_copy(update={"url": "memory://deploy"}),
            "counting": config.counting.model_copy(update={"device": "cpu"}),
        }
    )
    results = list(run_checks(lambda: without_services))
    assert [result for result in results if result.status == "fail"] == []
    passed = {result.check for result in results if result.status == "ok"}
    assert {"configuration", "tokenizer", "text", "weights", "device"} <= passed


def test_the_command_is_the_images_and_its_file_is_mounted(container: Manifest) -> None:
    name, *rest = container["args"]
    assert "command" not in container, "the image's entry point gets the signals itself"
    path = rest[rest.index("-c") + 1]
    mounts = {item["mountPath"]: item for item in container["volumeMounts"]}
    folder, _, file = path.rpartition("/")
    assert mounts[folder]["name"] == "config"
    assert "subPath" not in mounts[folder]
    assert file == manifests.CONFIG.name
    with cli.make_context("streamfreq", list(container["args"])) as context:
        assert cli.get_command(context, name) is not None


def test_what_the_daemon_writes_can_be_written(pod: Manifest, container: Manifest) -> None:
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    empty = {item["name"] for item in pod["spec"]["volumes"] if "emptyDir" in item}
    writable = {item["mountPath"] for item in container["volumeMounts"] if item["name"] in empty}
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    home = re.search(r"\bHOME=(\S+)", dockerfile)
    assert home
    assert writable == {home[1], "/tmp"}
    assert manifests.configuration().value.dead_letter_file == ""


def test_the_pod_has_no_rights(pod: Manifest, container: Manifest) -> None:
    user = re.search(
        r"^USER (\d+):(\d+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE
    )
    assert user
    context = pod["spec"]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"]) == (int(user[1]), int(user[2]))
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["automountServiceAccountToken"] is False


# Probes and the end


def test_probes_ask_the_daemons_own_port_from_outside(container: Manifest) -> None:
    telemetry = manifests.configuration().telemetry
    assert telemetry.http_host == "0.0.0.0"
    for name in PROBES:
        assert manifests.probe_port(container[name]) == telemetry.http_port


@pytest.mark.parametrize("name", PROBES)
def test_a_probes_path_is_one_that_the_daemon_serves(container: Manifest, name: str) -> None:
    telemetry = manifests.configuration().telemetry.model_copy(
        update={"http_port": 0, "http_host": "127.0.0.1"}
    )
    health = Health()
    with TelemetryServer(telemetry, Metrics("news"), lambda: health) as server:
        path = container[name]["httpGet"]["path"]
        health.set("store", False, "away")
        away = status(server.port, path)
        health.fail("counting", "died")
        dead = status(server.port, path)
    # A store that is away makes a pod unready and never kills it.
    assert away == (503 if name == "readinessProbe" else 200)
    assert dead == 503


def status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_slow_start_is_no_death(container: Manifest) -> None:
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120


def test_the_pod_has_time_to_end_in_order(pod: Manifest, container: Manifest) -> None:
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    assert grace > manifests.configuration().schedule.shutdown_timeout_seconds
    assert "lifecycle" not in container, "a preStop hook would take its time from the last commit"


def test_a_roll_out_never_waits_for_room(deployment: Manifest) -> None:
    strategy = deployment["spec"]["strategy"]
    assert strategy["type"] == "RollingUpdate"
    assert strategy["rollingUpdate"]["maxUnavailable"] >= 1
    budget = manifests.in_file("poddisruptionbudget.yaml")["spec"]
    assert budget["maxUnavailable"] >= 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_workers_are_alike(deployment: Manifest) -> None:
    assert deployment["kind"] == "Deployment"
    assert "group_instance_id" not in manifests.configuration().kafka.options


def test_the_memory_holds_what_the_configuration_needs(
    container: Manifest, scaled: Manifest
) -> None:
    """One worker may have to hold every partition: counters, and the publisher's copy of them."""
    config = manifests.configuration()
    partitions = int(scaled["metadata"]["annotations"]["topic-partitions"])
    vocabulary = 2**config.tokenizer.words_buckets_log2
    state = len(config.counting.horizons_seconds) * vocabulary * 8 * (1 + config.counting.documents)
    runtime, queue, engine = 600e6, 64e6, config.tokenizer.max_cache_mb * 1e6
    needed = runtime + queue + engine + 2 * partitions * state
    assert needed < bytes_of(container["resources"]["requests"]["memory"])
    assert bytes_of(container["resources"]["limits"]["memory"]) > needed
    assert "cpu" not in container["resources"]["limits"], "throttled workers miss heartbeats"


def bytes_of(quantity: str) -> int:
    match = re.fullmatch(r"(\d+)(Mi|Gi)", quantity)
    assert match, quantity
    return int(match[1]) << {"Mi": 20, "Gi": 30}[match[2]]


# Scaling


def test_the_autoscaler_scales_this_deployment_and_alone(
    deployment: Manifest, scaled: Manifest
) -> None:
    target = scaled["spec"]["scaleTargetRef"]
    for field in ("apiVersion", "kind"):
        assert target[field] == deployment[field]
    assert target["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"], "each apply would undo what the autoscaler did"


def test_the_trigger_watches_what_the_daemon_reads(trigger: Manifest) -> None:
    config, metadata = manifests.configuration(), trigger["metadata"]
    assert metadata["consumerGroup"] == config.group_id
    assert [metadata["topic"]] == config.kafka.topics
    assert metadata["bootstrapServers"].split(",") == config.kafka.bootstrap_servers
    assert all(re.fullmatch(HOST_PORT, server) for server in config.kafka.bootstrap_servers)
    expected = "earliest" if config.kafka.start == "earliest" else "latest"
    assert metadata["offsetResetPolicy"] == expected


def test_no_worker_idles(scaled: Manifest, trigger: Manifest) -> None:
    partitions = int(scaled["metadata"]["annotations"]["topic-partitions"])
    spec = scaled["spec"]
    assert 1 <= spec["minReplicaCount"] <= spec["maxReplicaCount"] <= partitions
    assert trigger["metadata"]["allowIdleConsumers"] == "false"


def test_an_offset_that_did_not_move_means_something(scaled: Manifest, trigger: Manifest) -> None:
    schedule = manifests.configuration().schedule
    if trigger["metadata"]["excludePersistentLag"] == "true":
        assert scaled["spec"]["pollingInterval"] > schedule.commit_interval_seconds
        assert trigger["useCachedMetrics"] is True


def test_moving_partitions_is_rare(scaled: Manifest) -> None:
    behavior: Any = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    session_seconds = manifests.configuration().kafka.session_timeout_ms / 1000
    for direction in ("scaleUp", "scaleDown"):
        assert behavior[direction]["stabilizationWindowSeconds"] > session_seconds
