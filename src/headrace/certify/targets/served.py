"""Any connector, also one that is served over gRPC: the view is read by the protocol itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from headrace.certify.documents import BATCH, CONFIGURED, NAME, Document, key_of
from headrace.certify.targets.documents_of import parsed
from headrace.certify.targets.target import VIEW, Place, Rows, Target
from headrace.config import HeadraceConfig
from headrace.errors import ConfigError, ProtocolError
from headrace.model.columns import extract
from headrace.model.key_range import FULL_RANGE
from headrace.model.materializations import Materialization
from headrace.pipeline.plan import VERSION, apply, plan
from headrace.protocol.messages import Acknowledge, Acknowledged, Flush, Flushed, Load, Loaded, Open, Opened
from headrace.protocol.stream import RuntimeStream

LANE = "{lane}"
"""In a resource: where a lane's own name goes, with underscores for hyphens."""


class ServedTarget(Target):
    """To read it takes its keys over from whoever writes: a pipeline that runs would be fenced off."""

    is_read_beside: ClassVar[bool] = False
    says_owner: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        resource: Mapping[str, Any],
        address: str = "",
        tls: Mapping[str, str] | None = None,
    ) -> None:
        """`config`, `address` and `tls` are as in `headrace.yaml`; texts of `resource` have `{lane}`."""
        if not any(LANE in value for value in resource.values() if isinstance(value, str)):
            raise ConfigError(
                f"the resource of {name} is the same for all lanes: write {LANE} where each has its own name"
            )
        self.name = f"connector-{name.lower()}"
        self._config, self._resource = dict(config), resource
        self._connector: dict[str, Any] = {"name": name}
        if address:
            self._connector["grpc"] = address
        if tls is not None:
            self._connector["tls"] = dict(tls)

    def place(self, lane: str) -> Place:
        resource = {
            key: value.replace(LANE, lane.replace("-", "_")) if isinstance(value, str) else value
            for key, value in self._resource.items()
        }
        return Place({"connector": self._connector, "config": self._config}, {"resource": resource})

    def check(self) -> None:
        planned = plan(self._settings("headrace-certify-check"))
        try:
            (binding,) = planned.materialization.bindings
            if binding.delta_updates:
                raise ConfigError(
                    f"{self.name} takes delta updates, which cannot be read back by the protocol, so that "
                    "nothing can be shown of it"
                )
        finally:
            planned.close()

    def read(self, lane: str) -> Mapping[str, Rows]:
        """Makes the endpoint ready as each start of a pipeline does, so that there is something to open."""
        planned = plan(self._settings(lane))
        assert planned.client is not None
        try:
            apply(planned)
            stream = planned.client.transactions()
            try:
                return {VIEW: Rows(_loaded(stream, planned.materialization))}
            finally:
                stream.abandon()
        finally:
            planned.close()

    def _settings(self, lane: str) -> Any:
        """As the pipeline has them: a field more or less would be another materialization."""
        place = self.place(lane)
        binding = {"collection": NAME, **place.binding}
        config = {
            "collections": CONFIGURED,
            "materializations": {lane: {**place.materialization, "bindings": [binding]}},
        }
        (settings,) = (
            HeadraceConfig.read(config, Path(), "certification").pipeline_settings().materializations
        )
        return settings


def _loaded(stream: RuntimeStream, materialization: Materialization) -> list[Document]:
    """Of all keys that can be there, in a transaction that is never committed."""
    (binding,) = materialization.bindings
    rows = [{"key": key} for key in sorted({key_of(number) for number in range(BATCH)})]
    stream.send(Open(materialization, VERSION, FULL_RANGE, {}))
    _expect(stream, Opened)
    stream.send(Acknowledge())
    stream.send(Load(0, extract(binding.keys, rows)))
    if not stream.acknowledged:
        _expect(stream, Acknowledged)
    stream.send(Flush())
    found: list[Document] = []
    while not isinstance(response := stream.receive(), Flushed):
        if isinstance(response, Loaded):
            found += map(parsed, response.documents.to_pylist())
    return found


def _expect(stream: RuntimeStream, kind: type[Opened | Acknowledged]) -> None:
    response = stream.receive()
    if not isinstance(response, kind):
        raise ProtocolError(
            f"{type(response).__name__} came in the place of {kind.__name__}",
            message_name=type(response).__name__,
            phase=str(stream.phase),
            expected=kind.__name__,
        )
