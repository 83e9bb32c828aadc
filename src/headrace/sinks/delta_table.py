"""A Delta table as one writer sees it: his part of the log, and commits that two cannot both make.

What a writer has done is in the table's application transactions, which are in every checkpoint of the log:

    headrace/<materialization>/<sink>           the last epoch
    headrace/<materialization>/<sink>/id        the attempt that it came from
    headrace/<materialization>/<sink>/opened    how often the sink was started
    headrace/<materialization>/<sink>/fence     of the last start
    headrace/<materialization>/<sink>/rewound   the start that took something back last

A commit fails if somebody else has set one of the same names since the table was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError

from headrace.durable import sync_path
from headrace.errors import ConfigError, EndpointError, EndpointUnavailable, SchemaError
from headrace.model.checkpoints import JsonObject
from headrace.sinks.columns import Columns, as_struct, columns_from
from headrace.sinks.ownership import MARK
from headrace.sinks.roots import Root

_TRIES = 20  # of a commit that others come before; then the coordinator pauses, and tries again
# Commits between two checkpoints of the log; what comes after the last one is read again for each commit.
# It is Delta's own default, but the library has 100.
_INTERVAL = "delta.checkpointInterval"
_READ_FEATURES = frozenset({"timestampNtz"})


@dataclass(frozen=True)
class Progress:
    """Of one writer."""

    epoch: int = -1
    id: int = 0
    opened: int = 0
    fence: int = 0
    rewound: int = 0


class Table:
    """One version of a table, from which one commit can be made."""

    def __init__(self, root: Root, own: str, delta: DeltaTable) -> None:
        self.root, self.delta = root, delta
        self.own = own
        self.refuse_unfit()

    @property
    def columns(self) -> Columns:
        return columns_from(json.loads(self.delta.schema().to_json()))

    @property
    def partitions(self) -> list[str]:
        return self.delta.metadata().partition_columns

    @property
    def progress(self) -> Progress:
        found = {name: self.delta.transaction_version(app) for name, app in self._apps().items()}
        return Progress(**{name: version for name, version in found.items() if version is not None})

    def properties(self, changes: Mapping[str, int], about: JsonObject) -> CommitProperties:
        """Of a commit that changes the writer's progress."""
        apps = self._apps()
        transactions = [Transaction(apps[name], value) for name, value in changes.items()]
        told = {"headrace": {"writer": self.own, **about}}
        return CommitProperties(custom_metadata=told, app_transactions=transactions)

    def append(self, actions: Sequence[Any], properties: CommitProperties) -> None:
        """Also of no actions at all: then only the progress changes."""
        self.delta.create_write_transaction(
            list(actions), "append", self.delta.schema(), self.partitions, commit_properties=properties
        )

    def add_columns(self, columns: Columns) -> None:
        """Null in all that is there. A commit of its own, which changes nothing that anybody reads."""
        fields = [Field.from_json(json.dumps(field)) for field in as_struct(columns)["fields"]]
        self.delta.alter.add_columns(fields)

    @property
    def mark(self) -> str | None:
        """What the table says of whose it is."""
        found: str | None = self.delta.metadata().configuration.get(MARK)
        return found

    def set_mark(self, mark: str, properties: CommitProperties) -> None:
        """Fails if somebody else has changed any property of the table since it was read."""
        self.delta.alter.set_table_properties(
            {MARK: mark}, raise_if_not_exists=False, commit_properties=properties
        )

    def refuse_unfit(self) -> None:
        """What the table wants of its writers, and we do not do."""
        protocol, configuration = self.delta.protocol(), self.delta.metadata().configuration
        unknown = sorted(set(protocol.reader_features or ()) - _READ_FEATURES)
        constraints = sorted(name for name in configuration if name.startswith("delta.constraints."))
        mapped = configuration.get("delta.columnMapping.mode", "none") != "none"
        fields = self.delta.schema().fields
        required = [field.name for field in fields if not field.nullable]
        generated = [field.name for field in fields if "delta.generationExpression" in field.metadata]
        for what in (
            *(f"the table feature {name}" for name in unknown),
            *(f"the constraint {name}" for name in constraints),
            *(["column mapping"] if mapped else ()),
            *(f"the column {name!r}, which may not be null," for name in required),
            *(f"the column {name!r}, which is computed," for name in generated),
        ):
            raise ConfigError(f"{self.root.url} has {what} that this sink does not write: use another table")

    def _apps(self) -> dict[str, str]:
        more = ("id", "opened", "fence", "rewound")
        return {"epoch": self.own, **{name: f"{self.own}/{name}" for name in more}}


