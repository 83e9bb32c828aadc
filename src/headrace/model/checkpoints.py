"""The two checkpoints that a transaction carries.

A *runtime checkpoint* says where an epoch ends in its sources. It is opaque to connectors: a JSON object
that an authoritative endpoint keeps beside its data and gives back when it is opened again. `None` means
that the endpoint keeps none, so the recovery log decides; `START`, the empty object, means that the
endpoint keeps it and has nothing yet, so the materialization starts from the beginning.

A *connector checkpoint* is small state that a connector asks the runtime to keep; each update is a JSON merge
patch (RFC 7396) on the previous state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.errors import ProtocolError

JsonObject = Mapping[str, Any]

START: JsonObject = {}


def to_json(value: JsonObject) -> str:
    """Encodes with `json`, because orjson cannot encode integers of any size or any mapping, which a
    checkpoint may hold."""
    try:
        return json.dumps(value, default=dict, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a message holds what is not JSON: {error}", expected="a JSON object") from None


def merge_patch(state: JsonObject | None, patch: JsonObject | None) -> JsonObject | None:
    """Returns the connector checkpoint after an update, or unchanged if there is no update."""
    if patch is None:
        return state
    return _merge_objects(state or {}, patch)


def _merge_objects(state: JsonObject, patch: JsonObject) -> JsonObject:
    merged = dict(state)
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        elif isinstance(change, Mapping):
            before = merged.get(key)
            merged[key] = _merge_objects(before if isinstance(before, Mapping) else {}, change)
        else:
            merged[key] = change
    return merged
