"""Rows as messages of a Kafka topic, an epoch at a time: prepared in a transaction that is left open.

Each shard has a transactional id and a producer, which begins a transaction, sends its rows and goes away.
The transaction stays open on the broker, where no reader sees it. To commit is to tell the broker its end, by
the ids that are in the handle, from any process (`kafka.transactions`). A record of the epoch travels in the
transaction (`kafka_checkpoints`), so the cluster itself tells what was committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Self
from uuid import uuid4

import pyarrow as pa

from headrace.errors import (
    CheckpointConflict,
    ConfigError,
    EndpointError,
    EndpointUnavailable,
    Fenced,
    HeadraceError,
)
from headrace.kafka.admin import find_topic, longest_timeout_ms, make_topic
from headrace.kafka.config import ClientOptions
from headrace.kafka.transactions import Identity, State, Transactions, timeout_too_long
from headrace.model.checkpoints import JsonObject
from headrace.model.ownership import Owner, Target
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.columns import Columns, columns_of, grown
from headrace.sinks.contract import Epoch, Place, RowSink
from headrace.sinks.kafka_audit import audit_topic
from headrace.sinks.kafka_checkpoints import Checkpoints, Known, Record, source_offsets
from headrace.sinks.kafka_options import TopicOptions, ValueFormat
from headrace.sinks.kafka_ownership import claim_topic, read_owner
from headrace.sinks.kafka_producer import Prepared
from headrace.sinks.kafka_resend import is_committed, send_again
from headrace.sinks.kafka_rows import read_rows
from headrace.sinks.kafka_task import (
    EPOCH_HEADER,
    MATERIALIZATION_HEADER,
    RESULT_DDL,
    Shipment,
    answer_of,
    ship,
)
from headrace.sinks.kafka_values import (
    avro_schema,
    avro_text,
    messages,
    value_fields,
)
from headrace.sinks.openings import check_fence, told
from headrace.spark.errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField


class KafkaSink(RowSink):
    """Appends each epoch's rows to a topic."""

    can_keep_views: ClassVar[bool] = False
    can_tell: ClassVar[bool] = True

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self._writer, self._is_shared = place.writer, bool(place.owned)
        self._options = TopicOptions.of(name, place)
        self._hidden = [column for column in (place.epoch, place.owned) if column]
        self._fence = -1
        self._identities: dict[str, Identity] = {}  # who we know to have had an id last: our own tasks
        # Epoch and columns: the last that readers have, once it is known, and the last that we prepared.
        self._last: tuple[int, Columns] | None = None
        self._prepared: tuple[int, Columns] | None = None

    @classmethod
    def open(cls, name: str, place: Place, spark: SparkSession) -> Self:  # noqa: ARG003 - rows bring theirs
        if place.is_view:
            raise ConfigError(
                f"{place.location!r} is a Kafka topic, to which rows are appended: make it compacted and set "
                "the option key, and it keeps the last row of each key"
            )
        _refuse_missing_packages()
        return cls(name, place)

    @classmethod
    def look(cls, name: str, place: Place) -> Owner | None:
        _refuse_missing_packages()
        return cls(name, place).inspect().owner

    @classmethod
    def read(cls, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        return read_rows(ClientOptions.of(place.options), place, columns, epoch)

    @classmethod
    def audit(
        cls, place: Place, decided: Mapping[int, int], last: Callable[[], int] | None = None
    ) -> Iterator[str]:
        return audit_topic(ClientOptions.of(place.options), place, decided, last)

    def inspect(self) -> Target:
        topic = find_topic(self._options.client, self._options.topic)
        if topic is None:
            return Target(False)
        owner = None if self._is_shared else read_owner(self._options, topic)
        return Target(True, topic.has_messages, owner)

    def refuse_start(self, owner: Owner, *, adopts: bool = False) -> None:  # noqa: ARG002
        self._refuse_timeouts()

    def claim(self, owner: Owner, *, adopts: bool = False) -> None:
        if self._is_shared:
            return
        topic = find_topic(self._options.client, self._options.topic)
        if topic is None:  # the start has made it
            raise EndpointUnavailable(f"sink {self.name}: topic {self._options.topic!r} is not there yet")
        claim_topic(self.name, self._options, topic, owner, adopts=adopts)

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._refuse_timeouts()
        self._checkpoints.make()
        make_topic(self._options.client, self._options.topic, {})
        known = self._checkpoints.read_all()
        check_fence(self.name, known.fence, decided, fence)
        self._checkpoints.write_fence(told(fence))
        self._fence = fence
        kept = [prepared.identity for prepared in _prepared(handle)]
        with self._transactions() as transactions:
            ids = {self._options.transactional_id(shard) for shard in range(self._options.shards)}
            for name in sorted(ids | set(transactions.list(self._options.prefix))):
                found = transactions.describe(name)
                identity = found.identity if found else None
                # Those of a later fence belong to somebody who took over from us while we slept.
                if identity is None or (identity not in kept and not self._is_later(known, identity)):
                    identity = transactions.take_over(name, self._options.transaction_timeout_ms)
                self._identities[name] = identity

    def prepare(self, epoch: Epoch, rows: DataFrame | None) -> JsonObject:
        if rows is None:
            return {}
        fields = value_fields(rows, self._hidden)
        avro = self._avro(fields)
        made = messages(rows, fields, self._options)
        # A new producer aborts what its transactional id has open, and that may be decided.
        epoch.wait_for_previous()
        columns = self._columns(epoch.number, rows.drop(*self._hidden))
        self._refuse_replaced()
        shipment = self._shipment(epoch, columns, avro)
        try:
            with spark_failures(f"sink {self.name}: cannot prepare epoch {epoch.number}"):
                collected = made.mapInArrow(ship(shipment), RESULT_DDL).collect()
            answers = [json.loads(answer["result"]) for answer in collected]
            prepared = self._checked([*answers, *_answers_of_others(shipment, answers)])
        except HeadraceError:
            self._abort_attempt(shipment.record)
            raise
        count = sum(shard.rows for shard in prepared)
        if not count:
            self._abort([shard.identity for shard in prepared])
            return {}
        self._prepared = (epoch.number, columns)
        return {
            "bootstrap": self._options.client.bootstrap,
            "topic": self._options.topic,
            "checkpoints": self._options.checkpoints,
            "offsets_group": self._options.offsets_group,
            "record": shipment.record.to_json(),
            "transactions": [shard.to_json() for shard in prepared],
            "rows": count,
        }

    def commit(self, epoch: int, handle: JsonObject) -> None:  # noqa: ARG002 - the record says it
        if not handle:
            return
        options = self._options.of_handle(handle)
        with Transactions(options.client.bootstrap, options.client.security) as transactions:
            aborted = [
                shard for shard in _prepared(handle) if not transactions.end(shard.identity, commit=True)
            ]
            failed: HeadraceError | None = None
            for shard in aborted:
                self._identities.pop(shard.identity.transactional_id, None)
                try:
                    self._commit_aborted(transactions, options, shard, Record.of(handle["record"]))
                except HeadraceError as error:
                    failed = error  # what is open of one shard may be in the way of another
        if failed is not None:
            raise failed

    def _commit_aborted(
        self, transactions: Transactions, options: TopicOptions, shard: Prepared, record: Record
    ) -> None:
        """Or committed, and then somebody else has the transactional id since."""
        found = transactions.describe(shard.identity.transactional_id)
        still_open = [found.identity] if found and found.is_open else []
        checkpoints = Checkpoints(options.client, options.checkpoints, options.prefix)
        if not is_committed(checkpoints, shard, record, still_open):
            send_again(options, shard, record)

    def abort(self, epoch: int, handle: JsonObject) -> None:  # noqa: ARG002
        if handle:
            options = self._options.of_handle(handle)
            with Transactions(options.client.bootstrap, options.client.security) as transactions:
                for shard in _prepared(handle):
                    transactions.end(shard.identity, commit=False)

    def rewind(self, epoch: int) -> None:
        self.refuse_rewind(epoch)

    def refuse_rewind(self, epoch: int) -> None:
        last = max((record.epoch for record in self._committed().values()), default=-1)
        if last > epoch:
            raise ConfigError(
                f"sink {self.name}: readers of topic {self._options.topic!r} have the epochs up to {last}, "
                f"which cannot be taken back to epoch {epoch}: write to another topic, under another name of "
                "the materialization"
            )

    def committed(self) -> JsonObject | None:
        """Before the start, an epoch of which some shards are committed counts: it was decided.

        After it, what the recovery log knows to be decided is committed in all of them.
        """
        records = self._committed()
        if not records:
            return None
        last = max(records.values(), key=lambda record: record.epoch)
        if self._fence < 0:
            return last.runtime_checkpoint
        for shard in range(last.shards):
            record = records.get(self._options.transactional_id(shard))
            if record is None or record.epoch != last.epoch:
                raise CheckpointConflict(
                    f"sink {self.name}: readers of topic {self._options.topic!r} have a part of epoch "
                    f"{last.epoch}, and only the recovery log knows the rest: restore it"
                )
        return last.runtime_checkpoint

    @property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self._options.client, self._options.checkpoints, self._options.prefix)

    def _transactions(self) -> Transactions:
        return Transactions(self._options.client.bootstrap, self._options.client.security)

    def _committed(self) -> dict[str, Record]:
        """The last record of each transactional id that readers have."""
        with self._transactions() as transactions:
            described = [transactions.describe(name) for name in transactions.list(self._options.prefix)]
        found = [one for one in described if one is not None]
        ended = {
            one.identity: one.state == State.COMMITTED
            for one in found
            if one.state in (State.COMMITTED, State.ABORTED)
        }
        return self._checkpoints.read_committed([one.identity for one in found if one.is_open], ended=ended)

    def _avro(self, fields: Sequence[StructField]) -> str:
        is_avro = self._options.value_format is ValueFormat.AVRO
        return avro_text(avro_schema(fields, self._options)) if is_avro else ""

    def _shipment(self, epoch: Epoch, columns: Columns, avro: str) -> Shipment:
        options = self._options
        record = Record(
            options.shards, epoch.number, epoch.fence, uuid4().hex, columns, epoch.runtime_checkpoint
        )
        headers = {
            **options.headers,
            EPOCH_HEADER: str(epoch.number),
            MATERIALIZATION_HEADER: self._writer,
        }
        return Shipment(
            options,
            record,
            tuple((name, value.encode()) for name, value in headers.items()),
            source_offsets(record) if options.offsets_group else {},
            avro,
        )

    def _checked(self, answers: Sequence[JsonObject]) -> list[Prepared]:
        """What shards have prepared; one that failed takes the others with it."""
        failed = [HeadraceError.from_json(answer["failed"]) for answer in answers if "failed" in answer]
        prepared = [Prepared.of(answer["prepared"]) for answer in answers if answer.get("prepared")]
        with self._transactions() as transactions:
            for shard in prepared:
                name = shard.identity.transactional_id
                found = transactions.describe(name)
                if found is None or found.identity != shard.identity or not found.is_open:
                    failed.append(
                        EndpointUnavailable(f"transactional id {name!r} was taken over by another task")
                    )
                self._identities[name] = shard.identity
        if not failed:
            return prepared
        if isinstance(failed[0], Fenced):
            self._refuse_fenced()
            raise EndpointUnavailable(failed[0].message)  # by a second attempt of a task of ours
        raise failed[0]

    def _abort(self, identities: Sequence[Identity]) -> None:
        with self._transactions() as transactions:
            for identity in identities:
                transactions.end(identity, commit=False)

    def _abort_attempt(self, record: Record) -> None:
        """Nobody would before the next epoch, and readers would wait for that."""
        self._identities.clear()
        with cleaning_up(f"abort epoch {record.epoch} of sink {self.name}, which failed,"):
            known = self._checkpoints.read_all().records
            self._abort(
                [
                    Identity(name, left.producer_id, left.producer_epoch)
                    for name, left in known.items()
                    if left.attempt == record.attempt
                ]
            )

    def _is_later(self, known: Known, identity: Identity) -> bool:
        record = known.records.get(identity.transactional_id)
        return known.fence > self._fence or (
            record is not None and record.is_of(identity) and record.fence > self._fence
        )

    def _refuse_timeouts(self) -> None:
        self._options.refuse_short_timeout()
        longest = longest_timeout_ms(self._options.client)
        if longest is not None and longest < self._options.transaction_timeout_ms:
            raise timeout_too_long(self._options.transaction_timeout_ms)

    def _columns(self, epoch: int, rows: DataFrame) -> Columns:
        """What the topic has once these rows are in it; refuses those that it has, or cannot have."""
        if self._last is None:
            last = max(self._committed().values(), key=lambda record: record.epoch, default=None)
            self._last = (last.epoch, last.columns) if last else (-1, {})
        if self._prepared is not None and self._prepared[0] < epoch:
            self._last = self._prepared  # it was decided, or the next one would not come
        last_epoch, last_columns = self._last
        if last_epoch >= epoch:
            raise EndpointError(
                f"sink {self.name}: topic {self._options.topic!r} has the epochs of {self._writer!r} up to "
                f"{last_epoch}, and epoch {epoch} was never decided here: another pipeline has this name, or "
                "the state of this one was removed; write to another topic, under another name"
            )
        return grown(last_columns, columns_of(rows), f"topic {self._options.topic!r}")

    def _refuse_replaced(self) -> None:
        """Who was replaced finds that somebody else had a transactional id since, and leaves it to him."""
        with self._transactions() as transactions:
            for shard in range(self._options.shards):
                name = self._options.transactional_id(shard)
                found, expected = transactions.describe(name), self._identities.get(name)
                if found is not None and expected is not None and found.identity != expected:
                    self._refuse_fenced()

    def _refuse_fenced(self) -> None:
        fence = self._checkpoints.read_all().fence
        if fence > self._fence:
            raise Fenced(
                f"sink {self.name}: another process writes to topic {self._options.topic!r} as "
                f"{self._writer!r} since (fence {fence}, and ours is {self._fence})",
                materialization=self._writer,
                fence=self._fence,
                taken_by=str(fence),
            )


def _refuse_missing_packages() -> None:
    for package in ("confluent_kafka", "fastavro"):
        if find_spec(package) is None:
            raise ConfigError(
                "the format kafka needs packages that are not installed: pip install headrace[kafka]"
            )


def _answers_of_others(shipment: Shipment, answers: Sequence[JsonObject]) -> list[JsonObject]:
    """Of the shards that no task came for, since Spark had the rows in fewer partitions.

    They have a transaction too: readers of the record know by that how many shards say the same.
    """
    if not any((answer.get("prepared") or {}).get("rows") for answer in answers):
        return []  # it is failed or empty, and aborted either way
    others = set(range(shipment.record.shards)) - {answer["shard"] for answer in answers}
    return [answer_of(shipment, shard, []) for shard in sorted(others)]


def _prepared(handle: JsonObject | None) -> list[Prepared]:
    return [Prepared.of(raw) for raw in (handle or {}).get("transactions", ())]
