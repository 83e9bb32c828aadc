"""The Redis connector: the recovery log is authoritative, over a store without transactions of its own.

A transaction's rows are written between StartCommit and StartedCommit, which is before it is in the recovery
log. So a transaction that fails anywhere is replayed, and writes all of its rows again: nothing is lost, and
a view is right if writing a row twice has no further effect.
"""

from __future__ import annotations

from contextlib import closing

from headrace.connectors.config import read_config
from headrace.connectors.redis.changes import Change, plan
from headrace.connectors.redis.config import RedisEndpoint, RedisResource
from headrace.connectors.redis.constraints import constrain
from headrace.connectors.redis.durability import durability_of
from headrace.connectors.redis.fence import install_fence
from headrace.connectors.redis.layouts import (
    LAYOUTS_KEY,
    Layout,
    check_prefixes,
    read_layouts,
    read_stored,
    target_of,
    wanted_layout,
)
from headrace.connectors.redis.replays import counted_again
from headrace.connectors.redis.session import Session
from headrace.connectors.redis.staged_rows import StagedRows
from headrace.connectors.redis.storage import storage_of
from headrace.errors import EndpointError
from headrace.model.materializations import Binding, Materialization
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


class RedisConnector(Connector):
    """Stores documents under keys of Redis, and delta updates in its streams."""

    def spec(self, request: Spec) -> Specified:  # noqa: ARG002 - the answer depends on nothing
        return Specified(
            RedisEndpoint.model_json_schema(),
            RedisResource.model_json_schema(),
            "https://github.com/headrace/headrace/blob/main/docs/connectors/redis.md",
        )

    def validate(self, request: Validate) -> Validated:
        resources = [read_config(RedisResource, binding.resource, "resource") for binding in request.bindings]
        with Session(read_config(RedisEndpoint, request.endpoint, "endpoint")) as session:
            layouts, stored = read_layouts(session), read_stored(session)
            durability = durability_of(session)
        check_prefixes([resource.prefix for resource in resources], layouts)
        return Validated(
            tuple(
                _validate_binding(
                    binding, resource, layouts, target_of(request.name, resource.prefix, layouts, stored)
                )
                for binding, resource in zip(request.bindings, resources, strict=True)
            ),
            durability=durability,
        )

    def apply(self, request: Apply) -> Applied:
        materialization = request.materialization
        with Session(read_config(RedisEndpoint, materialization.endpoint, "endpoint")) as session:
            done = False
            while not done:  # again where another materialization is applied at the same moment
                session.call("WATCH", LAYOUTS_KEY)
                changes = _plan(request, read_layouts(session))
                commands = [command for change in changes for command in change.commands]
                done = request.dry_run or session.transaction(commands)
            session.await_replicas()
        return Applied("\n".join(line for change in changes for line in change.news))

    def transactions(self, stream: ConnectorStream) -> None:
        request = accept_open(stream)
        materialization = request.materialization
        storages = [storage_of(binding, _resource(binding)) for binding in materialization.bindings]
        endpoint = read_config(RedisEndpoint, materialization.endpoint, "endpoint")
        with Session(endpoint) as session, closing(StagedRows(storages)) as staged:
            _check_applied(materialization, read_layouts(session))
            fence = install_fence(session, materialization.name, request.key_range)
            # A takeover of the prefix removes its previous owner's fences, and may have preceded this open.
            _check_applied(materialization, read_layouts(session))
            stream.send(Opened())
            while accept_acknowledge(stream):
                stream.send(Acknowledged())
                for load in loads(stream):
                    staged.add_keys(load)
                for loaded in staged.load(session):
                    stream.send(loaded)
                stream.send(Flushed())
                for store in stores(stream):
                    staged.add_rows(store)
                staged.write(session, fence)
                stream.send(StartedCommit())


def _resource(binding: Binding) -> RedisResource:
    return read_config(RedisResource, binding.resource, "resource")


def _validate_binding(
    binding: ValidateBinding, resource: RedisResource, layouts: dict[str, Layout], target: Target
) -> ValidatedBinding:
    constraints = constrain(binding.collection, resource, layouts.get(resource.prefix))
    repeats = resource.delta_updates or any(counted_again(binding.collection.schema))
    delivery = Delivery.REPEATED if repeats else Delivery.REWRITTEN
    return ValidatedBinding(constraints, (resource.prefix,), resource.delta_updates, delivery, target=target)


def _plan(request: Apply, layouts: dict[str, Layout]) -> list[Change]:
    """Returns all changes, or refuses one of them before any is made."""
    name, bindings = request.materialization.name, request.materialization.bindings
    resources = [_resource(binding) for binding in bindings]
    check_prefixes([resource.prefix for resource in resources], layouts)
    changes = (
        plan(
            wanted_layout(name, request.lineage, binding, resource),
            resource,
            layouts,
            adopts=request.adopts,
        )
        for binding, resource in zip(bindings, resources, strict=True)
    )
    return [change for change in changes if change is not None]


def _check_applied(materialization: Materialization, layouts: dict[str, Layout]) -> None:
    if missing := _plan(Apply(materialization, ""), layouts):
        raise EndpointError(
            f"{missing[0].news[0]}: Redis has no record of it; apply the materialization before it is opened"
        )
