"""A transaction of a producer that begins one in its life, and may go away without an end to it.

So the producer's id and epoch name the transaction, and whoever commits it later cannot mean another.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.errors import EndpointUnavailable, HeadraceError, UnexpectedFailure
from headrace.kafka.admin import ANSWER_SECONDS, kafka_error, kafka_failures
from headrace.kafka.transactions import Identity, timeout_too_long
from headrace.model.checkpoints import JsonObject, to_json
from headrace.sinks.kafka_checkpoints import Record
from headrace.sinks.kafka_options import TopicOptions

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

ATTEMPT_HEADER = "headrace.attempt"

_STATISTICS_MS = 20
"""How often a producer tells of itself; we wait once for it, to learn the producer's id and epoch."""
_POLLED_EVERY = 300
"""Messages. What is delivered is told soon, while it is still in the processor's cache: of 100 to 1,000 this
costs least."""
_LONGEST_DELIVERY_MS = 120_000
_BEGINNINGS = 3
"""Producers that are tried: one that hears nothing of its id for `_LOST_SECONDS` is replaced."""
_LOST_SECONDS = 10.0

Offsets = Mapping[str, Mapping[int, int]]
Ranges = dict[str, dict[int, tuple[int, int]]]
"""By topic and partition, the offsets of the first message and of the last."""


@dataclass(frozen=True)
class Prepared:
    """A transaction that is open, and all of whose messages are on brokers."""

    identity: Identity
    rows: int
    ranges: Ranges

    def to_json(self) -> JsonObject:
        ranges = {
            topic: {str(partition): list(ends) for partition, ends in partitions.items()}
            for topic, partitions in self.ranges.items()
        }
        return {**vars(self.identity), "rows": self.rows, "ranges": ranges}

    @staticmethod
    def of(raw: JsonObject) -> Prepared:
        ranges = {
            topic: {int(partition): (ends[0], ends[1]) for partition, ends in partitions.items()}
            for topic, partitions in raw["ranges"].items()
        }
        identity = Identity(raw["transactional_id"], raw["producer_id"], raw["producer_epoch"])
        return Prepared(identity, raw["rows"], ranges)


def mark_of(record: Record, identity: Identity) -> bytes:
    """What each message of a transaction says of it, and of no other one."""
    return f"{record.attempt}-{identity.producer_id}-{identity.producer_epoch}".encode()


