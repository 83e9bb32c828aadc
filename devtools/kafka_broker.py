"""A real Apache Kafka of one's own: a broker that is its own controller."""

from __future__ import annotations

import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # its typed home

from devtools.java_server import JavaServer, java_command, write_properties
from devtools.ports import free_port
from devtools.server import ServerError, environment
from headrace.errors import EndpointUnavailable
from headrace.kafka.admin import find_topic
from headrace.kafka.config import ClientOptions
from headrace.spark.jars import Jar, fetch_jars

_JARS = [
    Jar("org.apache.kafka", "kafka_2.13", "4.3.1"),
    Jar("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
]
_ANSWER_SECONDS = 30.0
_PROBE_SECONDS = 1.0


class KafkaBroker(JavaServer):
    name: ClassVar[str] = "Kafka broker"

    @classmethod
    def jars(cls) -> list[Path]:
        return fetch_jars("kafka", _JARS)

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Returns when the topic is there, and can be read; without this, no topic is."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin = self._admin()  # by name, or it would be gone before the answer comes
        admin.create_topics([topic], operation_timeout=_ANSWER_SECONDS)[name].result(timeout=_ANSWER_SECONDS)
        while not self._is_readable(name):  # the controller has it, and brokers hear of it a little later
            time.sleep(0.05)

    def _is_readable(self, topic: str) -> bool:
        try:
            return find_topic(ClientOptions.of({"bootstrap": self.bootstrap}), topic) is not None
        except EndpointUnavailable:
            return False

    def delete_topic(self, name: str) -> None:
        """Returns when the topic is gone."""
        admin = self._admin()
        answers = admin.delete_topics([name], operation_timeout=_ANSWER_SECONDS)
        answers[name].result(timeout=_ANSWER_SECONDS)
        while name in admin.list_topics(timeout=_ANSWER_SECONDS).topics:
            time.sleep(0.05)

    def _admin(self) -> AdminClient:
        # It would complain on standard error of a broker that does not listen yet.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _draw_ports(self) -> None:
        self._ports = [free_port(), free_port()]

    def _prepare(self, home: Path) -> None:
        configuration = home / "broker.properties"
        write_properties(configuration, self._properties(home))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # In one argument, since an id may begin with a hyphen.
        arguments = ["format", "--standalone", f"--cluster-id={cluster}", "--config", str(configuration)]
        formatted = subprocess.run(
            java_command(home, self.jars(), "kafka.tools.StorageTool", *arguments),
            check=False,
            cwd=home,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if formatted.returncode != 0:
            raise ServerError(f"the storage of the Kafka broker cannot be formatted:\n{formatted.stdout}")

    def _properties(self, home: Path) -> dict[str, str]:
        controller = f"127.0.0.1:{self._ports[1]}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": controller,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "log.dirs": str(home / "log"),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "4194304",
            # One node cannot have replicas, and few partitions make it start fast.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "2",
        }

    def _command(self, home: Path) -> list[str]:
        return java_command(home, self.jars(), "kafka.Kafka", str(home / "broker.properties"))

    def _answers(self) -> bool:
        try:
            return bool(self._admin().list_topics(timeout=_PROBE_SECONDS).brokers)
        except KafkaException:
            return False
