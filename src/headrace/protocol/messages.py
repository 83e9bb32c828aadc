"""The messages of the materialization protocol.

Messages of the runtime are imperative (`Load`); a connector's answers are in the past tense (`Loaded`). Rows
travel as Arrow columns: a `RecordBatch` of the key's fields, one of the other fields, and the documents as
JSON text. `protocol.grpc` converts them to and from their wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import pyarrow as pa

from headrace.model.checkpoints import JsonObject
from headrace.model.collections import Collection, Field
from headrace.model.key_range import KeyRange
from headrace.model.materializations import Materialization
from headrace.model.ownership import Target
from headrace.protocol.key_digests import KeyDigests, digest_keys

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Spec:
    """Asks what must be configured for the connector."""

    endpoint: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The part of the endpoint's configuration that is known so far."""


@dataclass(frozen=True)
class Specified:
    endpoint_schema: JsonObject
    """JSON schema of the endpoint configuration, such as the address and the credentials."""
    resource_schema: JsonObject
    """JSON schema of the resource configuration of each binding, such as a table's name."""
    documentation_url: str


@dataclass(frozen=True)
class ValidateBinding:
    collection: Collection
    resource: Mapping[str, Any]

    @property
    def fields(self) -> tuple[Field, ...]:
        """Returns the fields that the collection offers, the keys first."""
        return self.collection.fields


@dataclass(frozen=True)
class Validate:
    """Asks whether this configuration can work, given what the endpoint contains now."""

    name: str
    endpoint_type: str
    endpoint: Mapping[str, Any] = field(repr=False)  # may hold secrets
    bindings: tuple[ValidateBinding, ...]


class ConstraintKind(StrEnum):
    REQUIRED = "required"
    """The field must be stored."""
    RECOMMENDED = "recommended"
    """The field is stored unless the user excludes it."""
    OPTIONAL = "optional"
    """The field is stored only if the user includes it."""
    FORBIDDEN = "forbidden"
    """The endpoint cannot store a field of this name or kind at all."""
    INCOMPATIBLE = "incompatible"
    """What the endpoint already contains rules this field out. The reason says what would have to change."""

    @property
    def can_be_stored(self) -> bool:
        return self not in (ConstraintKind.FORBIDDEN, ConstraintKind.INCOMPATIBLE)


@dataclass(frozen=True)
class Constraint:
    kind: ConstraintKind
    reason: str


class Delivery(StrEnum):
    """The effect of a transaction that the runtime sends again after a crash of either side."""

    REPEATED = "repeated"
    """It takes effect again, or that is unknown."""
    REWRITTEN = "rewritten"
    """Its rows are written again with the values that they have; a stream that was replaced writes none."""
    STAGED = "staged"
    """It takes effect once, by the connector checkpoint and for as long as the runtime has that."""
    TRANSACTIONAL = "transactional"
    """It takes effect once: the endpoint commits runtime checkpoint and rows atomically, and keeps a
    fence."""


class Survival(StrEnum):
    """The failures that committed rows of an endpoint survive."""

    UNSAID = "unsaid"
    """The connector does not declare it."""
    NOTHING = "nothing"
    """A crash of the endpoint may lose them."""
    PROCESS = "process"
    """They survive a restart of the endpoint, but not the loss of its host."""
    HOST = "host"
    """They survive the loss of the host that the pipeline runs on."""


@dataclass(frozen=True)
class Durability:
    """States where the rows of an endpoint are stored, and which failures they survive there."""

    survives: Survival = Survival.UNSAID
    mechanism: str = ""
    """Names the mechanism that keeps them."""


@dataclass(frozen=True)
class RowLimits:
    """Limits of an endpoint for rows that the schema allows. A row that exceeds them is invalid, and never
    sent."""

    refuses_nul: bool = False
    """Whether strings with U+0000 are refused."""
    max_key_bytes: int = 0
    """The maximum number of bytes in all strings of a key; 0 means no limit."""


@dataclass(frozen=True)
class ValidatedBinding:
    constraints: Mapping[str, Constraint]
    """One constraint by field name, for each field of the collection and for the document."""
    resource_path: tuple[str, ...]
    delta_updates: bool
    """Whether this binding only takes combined updates and is never asked to load."""
    delivery: Delivery = Delivery.REPEATED
    """The binding's part in the guarantee of the whole pipeline, see docs/guarantees.md."""
    limits: RowLimits = RowLimits()
    target: Target | None = None
    """The state of the target at `resource_path`; None if the connector does not report it."""


@dataclass(frozen=True)
class Validated:
    bindings: tuple[ValidatedBinding, ...]
    runtime_checkpoints: tuple[JsonObject, ...] | None = None
    """The endpoint's checkpoints of this materialization, one per key range, as Open would return them but
    without opening anything. Empty: there are none. None: the endpoint keeps none, or the connector does not
    report them."""
    durability: Durability = Durability()


@dataclass(frozen=True)
class Apply:
    """Tells the connector to make the endpoint ready for this materialization."""

    materialization: Materialization
    version: str
    dry_run: bool = False
    """Only report what would be done."""
    lineage: str = ""
    """The lineage under which targets record that they belong to the materialization (`Owner`). If empty,
    their records are left as they are. Targets of other owners are refused in any case."""
    adopts: bool = False
    """An operator has decided to take over targets of other owners."""


@dataclass(frozen=True)
class Applied:
    action_description: str
    """A description of what was done, or with a dry run would have been. Empty if nothing had to be done."""


@dataclass(frozen=True)
class Open:
    """Starts a stream of transactions for one range of keys."""

    materialization: Materialization
    version: str
    key_range: KeyRange
    connector_checkpoint: JsonObject | None = None


@dataclass(frozen=True)
class Opened:
    runtime_checkpoint: JsonObject | None = None
    """Absent: the recovery log decides where to start. Present: this checkpoint does. Empty: start from the
    beginning."""


@dataclass(frozen=True)
class Acknowledge:
    """The last transaction is in the recovery log."""


@dataclass(frozen=True)
class Acknowledged:
    """The last transaction is in the endpoint."""


@dataclass(frozen=True)
class _Keyed:
    binding: int
    keys: pa.RecordBatch

    @cached_property
    def digests(self) -> KeyDigests:
        return digest_keys(self.keys)


@dataclass(frozen=True)
class Load(_Keyed):
    """Asks for those documents of these keys that exist."""


@dataclass(frozen=True)
class Loaded(_Keyed):
    """Returns documents that exist, each with the key of its Load."""

    documents: pa.StringArray


@dataclass(frozen=True)
class Flush:
    """Ends the loads of this transaction."""


@dataclass(frozen=True)
class Flushed:
    """Every requested document that exists has been loaded."""


@dataclass(frozen=True)
class Store(_Keyed):
    """Inserts or updates documents, with their extracted fields."""

    values: pa.RecordBatch
    documents: pa.StringArray | None
    """Absent if the binding does not store the document."""
    exists: pa.BooleanArray
    """Whether the key was loaded in this transaction, so that its row exists."""


@dataclass(frozen=True)
class StartCommit:
    """Ends the stores of this transaction, which is to be committed together with this checkpoint."""

    runtime_checkpoint: JsonObject


@dataclass(frozen=True)
class StartedCommit:
    """Every store has been processed and the commit is under way."""

    connector_checkpoint: JsonObject | None = None
    """A merge patch on the connector checkpoint, which the runtime keeps in its recovery log."""


Request = Open | Acknowledge | Load | Flush | Store | StartCommit
Response = Opened | Acknowledged | Loaded | Flushed | StartedCommit
Message = Request | Response
