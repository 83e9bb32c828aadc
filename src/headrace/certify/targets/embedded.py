"""Endpoints that need no server."""

from __future__ import annotations

from pathlib import Path

from headrace.certify.targets.delta import DeltaTarget
from headrace.certify.targets.files import FilesTarget
from headrace.certify.targets.hudi import HudiTarget
from headrace.certify.targets.iceberg import IcebergTarget
from headrace.certify.targets.parquet import ParquetTarget
from headrace.certify.targets.sqlite import SqliteTarget
from headrace.certify.targets.sqlite_served import ServedSqliteTarget
from headrace.certify.targets.target import Target
from headrace.certify.targets.webhook import WebhookTarget
from headrace.ingest.iceberg.settings import CatalogSettings


def embedded_targets(folder: Path, catalog: CatalogSettings) -> list[Target]:
    """All in one folder, and Iceberg in the pipeline's catalog."""

    def below(name: str) -> str:
        return (folder / name).absolute().as_uri()

    return [
        SqliteTarget(folder / "sqlite"),
        ServedSqliteTarget(folder / "sqlite-grpc"),
        WebhookTarget(),
        FilesTarget(below("files"), {}),
        ParquetTarget(below("parquet"), {}),
        IcebergTarget(catalog),
        DeltaTarget(below("delta"), {}),
        HudiTarget(below("hudi"), {}),
    ]
