"""What both ends of the gRPC service agree on: method names, limits, and how an error travels."""

from __future__ import annotations

import json
from typing import Any

import grpc

from headrace.errors import HeadraceError, Transient

SERVICE = "headrace.materialize.v1.Driver"
ERROR_METADATA = "headrace-error-bin"

# A document of 16 MiB may come with its largest value extracted beside it, and some room for the rest.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# An error travels as metadata, which gRPC limits to a few kilobytes unless told, and drops the error then.
MAX_METADATA_BYTES = 1024 * 1024
MAX_ERROR_TEXT = 10_000

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    # Without pings a peer that vanished with its host would be waited for without end. The last one lets
    # the server take them: by default it hangs up on who pings more often than every five minutes.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
]


# What a server that says nothing more means for good. UNAVAILABLE, CANCELLED and the like may pass.
FINAL_STATUSES = {
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}


def method(name: str) -> str:
    return f"/{SERVICE}/{name}"


def error_metadata(error: HeadraceError) -> bytes:
    """The error as JSON, with texts cut where they would not pass."""
    raw = json.loads(error.to_json())
    raw["message"] = _cut(raw["message"])
    raw["fields"] = {name: _cut(value) for name, value in raw["fields"].items()}
    return json.dumps(raw).encode()


def error_details(error: HeadraceError) -> str:
    """The error for clients that know only gRPC, and take no long ones."""
    return error.message[:500]


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_ERROR_TEXT:
        return value[:MAX_ERROR_TEXT] + "..."
    return value


def status_of(error: HeadraceError) -> grpc.StatusCode:
    """For clients that know only gRPC: UNAVAILABLE may be tried again, FAILED_PRECONDITION not."""
    if isinstance(error, Transient):
        return grpc.StatusCode.UNAVAILABLE
    return grpc.StatusCode.FAILED_PRECONDITION
