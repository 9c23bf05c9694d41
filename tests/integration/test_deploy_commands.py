"""What the Kubernetes manifests start: the container's arguments, file, variables and probes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streamfreq.config import RedisConfig
from streamfreq.snapshots import open_snapshots
from tests.integration.harness import end_all, http_get
from tests.services.kafka import KafkaBroker
from tests.services.redis import free_port
from tests.unit.deploy import manifests

pytestmark = [pytest.mark.broker, pytest.mark.redis_server]

RECORDS = 60
READY_SECONDS = 90.0


@dataclass
class Pod:
    """A worker as its container starts it, but for the addresses of the services."""

    process: subprocess.Popen[bytes]
    port: int
    log_file: Path

    def asks(self, probe: str) -> tuple[int, str]:
        """Status and body that the kubelet would get; 0 while nothing listens yet."""
        path = manifests.container()[probe]["httpGet"]["path"]
        try:
            return http_get(f"http://127.0.0.1:{self.port}{path}")
        except OSError as error:
            return 0, str(error)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while (answer := self.asks("readinessProbe"))[0] != 200:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, f"{answer}\n{self.log}"
            time.sleep(0.1)

    def end(self) -> int:
        """SIGTERM, and the exit code within the pod's grace period."""
        pod = manifests.in_file("deployment.yaml")["spec"]["template"]["spec"]
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(pod["terminationGracePeriodSeconds"])

    def owns(self, partition: str) -> bool:
        """Whether the last that its log says of the partition is that it was assigned."""
        log = self.log
        return log.rfind(f"assigned {partition}") > log.rfind(f"revoked {partition}")

    @property
    def log(self) -> str:
        return self.log_file.read_text()


Start = Callable[..., Pod]


@pytest.fixture
def start(
    tmp_path: Path, kafka_broker: KafkaBroker, one_redis_config: RedisConfig
) -> Iterator[Start]:
    pods: list[Pod] = []

    def make(topic: str, group: str) -> Pod:
        """A worker of the group on a free port; two pods have an address each, here they don't."""
        port = free_port()
        ours = {
            "STREAMFREQ__KAFKA__BOOTSTRAP_SERVERS": kafka_broker.bootstrap,
            "STREAMFREQ__KAFKA__TOPICS": topic,
            "STREAMFREQ__KAFKA__GROUP_ID": group,
            "STREAMFREQ__REDIS__URL": one_redis_config.url,
            "STREAMFREQ__REDIS__PREFIX": one_redis_config.prefix,
            "STREAMFREQ__COUNTING__DEVICE": "cpu",
            "STREAMFREQ__SCHEDULE__COMMIT_INTERVAL_SECONDS": "0.5",
            "STREAMFREQ__TELEMETRY__HTTP_HOST": "127.0.0.1",
            "STREAMFREQ__TELEMETRY__HTTP_PORT": str(port),
        }
        arguments = [
            str(manifests.CONFIG) if argument.endswith(f"/{manifests.CONFIG.name}") else argument
            for argument in manifests.container()["args"]
        ]
        log_file = tmp_path / f"log-{len(pods)}"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "streamfreq", *arguments],
                env={**os.environ, **manifests.environment(), **ours},
                stdout=log,
                stderr=log,
            )
        pods.append(Pod(process, port, log_file))
        return pods[-1]

    yield make
    end_all(pod.process for pod in pods)


def reported(broker: KafkaBroker, group: str) -> dict[int, int]:
    """What a lag tool sees: the offset that the group has committed, by partition."""
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        offsets = admin.list_group_offsets([group])[group]
    return {key.partition: value.offset for key, value in offsets.items() if value.offset >= 0}


def wait_reported(broker: KafkaBroker, group: str, wanted: dict[int, int], pod: Pod) -> None:
    deadline = time.monotonic() + 30
    while (found := reported(broker, group)) != wanted:
        assert time.monotonic() < deadline, f"{found}, not {wanted}\n{pod.log}"
        time.sleep(0.2)


def test_a_pod_gets_ready_reports_its_lag_and_ends_in_order(
    start: Start,
    kafka_broker: KafkaBroker,
    new_topic: Callable[..., str],
    one_redis_config: RedisConfig,
) -> None:
    topic = new_topic(partitions=2)
    kafka_broker.produce(topic, [b'{"text": "some words"}'] * RECORDS, partition=0)
    pod = start(topic, group := f"group-{topic}")
    pod.wait_ready()
    for probe in ("startupProbe", "livenessProbe"):
        assert pod.asks(probe) == (200, "ok\n")
    # The autoscaler's lag is 0 in both: of the records, and of the partition without any.
    wait_reported(kafka_broker, group, {0: RECORDS, 1: 0}, pod)
    assert pod.end() == 0, pod.log
    assert "Traceback" not in pod.log
    config = manifests.configuration()
    snapshot = open_snapshots(one_redis_config, config.snapshots, config.job).load()
    assert snapshot is not None
    assert sum(snapshot.offsets.values()) == RECORDS


def test_a_pod_more_than_partitions_is_ready_too_and_takes_over(
    start: Start, kafka_broker: KafkaBroker, new_topic: Callable[..., str]
) -> None:
    """Else a roll-out at the largest scale would wait for its surge pod for ever."""
    topic = new_topic(partitions=1)
    group = f"group-{topic}"
    pods = [start(topic, group), start(topic, group)]
    for pod in pods:
        pod.wait_ready()
    kafka_broker.produce(topic, [b'{"text": "one"}'] * RECORDS)
    wait_reported(kafka_broker, group, {0: RECORDS}, pods[0])
    first, other = sorted(pods, key=lambda pod: not pod.owns(f"{topic}-0"))
    assert first.owns(f"{topic}-0")
    assert not other.owns(f"{topic}-0")
    assert first.end() == 0, first.log
    kafka_broker.produce(topic, [b'{"text": "two"}'] * RECORDS)
    wait_reported(kafka_broker, group, {0: 2 * RECORDS}, other)
    assert other.asks("readinessProbe")[0] == 200
    assert other.end() == 0, other.log
