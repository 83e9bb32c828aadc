"""Calls of Kafka's client for Python: what it raises, as an error of ours, and topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.errors import EndpointError, EndpointUnavailable, Fenced, HeadraceError
from headrace.sinks.kafka_options import ClientOptions

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


def end_offsets(client: ClientOptions, topic: str) -> dict[int, int]:
    """After the last message of each partition, also of open transactions; nothing if there is no topic."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import _listoffsets

    latest: Any = _listoffsets.OffsetSpec  # its types say less than there is

    with kafka_failures(f"topic {topic!r} of {client.bootstrap} cannot be read"):
        admin = _admin(client)
        known = admin.list_topics(timeout=ANSWER_SECONDS).topics.get(topic)
        wanted = (
            {TopicPartition(topic, number): latest.latest() for number in known.partitions} if known else {}
        )
        if not wanted:
            return {}
        found = admin.list_offsets(wanted, request_timeout=ANSWER_SECONDS)
        return {at.partition: future.result(ANSWER_SECONDS).offset for at, future in found.items()}


def longest_timeout_ms(client: ClientOptions) -> int | None:
    """Of a transaction, as brokers have it; None if we may not know."""
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

    return AdminClient(client.reaching())
