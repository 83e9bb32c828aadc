"""Files of a local warehouse that are on disk when they are closed.

A catalog's commit is synced by its database. The files that it points to have to be as well, or a table may
not survive a power failure after the log that could write it again has been removed. Object stores do this
anyway.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from headrace.durable import sync_path


class SyncedFileIO(PyArrowFileIO):
    def new_output(self, location: str) -> PyArrowFile:
        output = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return output
        return _SyncedFile(location, path, output._filesystem)


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        path = Path(self._path)
        _make_folder(path.parent)
        return _SyncedStream(io.FileIO(path, "wb" if overwrite else "xb"), path.parent)


class _SyncedStream(io.BufferedWriter):
    def __init__(self, raw: io.FileIO, folder: Path) -> None:
        super().__init__(raw, buffer_size=1 << 20)
        self._folder = folder

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fdatasync(self.fileno())
        finally:
            super().close()
        sync_path(self._folder)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_path(folder.parent)
