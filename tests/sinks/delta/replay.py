"""Reads a Delta table by the letter of its protocol, with nothing of the library that writes it."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.objects import ObjectStore


def log_entries(store: ObjectStore) -> list[list[dict[str, Any]]]:
    """All actions, by commit."""
    entries = []
    for path in store.list("_delta_log", "read the log"):
        name = path.rpartition("/")[2]
        if name.endswith(".json") and name[:20].isdecimal():
            lines = store.get(path, "read the log").splitlines()
            entries.append([json.loads(line) for line in lines])
    return entries


def live_files(store: ObjectStore) -> dict[str, dict[str, Any]]:
    """What the log as a whole says that the table is made of."""
    live: dict[str, dict[str, Any]] = {}
    for actions in log_entries(store):
        for action in actions:
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
    return live


def read_table(store: ObjectStore) -> list[dict[str, Any]]:
    """All rows; columns that a file lacks are left out of its rows."""
    rows = []
    for path, add in live_files(store).items():
        data = store.get(unquote(path), "read a file")
        assert len(data) == add["size"]
        table: pa.Table = pq.read_table(io.BytesIO(data))
        assert json.loads(add["stats"])["numRecords"] == table.num_rows
        rows += [{**row, **add["partitionValues"]} for row in table.to_pylist()]
    return rows
