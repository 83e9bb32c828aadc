"""Files under test, read with pyarrow alone, and only where readers are told to look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from devtools.s3_server import S3Server
from headrace.connectors.files import FilesConnector
from headrace.model.checkpoints import JsonObject
from headrace.model.columns import extract
from headrace.model.field_types import Kind
from headrace.model.materializations import Binding
from headrace.protocol.messages import Acknowledge, Acknowledged, Request
from headrace.testing import Runtime, combine
from headrace.testing.endpoint import EndpointUnderTest
from headrace.testing.runtime import Committed, Document


class EndingRuntime(Runtime):
    """Can let the last transaction be published before it ends its stream."""

    def settle(self) -> None:
        self._send(Acknowledge())
        self._expect(Acknowledged)

    def _send(self, request: Request) -> None:
        settled = isinstance(request, Acknowledge) and self._stream.acknowledged
        if not settled:
            super()._send(request)


class SettlingRuntime(EndingRuntime):
    """Lets each transaction be published before it returns."""

    def transact(
        self, documents: Sequence[Sequence[Document]], checkpoint: JsonObject, always_load: bool = False
    ) -> Committed:
        committed = super().transact(documents, checkpoint, always_load)
        self.settle()
        return committed


class FilesEndpointUnderTest(EndpointUnderTest):
    """A binding that is asked for as a full view is read as one: its deltas reduced, in the files' order."""

    keeps_checkpoints = False

    def __init__(self, config: Mapping[str, Any], filesystem: pafs.FileSystem, root: str) -> None:
        self.connector = FilesConnector()
        self.endpoint_type = "files"
        self.config = config
        self.filesystem = filesystem
        self.root = root
        self._reduced: set[str] = set()

    def resource(self, name: str, delta_updates: bool = False) -> Mapping[str, Any]:
        if not delta_updates:
            self._reduced.add(name)
        return {"prefix": name}

    def files(self, prefix: str, folder: str = "data") -> list[str]:
        selector = pafs.FileSelector(f"{self.root}/{prefix}/{folder}", allow_not_found=True)
        return sorted(info.path for info in self.filesystem.get_file_info(selector))

    def table(self, prefix: str) -> list[pa.Table]:
        """One for each file, in order."""
        return [pq.read_table(path, filesystem=self.filesystem) for path in self.files(prefix)]

    def rows(self, binding: Binding) -> list[dict[str, Any]]:
        (prefix,) = binding.resource_path
        rows = [row for table in self.table(prefix) for row in table.to_pylist()]
        parsed = [field.name for field in binding.values if field.type.kind is Kind.JSON]
        if binding.document:
            parsed.append(binding.document)
        for row in rows:
            row.update({name: orjson.loads(row[name]) for name in parsed if row[name] is not None})
        return _reduced(binding, rows) if prefix in self._reduced else rows


def _reduced(binding: Binding, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert binding.document
    documents = list(combine(binding.collection, [row[binding.document] for row in rows]).values())
    columns = extract((*binding.keys, *binding.values), documents).to_pylist()
    nested = [field.name for field in binding.values if field.type.kind is Kind.JSON]
    return [
        {**row, **{name: document.get(name) for name in nested}, binding.document: document}
        for row, document in zip(columns, documents, strict=True)
    ]


def in_folder(folder: Path) -> FilesEndpointUnderTest:
    return FilesEndpointUnderTest({"url": str(folder)}, pafs.LocalFileSystem(), str(folder))


def in_bucket(server: S3Server, bucket: str) -> FilesEndpointUnderTest:
    config = {"url": f"s3://{bucket}/some/path", "options": server.obstore_options()}
    filesystem = pafs.S3FileSystem(
        access_key=server.access_key,
        secret_key=server.secret_key,
        region=server.region,
        scheme="http",
        endpoint_override=urlsplit(server.endpoint).netloc,
    )
    return FilesEndpointUnderTest(config, filesystem, f"{bucket}/some/path")
