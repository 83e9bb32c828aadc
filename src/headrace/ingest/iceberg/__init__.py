"""Collections as Iceberg tables: commits and scans, each in processes of their own.

pyiceberg's Python work must not hold the lock that the server's acknowledgements need, so only those
processes import it; nothing that is imported here does.
"""

from headrace.ingest.iceberg.committer import CommitterProcess
from headrace.ingest.iceberg.errors import CatalogUnavailable, CommitConflict, CommitterDied, ScanFailed
from headrace.ingest.iceberg.jobs import CommitJob, SegmentPart
from headrace.ingest.iceberg.scanner import Scan, Scanner
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog

__all__ = [
    "CatalogSettings",
    "CatalogUnavailable",
    "CommitConflict",
    "CommitJob",
    "CommitterDied",
    "CommitterProcess",
    "Scan",
    "ScanFailed",
    "Scanner",
    "SegmentPart",
    "embedded_catalog",
]
