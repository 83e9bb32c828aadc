"""The base of every SQL connector: the remote store is authoritative.

The endpoint keeps the checkpoints, and commits them together with the rows that they stand for before
StartedCommit is sent. So nothing is left to do after it, and Acknowledged is sent at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import Field

from headrace.connectors.config import ConnectorConfig, read_config
from headrace.connectors.sql.changes import Change, describe, plan_mark, plan_table
from headrace.connectors.sql.constraints import constrain
from headrace.connectors.sql.database import Database
from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.fence import FenceTable
from headrace.connectors.sql.staged_rows import StagedRows
from headrace.connectors.sql.tables import wanted_table
from headrace.errors import ConfigError
from headrace.model.checkpoints import JsonObject
from headrace.model.ownership import Target
from headrace.protocol.connector import Connector
from headrace.protocol.loop import accept_acknowledge, accept_open, loads, stores
from headrace.protocol.messages import (
    Acknowledged,
    Applied,
    Apply,
    Delivery,
    Flushed,
    Opened,
    Spec,
    Specified,
    StartedCommit,
    Validate,
    ValidateBinding,
    Validated,
    ValidatedBinding,
)
from headrace.protocol.stream import ConnectorStream


class SqlResource(ConnectorConfig):
    table: str = Field(min_length=1, description="The table to materialize into.")
    delta_updates: bool = Field(
        default=False,
        description="Append each transaction's combined updates instead of keeping one row per key.",
    )


Endpoint = TypeVar("Endpoint", bound=ConnectorConfig)
Resource = TypeVar("Resource", bound=SqlResource)


class SqlConnector(Connector, Generic[Endpoint, Resource]):
    """Maintains views in a transactional SQL database."""

    endpoint_config: type[Endpoint]
    resource_config: type[Resource]
    dialect: ClassVar[Dialect]
    documentation_url: ClassVar[str]

    @abstractmethod
    def connect(self, endpoint: Endpoint) -> Database:
        """Opens a new connection, which the caller closes."""

    def look(self, endpoint: Endpoint) -> Database:
        """Opens a connection that changes nothing at the endpoint, neither by being opened nor later."""
        return self.connect(endpoint)

    @abstractmethod
    def table_path(self, endpoint: Endpoint, resource: Resource) -> tuple[str, ...]:
        """Returns the path of a binding's table."""

    @abstractmethod
    def checkpoints_path(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Returns the path of the table of checkpoints and fences."""

    def spec(self, request: Spec) -> Specified:  # noqa: ARG002 - the answer depends on nothing
        return Specified(
            self.endpoint_config.model_json_schema(),
            self.resource_config.model_json_schema(),
            self.documentation_url,
        )

    def validate(self, request: Validate) -> Validated:
        endpoint = self._endpoint(request.endpoint)
        with self.look(endpoint) as database:
            bindings = tuple(
                self._validate_binding(endpoint, binding, database) for binding in request.bindings
            )
            checkpoints = self._checkpoints(endpoint, request.name, database)
            durability = database.durability()
        self._check_paths(endpoint, [binding.resource_path for binding in bindings])
        return Validated(bindings, checkpoints, durability)

    def apply(self, request: Apply) -> Applied:
        endpoint = self._endpoint(request.materialization.endpoint)
        self._check_paths(endpoint, [binding.resource_path for binding in request.materialization.bindings])
        if request.dry_run:
            with self.look(endpoint) as database:
                return Applied(describe(self._plan(endpoint, request, database)))
        with self.connect(endpoint) as database, database.transaction():
            database.lock_applies()
            # All is planned first, so that a change that cannot be made leaves the endpoint untouched.
            changes = self._plan(endpoint, request, database)
            for change in changes:
                for statement in change.statements:
                    database.execute(statement)
        return Applied(describe(changes))

    def _plan(self, endpoint: Endpoint, request: Apply, database: Database) -> list[Change]:
        changes: list[Change] = []
        materialization = request.materialization
        checkpoints = self.checkpoints_path(endpoint)
        if database.table(checkpoints) is None:
            statement = FenceTable(checkpoints).create_statement
            changes.append(Change("create the table of checkpoints and fences", (statement,)))
        for binding in materialization.bindings:
            path = binding.resource_path
            table = database.table(path)
            owner = binding.owner(materialization.name, request.lineage)
            marks = plan_mark(path, table, owner, self.dialect, adopts=request.adopts)
            changes += [*plan_table(wanted_table(binding), table, self.dialect), *marks]
        return changes

    def _checkpoints(
        self, endpoint: Endpoint, materialization: str, database: Database
    ) -> tuple[JsonObject, ...]:
        path = self.checkpoints_path(endpoint)
        exists = database.table(path) is not None
        database.check_rights(path, exists=exists)
        return FenceTable(path).checkpoints(database, materialization) if exists else ()

    def transactions(self, stream: ConnectorStream) -> None:
        request = accept_open(stream)
        materialization = request.materialization
        endpoint = self._endpoint(materialization.endpoint)
        fences = FenceTable(self.checkpoints_path(endpoint))
        with self.connect(endpoint) as database:
            staged = StagedRows(database, self.dialect, materialization)
            with database.transaction():
                database.lock_opens(materialization.name)
                fence = fences.install(database, materialization.name, request.key_range)
            stream.send(Opened(fence.checkpoint))
            while accept_acknowledge(stream):
                stream.send(Acknowledged())
                for load in loads(stream):
                    staged.add_keys(load)
                for loaded in staged.load():
                    stream.send(loaded)
                stream.send(Flushed())
                for store in stores(stream):
                    staged.add_rows(store)
                staged.commit(fences, fence, stream.runtime_checkpoint)
                stream.send(StartedCommit())

    def _endpoint(self, raw: Mapping[str, Any]) -> Endpoint:
        return read_config(self.endpoint_config, raw, "endpoint")

    def _check_paths(self, endpoint: Endpoint, paths: Sequence[tuple[str, ...]]) -> None:
        """Refuses two bindings that would share a table, and one that would use the checkpoints' table."""
        taken = {self._same_path(self.checkpoints_path(endpoint)): "the table of checkpoints"}
        for path in paths:
            if used := taken.setdefault(self._same_path(path), ""):
                raise ConfigError(f"table {'.'.join(path)} is {used}: give the binding another")
            taken[self._same_path(path)] = "another binding's too"

    def _same_path(self, path: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.dialect.same_name(part) for part in path)

    def _validate_binding(
        self, endpoint: Endpoint, binding: ValidateBinding, database: Database
    ) -> ValidatedBinding:
        resource = read_config(self.resource_config, binding.resource, "resource")
        path = self.table_path(endpoint, resource)
        table = database.table(path)
        database.check_rights(path, exists=table is not None)
        constraints = constrain(binding.collection, table, self.dialect, resource.delta_updates)
        # Only what keeps one row a key has an index over the key.
        limits = (
            replace(self.dialect.limits, max_key_bytes=0) if resource.delta_updates else self.dialect.limits
        )
        target = Target(exists=True, has_rows=database.has_rows(path), owner=table.owner) if table else None
        return ValidatedBinding(
            constraints,
            path,
            resource.delta_updates,
            Delivery.TRANSACTIONAL,
            limits,
            target or Target(exists=False),
        )
