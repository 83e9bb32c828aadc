"""The Kafka peer: confluent-kafka producers with `acks=all` and a topic that is flushed for each message.

A delivered message is therefore on the broker's disk, as a write at LOCAL_DISK is on ours. Run as a child of
the bench: `python -m headrace.bench.kafka_client`.
"""

from __future__ import annotations

import gc
import sys
import time
from array import array
from dataclasses import asdict
from functools import partial
from threading import Event, Thread
from typing import Any

import numpy as np

from headrace.bench import payloads
from headrace.bench.figures import Latency, Run, Tier
from headrace.bench.pacing import Sent, clock, send_all
from headrace.bench.ratios import DELIVERED
from headrace.bench.tether import Tether, work
from headrace.errors import ConfigError, ServerUnavailable, UnexpectedFailure

_SWITCH_SECONDS = 0.0005
_ANSWER_SECONDS = 20.0
_DELIVERY_SECONDS = 30.0
_POLL_SECONDS = 0.1
_ROUND_SECONDS = 0.0005
_MOST_QUEUED = 100_000


class Deliveries:
    """When each message was delivered. One thread hears of those of all producers."""

    def __init__(self, producers: list[Any], count: int) -> None:
        self.times = array("d", bytes(8 * count))
        self.delivered = [0] * len(producers)
        self.failure: str | None = None
        self._producers = producers
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="deliveries", daemon=True)
        self._thread.start()

    def note(self, number: int, error: Any, _: Any) -> None:
        if error is not None:
            self.failure = str(error)
            return
        self.times[number] = clock()
        self.delivered[number % len(self.delivered)] += 1

    @property
    def total(self) -> int:
        return sum(self.delivered)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        # Many producers are asked in turns: a thread for each would only fight for the interpreter's lock.
        is_alone = len(self._producers) == 1
        try:
            while not self._stopped.is_set():
                for producer in self._producers:
                    producer.poll(_POLL_SECONDS if is_alone else 0)
                if not is_alone:
                    time.sleep(_ROUND_SECONDS)
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
    topic = command["collection"]
    admin = AdminClient(settings)
    config = {"flush.messages": "1", "min.insync.replicas": "1"}
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config=config)
    try:
        admin.create_topics([new], request_timeout=_ANSWER_SECONDS)[topic].result(timeout=_ANSWER_SECONDS)
    except Exception as failure:  # noqa: BLE001 - it has many kinds, also of its own
        raise ServerUnavailable(f"Kafka at {command['bootstrap']} made no topic: {failure}") from None
    limits = {"linger.ms": 0, "queue.buffering.max.messages": _MOST_QUEUED}
    # Idempotent, as Kafka's own clients are by default.
    options = settings | limits | {"acks": "all", "enable.idempotence": True}
    rate = float(command["rate"])
    warm_up, count = (max(int(rate * command[name]), 1) for name in ("warm_up_seconds", "seconds"))
    producers = [Producer(options) for _ in range(command["clients"])]
    deliveries = Deliveries(producers, warm_up + count)
    try:
        sent = _send(tether, command, producers, deliveries, warm_up + count)
    finally:
        deliveries.stop()
        admin.delete_topics([topic])[topic].result(timeout=_ANSWER_SECONDS)
    arrived, due = np.frombuffer(deliveries.times)[warm_up:], sent.due[warm_up:]
    reached, elapsed = float(arrived.max()), count / rate
    tier = Tier(
        warm_up + count, count / (reached - due[0]), reached - sent.started, Latency.of(arrived - due)
    )
    rates = tuple(delivered / (elapsed * (warm_up + count) / count) for delivered in deliveries.delivered)
    return asdict(
        Run(len(producers), warm_up + count, {DELIVERED: tier}, Latency.of(sent.late[warm_up:]), rates)
    )


def _send(
    tether: Tether, command: dict[str, Any], producers: list[Any], deliveries: Deliveries, count: int
) -> Sent:
    """All messages when they are due, the producers in turns; returns when all are delivered."""
    topic, rows, note = command["collection"], payloads.messages(int(command["payload"])), deliveries.note

    def send(number: int) -> None:
        produce, row = producers[number % len(producers)].produce, rows[number % len(rows)]
        while True:
            try:
                produce(topic, row, on_delivery=partial(note, number))
            except BufferError:  # its queue is full
                time.sleep(_SWITCH_SECONDS)
            else:
                return

    gc.collect()
    gc.disable()
    done = tether.report(lambda: deliveries.total)
    sent = send_all(send, range(count), count, float(command["rate"]))
    _wait(deliveries, count)
    done.set()
    return sent


def _wait(deliveries: Deliveries, count: int) -> None:
    deadline = clock() + _DELIVERY_SECONDS
    while deliveries.total < count:
        # Not flush(): it would end the lingering of what is still queued.
        time.sleep(_SWITCH_SECONDS)
        if deliveries.failure is not None:
            raise UnexpectedFailure(f"Kafka did not deliver: {deliveries.failure}")
        if clock() > deadline:
            raise ServerUnavailable(f"Kafka delivered {deliveries.total:,} messages of {count:,} in time")


if __name__ == "__main__":
    work(run)
