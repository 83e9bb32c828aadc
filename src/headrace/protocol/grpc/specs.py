"""Converts Spec, Validate, Apply and their parts to and from protobuf."""

from __future__ import annotations

import json
from typing import Any

from headrace.errors import ProtocolError
from headrace.model.checkpoints import JsonObject, to_json
from headrace.model.collections import Collection, Field
from headrace.model.field_types import FieldType
from headrace.model.materializations import Binding, Materialization
from headrace.model.ownership import Mode, Owner, Target
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.messages import (
    Applied,
    Apply,
    Constraint,
    ConstraintKind,
    Delivery,
    Durability,
    RowLimits,
    Spec,
    Specified,
    Survival,
    Validate,
    ValidateBinding,
    Validated,
    ValidatedBinding,
)


def from_json(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # also for an integer of thousands of digits
        raise _malformed(name, str(error)) from None
    if not isinstance(value, dict):
        raise _malformed(name, "it is not an object")
    return value


def _malformed(name: str, problem: str) -> ProtocolError:
    return ProtocolError(
        f"{name} is not a JSON object: {problem}", message_name=name, expected="a JSON object"
    )


def encode_spec(request: Spec) -> pb.SpecRequest:
    return pb.SpecRequest(endpoint_json=to_json(request.endpoint))


def decode_spec(message: pb.SpecRequest) -> Spec:
    return Spec(from_json(message.endpoint_json or "{}", "endpoint_json"))


def encode_specified(response: Specified) -> pb.SpecResponse:
    return pb.SpecResponse(
        endpoint_schema_json=to_json(response.endpoint_schema),
        resource_schema_json=to_json(response.resource_schema),
        documentation_url=response.documentation_url,
    )


def decode_specified(message: pb.SpecResponse) -> Specified:
    return Specified(
        from_json(message.endpoint_schema_json, "endpoint_schema_json"),
        from_json(message.resource_schema_json, "resource_schema_json"),
        message.documentation_url,
    )


def encode_validate(request: Validate) -> pb.ValidateRequest:
    return pb.ValidateRequest(
        name=request.name,
        endpoint_type=request.endpoint_type,
        endpoint_json=to_json(request.endpoint),
        bindings=[
            pb.ValidateRequest.Binding(
                resource_json=to_json(binding.resource),
                collection=_encode_collection(binding.collection),
                fields=[_encode_field(field) for field in binding.fields],
            )
            for binding in request.bindings
        ],
    )


def decode_validate(message: pb.ValidateRequest) -> Validate:
    return Validate(
        message.name,
        message.endpoint_type,
        from_json(message.endpoint_json, "endpoint_json"),
        tuple(
            ValidateBinding(
                _decode_collection(binding.collection), from_json(binding.resource_json, "resource_json")
            )
            for binding in message.bindings
        ),
    )


def encode_validated(response: Validated) -> pb.ValidateResponse:
    return pb.ValidateResponse(
        bindings=[
            pb.ValidateResponse.Binding(
                constraints={
                    name: pb.Constraint(kind=constraint.kind.name, reason=constraint.reason)
                    for name, constraint in binding.constraints.items()
                },
                resource_path=binding.resource_path,
                delta_updates=binding.delta_updates,
                delivery=binding.delivery.name,
                limits=_encode_limits(binding.limits),
                target=_encode_target(binding.target),
            )
            for binding in response.bindings
        ],
        runtime_checkpoints=(
            None
            if response.runtime_checkpoints is None
            else pb.RuntimeCheckpoints(json=map(to_json, response.runtime_checkpoints))
        ),
        durability=_encode_durability(response.durability),
    )


def _encode_target(target: Target | None) -> pb.Target | None:
    if target is None:
        return None
    owner = None if target.owner is None else _encode_owner(target.owner)
    return pb.Target(exists=target.exists, has_rows=target.has_rows, owner=owner)


def _encode_owner(owner: Owner) -> pb.Owner:
    return pb.Owner(
        materialization=owner.materialization, lineage=owner.lineage, key=owner.key, mode=owner.mode.value
    )


def _decode_target(binding: pb.ValidateResponse.Binding) -> Target | None:
    if not binding.HasField("target"):
        return None
    target, owner = binding.target, None
    if target.HasField("owner"):
        said = target.owner
        try:
            owner = Owner(said.materialization, said.lineage, tuple(said.key), Mode(said.mode))
        except ValueError:
            raise ProtocolError(
                f"an owner has the mode {said.mode!r}",
                message_name="ValidateResponse",
                expected="view or append",
            ) from None
    return Target(target.exists, target.has_rows, owner)


def _decode_checkpoints(message: pb.ValidateResponse) -> tuple[JsonObject, ...] | None:
    if not message.HasField("runtime_checkpoints"):
        return None
    return tuple(from_json(text, "runtime_checkpoints") for text in message.runtime_checkpoints.json)


def _encode_durability(durability: Durability) -> pb.Durability | None:
    if durability == Durability():
        return None
    return pb.Durability(survives=durability.survives.name, mechanism=durability.mechanism)


def _decode_durability(durability: pb.Durability) -> Durability:
    try:
        survives = Survival[pb.Durability.Survival.Name(durability.survives)]
    except (KeyError, ValueError):  # of a later version: count on nothing
        survives = Survival.UNSAID
    return Durability(survives, durability.mechanism)


def _encode_limits(limits: RowLimits) -> pb.RowLimits | None:
    if limits == RowLimits():
        return None
    return pb.RowLimits(refuses_nul=limits.refuses_nul, max_key_bytes=limits.max_key_bytes)


def decode_validated(message: pb.ValidateResponse) -> Validated:
    return Validated(
        tuple(
            ValidatedBinding(
                {
                    name: Constraint(_constraint_kind(constraint.kind), constraint.reason)
                    for name, constraint in sorted(binding.constraints.items())
                },
                tuple(binding.resource_path),
                binding.delta_updates,
                _delivery(binding.delivery),
                RowLimits(binding.limits.refuses_nul, binding.limits.max_key_bytes),
                _decode_target(binding),
            )
            for binding in message.bindings
        ),
        _decode_checkpoints(message),
        _decode_durability(message.durability),
    )


def _delivery(delivery: pb.ValidateResponse.Delivery) -> Delivery:
    try:
        return Delivery[pb.ValidateResponse.Delivery.Name(delivery)]
    except (KeyError, ValueError):  # of a later version: count on nothing
        return Delivery.REPEATED


def _constraint_kind(kind: pb.Constraint.Kind) -> ConstraintKind:
    try:
        return ConstraintKind[pb.Constraint.Kind.Name(kind)]
    except (KeyError, ValueError):  # no kind was given, or one of a later version
        raise ProtocolError(
            f"a constraint has kind {kind}",
            message_name="ValidateResponse",
            expected="a known kind",
        ) from None


def encode_apply(request: Apply) -> pb.ApplyRequest:
    return pb.ApplyRequest(
        materialization=encode_materialization(request.materialization),
        version=request.version,
        dry_run=request.dry_run,
        lineage=request.lineage,
        adopts=request.adopts,
    )


def decode_apply(message: pb.ApplyRequest) -> Apply:
    return Apply(
        decode_materialization(message.materialization),
        message.version,
        message.dry_run,
        message.lineage,
        message.adopts,
    )


def encode_applied(response: Applied) -> pb.ApplyResponse:
    return pb.ApplyResponse(action_description=response.action_description)


def decode_applied(message: pb.ApplyResponse) -> Applied:
    return Applied(message.action_description)


def encode_materialization(materialization: Materialization) -> pb.Materialization:
    return pb.Materialization(
        name=materialization.name,
        endpoint_type=materialization.endpoint_type,
        endpoint_json=to_json(materialization.endpoint),
        bindings=[_encode_binding(binding) for binding in materialization.bindings],
    )


def decode_materialization(message: pb.Materialization) -> Materialization:
    return Materialization(
        message.name,
        message.endpoint_type,
        from_json(message.endpoint_json, "endpoint_json"),
        tuple(_decode_binding(binding) for binding in message.bindings),
    )


def _encode_binding(binding: Binding) -> pb.Materialization.Binding:
    return pb.Materialization.Binding(
        resource_json=to_json(binding.resource),
        collection=_encode_collection(binding.collection),
        resource_path=binding.resource_path,
        delta_updates=binding.delta_updates,
        keys=[_encode_field(field) for field in binding.keys],
        values=[_encode_field(field) for field in binding.values],
        document=binding.document,
    )


def _decode_binding(message: pb.Materialization.Binding) -> Binding:
    return Binding(
        collection=_decode_collection(message.collection),
        resource=from_json(message.resource_json, "resource_json"),
        resource_path=tuple(message.resource_path),
        values=tuple(_decode_field(field) for field in message.values),
        document=message.document if message.HasField("document") else None,
        delta_updates=message.delta_updates,
    )


def _encode_collection(collection: Collection) -> pb.Collection:
    return pb.Collection(name=collection.name, key=collection.key, schema_json=to_json(collection.schema))


def _decode_collection(message: pb.Collection) -> Collection:
    return Collection(message.name, tuple(message.key), from_json(message.schema_json, "schema_json"))


def _encode_field(field: Field) -> pb.Field:
    return pb.Field(name=field.name, pointer=field.pointer, type=str(field.type), required=field.required)


def _decode_field(message: pb.Field) -> Field:
    return Field(message.name, message.pointer, FieldType.parse(message.type), message.required)
