"""How lanes with bad rows, and with only the last row of a key, are judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.certify.documents import BATCH, Document, document
from headrace.certify.oracle import Found, look
from headrace.ingest.iceberg.settings import embedded_catalog
from tests.crash.pipeline.lanes import COLLECTIONS, DEAD, RULE, BadCollectionFeed, Beside, winners

LANE = "some-lane"
COLUMNS = ("key", "count", "total", "largest", "last")


def found_winners(rows: list[Document]) -> Found:
    return look(winners(tuple(row[name] for name in COLUMNS) for row in rows).documents, is_view=True)


def test_the_last_rows_of_all_keys_are_all_there_is() -> None:
    latest = {one["key"]: one for one in map(document, range(1, 2 * BATCH + 1))}
    assert found_winners(list(latest.values())) == Found(2 * BATCH)


def test_a_winner_that_is_too_old_lacks_what_came_since() -> None:
    latest = {one["key"]: one for one in map(document, range(1, 2 * BATCH + 1))}
    old = document(2 * BATCH - 7)
    found = found_winners([*({**latest, old["key"]: old}.values())])
    assert found.lost == (2 * BATCH,)
    assert found_winners([{**document(1), "total": 2}]).problem().startswith("a row is no document")


def test_every_other_row_is_bad(tmp_path: Path) -> None:
    good, bad, *more = BadCollectionFeed(embedded_catalog(tmp_path), COLLECTIONS).batch(1)
    assert (good, bad) == (document(1), {**document(1), "count": 0})
    assert len(more) == 2 * BATCH - 2


def letter(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "row": orjson.dumps({**document(number), "count": 0}).decode(),
        "rules": [RULE["name"]],
        **changes,
    }


def found_dead(folder: Path, epochs: Mapping[int, list[dict[str, Any]]]) -> Found:
    for epoch, letters in epochs.items():
        file = folder / LANE / f"materialization={LANE}" / f"epoch={epoch:020}" / "part.parquet"
        file.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(letters), file)
    rows = Beside("target", folder).read(LANE)[DEAD]
    return look(rows.documents, is_view=rows.is_view)


def test_each_dead_letter_counts_once(tmp_path: Path) -> None:
    letters = [letter(number) for number in range(1, BATCH + 1)]
    assert found_dead(tmp_path / "right", {0: letters}) == Found(BATCH)
    assert found_dead(tmp_path / "lost", {0: letters[:-1]}).lost == (BATCH,)
    assert found_dead(tmp_path / "twice", {0: letters, 1: letters[:1]}).doubled == (1,)
    assert found_dead(tmp_path / "ruled", {0: [*letters, letter(1, rules=["another"])]}).wrong
    assert found_dead(tmp_path / "none", {}) == Found(0)


def test_a_dead_letter_that_is_staged_is_left_over(tmp_path: Path) -> None:
    staged = tmp_path / LANE / f"materialization={LANE}" / "_staged/1/part.parquet"
    staged.parent.mkdir(parents=True)
    staged.touch()
    assert Beside("target", tmp_path).left_over(LANE) == [f"materialization={LANE}/_staged/1/part.parquet"]
