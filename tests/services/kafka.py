"""A real Apache Kafka broker for tests and trials: one process, KRaft, gone when its owner ends.

`KafkaBroker` is a context manager. The jars are fetched once, by Maven, into `.cache/kafka`.
"""

from __future__ import annotations

import atexit
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from tests.services.with_parent import with_parent

REPOSITORY = Path(__file__).resolve().parents[2]
POM = REPOSITORY / "tests" / "pom.xml"
USER, PASSWORD = "reader", "open sesame"
_HOW = "apt-get install openjdk-17-jre-headless maven"
_START_TIMEOUT_SECONDS = 60.0


class BrokerMissingError(Exception):
    """Java, Maven or the jars are not there; the message says how to get them."""


def broker_jars() -> Path:
    """The folder with the broker's jars, filled by Maven on first use.

    Filled under another name and renamed, so that a fetch cut short is never used.
    """
    version = re.search(r"<kafka\.version>(.+?)</kafka\.version>", POM.read_text())
    assert version, f"no kafka.version in {POM}"
    folder = REPOSITORY / ".cache" / "kafka" / version[1]
    if folder.is_dir():
        return folder
    if shutil.which("mvn") is None:
        raise BrokerMissingError(f"no Maven to fetch Apache Kafka {version[1]} with: {_HOW}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"fetching Apache Kafka {version[1]} (once, 45 MB)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as fetched:
        jars = Path(fetched, "jars")
        done = subprocess.run(
            [
                *("mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"),
                f"-DoutputDirectory={jars}",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode != 0:
            tail = (done.stdout + done.stderr).strip()[-800:]
            raise BrokerMissingError(f"Maven could not fetch Apache Kafka {version[1]}: {tail}")
        try:
            jars.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was not first either
                raise
    return folder


class KafkaBroker:
    """One broker in a folder of its own, on free ports of 127.0.0.1.

    `bootstrap` is its plain listener. With `tls=True` there is a SASL_SSL listener too, at
    `secure_bootstrap` (host name localhost, certificate in `cafile`, user `USER` / `PASSWORD`).
    The thread that starts it must outlive it: the process is killed with that thread.
    """

    def __init__(self, tls: bool = False, settings: Mapping[str, object] | None = None) -> None:
        self._tls = tls
        self._settings = dict(settings or {})
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: list[int] = []
        self._admin: KafkaAdminClient | None = None
        self.start_seconds = 0.0

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the plain listener."""
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def secure_bootstrap(self) -> str:
        """HOST:PORT of the SASL_SSL listener (PLAIN)."""
        return f"localhost:{self._ports[2]}"

    @property
    def cafile(self) -> str:
        """PEM file of the authority that signed the secure listener's certificate."""
        return str(self._folder / "ca.pem")

    def __enter__(self) -> KafkaBroker:
        java = shutil.which("java")
        if java is None:
            raise BrokerMissingError(f"no Java to start Apache Kafka with: {_HOW}")
        begun = time.monotonic()
        self._java = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._java += ["-cp", f"{broker_jars()}/*"]
        self._folder = Path(tempfile.mkdtemp(prefix="streamfreq-kafka-"))
        atexit.register(self.close)
        try:
            self._ports = _free_ports(3)
            if self._tls:
                self._make_certificate()
            self._write_properties()
            self._format()
            self.start()
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.monotonic() - begun
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the broker and delete its folder."""
        self.stop()
        atexit.unregister(self.close)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start the process on the ports and data it has; return when it serves."""
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                with_parent([*self._java, "kafka.Kafka", self._folder / "server.properties"]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the owner, who then stops the broker
            )
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self._folder / "log").read_text()[-2000:]
                self.stop()
                raise RuntimeError(f"the broker did not start: {tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process at once, as a crash would; its data stay."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def admin(self) -> KafkaAdminClient:
        """An admin client of the running broker."""
        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        return self._admin

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic, wait until its partitions have leaders, return its name."""
        topic = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": {key: str(value) for key, value in (configs or {}).items()},
        }
        self.admin.create_topics({name: topic}, wait_for_metadata=True)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when it is gone."""
        self.admin.delete_topics([name])
        while name in self.admin.list_topics():
            time.sleep(0.02)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        self.admin.create_partitions({name: total})

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        timestamps_ms: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        """Append `values`; `options` go to the producer (compression_type and the like)."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, **options)
        try:
            self._send(producer, topic, values, partition, timestamps_ms)
            producer.flush()
        finally:
            producer.close()

    def produce_transaction(
        self, topic: str, values: Sequence[bytes | None], partition: int = 0, commit: bool = True
    ) -> None:
        """Append `values` in one transaction, committed or aborted."""
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=f"{topic}-{time.monotonic_ns()}"
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
            self._send(producer, topic, values, partition, None)
            producer.flush()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        finally:
            producer.close()

    @staticmethod
    def _send(
        producer: KafkaProducer,
        topic: str,
        values: Sequence[bytes | None],
        partition: int,
        timestamps_ms: Sequence[int] | None,
    ) -> None:
        sent = []
        for row, value in enumerate(values):
            # A record without a value must have a key to be a tombstone.
            key = b"key" if value is None else None
            stamp = None if timestamps_ms is None else timestamps_ms[row]
            sent.append(
                producer.send(topic, value, key=key, partition=partition, timestamp_ms=stamp)
            )
        producer.flush()
        for future in sent:
            future.get(timeout=10)

    def delete_records(self, topic: str, below: Mapping[int, int]) -> None:
        """Make the broker forget the records below an offset, per partition."""
        self.admin.delete_records(
            {TopicPartition(topic, partition): offset for partition, offset in below.items()}
        )

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset behind the last record (or control record) of each partition."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        try:
            partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
            return {tp.partition: end for tp, end in consumer.end_offsets(partitions).items()}
        finally:
            consumer.close()

    def read_all(self, topic: str) -> list[Any]:
        """Every committed record of a topic, as the client gives them, in partition order."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        try:
            partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            records: list[Any] = []
            while any(consumer.position(tp) < end for tp, end in ends.items()):
                for batch in consumer.poll(timeout_ms=100).values():
                    records.extend(batch)
        finally:
            consumer.close()
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def committed_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """What a consumer group has reported, for lag tools."""
        answer = self.admin.list_group_offsets({group: None})[group]
        return {(tp.topic, tp.partition): offset.offset for tp, offset in answer.items()}

    def _serves(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._ports[0]), timeout=1).close()
        except OSError:
            return False
        try:
            return bool(self.admin.describe_cluster()["brokers"])
        except KafkaError:
            return False

    def _write_properties(self) -> None:
        plain, controller, secure = self._ports
        listeners = f"PLAINTEXT://127.0.0.1:{plain}"
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SECURE:SASL_SSL",
            "log.dirs": self._folder / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "log.cleaner.threads": 1,
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            "log.cleaner.backoff.ms": 200,
            "num.network.threads": 2,
            "num.io.threads": 2,
        }
        if self._tls:
            listeners += f",SECURE://localhost:{secure}"
            scope = "listener.name.secure"
            settings |= {
                f"{scope}.ssl.keystore.type": "PKCS12",
                f"{scope}.ssl.keystore.location": self._folder / "keys.p12",
                f"{scope}.ssl.keystore.password": PASSWORD,
                f"{scope}.sasl.enabled.mechanisms": "PLAIN",
                f"{scope}.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
                f'PlainLoginModule required user_{USER}="{PASSWORD}";',
            }
        settings["advertised.listeners"] = listeners
        settings["listeners"] = f"{listeners},CONTROLLER://127.0.0.1:{controller}"
        settings |= self._settings
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._folder / "server.properties").write_text(text)

    def _format(self) -> None:
        self._run(
            [
                *(*self._java, "kafka.tools.StorageTool", "format"),
                *("-t", "c3RyZWFtZnJlcS10ZXN0cw", "-c", str(self._folder / "server.properties")),
            ]
        )

    def _make_certificate(self) -> None:
        keystore = ["-keystore", str(self._folder / "keys.p12"), "-storepass", PASSWORD]
        self._run(
            [
                *("keytool", "-genkeypair", *keystore, "-storetype", "PKCS12", "-alias", "broker"),
                *("-keyalg", "EC", "-validity", "30", "-dname", "CN=localhost"),
                *("-ext", "san=dns:localhost,ip:127.0.0.1", "-ext", "bc=ca:true"),
            ]
        )
        self._run(
            [
                *("keytool", "-exportcert", "-rfc", *keystore, "-alias", "broker"),
                *("-file", str(self._folder / "ca.pem")),
            ]
        )

    @staticmethod
    def _run(command: Sequence[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command[-1]}: {(done.stdout + done.stderr)[-1000:]}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [open_socket.getsockname()[1] for open_socket in sockets]
    for open_socket in sockets:
        open_socket.close()
    return ports


def serve_kafka() -> None:
    """A throwaway broker in the foreground, until Ctrl-C or SIGTERM."""
    with KafkaBroker() as broker:
        print(f"ready {broker.bootstrap}", flush=True)
        signal.pause()
