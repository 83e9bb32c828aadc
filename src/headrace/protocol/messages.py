"""The messages of the materialization protocol.

Messages of the runtime are imperative (`Load`); a connector's answers are in the past tense (`Loaded`).
Rows travel as Arrow columns: a `RecordBatch` of the key's fields, one of the other fields, and the
documents as JSON text. What goes over a wire is made of these in `protocol.grpc`.
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
    """Asks what the connector needs to be configured."""

    endpoint: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What is known of the endpoint's configuration so far; may be partial."""


@dataclass(frozen=True)
class Specified:
    endpoint_schema: JsonObject
    """JSON schema of the endpoint configuration: where it is and how to sign in."""
    resource_schema: JsonObject
    """JSON schema of the resource configuration of each binding, such as a table's name."""
    documentation_url: str


@dataclass(frozen=True)
class ValidateBinding:
    collection: Collection
    resource: Mapping[str, Any]

    @property
    def fields(self) -> tuple[Field, ...]:
        """What the collection offers to be stored, the keys first."""
        return self.collection.fields


@dataclass(frozen=True)
class Validate:
    """Asks whether this configuration can work, given what the endpoint holds now."""

    name: str
    endpoint_type: str
    endpoint: Mapping[str, Any] = field(repr=False)  # may hold secrets
    bindings: tuple[ValidateBinding, ...]


class ConstraintKind(StrEnum):
    REQUIRED = "required"
    """The field must be stored."""
    RECOMMENDED = "recommended"
    """Stored unless the user says otherwise."""
    OPTIONAL = "optional"
    """Stored only if the user asks for it."""
    FORBIDDEN = "forbidden"
    """The endpoint cannot store a field of this name or kind at all."""
    INCOMPATIBLE = "incompatible"
    """What the endpoint holds already rules this field out; it says what would have to change."""

    @property
    def can_be_stored(self) -> bool:
        return self not in (ConstraintKind.FORBIDDEN, ConstraintKind.INCOMPATIBLE)


@dataclass(frozen=True)
class Constraint:
    kind: ConstraintKind
    reason: str


class Delivery(StrEnum):
    """What becomes of a transaction that the runtime sends again after a crash of either side."""

    REPEATED = "repeated"
    """It takes effect again, or nobody knows."""
    REWRITTEN = "rewritten"
    """Its rows are written again with the values that they have; a stream that was replaced writes none."""
    STAGED = "staged"
    """It takes effect once, by the connector checkpoint and for as long as the runtime has that."""
    TRANSACTIONAL = "transactional"
    """It takes effect once: the endpoint commits runtime checkpoint and rows as one, and keeps a fence."""


class Survival(StrEnum):
    """The failures that committed rows of an endpoint survive."""

    UNSAID = "unsaid"
    """The connector does not say."""
    NOTHING = "nothing"
    """A crash of the endpoint may lose them."""
    PROCESS = "process"
    """A restart of the endpoint, and not the loss of the host that it is on."""
    HOST = "host"
    """The loss of the host that the pipeline runs on."""


@dataclass(frozen=True)
class Durability:
    """Says what keeps the rows of an endpoint, and what they survive by it."""

    survives: Survival = Survival.UNSAID
    mechanism: str = ""
    """Names what they are kept in."""


@dataclass(frozen=True)
class RowLimits:
    """What an endpoint cannot take in a row that the schema allows: such a row is invalid, and never sent."""

    refuses_nul: bool = False
    """Strings with U+0000."""
    max_key_bytes: int = 0
    """The most bytes that the strings of a key may have together; 0: as many as they like."""


@dataclass(frozen=True)
class ValidatedBinding:
    constraints: Mapping[str, Constraint]
    """By field name: one for each field of the collection, and one for the document."""
    resource_path: tuple[str, ...]
    delta_updates: bool
    """Whether this binding takes combined updates only and is never asked to load."""
    delivery: Delivery = Delivery.REPEATED
    """What the endpoint adds to the guarantee of the whole; docs/guarantees.md."""
    limits: RowLimits = RowLimits()
    target: Target | None = None
    """What is at `resource_path` now; None: the connector does not say."""


@dataclass(frozen=True)
class Validated:
    bindings: tuple[ValidatedBinding, ...]
    runtime_checkpoints: tuple[JsonObject, ...] | None = None
    """What the endpoint has of this materialization, one for each range of keys, as Open would answer and
    without opening anything; empty: nothing. None: it keeps none, or the connector does not say."""
    durability: Durability = Durability()


@dataclass(frozen=True)
class Apply:
    """Tells the connector to make the endpoint ready for this materialization."""

    materialization: Materialization
    version: str
    dry_run: bool = False
    """Only say what would be done."""
    lineage: str = ""
    """Under this, the targets say from now on that they belong to the materialization (`Owner`). Empty: what
    they say is left as it is. In any case those of somebody else are refused."""
    adopts: bool = False
    """A person has said that targets of somebody else are to be taken over."""


@dataclass(frozen=True)
class Applied:
    action_description: str
    """What was done, or with a dry run would have been; empty where nothing had to be."""


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
    """Absent: the recovery log decides where to start. Present: it does. Empty: from the beginning."""


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
    """Asks for the documents of these keys, those of them that exist."""


@dataclass(frozen=True)
class Loaded(_Keyed):
    """Documents that exist, each with the key that it was asked by."""

    documents: pa.StringArray


@dataclass(frozen=True)
class Flush:
    """No more loads in this transaction."""


@dataclass(frozen=True)
class Flushed:
    """Every document that was asked for and exists has been loaded."""


@dataclass(frozen=True)
class Store(_Keyed):
    """Documents to insert or update, with their extracted fields."""

    values: pa.RecordBatch
    documents: pa.StringArray | None
    """Absent where the binding does not store the document."""
    exists: pa.BooleanArray
    """Whether the key was loaded in this transaction, and so is a row already."""


@dataclass(frozen=True)
class StartCommit:
    """No more stores in this transaction; commit it together with this checkpoint."""

    runtime_checkpoint: JsonObject


@dataclass(frozen=True)
class StartedCommit:
    """Every store has been processed and the commit is under way."""

    connector_checkpoint: JsonObject | None = None
    """A merge patch on the connector checkpoint, which the runtime keeps in its recovery log."""


Request = Open | Acknowledge | Load | Flush | Store | StartCommit
Response = Opened | Acknowledged | Loaded | Flushed | StartedCommit
Message = Request | Response
