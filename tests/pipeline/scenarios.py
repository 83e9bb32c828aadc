"""Scenarios by the names of their source and endpoint."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from adbc_driver_postgresql import dbapi

from tests.pipeline.scenario import TABLE, Scenario

Documents = list[dict[str, Any]]


def sqlite_documents(path: Path | str, table: str = "orders") -> Documents:
    with closing(sqlite3.connect(path)) as database:
        return [orjson.loads(text) for (text,) in database.execute(f"SELECT _document FROM {table}")]


def postgres_documents(url: str) -> Documents:
    with dbapi.connect(url) as database, database.cursor() as cursor:
        cursor.execute("SELECT _document::text FROM orders")
        return [orjson.loads(document) for (document,) in cursor.fetchall()]


def sqlite_columns(path: Path | str, table: str = "orders") -> Documents:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute(f"SELECT {', '.join(TABLE.names)} FROM {table}")
        return [dict(zip(TABLE.names, row, strict=True)) for row in found]


def postgres_columns(url: str) -> Documents:
    with dbapi.connect(url) as database, database.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(TABLE.names)} FROM orders")
        return [dict(zip(TABLE.names, row, strict=True)) for row in cursor.fetchall()]


MakeScenario = Callable[..., tuple[Scenario, Callable[[], Documents]]]


@pytest.fixture
def make_scenario(request: pytest.FixtureRequest, tmp_path: Path) -> MakeScenario:
    """`source` is collection or kafka, `endpoint` sqlite or postgres; with the way to read the view."""

    def make(source: str, endpoint: str, shards: int = 1) -> tuple[Scenario, Callable[[], Documents]]:
        kafka: dict[str, Any] = {}
        if source == "kafka":
            broker = request.getfixturevalue("kafka_broker")
            topic = f"orders-{uuid4().hex}"
            broker.create_topic(topic, partitions=2)
            kafka = {"bootstrap": broker.bootstrap, "topic": topic, "rows_per_epoch": 60}
        if endpoint == "sqlite":
            path = tmp_path / "view.db"
            scenario = Scenario(tmp_path, "sqlite", {"path": str(path)}, shards, **kafka)
            return scenario, lambda: (sqlite_columns if scenario.is_latest else sqlite_documents)(path)
        url: str = request.getfixturevalue("postgres_url")
        scenario = Scenario(tmp_path, "postgres", {"url": url}, shards, **kafka)
        return scenario, lambda: (postgres_columns if scenario.is_latest else postgres_documents)(url)

    return make
