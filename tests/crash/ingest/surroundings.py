"""What a server stands in: an object store and a catalog, which outlive it and its data folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pyiceberg.catalog import Catalog, load_catalog

import headrace
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess
from tests.crash.ingest.journal import Journal
from tests.crash.ingest.oracle import assert_exactly_once, assert_snapshots_hold_writes, read_tables

# Everything often, so that a fault at any moment meets everything.
INGEST = {"segment_seconds": 0.05, "commit_interval": 0.1, "commit_timeout": 60}
_COMMITTER = "headrace.ingest.iceberg.committer_process"


@dataclass
class Surroundings:
    folder: Path
    store: dict[str, Any]
    """As in the configuration."""
    catalog_properties: dict[str, str]
    namespace: str = "crash"

    def server(
        self,
        data: str = "data",
        *,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        **ingest: Any,
    ) -> IngestProcess:
        """A server with a data folder of its own."""
        config = {
            "store": self.store,
            "catalog": {"namespace": self.namespace, "properties": self.catalog_properties},
            "ingest": INGEST | ingest,
        }
        file = self.folder / f"{data}.yaml"
        file.write_text(json.dumps(config))
        return IngestProcess(
            self.folder / data,
            "--config",
            str(file),
            "--no-metrics",
            command=command,
            environment={**self._without_pandas(), **(environment or {})},
        )

    def catalog(self) -> Catalog:
        return load_catalog("headrace", **self.catalog_properties)

    def assert_exactly_once(self, journal: Journal, server: IngestProcess, binding: Tier) -> None:
        """Brings everything into the tables first."""
        with headrace.connect(server.url) as client:
            client.flush(Tier.COMMITTED, timeout=100)
            given = sorted(journal.given)[-5000:]
            told = client.watermarks(lsns=given)
        catalog = self.catalog()
        found = read_tables(catalog, self.namespace)
        assert_exactly_once(journal, found, told["lost"], binding)
        assert_snapshots_hold_writes(journal, catalog, self.namespace)
        wrong = [
            lsn for lsn in given if told["lsns"][str(lsn)] != ("COMMITTED" if lsn in found.names else "LOST")
        ]
        assert not wrong, f"the server is wrong about {wrong[:3]}"

    def _without_pandas(self) -> dict[str, str]:
        """Arrow loads pandas where it is installed, as it is here for the client's tests.

        No server needs it, and it is half of a server's start.
        """
        folder = self.folder / "without_pandas"
        folder.mkdir(exist_ok=True)
        (folder / "pandas.py").write_text("raise ImportError('not for servers')\n")
        return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


def committers_of(server: IngestProcess) -> list[psutil.Process]:
    """The server's processes that commit: one, or none while it starts."""
    try:
        children = psutil.Process(server.pid).children()
        return [child for child in children if _COMMITTER in child.cmdline()]
    except psutil.Error:
        return []
