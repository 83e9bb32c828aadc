"""The files connector: recovery log with idempotent apply.

Stores are staged, the connector checkpoint in StartedCommit names what was staged, and Acknowledge, which
means that the checkpoint is in the recovery log, publishes it. The endpoint keeps no runtime checkpoint and
has no fence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from headrace.connectors.config import read_config
from headrace.connectors.files.bucket import Bucket
from headrace.connectors.files.checkpoint import Checkpoint
from headrace.connectors.files.config import FilesEndpoint, FilesResource
from headrace.connectors.files.constraints import constrain
from headrace.connectors.files.folder import Folder
from headrace.connectors.files.layout import ABOUT, DATA, STAGED
from headrace.connectors.files.leftovers import remove_leftovers
from headrace.connectors.files.publishing import Publisher
from headrace.connectors.files.staging import StagedTransaction
from headrace.connectors.files.storage import Storage
from headrace.connectors.files.tables import (
    add_table,
    check_applied,
    format_conflict,
    look_at,
    plan_table,
    read_table,
)
from headrace.errors import ConfigError, EndpointError
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.connector import Connector
from headrace.protocol.loop import accept_acknowledge, accept_open, acknowledging, loads, stores
from headrace.protocol.messages import (
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


class FilesConnector(Connector):
    """Writes each transaction's delta updates to new files."""

    def spec(self, request: Spec) -> Specified:  # noqa: ARG002 - the answer depends on nothing
        return Specified(
            FilesEndpoint.model_json_schema(),
            FilesResource.model_json_schema(),
            "https://github.com/headrace/headrace/blob/main/docs/connectors/files.md",
        )

    def open_storage(self, endpoint: Mapping[str, Any]) -> Storage:
        config = read_config(FilesEndpoint, endpoint, "endpoint")
        if config.scheme != "file":
            return Bucket(config)
        path = unquote(urlsplit(config.url).path) if "://" in config.url else config.url
        return Folder(Path(path).expanduser().absolute())

    def validate(self, request: Validate) -> Validated:
        storage = self.open_storage(request.endpoint)
        bindings = tuple(self._validate_binding(binding, storage) for binding in request.bindings)
        _check_prefixes([binding.resource_path[0] for binding in bindings])
        return Validated(bindings, durability=storage.durability)

    def _validate_binding(self, binding: ValidateBinding, storage: Storage) -> ValidatedBinding:
        resource = read_config(FilesResource, binding.resource, "resource")
        table, target = look_at(storage, resource.prefix)
        if table and (problem := format_conflict(resource, table)):
            raise ConfigError(f"resource: key 'format': {problem}")
        constraints = constrain(binding.collection, table)
        return ValidatedBinding(
            constraints, (resource.prefix,), delta_updates=True, delivery=Delivery.STAGED, target=target
        )

    def apply(self, request: Apply) -> Applied:
        storage = self.open_storage(request.materialization.endpoint)
        resources = _resources(request.materialization)
        _check_prefixes([resource.prefix for _, resource in resources])
        # All is planned first, so that a change that cannot be made leaves the endpoint untouched.
        plans = [
            (resource.prefix, plan)
            for binding, resource in resources
            if (
                plan := plan_table(
                    binding,
                    resource,
                    read_table(storage, resource.prefix),
                    binding.owner(request.materialization.name, request.lineage),
                    adopts=request.adopts,
                )
            )
        ]
        if not request.dry_run:
            storage.prepare(
                f"{resource.prefix}/{folder}" for _, resource in resources for folder in (DATA, STAGED, ABOUT)
            )
            for prefix, (table, _) in plans:
                _check_create_only(storage, prefix)
                add_table(storage, prefix, table)
        return Applied("\n".join(change for _, (_, changes) in plans for change in changes))

    def transactions(self, stream: ConnectorStream) -> None:
        request = accept_open(stream)
        materialization, key_range = request.materialization, request.key_range
        storage = self.open_storage(materialization.endpoint)
        resources = _resources(materialization)
        for binding, resource in resources:
            owner = binding.owner(materialization.name, lineage="")
            check_applied(binding, resource, read_table(storage, resource.prefix), owner)
        checkpoint = Checkpoint(request.connector_checkpoint, key_range)
        prefixes = [resource.prefix for _, resource in resources]
        remove_leftovers(storage, prefixes, materialization.name, key_range, checkpoint)
        publisher = Publisher(storage, checkpoint)
        stream.send(Opened())
        while accept_acknowledge(stream):
            with acknowledging(stream, publisher.publish):
                for _ in loads(stream):  # of delta updates there are none, so this waits for Flush
                    pass
            stream.send(Flushed())
            with StagedTransaction(storage, materialization, key_range, checkpoint.next_number) as staged:
                for store in stores(stream):
                    staged.add(store)
                files = staged.finish()
            stream.send(StartedCommit(checkpoint.advance(files)))


def _resources(materialization: Materialization) -> list[tuple[Binding, FilesResource]]:
    """Returns each binding with its resource configuration; refuses one that is not for delta updates."""
    resources = []
    for binding in materialization.bindings:
        if not binding.delta_updates:
            raise EndpointError(f"binding {binding} is for a full view: files take delta updates only")
        resources.append((binding, read_config(FilesResource, binding.resource, "resource")))
    return resources


def _check_prefixes(prefixes: Sequence[str]) -> None:
    """Refuses two bindings if one of them would write among the other's files."""
    for number, prefix in enumerate(prefixes):
        for other in prefixes[:number]:
            if f"{prefix}/".startswith(f"{other}/") or f"{other}/".startswith(f"{prefix}/"):
                raise ConfigError(
                    f"prefix {prefix!r} and {other!r} of two bindings overlap: give each its own"
                )


def _check_create_only(storage: Storage, prefix: str) -> None:
    """Refuses a store that would let two writers of the same name both succeed."""
    path = f"{prefix}/{ABOUT}/try-{uuid4().hex}"
    try:
        if not storage.create(path, b"") or storage.create(path, b""):
            raise EndpointError(
                "the store overwrites an object that was to be put only if there is none: "
                "use one that honours If-None-Match"
            )
    finally:
        storage.delete([path])
