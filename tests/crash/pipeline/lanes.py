"""Lanes of `headrace.certify` that cover what a certification leaves out.

Every other row is bad and goes to the dead letters. Some lanes have several shards, keep only the last row of
a key, or combine sinks of two formats with each other and with a connector.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from adbc_driver_postgresql import dbapi

from headrace.certify.documents import BATCH, COLLECTION, SCHEMA, Document, document, key_of
from headrace.certify.feeds import CollectionFeed, Feed, KafkaFeed
from headrace.certify.targets.documents_of import DOCUMENT, in_order
from headrace.certify.targets.postgres import PostgresTarget
from headrace.certify.targets.sinks import SinkTarget
from headrace.certify.targets.sqlite import SqliteTarget
from headrace.certify.targets.steady import steadily
from headrace.certify.targets.stored import Stored
from headrace.certify.targets.target import VIEW, Place, Rows, Target
from headrace.connectors.sql.dialect import quote
from headrace.model.collections import Collection
from headrace.objects import ObjectStore

RULE = {"name": "counted", "range": {"field": "count", "minimum": 1}}
LATEST = Collection("winners", ("/key",), {**SCHEMA, "reduce": {"strategy": "lastWriteWins"}})
"""A collection that keeps only the last row of each key."""
COLLECTIONS = (COLLECTION, LATEST)
CONFIGURED = {
    one.name: {"key": list(one.key), "schema": dict(one.schema), "quality": [RULE]} for one in COLLECTIONS
}
"""The collections as `headrace.yaml` declares them."""
DEAD = "dead letters"

_DEAD_FILE = re.compile(r"materialization=[^/]+/epoch=\d{20}/.*\.parquet")
_DEAD_STAGED = re.compile(r"materialization=[^/]+/_staged/.*")
_COLUMNS = tuple(name for name, of in SCHEMA["properties"].items() if of["type"] != "array")


class _WithBadRows(Feed):
    """Adds a bad row after each document, which counts nothing and would win if it were not dropped."""

    def batch(self, first: int) -> list[Document]:
        return [one for good in super().batch(first) for one in (good, {**good, "count": 0})]


class BadCollectionFeed(_WithBadRows, CollectionFeed):
    pass


class BadKafkaFeed(_WithBadRows, KafkaFeed):
    limits: Mapping[str, int] = {"rows": 2 * BATCH}


class Beside(Target):
    """A materialization with dead letters and a connector, sinks of several formats, or both."""

    def __init__(
        self,
        name: str,
        dead_letters: Path,
        connector: Target | None = None,
        sinks: Sequence[SinkTarget] = (),
        shards: int = 1,
    ) -> None:
        """`dead_letters` contains a folder for each materialization."""
        self.name = name
        self._dead, self._connector, self._sinks, self._shards = dead_letters, connector, sinks, shards

    @contextmanager
    def running(self) -> Iterator[None]:
        if self._connector is None:
            yield
        else:
            with self._connector.running():
                yield

    def place(self, lane: str) -> Place:
        materialization: dict[str, Any] = {"shards": self._shards, "sinks": {}}
        binding: dict[str, Any] = {"sinks": {}}
        for sink in self._sinks:
            place, own = sink.place(lane), partial(_named, lane, sink.format)
            materialization["sinks"] |= own(place.materialization["sinks"])
            binding["sinks"] |= own(place.binding["sinks"])
        if self._connector is not None:
            place = self._connector.place(lane)
            materialization |= place.materialization
            binding = {**place.binding, **binding}
            if self._sinks:  # their fields are those of the binding, which does not select lists by default
                binding["fields"] = {"include": [DOCUMENT, "seen"]}
        return Place(materialization, binding)

    def read(self, lane: str) -> Mapping[str, Rows]:
        found = {DEAD: steadily(lambda: self._dead_letters(lane))}
        for part in self._parts:
            found |= {f"{part.name} {kind}": rows for kind, rows in part.read(lane).items()}
        return found

    def left_over(self, lane: str) -> list[str]:
        left = [path for path in self._dead_of(lane).paths("") if _DEAD_STAGED.fullmatch(path)]
        return [*left, *(one for part in self._parts for one in part.left_over(lane))]

    def remove(self, lane: str) -> None:
        for part in self._parts:
            part.remove(lane)

    @property
    def _parts(self) -> list[Target]:
        return [*([self._connector] if self._connector else []), *self._sinks]

    def _dead_letters(self, lane: str) -> Rows:
        """Returns the good documents that the dead letters were made from, so that each must occur once."""
        stored = self._dead_of(lane)
        rows = stored.rows(path for path in stored.paths("") if _DEAD_FILE.fullmatch(path))
        found = [_revived(row) for row in rows]
        return Rows(sorted(found, key=lambda one: int(one.get("last", 0))), is_view=False)

    def _dead_of(self, lane: str) -> Stored:
        return Stored((self._dead / lane).absolute().as_uri(), lambda url: ObjectStore(url, {}))


class LooseBeside(Beside):
    """A target that is judged only at the end: an epoch is part of a write, or readers see a part of it."""

    is_atomic = False


class LatestSqlite(SqliteTarget):
    """Reads only the columns of the last row of each key."""

    def place(self, lane: str) -> Place:
        return _latest(super().place(lane))

    def read(self, lane: str) -> Mapping[str, Rows]:
        return {VIEW: steadily(lambda: self._read_columns(self._path(lane)))}

    def _read_columns(self, path: Path) -> Rows:
        if not path.exists():
            return Rows()
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            known = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (COLLECTION.name,))
            return winners(database.execute(_columns_of(COLLECTION.name)) if known.fetchone() else ())


class LatestPostgres(PostgresTarget):
    """Reads only the columns of the last row of each key."""

    def place(self, lane: str) -> Place:
        return _latest(super().place(lane))

    def read(self, lane: str) -> Mapping[str, Rows]:
        return {VIEW: steadily(lambda: self._read_columns(lane))}

    def _read_columns(self, lane: str) -> Rows:
        table, *_ = self._tables(lane)
        with dbapi.connect(self._url) as database, database.cursor() as cursor:
            cursor.execute("SELECT to_regclass($1)::text", (table,))
            if cursor.fetchall()[0][0] is None:
                return Rows()
            cursor.execute(_columns_of(table))
            return winners(cursor.fetchall())


def _named(lane: str, format_name: str, sinks: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the format to the names of sinks, because two sinks may have the same mode."""
    return {name.replace(lane, f"{lane}-{format_name}"): one for name, one in sinks.items()}


