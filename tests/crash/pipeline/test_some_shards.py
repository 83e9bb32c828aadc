"""The driver is killed when some of its shards have committed an epoch, and the others have not."""

from __future__ import annotations

import json

import pytest
from adbc_driver_postgresql import dbapi

from headrace.pipeline.shards.ranges import shard_ranges
from tests.crash.pipeline.killing import Driver, finish
from tests.pipeline.scenarios import MakeScenario
from tests.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.processes]

SHARDS = 4


def epochs_of_shards(url: str) -> list[int]:
    with dbapi.connect(url) as database, database.cursor() as cursor:
        cursor.execute("SELECT checkpoint FROM headrace_checkpoints ORDER BY key_begin")
        return [json.loads(text).get("epoch", -1) for (text,) in cursor.fetchall()]


@pytest.mark.timeout(600)
def test_killed_when_some_shards_have_committed(make_scenario: MakeScenario) -> None:
    scenario, view = make_scenario("collection", "postgres", SHARDS)
    for _ in range(3):
        scenario.write(60)
    url = scenario.endpoint["url"]
    with (
        Driver(scenario, "prepared dead-letters", "2") as driver,
        dbapi.connect(url) as holding,
        holding.cursor() as cursor,
    ):
        driver.wait_until_frozen()
        # The task of the last shard waits for its row, and so cannot commit.
        last = shard_ranges(SHARDS)[-1].begin
        cursor.execute(f"SELECT 1 FROM headrace_checkpoints WHERE key_begin = {last} FOR UPDATE")
        driver.thaw()
        wait_until(lambda: 1 in epochs_of_shards(url), "a shard has committed")
        driver.kill()
        assert driver.end().was_killed
        holding.rollback()
    stand = epochs_of_shards(url)
    assert set(stand) == {0, 1}, "one epoch, committed by some"
    ran = finish(scenario)
    assert ran.epochs[0] == 1
    assert "finished after a crash" in ran.output
    scenario.assert_exact(view())
