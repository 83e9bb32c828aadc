"""The Kafka peer: a confluent-kafka producer with `acks=all` and a topic that is flushed for each message.

A delivered message is therefore on the broker's disk, as a write at LOCAL_DISK is on ours. Run as a child of
the bench: `python -m headrace.bench.kafka_client`.
"""

from __future__ import annotations

import gc
import sys
import time
from array import array
from dataclasses import asdict
from threading import Event, Thread
from typing import Any

import numpy as np

from headrace.bench import payloads
from headrace.bench.figures import Latency, Run, Tier
from headrace.bench.pacing import clock, send_all
from headrace.bench.tether import Tether, work
from headrace.errors import ConfigError, ServerUnavailable, UnexpectedFailure

DELIVERED = "DELIVERED"

_SWITCH_SECONDS = 0.0005
_ANSWER_SECONDS = 20.0
_DELIVERY_SECONDS = 120.0
_POLL_SECONDS = 0.1
_MOST_QUEUED = 100_000


class Deliveries:
    """A thread that hears what was delivered; the one partition's offsets say which message it was."""

    def __init__(self, producer: Any, count: int) -> None:
        self.times = array("d", bytes(8 * count))
        self.delivered = 0
        self.failure: str | None = None
        self._producer = producer
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="deliveries", daemon=True)
        self._thread.start()

    def note(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failure = str(error)
            return
        self.times[message.offset()] = clock()
        self.delivered += 1

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._producer.poll(_POLL_SECONDS)
        except Exception as failure:  # noqa: BLE001 - of `note` or of Kafka, it ends the run
            self.failure = repr(failure)


def run(tether: Tether, command: dict[str, Any]) -> dict[str, Any]:
    try:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic
    except ImportError:
        raise ConfigError("the peer Kafka needs the package confluent-kafka: install it") from None
    sys.setswitchinterval(_SWITCH_SECONDS)
    settings = {"bootstrap.servers": command["bootstrap"], "log_level": 0}
    topic, count, warm_up = command["collection"], int(command["writes"]), int(command["warm_up"])
    admin = AdminClient(settings)
    config = {"flush.messages": "1", "min.insync.replicas": "1"}
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config=config)
    try:
        admin.create_topics([new], request_timeout=_ANSWER_SECONDS)[topic].result(timeout=_ANSWER_SECONDS)
    except Exception as failure:  # noqa: BLE001 - it has many kinds, also of its own
        raise ServerUnavailable(f"Kafka at {command['bootstrap']} made no topic: {failure}") from None
    limits = {"linger.ms": command["linger_ms"], "queue.buffering.max.messages": _MOST_QUEUED}
    # Idempotent, as Kafka's own clients are by default: without it a retry takes an offset of its own.
    producer = Producer(settings | limits | {"acks": "all", "enable.idempotence": True})
    deliveries = Deliveries(producer, count + warm_up)
    try:
        return _measured(tether, command, producer, deliveries)
    finally:
        deliveries.stop()
        admin.delete_topics([topic])[topic].result(timeout=_ANSWER_SECONDS)


def _measured(
    tether: Tether, command: dict[str, Any], producer: Any, deliveries: Deliveries
) -> dict[str, Any]:
    topic, count, warm_up = command["collection"], int(command["writes"]), int(command["warm_up"])
    rows = payloads.messages(int(command["payload"]))
    produce, note = producer.produce, deliveries.note

    def send(row: bytes) -> None:
        while True:
            try:
                produce(topic, row, on_delivery=note)
            except BufferError:  # its queue is full
                time.sleep(_SWITCH_SECONDS)
            else:
                return

    send_all(send, rows, warm_up, None)
    _wait(deliveries, warm_up)
    gc.collect()
    gc.disable()
    done = tether.report(lambda: max(deliveries.delivered - warm_up, 0))
    cpu = time.process_time()
    sent = send_all(send, rows, count, command["rate"])
    _wait(deliveries, count + warm_up)
    cpu = time.process_time() - cpu
    done.set()
    arrived = np.frombuffer(deliveries.times)[warm_up:]
    latency = None if sent.due is None else Latency.of(arrived - sent.due)
    tier = Tier(count, float(arrived.max() - sent.started), latency)
    late = None if sent.late is None else Latency.of(sent.late)
    return asdict(Run(count, command["rate"], {DELIVERED: tier}, late, client_cpu_us=cpu / count * 1e6))


def _wait(deliveries: Deliveries, count: int) -> None:
    deadline = clock() + _DELIVERY_SECONDS
    while deliveries.delivered < count:
        # Not flush(): it would end the lingering of what is still queued.
        time.sleep(_SWITCH_SECONDS)
        if deliveries.failure is not None:
            raise UnexpectedFailure(f"Kafka did not deliver: {deliveries.failure}")
        if clock() > deadline:
            raise ServerUnavailable(f"Kafka delivered {deliveries.delivered:,} messages of {count:,} in time")


if __name__ == "__main__":
    work(run)
