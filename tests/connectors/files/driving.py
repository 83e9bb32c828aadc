"""What the tests of this folder share: a connector to drive, and a small collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.connectors.files import FilesConnector
from headrace.model.collections import Collection
from headrace.model.key_range import FULL_RANGE, KeyRange
from headrace.model.materializations import Materialization
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import MemoryLog, RecoveryLog, Runtime, materialization_of
from tests.connectors.files_endpoint import FilesEndpointUnderTest

CLIENT = InProcess(FilesConnector())


def things(**properties: dict[str, Any]) -> Collection:
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, **properties}}
    return Collection("things", ("/id",), schema)


def planned(
    config: Mapping[str, Any], collection: Collection, include: Sequence[str] = (), **resource: Any
) -> Materialization:
    binding = ValidateBinding(collection, {"prefix": "things", **resource})
    return materialization_of(CLIENT, "view", "files", config, [binding], include)


def apply(config: Mapping[str, Any], collection: Collection, **resource: Any) -> str:
    return CLIENT.apply(Apply(planned(config, collection, **resource), "1")).action_description


def applied(config: Mapping[str, Any], collection: Collection, **resource: Any) -> Materialization:
    apply(config, collection, **resource)
    return planned(config, collection, **resource)


def write(
    view: Materialization,
    log: RecoveryLog,
    *transactions: Sequence[int],
    key_range: KeyRange = FULL_RANGE,
) -> None:
    """Commits transactions of things by id; the last one is in the log, and not yet published."""
    with Runtime(CLIENT, view, log, key_range) as runtime:
        for ids in transactions:
            runtime.transact([[{"id": number} for number in ids]], {"last": list(ids)})


def open_again(view: Materialization, log: RecoveryLog, key_range: KeyRange = FULL_RANGE) -> None:
    """The first Acknowledge of a new stream, and nothing more."""
    write(view, log, [], key_range=key_range)


def with_checkpoint(checkpoint: Any) -> MemoryLog:
    log = MemoryLog()
    log.commit(type(log.read())({"n": 1}, checkpoint))
    return log


def ids(endpoint: FilesEndpointUnderTest) -> list[list[int]]:
    """Those of each published file, in the files' order."""
    return [table.column("id").to_pylist() for table in endpoint.table("things")]
