"""What makes rows of the sources into rows of the endpoint, as one short text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict

from headrace.model.materializations import Binding, Materialization
from headrace.pipeline.settings import BindingSettings, FormatSource, MaterializationSettings


def content_digest(settings: MaterializationSettings, materialization: Materialization) -> str:
    """Another one means that an epoch that is run again may give other rows."""
    parts = map(_parts, settings.bindings, materialization.bindings)
    text = json.dumps(list(parts), sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _parts(settings: BindingSettings, binding: Binding) -> dict[str, object]:
    return {
        "key": settings.collection.key,
        "schema": settings.collection.schema,
        "order_by": settings.source.order_by if isinstance(settings.source, FormatSource) else (),
        "rules": [asdict(rule) for rule in settings.rules],
        "invalid": settings.invalid,
        "values": [(field.name, field.pointer) for field in binding.values],
        "document": binding.document,
        "delta_updates": binding.delta_updates,
    }


def _plain(value: object) -> object:
    """Of what a rule may compare with: dates, decimals, and mappings that are no dict."""
    return dict(value) if isinstance(value, Mapping) else str(value)
