from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SpecRequest(_message.Message):
    __slots__ = ("endpoint_json",)
    ENDPOINT_JSON_FIELD_NUMBER: _ClassVar[int]
    endpoint_json: str
    def __init__(self, endpoint_json: _Optional[str] = ...) -> None: ...

class SpecResponse(_message.Message):
    __slots__ = ("endpoint_schema_json", "resource_schema_json", "documentation_url")
    ENDPOINT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTATION_URL_FIELD_NUMBER: _ClassVar[int]
    endpoint_schema_json: str
    resource_schema_json: str
    documentation_url: str
    def __init__(self, endpoint_schema_json: _Optional[str] = ..., resource_schema_json: _Optional[str] = ..., documentation_url: _Optional[str] = ...) -> None: ...

class Collection(_message.Message):
    __slots__ = ("name", "key", "schema_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: _containers.RepeatedScalarFieldContainer[str]
    schema_json: str
    def __init__(self, name: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., schema_json: _Optional[str] = ...) -> None: ...

class Field(_message.Message):
    __slots__ = ("name", "pointer", "type", "required")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POINTER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    name: str
    pointer: str
    type: str
    required: bool
    def __init__(self, name: _Optional[str] = ..., pointer: _Optional[str] = ..., type: _Optional[str] = ..., required: _Optional[bool] = ...) -> None: ...

class ValidateRequest(_message.Message):
    __slots__ = ("name", "endpoint_type", "endpoint_json", "bindings")
    class Binding(_message.Message):
        __slots__ = ("resource_json", "collection", "fields")
        RESOURCE_JSON_FIELD_NUMBER: _ClassVar[int]
        COLLECTION_FIELD_NUMBER: _ClassVar[int]
        FIELDS_FIELD_NUMBER: _ClassVar[int]
        resource_json: str
        collection: Collection
        fields: _containers.RepeatedCompositeFieldContainer[Field]
        def __init__(self, resource_json: _Optional[str] = ..., collection: _Optional[_Union[Collection, _Mapping]] = ..., fields: _Optional[_Iterable[_Union[Field, _Mapping]]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_JSON_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    endpoint_type: str
    endpoint_json: str
    bindings: _containers.RepeatedCompositeFieldContainer[ValidateRequest.Binding]
    def __init__(self, name: _Optional[str] = ..., endpoint_type: _Optional[str] = ..., endpoint_json: _Optional[str] = ..., bindings: _Optional[_Iterable[_Union[ValidateRequest.Binding, _Mapping]]] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("kind", "reason")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Constraint.Kind]
        REQUIRED: _ClassVar[Constraint.Kind]
        RECOMMENDED: _ClassVar[Constraint.Kind]
        OPTIONAL: _ClassVar[Constraint.Kind]
        FORBIDDEN: _ClassVar[Constraint.Kind]
        INCOMPATIBLE: _ClassVar[Constraint.Kind]
    KIND_UNSPECIFIED: Constraint.Kind
    REQUIRED: Constraint.Kind
    RECOMMENDED: Constraint.Kind
    OPTIONAL: Constraint.Kind
    FORBIDDEN: Constraint.Kind
    INCOMPATIBLE: Constraint.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: Constraint.Kind
    reason: str
    def __init__(self, kind: _Optional[_Union[Constraint.Kind, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ValidateResponse(_message.Message):
    __slots__ = ("bindings", "runtime_checkpoints", "durability")
    class Delivery(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REPEATED: _ClassVar[ValidateResponse.Delivery]
        REWRITTEN: _ClassVar[ValidateResponse.Delivery]
        STAGED: _ClassVar[ValidateResponse.Delivery]
        TRANSACTIONAL: _ClassVar[ValidateResponse.Delivery]
    REPEATED: ValidateResponse.Delivery
    REWRITTEN: ValidateResponse.Delivery
    STAGED: ValidateResponse.Delivery
    TRANSACTIONAL: ValidateResponse.Delivery
    class Binding(_message.Message):
        __slots__ = ("constraints", "resource_path", "delta_updates", "delivery", "limits", "target")
        class ConstraintsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: Constraint
            def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Constraint, _Mapping]] = ...) -> None: ...
        CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
        RESOURCE_PATH_FIELD_NUMBER: _ClassVar[int]
        DELTA_UPDATES_FIELD_NUMBER: _ClassVar[int]
        DELIVERY_FIELD_NUMBER: _ClassVar[int]
        LIMITS_FIELD_NUMBER: _ClassVar[int]
        TARGET_FIELD_NUMBER: _ClassVar[int]
        constraints: _containers.MessageMap[str, Constraint]
        resource_path: _containers.RepeatedScalarFieldContainer[str]
        delta_updates: bool
        delivery: ValidateResponse.Delivery
        limits: RowLimits
        target: Target
        def __init__(self, constraints: _Optional[_Mapping[str, Constraint]] = ..., resource_path: _Optional[_Iterable[str]] = ..., delta_updates: _Optional[bool] = ..., delivery: _Optional[_Union[ValidateResponse.Delivery, str]] = ..., limits: _Optional[_Union[RowLimits, _Mapping]] = ..., target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    bindings: _containers.RepeatedCompositeFieldContainer[ValidateResponse.Binding]
    runtime_checkpoints: RuntimeCheckpoints
    durability: Durability
    def __init__(self, bindings: _Optional[_Iterable[_Union[ValidateResponse.Binding, _Mapping]]] = ..., runtime_checkpoints: _Optional[_Union[RuntimeCheckpoints, _Mapping]] = ..., durability: _Optional[_Union[Durability, _Mapping]] = ...) -> None: ...

class Durability(_message.Message):
    __slots__ = ("survives", "mechanism")
    class Survival(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSAID: _ClassVar[Durability.Survival]
        NOTHING: _ClassVar[Durability.Survival]
        PROCESS: _ClassVar[Durability.Survival]
        HOST: _ClassVar[Durability.Survival]
    UNSAID: Durability.Survival
    NOTHING: Durability.Survival
    PROCESS: Durability.Survival
    HOST: Durability.Survival
    SURVIVES_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    survives: Durability.Survival
    mechanism: str
    def __init__(self, survives: _Optional[_Union[Durability.Survival, str]] = ..., mechanism: _Optional[str] = ...) -> None: ...

class RuntimeCheckpoints(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, json: _Optional[_Iterable[str]] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("exists", "has_rows", "owner")
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    HAS_ROWS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    exists: bool
    has_rows: bool
    owner: Owner
    def __init__(self, exists: _Optional[bool] = ..., has_rows: _Optional[bool] = ..., owner: _Optional[_Union[Owner, _Mapping]] = ...) -> None: ...

class Owner(_message.Message):
    __slots__ = ("materialization", "lineage", "key", "mode")
    MATERIALIZATION_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    materialization: str
    lineage: str
    key: _containers.RepeatedScalarFieldContainer[str]
    mode: str
    def __init__(self, materialization: _Optional[str] = ..., lineage: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., mode: _Optional[str] = ...) -> None: ...

class RowLimits(_message.Message):
    __slots__ = ("refuses_nul", "max_key_bytes")
    REFUSES_NUL_FIELD_NUMBER: _ClassVar[int]
    MAX_KEY_BYTES_FIELD_NUMBER: _ClassVar[int]
    refuses_nul: bool
    max_key_bytes: int
    def __init__(self, refuses_nul: _Optional[bool] = ..., max_key_bytes: _Optional[int] = ...) -> None: ...

class Materialization(_message.Message):
    __slots__ = ("name", "endpoint_type", "endpoint_json", "bindings")
    class Binding(_message.Message):
        __slots__ = ("resource_json", "collection", "resource_path", "delta_updates", "keys", "values", "document")
        RESOURCE_JSON_FIELD_NUMBER: _ClassVar[int]
        COLLECTION_FIELD_NUMBER: _ClassVar[int]
        RESOURCE_PATH_FIELD_NUMBER: _ClassVar[int]
        DELTA_UPDATES_FIELD_NUMBER: _ClassVar[int]
        KEYS_FIELD_NUMBER: _ClassVar[int]
        VALUES_FIELD_NUMBER: _ClassVar[int]
        DOCUMENT_FIELD_NUMBER: _ClassVar[int]
        resource_json: str
        collection: Collection
        resource_path: _containers.RepeatedScalarFieldContainer[str]
        delta_updates: bool
        keys: _containers.RepeatedCompositeFieldContainer[Field]
        values: _containers.RepeatedCompositeFieldContainer[Field]
        document: str
        def __init__(self, resource_json: _Optional[str] = ..., collection: _Optional[_Union[Collection, _Mapping]] = ..., resource_path: _Optional[_Iterable[str]] = ..., delta_updates: _Optional[bool] = ..., keys: _Optional[_Iterable[_Union[Field, _Mapping]]] = ..., values: _Optional[_Iterable[_Union[Field, _Mapping]]] = ..., document: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_JSON_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    endpoint_type: str
    endpoint_json: str
    bindings: _containers.RepeatedCompositeFieldContainer[Materialization.Binding]
    def __init__(self, name: _Optional[str] = ..., endpoint_type: _Optional[str] = ..., endpoint_json: _Optional[str] = ..., bindings: _Optional[_Iterable[_Union[Materialization.Binding, _Mapping]]] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("materialization", "version", "dry_run", "lineage", "adopts")
    MATERIALIZATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    ADOPTS_FIELD_NUMBER: _ClassVar[int]
    materialization: Materialization
    version: str
    dry_run: bool
    lineage: str
    adopts: bool
    def __init__(self, materialization: _Optional[_Union[Materialization, _Mapping]] = ..., version: _Optional[str] = ..., dry_run: _Optional[bool] = ..., lineage: _Optional[str] = ..., adopts: _Optional[bool] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("action_description",)
    ACTION_DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    action_description: str
    def __init__(self, action_description: _Optional[str] = ...) -> None: ...

class Slices(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class TransactionRequest(_message.Message):
    __slots__ = ("open", "acknowledge", "load", "flush", "store", "start_commit")
    class Open(_message.Message):
        __slots__ = ("materialization", "version", "key_begin", "key_end", "connector_checkpoint_json")
        MATERIALIZATION_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        KEY_BEGIN_FIELD_NUMBER: _ClassVar[int]
        KEY_END_FIELD_NUMBER: _ClassVar[int]
        CONNECTOR_CHECKPOINT_JSON_FIELD_NUMBER: _ClassVar[int]
        materialization: Materialization
        version: str
        key_begin: int
        key_end: int
        connector_checkpoint_json: str
        def __init__(self, materialization: _Optional[_Union[Materialization, _Mapping]] = ..., version: _Optional[str] = ..., key_begin: _Optional[int] = ..., key_end: _Optional[int] = ..., connector_checkpoint_json: _Optional[str] = ...) -> None: ...
    class Acknowledge(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Load(_message.Message):
        __slots__ = ("binding", "arena", "packed_keys")
        BINDING_FIELD_NUMBER: _ClassVar[int]
        ARENA_FIELD_NUMBER: _ClassVar[int]
        PACKED_KEYS_FIELD_NUMBER: _ClassVar[int]
        binding: int
        arena: bytes
        packed_keys: Slices
        def __init__(self, binding: _Optional[int] = ..., arena: _Optional[bytes] = ..., packed_keys: _Optional[_Union[Slices, _Mapping]] = ...) -> None: ...
    class Flush(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Store(_message.Message):
        __slots__ = ("binding", "arena", "packed_keys", "packed_values", "docs_json", "exists")
        BINDING_FIELD_NUMBER: _ClassVar[int]
        ARENA_FIELD_NUMBER: _ClassVar[int]
        PACKED_KEYS_FIELD_NUMBER: _ClassVar[int]
        PACKED_VALUES_FIELD_NUMBER: _ClassVar[int]
        DOCS_JSON_FIELD_NUMBER: _ClassVar[int]
        EXISTS_FIELD_NUMBER: _ClassVar[int]
        binding: int
        arena: bytes
        packed_keys: Slices
        packed_values: Slices
        docs_json: Slices
        exists: _containers.RepeatedScalarFieldContainer[bool]
        def __init__(self, binding: _Optional[int] = ..., arena: _Optional[bytes] = ..., packed_keys: _Optional[_Union[Slices, _Mapping]] = ..., packed_values: _Optional[_Union[Slices, _Mapping]] = ..., docs_json: _Optional[_Union[Slices, _Mapping]] = ..., exists: _Optional[_Iterable[bool]] = ...) -> None: ...
    class StartCommit(_message.Message):
        __slots__ = ("runtime_checkpoint_json",)
        RUNTIME_CHECKPOINT_JSON_FIELD_NUMBER: _ClassVar[int]
        runtime_checkpoint_json: str
        def __init__(self, runtime_checkpoint_json: _Optional[str] = ...) -> None: ...
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    START_COMMIT_FIELD_NUMBER: _ClassVar[int]
    open: TransactionRequest.Open
    acknowledge: TransactionRequest.Acknowledge
    load: TransactionRequest.Load
    flush: TransactionRequest.Flush
    store: TransactionRequest.Store
    start_commit: TransactionRequest.StartCommit
    def __init__(self, open: _Optional[_Union[TransactionRequest.Open, _Mapping]] = ..., acknowledge: _Optional[_Union[TransactionRequest.Acknowledge, _Mapping]] = ..., load: _Optional[_Union[TransactionRequest.Load, _Mapping]] = ..., flush: _Optional[_Union[TransactionRequest.Flush, _Mapping]] = ..., store: _Optional[_Union[TransactionRequest.Store, _Mapping]] = ..., start_commit: _Optional[_Union[TransactionRequest.StartCommit, _Mapping]] = ...) -> None: ...

class TransactionResponse(_message.Message):
    __slots__ = ("opened", "acknowledged", "loaded", "flushed", "started_commit")
    class Opened(_message.Message):
        __slots__ = ("runtime_checkpoint_json",)
        RUNTIME_CHECKPOINT_JSON_FIELD_NUMBER: _ClassVar[int]
        runtime_checkpoint_json: str
        def __init__(self, runtime_checkpoint_json: _Optional[str] = ...) -> None: ...
    class Acknowledged(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Loaded(_message.Message):
        __slots__ = ("binding", "arena", "docs_json", "packed_keys")
        BINDING_FIELD_NUMBER: _ClassVar[int]
        ARENA_FIELD_NUMBER: _ClassVar[int]
        DOCS_JSON_FIELD_NUMBER: _ClassVar[int]
        PACKED_KEYS_FIELD_NUMBER: _ClassVar[int]
        binding: int
        arena: bytes
        docs_json: Slices
        packed_keys: Slices
        def __init__(self, binding: _Optional[int] = ..., arena: _Optional[bytes] = ..., docs_json: _Optional[_Union[Slices, _Mapping]] = ..., packed_keys: _Optional[_Union[Slices, _Mapping]] = ...) -> None: ...
    class Flushed(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class StartedCommit(_message.Message):
        __slots__ = ("connector_checkpoint_json",)
        CONNECTOR_CHECKPOINT_JSON_FIELD_NUMBER: _ClassVar[int]
        connector_checkpoint_json: str
        def __init__(self, connector_checkpoint_json: _Optional[str] = ...) -> None: ...
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_FIELD_NUMBER: _ClassVar[int]
    STARTED_COMMIT_FIELD_NUMBER: _ClassVar[int]
    opened: TransactionResponse.Opened
    acknowledged: TransactionResponse.Acknowledged
    loaded: TransactionResponse.Loaded
    flushed: TransactionResponse.Flushed
    started_commit: TransactionResponse.StartedCommit
    def __init__(self, opened: _Optional[_Union[TransactionResponse.Opened, _Mapping]] = ..., acknowledged: _Optional[_Union[TransactionResponse.Acknowledged, _Mapping]] = ..., loaded: _Optional[_Union[TransactionResponse.Loaded, _Mapping]] = ..., flushed: _Optional[_Union[TransactionResponse.Flushed, _Mapping]] = ..., started_commit: _Optional[_Union[TransactionResponse.StartedCommit, _Mapping]] = ...) -> None: ...
