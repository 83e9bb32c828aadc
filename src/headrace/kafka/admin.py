"""Calls of Kafka's client for Python: what it raises, as an error of ours, and topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import EndpointError, EndpointUnavailable, Fenced, HeadraceError
from headrace.kafka.config import ClientOptions
from headrace.model.checkpoints import JsonObject, to_json

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 30.0


@contextmanager
def kafka_failures(what: str) -> Iterator[None]:
    """`what` is said first, then what Kafka said; its own error is the cause of ours."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise kafka_error(what, error.args[0]) from error
    except TimeoutError as error:
        raise _unanswered(what) from error


def kafka_error(what: str, said: Any) -> HeadraceError:
    """Refused for good, taken over by another producer, or what may go away."""
    from confluent_kafka import KafkaError

    if not isinstance(said, KafkaError):
        return EndpointUnavailable(f"{what}: {said}")
    for_good = (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
    )
    text = f"{what}: {said.str() or said.name()}"
    if said.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
        return Fenced(text)
    return EndpointError(text) if said.code() in for_good else EndpointUnavailable(text)


def make_topic(client: ClientOptions, topic: str, config: Mapping[str, str], partitions: int = -1) -> None:
    """Does nothing if it is there; with as many partitions and replicas as brokers give by themselves."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    with kafka_failures(f"topic {topic!r} of {client.bootstrap} cannot be made"):
        admin = _admin(client)
        if topic in admin.list_topics(timeout=ANSWER_SECONDS).topics:
            return
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config))
        made = admin.create_topics([wanted], operation_timeout=ANSWER_SECONDS)
        try:
            made[topic].result(timeout=ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # by somebody at this moment
                raise


@dataclass(frozen=True)
class Topic:
    name: str
    id: str
    """No other topic has had it, also none of the same name; empty if brokers have no ids."""
    has_messages: bool
    """Whether it has any now, be they committed or not, or the end of a transaction."""


def find_topic(client: ClientOptions, topic: str) -> Topic | None:
    """None if it is not there, and it is not made by being asked for."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import _listoffsets

    of: Any = _listoffsets.OffsetSpec  # its types say less than there is
    with kafka_failures(f"topic {topic!r} of {client.bootstrap} cannot be described"):
        admin = _admin(client)
        numbers = _partitions(admin, topic)
        if not numbers:
            return None
        try:
            described = admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_SECONDS)
            found = described[topic].result(ANSWER_SECONDS).topic_id
            ends = _offsets(admin, topic, numbers, of.latest())
            begins = _offsets(admin, topic, numbers, of.earliest())
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:  # deleted at this moment
                return None
            raise
    has_id = found.get_most_significant_bits() or found.get_least_significant_bits()
    # As Kafka's own tools write it.
    identity = str(found).replace("+", "-").replace("/", "_") if has_id else ""
    return Topic(topic, identity, any(ends[at] > begins[at] for at in numbers))


def end_offsets(client: ClientOptions, topic: str) -> dict[int, int]:
    """After the last message of each partition, also of open transactions; nothing if there is no topic."""
    from confluent_kafka.admin import _listoffsets

    of: Any = _listoffsets.OffsetSpec  # its types say less than there is
    with kafka_failures(f"topic {topic!r} of {client.bootstrap} cannot be read"):
        admin = _admin(client)
        return _offsets(admin, topic, _partitions(admin, topic), of.latest())


def _partitions(admin: AdminClient, topic: str) -> list[int]:
    """Lists the partitions of all topics: brokers may make one that they are asked for by name."""
    known = admin.list_topics(timeout=ANSWER_SECONDS).topics.get(topic)
    return list(known.partitions) if known else []


def _offsets(admin: AdminClient, topic: str, partitions: Sequence[int], which: Any) -> dict[int, int]:
    from confluent_kafka import TopicPartition

    if not partitions:
        return {}
    wanted = {TopicPartition(topic, number): which for number in partitions}
    found = admin.list_offsets(wanted, request_timeout=ANSWER_SECONDS)
    return {at.partition: future.result(ANSWER_SECONDS).offset for at, future in found.items()}


def send_record(client: ClientOptions, topic: str, key: str | bytes, value: JsonObject, what: str) -> None:
    """Returns when brokers have it; `what` says what they do not do otherwise."""
    from confluent_kafka import Producer

    failures: list[str] = []
    with kafka_failures(what):
        producer = Producer({**client.producer_config(), "enable.idempotence": True})
        producer.produce(
            topic,
            to_json(value).encode(),
            key,
            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
        )
        left = producer.flush(ANSWER_SECONDS)
    if failures or left:
        raise EndpointUnavailable(f"{what}: {failures[0] if failures else 'it does not answer'}")


def longest_timeout_ms(client: ClientOptions) -> int | None:
    """Returns the longest timeout that brokers allow a transaction; None if we may not know."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    try:
        admin = _admin(client)
        broker = str(next(iter(admin.list_topics(timeout=ANSWER_SECONDS).brokers)))
        resource = ConfigResource(ResourceType.BROKER, broker)
        config = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource]
        return int(config.result(ANSWER_SECONDS)["transaction.max.timeout.ms"].value)
    except (KafkaException, KeyError, StopIteration):
        return None
    except TimeoutError as error:
        raise _unanswered(f"the settings of {client.bootstrap} cannot be read") from error


def _unanswered(what: str) -> EndpointUnavailable:
    return EndpointUnavailable(f"{what}: there was no answer in {ANSWER_SECONDS:.0f} s")


def _admin(client: ClientOptions) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return AdminClient(client.client_config())