def _latest(place: Place) -> Place:
    binding = {**place.binding, "collection": LATEST.name, "fields": {"exclude": [DOCUMENT]}}
    return Place(place.materialization, binding)


def _columns_of(table: str) -> str:
    return f"SELECT {', '.join(map(quote, _COLUMNS))} FROM {table}"


def winners(rows: Iterable[tuple[Any, ...]]) -> Rows:
    """Expands each row to all documents of its key up to that one, so that an outdated row lacks some."""
    found = in_order(dict(zip(_COLUMNS, row, strict=True)) for row in rows).documents
    return Rows([_up_to(one) for one in found])


def _up_to(winner: Document) -> Document:
    last = int(winner["last"])
    if winner != {name: document(last)[name] for name in _COLUMNS}:
        return {"no winner": winner}
    numbers = [number for number in range(1, last + 1) if key_of(number) == winner["key"]]
    reduced = {"count": len(numbers), "total": sum(numbers), "largest": last, "last": last, "seen": numbers}
    return {"key": winner["key"], **reduced}


def _revived(letter: Mapping[str, Any]) -> Document:
    (row,) = in_order([orjson.loads(letter["row"])]).documents
    if letter["rules"] != [RULE["name"]] or row.get("count") != 0:
        return {"no dead letter": row, "rules": letter["rules"]}
    return {**row, "count": 1}
