"""Opens at the same time: one range of keys has one owner. And applies, which wait for each other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.connectors.postgres.database import PostgresDatabase
from headrace.errors import EndpointUnavailable, Fenced
from headrace.model.key_range import MAX_KEY_HASH, KeyRange
from headrace.testing import Runtime
from tests.connectors.postgres.driving import CLIENT, apply, ask, planned, run, things

SHARDS = 6


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_of_overlapping_new_ranges_exactly_one_can_commit(postgres_url: str, isolation: str) -> None:
    database = ask(postgres_url, "SELECT current_database()::text")[0][0]
    run(postgres_url, f"ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}'")
    apply(postgres_url, things())
    materialization = planned(postgres_url, things())
    together = threading.Barrier(SHARDS)

    def open_and_commit(shard: int) -> bool:
        # No two are the same, so no row stands in the way of another's.
        key_range = KeyRange(shard, MAX_KEY_HASH - shard)
        together.wait()
        try:
            with Runtime(CLIENT, materialization, key_range=key_range) as runtime:
                together.wait()  # all are open
                runtime.transact([[{"id": shard}]], {"shard": shard})
        except Fenced:
            return False
        return True

    with ThreadPoolExecutor(SHARDS) as threads:
        committed = list(threads.map(open_and_commit, range(SHARDS)))
    assert committed.count(True) == 1
    assert ask(postgres_url, "SELECT id FROM things") == [(committed.index(True),)]


def test_opens_of_another_materialization_do_not_wait(postgres_url: str) -> None:
    with (
        PostgresDatabase(postgres_url) as one,
        PostgresDatabase(postgres_url) as other,
        one.transaction(),
        other.transaction(),
    ):
        one.lock_opens("view")
        other.execute("SET LOCAL lock_timeout = '10s'")
        other.lock_opens("another view")


def test_applies_wait_for_each_other_but_not_for_long(postgres_url: str) -> None:
    with PostgresDatabase(postgres_url) as one, PostgresDatabase(postgres_url) as other:
        with one.transaction():
            one.lock_applies()
            assert one.query("SELECT current_setting('lock_timeout')") == [("10s",)]
            with other.transaction():
                other.lock_opens("view")
                other.execute("SET LOCAL statement_timeout = '200ms'")
                with pytest.raises(EndpointUnavailable):
                    other.lock_applies()
        assert one.query("SELECT current_setting('lock_timeout')") == [("2min",)]
        with other.transaction():
            other.lock_applies()
