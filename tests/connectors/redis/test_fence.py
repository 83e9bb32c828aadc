"""Who was replaced writes nothing any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.connectors.config import read_config
from headrace.connectors.redis.config import RedisEndpoint
from headrace.connectors.redis.fence import Fence, install_fence
from headrace.connectors.redis.session import Session
from headrace.errors import Fenced
from headrace.model.key_range import FULL_RANGE, KeyRange
from headrace.testing import Runtime, samples
from tests.connectors.redis.driving import CLIENT, apply, ask, documents_keys, planned

LOWER, UPPER = KeyRange(0, 0x7FFFFFFF), KeyRange(0x80000000, 0xFFFFFFFF)
WRITE = [("XADD", "stream", "*", "a", "b")]


def session_of(url: str) -> Session:
    return Session(read_config(RedisEndpoint, {"url": url}, "endpoint"))


@pytest.fixture
def session(redis_url: str) -> Iterator[Session]:
    with session_of(redis_url) as session:
        yield session


@pytest.fixture
def other(redis_url: str) -> Iterator[Session]:
    with session_of(redis_url) as session:
        yield session


def entries(url: str) -> int:
    count: int = ask(url, "XLEN", "stream")
    return count


@pytest.mark.parametrize("documents", [1, 0])
def test_an_older_stream_cannot_commit(redis_url: str, documents: int) -> None:
    apply(redis_url, samples.LAST_SEEN)
    view = planned(redis_url, samples.LAST_SEEN)
    zombie = Runtime(CLIENT, view)
    zombie.open()
    with Runtime(CLIENT, view) as runtime:
        with pytest.raises(Fenced) as fenced:
            zombie.transact([[{"id": 1, "place": "old"}][:documents]], {"n": "older"})
        runtime.transact([[{"id": 2}]], {"n": "newer"})
    assert fenced.value.materialization == "view"
    assert fenced.value.key_range == "00000000-ffffffff"
    assert "process" in fenced.value.taken_by
    assert documents_keys(redis_url) == {"things:2"}


def test_of_two_at_once_the_later_writes(redis_url: str, session: Session, other: Session) -> None:
    first = install_fence(session, "view", FULL_RANGE)
    first.write(session, WRITE)
    second = install_fence(other, "view", FULL_RANGE)
    second.write(other, WRITE)
    with pytest.raises(Fenced):
        first.write(session, WRITE)
    second.write(other, WRITE)
    assert entries(redis_url) == 3


def between(session: Session, monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """Lets something happen once, after the fence was looked at and before the writes."""
    transaction = session.transaction
    left = [happens]

    def interrupted(commands: Any) -> bool:
        if left:
            left.pop()()
        return transaction(commands)

    monkeypatch.setattr(session, "transaction", interrupted)


def test_one_that_is_replaced_after_it_looked(
    redis_url: str, session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = install_fence(session, "view", FULL_RANGE)
    between(session, monkeypatch, lambda: install_fence(other, "view", LOWER))
    with pytest.raises(Fenced, match="00000000-7fffffff"):
        fence.write(session, WRITE)
    assert entries(redis_url) == 0


def test_another_range_does_not_get_in_the_way(
    redis_url: str, session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = install_fence(session, "view", LOWER)
    between(session, monkeypatch, lambda: install_fence(other, "view", UPPER))
    fence.write(session, WRITE)
    assert entries(redis_url) == 1, "it was tried twice, and done once"


def test_two_that_open_at_once(session: Session, other: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Fence] = []
    between(session, monkeypatch, lambda: opened.append(install_fence(other, "view", UPPER)))
    fence = install_fence(session, "view", FULL_RANGE)
    fence.verify(session)
    with pytest.raises(Fenced):
        opened[0].verify(other)


def test_ranges_that_split_and_join(session: Session) -> None:
    whole = install_fence(session, "view", FULL_RANGE)
    lower, upper = install_fence(session, "view", LOWER), install_fence(session, "view", UPPER)
    lower.verify(session)
    upper.verify(session)
    with pytest.raises(Fenced, match=r"00000000-7fffffff, .* 80000000-ffffffff"):
        whole.verify(session)
    joined = install_fence(session, "view", KeyRange(0x7FFFFFFF, 0x80000000))
    joined.verify(session)
    for replaced in (lower, upper):
        with pytest.raises(Fenced):
            replaced.verify(session)


def test_materializations_do_not_know_of_each_other(session: Session) -> None:
    first = install_fence(session, "view", FULL_RANGE)
    install_fence(session, "view:other", FULL_RANGE)
    first.verify(session)


def test_an_entry_that_is_gone_is_not_ours(redis_url: str, session: Session) -> None:
    fence = install_fence(session, "view", FULL_RANGE)
    ask(redis_url, "FLUSHDB")
    with pytest.raises(Fenced, match="somebody who removed its entry"):
        fence.write(session, WRITE)
    assert entries(redis_url) == 0
