"""Removes what streams staged that are no more, and that no recovery log names."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from headrace.connectors.files.checkpoint import Checkpoint
from headrace.connectors.files.layout import STAGED, staged_range
from headrace.connectors.files.storage import Storage
from headrace.model.key_range import KeyRange

LEFT_ALONE = timedelta(days=1)
"""Younger ones stay, for somebody who looks into a failure, and in case that clocks differ."""


def remove_leftovers(
    storage: Storage,
    prefixes: Iterable[str],
    materialization: str,
    key_range: KeyRange,
    checkpoint: Checkpoint,
) -> None:
    """Call at Open, with the checkpoint that it brought.

    Only what was staged for keys that are all of this range: every stream that could still be told to publish
    it has been replaced by this one, whose checkpoint does not name it. A part of a range that was split does
    not know how far the other parts have come, and leaves what the whole range staged.
    """
    before = datetime.now(UTC) - LEFT_ALONE
    named = {path for file in checkpoint.files for path in (file.staged_path, file.marker_path)}
    for prefix in prefixes:
        folder = f"{prefix}/{STAGED}"
        storage.delete(
            path
            for path, found in [(f"{folder}/{found.name}", found) for found in storage.objects(folder)]
            if path not in named
            and found.modified < before
            and (left_by := staged_range(found.name, materialization)) is not None
            and key_range.intersection(left_by) == left_by
        )
