"""Removes objects that earlier streams staged and that no recovery log names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from headrace.connectors.files.checkpoint import Checkpoint
from headrace.connectors.files.layout import STAGED, marked, staged_range
from headrace.connectors.files.storage import Storage, StoredObject
from headrace.model.key_range import KeyRange

LEFT_ALONE = timedelta(days=1)
"""Younger objects stay, for people who investigate a failure, and in case clocks differ."""


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

    Markers go as soon as the log has moved on from their transactions, or each stream would leave one. They
    go after what they mark, which without them would be published once more.
    """
    before = datetime.now(UTC) - LEFT_ALONE
    named = {path for file in checkpoint.files for path in (file.staged_path, file.marker_path)}
    for prefix in prefixes:
        folder = f"{prefix}/{STAGED}"
        found = list(storage.objects(folder))
        outdated = list(_outdated(found, materialization, checkpoint))
        storage.delete(f"{folder}/{name}" for name in outdated)
        storage.delete(
            path
            for path, left in [(f"{folder}/{left.name}", left) for left in found]
            if path not in named
            and left.name not in outdated
            and left.modified < before
            and (left_by := staged_range(left.name, materialization)) is not None
            and key_range.intersection(left_by) == left_by
        )


def _outdated(found: Sequence[StoredObject], materialization: str, checkpoint: Checkpoint) -> Iterator[str]:
    """Yields markers that nobody will look for, each after the object that it marks, if that still exists."""
    names = {one.name for one in found}
    for name in names:
        left_by, marks = staged_range(name, materialization), marked(name)
        if left_by is not None and marks is not None and checkpoint.is_past(left_by, marks[1]):
            yield from (one for one in (marks[0], name) if one in names)
