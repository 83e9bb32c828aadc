"""Takes topics and consumer groups of a certification away again."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sinks.kafka_calls import ANSWER_SECONDS, kafka_failures
from headrace.sinks.kafka_options import ClientOptions


def delete_topics(client: ClientOptions, topics: Sequence[str]) -> None:
    """Those of them that are there."""
    from confluent_kafka.admin import AdminClient

    with kafka_failures(f"topics {', '.join(topics)} of {client.bootstrap} cannot be removed"):
        admin = AdminClient(client.reaching())
        there = admin.list_topics(timeout=ANSWER_SECONDS).topics
        left = [topic for topic in topics if topic in there]
        if left:
            for deleted in admin.delete_topics(left, operation_timeout=ANSWER_SECONDS).values():
                deleted.result(ANSWER_SECONDS)


def delete_groups(client: ClientOptions, groups: Sequence[str]) -> None:
    """Those of them that are there."""
    from confluent_kafka.admin import AdminClient

    with kafka_failures(f"consumer groups of {client.bootstrap} cannot be removed"):
        admin = AdminClient(client.reaching())
        listed = admin.list_consumer_groups(request_timeout=ANSWER_SECONDS).result(ANSWER_SECONDS)
        there = {group.group_id for group in listed.valid}
        left = [group for group in groups if group in there]
        if left:
            for deleted in admin.delete_consumer_groups(left, request_timeout=ANSWER_SECONDS).values():
                deleted.result(ANSWER_SECONDS)
