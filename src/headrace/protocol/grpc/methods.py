"""The agreement between both ends of the gRPC service: method names, limits, and the form of errors."""

from __future__ import annotations

import json
from typing import Any

import grpc

from headrace.errors import HeadraceError, Transient

SERVICE = "headrace.materialize.v1.Driver"
ERROR_METADATA = "headrace-error-bin"

# A document of 16 MiB may come with its largest value extracted beside it, and some room for the rest.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# An error travels as metadata, which gRPC limits to a few kilobytes by default, dropping a larger error.
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


# Codes that are permanent if the server gives no details. UNAVAILABLE, CANCELLED and the like may pass.
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
    """Returns the error as JSON, with texts cut that exceed gRPC's limits."""
    raw = json.loads(error.to_json())
    raw["message"] = _cut(raw["message"])
    raw["fields"] = {name: _cut(value) for name, value in raw["fields"].items()}
    return json.dumps(raw).encode()


def error_details(error: HeadraceError) -> str:
    """Returns the error for clients that know only gRPC, cut to their limits."""
    return error.message[:500]


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_ERROR_TEXT:
        return value[:MAX_ERROR_TEXT] + "..."
    return value


def status_of(error: HeadraceError) -> grpc.StatusCode:
    """Returns the status for clients that know only gRPC: UNAVAILABLE may be retried, FAILED_PRECONDITION
    not."""
    if isinstance(error, Transient):
        return grpc.StatusCode.UNAVAILABLE
    return grpc.StatusCode.FAILED_PRECONDITION
