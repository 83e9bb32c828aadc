"""Sends an epoch again that was decided, and whose transaction brokers aborted before it was committed.

That happens when nobody came to commit it within transaction.timeout.ms, or when the task of a process that
was replaced took the transactional id over late. An aborted transaction's messages are hidden from readers,
but stay in the topic as long as any others. So they are read from there, and sent in a transaction of their
own. Its record has the attempt of the first, and nobody can commit either of them after this one took the
transactional id over: so only one of them ever counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from headrace.errors import EndpointError, EndpointUnavailable, Fenced
from headrace.kafka.admin import end_offsets
from headrace.kafka.reading import read_topic
from headrace.kafka.transactions import Identity
from headrace.sinks.kafka_checkpoints import Checkpoints, Record, source_offsets
from headrace.sinks.kafka_options import TopicOptions
from headrace.sinks.kafka_producer import ATTEMPT_HEADER, Prepared, Transaction, mark_of

if TYPE_CHECKING:
    from confluent_kafka import Message


def is_committed(
    checkpoints: Checkpoints, prepared: Prepared, record: Record, still_open: Collection[Identity]
) -> bool:
    """Whether readers have the transaction, by its own record or by that of a later epoch.

    `still_open` is who has the transactional id now. It was final what readers have when he got it.
    """
    name = prepared.identity.transactional_id
    last = checkpoints.read_committed(still_open, [name]).get(name)
    if last is None or last.epoch < record.epoch:
        return False
    if last.epoch == record.epoch and last.attempt != record.attempt:
        raise EndpointError(
            f"transactional id {prepared.identity.transactional_id!r} has committed epoch {record.epoch} "
            "with other rows than were decided here: another pipeline has this name; give one of them another"
        )
    return True


def send_again(options: TopicOptions, prepared: Prepared, record: Record) -> None:
    """Returns when readers have it; does nothing if they turn out to have it."""
    try:
        _send_again(options, prepared, record)
    except Fenced as error:  # somebody else does the same
        raise EndpointUnavailable(error.message) from error


def _send_again(options: TopicOptions, prepared: Prepared, record: Record) -> None:
    checkpoints = Checkpoints(options.client, options.checkpoints, options.prefix)
    _refuse_new_topics(options, prepared)
    has_offsets = bool(
        options.offsets_group
    ) and prepared.identity.transactional_id == options.transactional_id(0)
    with Transaction(options, prepared.identity.transactional_id) as transaction:
        # Only from here on can nobody else commit it, so only now is the answer final.
        if is_committed(checkpoints, prepared, record, []):
            return
        transaction.describe(record, source_offsets(record) if has_offsets else {})
        found = 0
        for message in _aborted(options, prepared, record):
            transaction.send(
                options.topic, message.key(), message.value(), message.headers(), message.partition() or 0
            )
            found += 1
        if found != prepared.rows:
            raise EndpointError(
                f"epoch {record.epoch} was decided, and then brokers aborted its transaction "
                f"{prepared.identity.transactional_id!r}; of its {prepared.rows} messages topic "
                f"{options.topic!r} still has {found}, so it cannot be sent again: restore the topic, or "
                "move the materialization to another topic and name, from the beginning"
            )
        transaction.commit()


def _aborted(options: TopicOptions, prepared: Prepared, record: Record) -> Iterator[Message]:
    ranges, mark = prepared.ranges.get(options.topic, {}), mark_of(record, prepared.identity)
    reached = {partition: first for partition, (first, _) in ranges.items()}
    last = {partition: last for partition, (_, last) in ranges.items()}
    for message in read_topic(options.client, options.topic, committed=False, reached=reached, last=last):
        # Others may have written between ours, and tasks of ours that were given up as well.
        if dict(message.headers() or ()).get(ATTEMPT_HEADER) == mark:
            yield message


def _refuse_new_topics(options: TopicOptions, prepared: Prepared) -> None:
    """Of a topic that was deleted and made anew nothing can be learned."""
    for topic, ranges in prepared.ranges.items():
        ends = end_offsets(options.client, topic)
        for partition, (_, last) in ranges.items():
            if ends.get(partition, 0) <= last:
                raise EndpointError(
                    f"topic {topic!r} ends before what was prepared in it: it was made anew, and what was "
                    "decided is lost with it; move the materialization to another topic and name"
                )
