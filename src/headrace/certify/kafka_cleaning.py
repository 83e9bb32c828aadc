"""Takes topics and consumer groups of a certification away again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import EndpointUnavailable
from headrace.kafka.admin import ANSWER_SECONDS, kafka_failures
from headrace.kafka.config import ClientOptions

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_LOOK_EVERY = 0.02


def delete_topics(client: ClientOptions, topics: Sequence[str]) -> None:
    """Those of them that are there."""
    from confluent_kafka.admin import AdminClient

    with kafka_failures(f"topics {', '.join(topics)} of {client.bootstrap} cannot be removed"):
        admin = AdminClient(client.client_config())
        there = admin.list_topics(timeout=ANSWER_SECONDS).topics
        left = [topic for topic in topics if topic in there]
        if left:
            for deleted in admin.delete_topics(left, operation_timeout=ANSWER_SECONDS).values():
                deleted.result(ANSWER_SECONDS)
            _await_gone(admin, left)


def _await_gone(admin: AdminClient, topics: Sequence[str]) -> None:
    """The controller has deleted them; brokers hear of it a little later, and tell of them until then."""
    until = time.monotonic() + ANSWER_SECONDS
    while left := set(topics) & set(admin.list_topics(timeout=ANSWER_SECONDS).topics):
        if time.monotonic() > until:
            raise EndpointUnavailable(f"topics {', '.join(sorted(left))} were deleted, and are still listed")
        time.sleep(_LOOK_EVERY)


def delete_groups(client: ClientOptions, groups: Sequence[str]) -> None:
    """Those of them that are there."""
    from confluent_kafka.admin import AdminClient

    with kafka_failures(f"consumer groups of {client.bootstrap} cannot be removed"):
        admin = AdminClient(client.client_config())
        listed = admin.list_consumer_groups(request_timeout=ANSWER_SECONDS).result(ANSWER_SECONDS)
        there = {group.group_id for group in listed.valid}
        left = [group for group in groups if group in there]
        if left:
            for deleted in admin.delete_consumer_groups(left, request_timeout=ANSWER_SECONDS).values():
                deleted.result(ANSWER_SECONDS)
