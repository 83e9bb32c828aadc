"""The transaction of a shard on a real SQLite file: what it stores, and what it finds when run again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from headrace.errors import CheckpointMoved, Fenced
from headrace.model.columns import extract
from headrace.model.key_range import FULL_RANGE
from headrace.pipeline.plan import Planned, apply, plan
from headrace.pipeline.settings import BindingSettings, CollectionSource, MaterializationSettings
from headrace.pipeline.shards import transaction
from headrace.pipeline.shards.transaction import Rows, ShardJob, ShardResult, transact
from headrace.testing import samples
from headrace.testing.runtime import combine

TARGETS: list[dict[str, Any]] = [{}, *({"epoch": number} for number in range(5))]


def settings_for(path: Path, *tables: str, deltas: bool = False) -> MaterializationSettings:
    bindings = tuple(
        BindingSettings(
            samples.ORDERS,
            CollectionSource("orders"),
            {"table": table, **({"delta_updates": True} if deltas else {})},
        )
        for table in tables
    )
    return MaterializationSettings("sales", "sqlite", {"path": str(path)}, bindings)


class Shard:
    """One shard, run as Spark would."""

    def __init__(self, settings: MaterializationSettings, spool_bytes: int = 64 << 20) -> None:
        self.planned: Planned = plan(settings)
        apply(self.planned)
        self.job = ShardJob(
            settings, self.planned.materialization, (FULL_RANGE,), {}, {}, spool_bytes=spool_bytes
        )

    def epoch(self, number: int, *documents: Sequence[Any]) -> ShardResult:
        """Epoch 1 is the first, of which the checkpoint before is empty."""
        job = replace(self.job, previous=TARGETS[number - 1], target=TARGETS[number])
        return transact(job, 0, self.rows(*documents))

    def rows(self, *documents: Sequence[Any], at_once: int = 40) -> Iterator[Rows]:
        for index, (binding, written) in enumerate(
            zip(self.planned.materialization.bindings, documents, strict=True)
        ):
            combined = list(combine(binding.collection, written).values())
            for begin in range(0, len(combined), at_once):
                some = combined[begin : begin + at_once]
                texts = pa.array([orjson.dumps(document).decode() for document in some], pa.string())
                yield Rows(index, extract(binding.keys, some), extract(binding.values, some), texts)


def view(path: Path, table: str = "orders") -> dict[Any, Any]:
    with sqlite3.connect(path) as database:
        found = [orjson.loads(text) for (text,) in database.execute(f"SELECT _document FROM {table}")]
    database.close()
    return combine(samples.ORDERS, found)


ORDERS = samples.orders(seed=3, count=400)


@pytest.mark.parametrize("spool_bytes", [64 << 20, 0], ids=["in memory", "on disk"])
def test_epochs_add_up(tmp_path: Path, spool_bytes: int) -> None:
    path = tmp_path / "sales.db"
    shard = Shard(settings_for(path, "orders", "again"), spool_bytes)
    for number in range(1, 5):
        part = ORDERS[(number - 1) * 100 : number * 100]
        result = shard.epoch(number, part, ORDERS[:10])
        assert (
            result.stored
            == result.keys
            == len(combine(samples.ORDERS, part)) + len(combine(samples.ORDERS, ORDERS[:10]))
        )
        assert result.spilled == (spool_bytes == 0)
    assert result.loaded > 0
    assert view(path) == combine(samples.ORDERS, ORDERS)
    assert view(path, "again") == combine(samples.ORDERS, ORDERS[:10] * 4)


def test_an_empty_epoch_moves_the_checkpoint(tmp_path: Path) -> None:
    shard = Shard(settings_for(tmp_path / "sales.db", "orders"))
    assert not shard.epoch(1, []).was_done
    assert shard.epoch(1, []).was_done


def test_run_again_it_finds_that_it_is_done(tmp_path: Path) -> None:
    path = tmp_path / "sales.db"
    shard = Shard(settings_for(path, "orders"))
    shard.epoch(1, ORDERS)
    again = shard.epoch(1, ORDERS)
    assert (again.was_done, again.stored) == (True, 0)
    assert view(path) == combine(samples.ORDERS, ORDERS)


def test_an_endpoint_that_stands_elsewhere_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "sales.db"
    shard = Shard(settings_for(path, "orders"))
    shard.epoch(1, ORDERS[:10])
    shard.epoch(2, ORDERS[10:20])
    with pytest.raises(CheckpointMoved, match="neither at the epoch before this one nor at this one"):
        shard.epoch(1, ORDERS[:10])
    with pytest.raises(CheckpointMoved):
        shard.epoch(4, ORDERS[:10])
    assert view(path) == combine(samples.ORDERS, ORDERS[:20])


def test_of_two_attempts_at_once_one_commits(tmp_path: Path) -> None:
    path = tmp_path / "sales.db"
    shard = Shard(settings_for(path, "orders"))
    others: list[ShardResult] = []

    def overtaken() -> Iterator[Rows]:
        """In the middle of its rows another attempt runs from beginning to end."""
        rows = shard.rows(ORDERS)
        yield next(rows)
        others.append(shard.epoch(1, ORDERS))
        yield from rows

    with pytest.raises(Fenced):
        transact(replace(shard.job, previous={}, target=TARGETS[1]), 0, overtaken())
    assert [other.was_done for other in others] == [False]
    assert view(path) == combine(samples.ORDERS, ORDERS)
    assert shard.epoch(1, ORDERS).was_done


def test_rows_that_fail_in_the_middle_leave_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sales.db"
    shard = Shard(settings_for(path, "orders"))

    def torn() -> Iterator[Rows]:
        yield from list(shard.rows(ORDERS))[:3]
        raise ValueError("Spark's input ended")

    with pytest.raises(ValueError, match="input ended"):
        transact(replace(shard.job, previous={}, target=TARGETS[1]), 0, torn())
    assert view(path) == {}
    shard.epoch(1, ORDERS)
    assert view(path) == combine(samples.ORDERS, ORDERS)


def test_nothing_is_loaded_for_delta_updates(tmp_path: Path) -> None:
    shard = Shard(settings_for(tmp_path / "sales.db", "orders", deltas=True))
    shard.epoch(1, ORDERS)
    assert shard.epoch(2, ORDERS).loaded == 0


def test_messages_have_a_bounded_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shard = Shard(settings_for(tmp_path / "sales.db", "orders"))
    (rows,) = shard.rows(ORDERS, at_once=1000)
    monkeypatch.setattr(transaction, "ROWS_PER_MESSAGE", 7)
    assert {part.keys.num_rows for part in rows.slices()} <= {7, rows.keys.num_rows % 7}
    monkeypatch.setattr(transaction, "BYTES_PER_MESSAGE", 1)
    assert {part.documents.nbytes > 0 and len(part.documents) for part in rows.slices()} == {1}