class Transaction:
    """One of a producer of its own; a context manager that aborts it on an error."""

    def __init__(self, options: TopicOptions, transactional_id: str) -> None:
        from confluent_kafka import KafkaException

        self._exception = KafkaException
        self._id, self._options = transactional_id, options
        self._sent = 0
        self._failure: Any = None
        self._identity: Identity | None = None
        self._ranges: Ranges = {}
        self._what = f"topic {options.topic!r} of {options.client.bootstrap} does not take an epoch"
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        from confluent_kafka import Producer

        timeout = self._options.transaction_timeout_ms
        with kafka_failures(self._what):
            return Producer(
                {
                    "linger.ms": 20,
                    **self._options.client.producer_config(),
                    # If it connects only when it needs to, it looks for the coordinator before any broker is
                    # there, and then waits for 500 ms; every fourth producer did.
                    "enable.sparse.connections": False,
                    "transactional.id": self._id,
                    "transaction.timeout.ms": timeout,
                    "message.timeout.ms": min(timeout, _LONGEST_DELIVERY_MS),
                    "statistics.interval.ms": _STATISTICS_MS,
                    "stats_cb": self._learn,
                }
            )

    def __enter__(self) -> Transaction:
        """Fences off whoever had the id before, and aborts what he left."""
        from confluent_kafka import KafkaError, KafkaException

        for left in reversed(range(_BEGINNINGS)):
            try:
                self._producer.init_transactions(ANSWER_SECONDS if not left else _LOST_SECONDS)
                self._producer.begin_transaction()
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError._TIMED_OUT and left:
                    self._producer = self._new_producer()
                    continue
                if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                    raise timeout_too_long(self._options.transaction_timeout_ms) from error
                raise kafka_error(self._what, error.args[0]) from error
            else:
                break
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(Exception):  # the next producer with the id does it
                self._producer.abort_transaction(ANSWER_SECONDS)

    @property
    def identity(self) -> Identity:
        until = time.monotonic() + ANSWER_SECONDS
        while self._identity is None:
            self._serve(self._producer.poll, _STATISTICS_MS / 1000)
            if time.monotonic() > until:
                raise EndpointUnavailable(f"{self._what}: the producer does not tell its id")
        return self._identity

    def describe(self, record: Record, offsets: Offsets) -> None:
        """Says first of all what this is, so that nobody has to guess whose an open transaction is."""
        value = to_json(record.by(self.identity).to_json()).encode()
        self.send(self._options.checkpoints, self._id, value)
        self._flush()
        if offsets:
            self._send_offsets(offsets)

    def send(self, topic: str, key: Any, value: Any, headers: Any = None, partition: int = -1) -> None:
        self._send(topic, ((key, value),), headers, partition)
        self._sent += 1
        if self._sent % _POLLED_EVERY == 0:
            self._serve(self._producer.poll, 0)

    def send_all(self, topic: str, messages: Iterable[tuple[Any, Any]], headers: Any) -> None:
        """Keys and values."""
        messages = iter(messages)
        while some := tuple(islice(messages, _POLLED_EVERY)):
            self._send(topic, some, headers, -1)
            self._serve(self._producer.poll, 0)

    def _send(self, topic: str, messages: Sequence[tuple[Any, Any]], headers: Any, partition: int) -> None:
        # A row costs 3 µs here, and would 5 with a call of ours and a few names looked up for each.
        produce, note, sent = self._producer.produce, self._noting(topic), 0
        while sent < len(messages):
            try:
                for key, value in messages[sent:] if sent else messages:
                    produce(topic, value, key, partition, note, headers=headers)
                    sent += 1
            except BufferError:
                self._serve(self._producer.poll, 0.1)
            except self._exception as error:
                raise self._error(error.args[0]) from error

    def leave_open(self, rows: int) -> Prepared:
        self._flush()
        return Prepared(self.identity, rows, self._ranges)

    def commit(self) -> None:
        self._flush()
        with kafka_failures(self._what):
            self._producer.commit_transaction(ANSWER_SECONDS)

    def _send_offsets(self, offsets: Offsets) -> None:
        from confluent_kafka import Consumer, TopicPartition

        positions = [
            TopicPartition(topic, partition, offset)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        ]
        options = {**self._options.client.client_config(), "group.id": self._options.offsets_group}
        with kafka_failures(f"group {self._options.offsets_group!r} does not take the source's offsets"):
            consumer = Consumer(options)
            try:
                group = consumer.consumer_group_metadata()
                self._producer.send_offsets_to_transaction(positions, group, ANSWER_SECONDS)
            finally:
                consumer.close()

    def _flush(self) -> None:
        while self._serve(self._producer.flush, 1.0):
            pass

    def _serve(self, call: Callable[[float], int], timeout: float) -> int:
        """Lets the producer tell what happened meanwhile, and raises what is wrong with that."""
        try:
            left = call(timeout)
        except self._exception as error:
            raise self._error(error.args[0]) from error
        except SystemError as error:  # the client loses its own exception in a call that calls us back
            raise (self._cause() or UnexpectedFailure(f"{self._what}: {error}")) from error
        if self._failure is not None:
            raise self._error(self._failure)
        return left

    def _error(self, error: KafkaError) -> HeadraceError:
        cause = self._cause() if error.code() == error._FATAL else None
        return cause or kafka_error(self._what, error)

    def _cause(self) -> HeadraceError | None:
        """Of an error that the producer does not recover from: it may be fenced off, and says so if asked."""
        try:
            self._producer.begin_transaction()
        except self._exception as told:
            return kafka_error(self._what, told.args[0])
        return None

    def _noting(self, topic: str) -> Callable[[Any, Message], None]:
        """What is told of each message of a topic when brokers have it, or will not."""
        ranges = self._ranges.setdefault(topic, {})

        def note(error: Any, message: Message) -> None:
            if error is not None:
                self._failure = self._failure or error
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            ends = ranges.get(partition)
            if ends is None:
                ranges[partition] = (offset, offset)
            elif offset > ends[1]:
                ranges[partition] = (ends[0], offset)
            elif offset < ends[0]:
                ranges[partition] = (offset, ends[1])

        return note

    def _learn(self, statistics: str) -> None:
        if self._identity is not None:
            return
        raw = json.loads(statistics).get("eos", {})
        if raw.get("producer_id", -1) >= 0:
            self._identity = Identity(self._id, raw["producer_id"], raw["producer_epoch"])