class Tables:
    """Reads one table again and again, for one writer."""

    def __init__(self, root: Root, writer: str, name: str, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are properties of a table that is made."""
        self.root = root
        self.own = f"{app_of(writer)}/{quote(name, safe='')}"
        self._name, self._settings = name, {_INTERVAL: "10", **(settings or {})}
        # Paths as they are: of a file:// URL it takes the escapes for names.
        self._uri = str(root.folder) if root.folder else root.url
        self._options = None if root.folder else dict(root.options)

    def load(self, version: int | None = None) -> Table | None:
        """As it is now, or was; None if there is none."""
        with self.speaking("be read"):
            try:
                delta = DeltaTable(self._uri, version, storage_options=self._options)
                return Table(self.root, self.own, delta)
            except TableNotFoundError:
                return None

    def must_load(self, version: int | None = None) -> Table:
        table = self.load(version)
        if table is None:
            raise EndpointError(f"sink {self._name}: there is no Delta table in {self.root.url} any more")
        return table

    def make(self, columns: Columns, partitions: Sequence[str]) -> Table:
        """An empty one, unless somebody makes it at the same moment."""
        with self.speaking("be made"):
            try:
                schema = Schema.from_json(json.dumps(as_struct(columns)))
            except ValueError as error:
                raise SchemaError(f"a Delta table cannot have these columns: {error}") from None
            try:
                DeltaTable.create(
                    self._uri,
                    schema,
                    "error",
                    list(partitions),
                    configuration=self._settings,
                    storage_options=self._options,
                )
            except DeltaError:
                if self.load() is None:
                    raise
        self.sync(lambda entry: "protocol" in entry)
        return self.must_load()

    def change(self, commit: Callable[[Table], None]) -> None:
        """Calls `commit` with the table as it is, until nobody comes in between."""
        for _ in range(_TRIES):
            table = self.must_load()
            with self.speaking("be changed"):
                try:
                    return commit(table)
                except (CommitFailedError, SchemaMismatchError):
                    continue
        raise EndpointUnavailable(
            f"sink {self._name}: others have committed to {self.root.url} {_TRIES} times before we could"
        )

    def sync(self, is_enough: Callable[[Mapping[str, Any]], bool]) -> None:
        """Entries of the log, the last first, until one is enough; with the files that they add.

        For a folder only. The library does not do so, and whoever committed may have died before he did.
        """
        folder = self.root.folder
        if folder is None:
            return
        with self.speaking("be synced"):
            for path in sorted((folder / "_delta_log").glob("*.json"), reverse=True):
                entry = [json.loads(line) for line in path.read_text().splitlines()]
                for action in entry:
                    if "add" in action:
                        _sync_file(folder, folder / unquote(action["add"]["path"]))
                sync_path(path)
                if any(is_enough(action) for action in entry):
                    break
            for path in (folder / "_delta_log").glob("*checkpoint*"):  # the library's own, now and then
                sync_path(path)
            sync_path(folder / "_delta_log")
            sync_path(folder)

    @contextmanager
    def speaking(self, what: str) -> Iterator[None]:
        """Turns what the library raises into our kinds, but for what says that we were overtaken."""
        try:
            yield
        except (CommitFailedError, SchemaMismatchError, TableNotFoundError):
            raise
        except (DeltaError, OSError, ValueError) as error:
            said = self.root.said(error)
            raise EndpointUnavailable(
                f"sink {self._name}: the Delta table in {self.root.url} cannot {what}: {said}"
            ) from None  # its own text may hold a secret


def app_of(writer: str) -> str:
    """What the names of a writer's applications begin with; quoted, so that none begins as another does."""
    return f"headrace/{quote(writer, safe='')}"


def _sync_file(root: Path, path: Path) -> None:
    try:
        sync_path(path)
    except FileNotFoundError:
        return  # vacuumed since
    for folder in path.parents:
        if not folder.is_relative_to(root):
            return
        sync_path(folder)
