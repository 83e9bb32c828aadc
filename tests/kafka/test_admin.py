"""A broker that does not answer in time."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import EndpointUnavailable
from headrace.kafka.admin import end_offsets, find_topic, longest_timeout_ms, make_topic
from headrace.kafka.config import ClientOptions


class Silent:
    """An admin client whose answers never come."""

    def list_topics(self, **_: Any) -> Any:
        known = SimpleNamespace(partitions={0: None})
        return SimpleNamespace(topics={"known": known}, brokers={1: None})

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Future[None]]:
        return {topic.topic: Future() for topic in topics}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[None]]:
        return {topic: Future() for topic in topics.topic_names}

    def list_offsets(self, wanted: dict[Any, Any], **_: Any) -> dict[Any, Future[None]]:
        return {at: Future() for at in wanted}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[None]]:
        return {resource: Future() for resource in resources}


def test_no_answer_is_what_may_go_away(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ClientOptions.of({"bootstrap": "127.0.0.1:9092"})
    monkeypatch.setattr("headrace.kafka.admin._admin", lambda _: Silent())
    monkeypatch.setattr("headrace.kafka.admin.ANSWER_SECONDS", 0.01)
    with pytest.raises(EndpointUnavailable, match="cannot be made: there was no answer in 0 s"):
        make_topic(client, "new", {})
    with pytest.raises(EndpointUnavailable, match="cannot be read: there was no answer in 0 s"):
        end_offsets(client, "known")
    with pytest.raises(EndpointUnavailable, match="cannot be described: there was no answer in 0 s"):
        find_topic(client, "known")
    with pytest.raises(EndpointUnavailable, match="cannot be read: there was no answer in 0 s"):
        longest_timeout_ms(client)
