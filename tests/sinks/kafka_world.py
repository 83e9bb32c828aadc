"""One topic of a real broker, new sinks for it, as in new processes, and a reader who knows nothing of us."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from devtools.kafka_broker import KafkaBroker
from headrace.kafka.security import Security
from headrace.kafka.transactions import Description, Transactions
from headrace.model.checkpoints import JsonObject
from headrace.sinks.contract import Place
from headrace.sinks.kafka import KafkaSink
from headrace.sinks.kafka_checkpoints import Record
from headrace.sinks.kafka_options import TopicOptions
from headrace.sinks.kafka_task import Shipment, prepare_shard
from tests.waiting import DEADLINE_SECONDS

NAME = "out"
SCHEMA = "epoch bigint, `odd name.` bigint, value bigint, at timestamp"


def read_messages(bootstrap: str, topic: str, **options: Any) -> list[Message]:
    """All that a plain consumer sees now who reads what is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "a plain reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # at a partition's end brokers wait so long; else 500
            "isolation.level": "read_committed",
            **options,
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, DEADLINE_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found: list[Message] = []
        while partitions:
            for message in consumer.consume(1000, 0.05):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    partitions.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()


class World:
    def __init__(
        self, broker: KafkaBroker, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        self.broker = broker
        self.topic, self.checkpoints = f"t-{uuid4().hex}", f"c-{uuid4().hex}"
        self.writer = f"view {uuid4().hex[:8]}"
        broker.create_topic(self.topic, partitions, config)

    def place(self, **options: str) -> Place:
        given = {key.replace("__", "."): value for key, value in options.items()}
        ours = {"bootstrap": self.broker.bootstrap, "checkpoints": self.checkpoints}
        return Place(self.topic, self.writer, SCHEMA, options={**ours, **given})

    def sink(self, writer: str = "", **options: str) -> KafkaSink:
        place = self.place(**options)
        return KafkaSink(NAME, Place(self.topic, writer, SCHEMA, options=place.options) if writer else place)

    def options(self, **options: str) -> TopicOptions:
        return TopicOptions.of(NAME, self.place(**options))

    def id(self, shard: int = 0) -> str:
        return self.options().transactional_id(shard)

    def messages(self) -> list[Message]:
        return read_messages(self.broker.bootstrap, self.topic)

    def values(self) -> list[int]:
        return sorted(json.loads(message.value() or b"")["value"] for message in self.messages())

    def by_epoch(self) -> Counter[int]:
        return Counter(
            int(dict(message.headers() or ())["headrace.epoch"] or 0) for message in self.messages()
        )

    def transactions(self) -> Transactions:
        return Transactions(self.broker.bootstrap, Security())

    def state(self, shard: int = 0) -> Description:
        with self.transactions() as transactions:
            found = transactions.describe(self.id(shard))
        assert found is not None
        return found

    def shipment(self, epoch: int, fence: int = 1, **options: str) -> Shipment:
        """What tasks get, for tests that do without Spark."""
        made = self.options(**options)
        record = Record(made.shards, epoch, fence, uuid4().hex, {"value": "long"}, {"offsets": epoch})
        headers = (
            ("headrace.epoch", str(epoch).encode()),
            ("headrace.materialization", self.writer.encode()),
        )
        return Shipment(made, record, headers)

    def handle(self, epoch: int, values: Sequence[int], fence: int = 1, **options: str) -> JsonObject:
        """Of an epoch that is prepared, by what a task does."""
        shipment = self.shipment(epoch, fence, **options)
        shards = range(shipment.options.shards)
        prepared = [
            prepare_shard(shipment, shard, [batch_of(values[shard :: len(shards)])]) for shard in shards
        ]
        return handle_of(shipment, [one.to_json() for one in prepared if one])


def handle_of(shipment: Shipment, transactions: list[JsonObject]) -> JsonObject:
    made = shipment.options
    return {
        "bootstrap": made.client.bootstrap,
        "topic": made.topic,
        "checkpoints": made.checkpoints,
        "offsets_group": made.offsets_group,
        "record": shipment.record.to_json(),
        "transactions": transactions,
        "rows": sum(one["rows"] for one in transactions),
    }


def batch_of(values: Sequence[int]) -> pa.RecordBatch:
    texts = [json.dumps({"value": value}) for value in values]
    return pa.RecordBatch.from_pydict({"key": pa.nulls(len(texts), pa.string()), "value": texts})
