"""Whose a topic is: a record in the topic of checkpoints, under the topic's id.

    headrace-target/orders/2xRcm0mxSvqpb2mX0Fxkmw   {"materialization": "sales", ...}

A topic that was deleted and made again has another id, and so no record. Brokers before 2.8 have no ids: with
them the key ends after the name, and a topic that was made again has the record of the one before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headrace.errors import EndpointError
from headrace.kafka.admin import Topic, end_offsets, send_record
from headrace.kafka.reading import read_topic
from headrace.model.ownership import Owner, owner_conflict
from headrace.sinks.kafka_options import TopicOptions
from headrace.sinks.ownership import refuse_other

_PREFIX = "headrace-target/"  # no transactional id of ours begins with it


@dataclass(frozen=True)
class _Mark:
    offset: int
    value: bytes | None
    """Of one that somebody has removed, None."""


def read_owner(options: TopicOptions, topic: Topic) -> Owner | None:
    return _owner(options, topic, _marks(options, topic)[-1])


def claim_topic(name: str, options: TopicOptions, topic: Topic, owner: Owner, *, adopts: bool) -> None:
    """Has the topic say that it is `owner`'s, in the name of the sink `name`."""
    where = f"topic {options.topic!r}"
    last = _marks(options, topic)[-1]
    found = _owner(options, topic, last)
    refuse_other(name, where, found, owner, adopts=adopts)
    if found == owner:
        return
    _write(options, topic, owner)
    # Kafka lets two write who have looked at the same time. Both look again: at least one sees the other.
    for mark in _marks(options, topic):
        other = _owner(options, topic, mark) if mark.offset > last.offset else None
        if other is not None and owner_conflict(other, owner):
            _write(options, topic, other)
            refuse_other(name, where, other, owner)


def _marks(options: TopicOptions, topic: Topic) -> list[_Mark]:
    """In their order, of which the last counts; the first says nothing."""
    key = _key(topic)
    reached = dict.fromkeys(end_offsets(options.client, options.checkpoints), 0)
    # They are in no transaction, so one that is open does not hide them.
    read = read_topic(options.client, options.checkpoints, committed=False, reached=reached)
    found = [_Mark(message.offset() or 0, message.value()) for message in read if message.key() == key]
    return [_Mark(-1, None), *found]


def _owner(options: TopicOptions, topic: Topic, mark: _Mark) -> Owner | None:
    if not mark.value:
        return None
    try:
        return Owner.decode(mark.value.decode(errors="replace"))
    except ValueError:
        raise EndpointError(
            f"topic {options.topic!r} does not say whose it is: under the key {_key(topic).decode()!r} topic "
            f"{options.checkpoints!r} has {mark.value!r}, which a later version may have written: once "
            "nobody else writes there, send a record with this key and no value, or write to another topic"
        ) from None


def _write(options: TopicOptions, topic: Topic, owner: Owner) -> None:
    what = f"topic {options.checkpoints!r} of {options.client.bootstrap} does not take whose a topic is"
    send_record(options.client, options.checkpoints, _key(topic), json.loads(owner.encode()), what)


def _key(topic: Topic) -> bytes:
    return f"{_PREFIX}{topic.name}/{topic.id}".encode()
