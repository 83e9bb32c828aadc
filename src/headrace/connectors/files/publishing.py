"""Acknowledge: publishes the files that the recovery log names, once however often it is called.

A staged object is copied to its final name, a marker records that, and only then the staged object is
removed. If the marker exists, nothing is done. So a file that a reader has removed does not come back, and a
staged object that somebody removed is not mistaken for a published one.

Two streams may do this at once, such as the parts of a range that was split, or a zombie and its successor.
They copy the same bytes to the same name. What a zombie staged after it was replaced is in no recovery log,
so nobody is ever told to publish it.
"""

from __future__ import annotations

from headrace.connectors.files.checkpoint import Checkpoint
from headrace.connectors.files.layout import StagedFile
from headrace.connectors.files.storage import Storage
from headrace.errors import EndpointError


class Publisher:
    """Publishes for one stream."""

    def __init__(self, storage: Storage, checkpoint: Checkpoint) -> None:
        self._storage = storage
        self._checkpoint = checkpoint
        self._outdated: list[str] = []

    def publish(self) -> None:
        """Publishes the files of the current checkpoint. Call it when the recovery log contains that
        checkpoint."""
        for file in self._checkpoint.files:
            self._publish(file)
        # The log has moved on from these. Markers of another range are left, since its other heirs may
        # still stand where it did.
        self._storage.delete(self._outdated)
        self._outdated = [file.marker_path for file in self._checkpoint.own_files]

    def _publish(self, file: StagedFile) -> None:
        if not self._is_published(file):
            if not self._storage.publish(file.staged_path, file.published_path, file.size):
                if self._is_published(file):  # by another stream, between the two looks
                    return
                raise EndpointError(
                    f"{file.staged_path}, which the recovery log names, is gone before it was published: "
                    "bring it back, or start the materialization anew with another name and prefix"
                )
            self._storage.create(file.marker_path, b"")
        self._storage.delete([file.staged_path])

    def _is_published(self, file: StagedFile) -> bool:
        return self._storage.size(file.marker_path) is not None
