"""A source that no longer has what has to be read again: nothing is changed, and a person decides."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.ingest.iceberg.tables import Tables
from headrace.pipeline.connector_sink import ConnectorSink
from headrace.pipeline.state_paths import open_recovery_log
from headrace.testing.runtime import combine
from tests.pipeline.scenario import COLLECTION, Scenario, in_order
from tests.pipeline.scenarios import MakeScenario
from tests.pipeline.sink_places import ParquetPlace
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.usefixtures("spark")


def expire_all_but_the_last(scenario: Scenario) -> None:
    table = Tables(embedded_catalog(scenario.data)).load("orders")
    assert table is not None
    current = table.current_snapshot()
    assert current is not None
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != current.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def copy_of(path: Path, name: str) -> Path:
    """A copy of an SQLite database, with all that was committed to it."""
    copy = path.with_name(name)
    with closing(sqlite3.connect(path)) as database, closing(sqlite3.connect(copy)) as other:
        database.backup(other)
    return copy


def restore(path: Path, copy: Path) -> None:
    for file in path.parent.glob(f"{path.name}-*"):
        file.unlink()
    shutil.copy(copy, path)


def test_snapshots_have_expired(make_scenario: MakeScenario, tmp_path: Path) -> None:
    """Neither an endpoint that was restored or lost nor a new view may begin in the middle."""
    scenario, view = make_scenario("collection", "sqlite")
    place = ParquetPlace(scenario)
    path = tmp_path / "view.db"
    scenario.write(20)
    scenario.run()
    old = copy_of(path, "old")
    for _ in range(2):
        scenario.write(20)
    scenario.run()
    new = copy_of(path, "new")
    expire_all_but_the_last(scenario)

    restore(path, old)
    before = in_order(place.rows())
    with pytest.raises(
        ConfigError, match=r"after epoch 0, and snapshot \d+, at which .* has expired.*table$"
    ):
        scenario.run(accepts_loss=["view"])
    assert in_order(place.rows()) == before
    path.unlink()
    with pytest.raises(ConfigError, match=r"from the beginning, and the snapshots before \d+ of its table"):
        scenario.run()
    with pytest.raises(ConfigError, match=r"go on without them: `--accept-loss other`$"):
        scenario.run(name="other", connector="", sinks=())

    restore(path, new)
    scenario.write(20)
    scenario.run()
    scenario.assert_exact(view())


def test_snapshots_have_expired_and_only_opening_tells_where_the_endpoint_stands(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ConnectorSink.ask
    monkeypatch.setattr(ConnectorSink, "ask", lambda sink: replace(ask(sink), runtime_checkpoints=None))
    scenario, view = make_scenario("collection", "sqlite")
    for _ in range(2):
        scenario.write(20)
    expire_all_but_the_last(scenario)
    with pytest.raises(ConfigError, match=r"from the beginning, and the snapshots before \d+ of its table"):
        scenario.run()
    assert view() == []
    del scenario.written[:20]
    scenario.run(accepts_loss=["view"])
    scenario.assert_exact(view())
    assert len(open_recovery_log(scenario.settings(), "view").read().plan["accepted_losses"]) == 1


@pytest.mark.full  # the test above has the order, and tests/pipeline/sources/test_lag.py reads offsets
def test_messages_have_expired(make_scenario: MakeScenario, tmp_path: Path) -> None:
    scenario, view = make_scenario("kafka", "sqlite")
    path = tmp_path / "view.db"
    scenario.write(60)
    scenario.run()
    old = copy_of(path, "old")
    kept = len(scenario.written)
    scenario.write(60)
    scenario.run()
    admin = AdminClient({"bootstrap.servers": scenario.bootstrap})
    ends = [TopicPartition(scenario.topic, partition, -1) for partition in range(2)]
    for removed in admin.delete_records(ends).values():
        removed.result(DEADLINE_SECONDS)
    restore(path, old)
    with pytest.raises(ConfigError, match=r"topic \S+ has no messages any more at \d+ to \d+ of partition 0"):
        scenario.run()
    lost = scenario.written[kept:]
    scenario.write(30)
    scenario.run(accepts_loss=["view"])
    rest = [order for order in scenario.good if order not in lost]
    assert combine(COLLECTION, view()) == combine(COLLECTION, rest)
    (told,) = open_recovery_log(scenario.settings(), "view").read().plan["accepted_losses"]
    assert f"topic {scenario.topic} has no messages any more at" in told
