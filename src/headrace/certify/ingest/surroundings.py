"""What a server stands in: an object store and a catalog, which outlive it and its data folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from headrace.certify.ingest.journal import Broken, Journal
from headrace.certify.ingest.oracle import EndState, Found, read_tables, snapshots_not_holding, some
from headrace.client import connect
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess, without_pandas

# Everything often, so that a fault at any moment meets everything.
INGEST = {"segment_seconds": 0.05, "commit_interval": 0.1, "commit_timeout": 60}


@dataclass
class Surroundings:
    folder: Path
    store: dict[str, Any]
    """As in the configuration."""
    catalog_properties: dict[str, str]
    namespace: str = "crash"

    @staticmethod
    def in_folder(folder: Path) -> Surroundings:
        """Folders and an SQLite catalog, as a server has by default, but outside of its data folder."""
        lake = folder / "lake"
        lake.mkdir(parents=True)
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{lake}/catalog.db",
            "warehouse": f"file://{lake}/warehouse",
        }
        return Surroundings(folder, {"url": (lake / "objects").as_uri()}, catalog)

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
            environment={**without_pandas(self.folder), **(environment or {})},
        )

    def catalog(self) -> Catalog:
        return load_catalog("headrace", **self.catalog_properties)

    def end_state(self, journal: Journal, server: IngestProcess) -> EndState:
        """Brings everything into the tables first."""
        with connect(server.url) as client:
            client.flush(Tier.COMMITTED, timeout=100)
            given = sorted(journal.given)[-5000:]
            told = client.watermarks(lsns=given)
        catalog = self.catalog()
        found = read_tables(catalog, self.namespace)
        early = snapshots_not_holding(journal, catalog, self.namespace)
        said = {lsn: told["lsns"][str(lsn)] for lsn in given}
        return EndState(journal, found, told["lost"], said, early)

    def check(self, journal: Journal, server: IngestProcess, binding: Tier) -> None:
        """Once everything is in the tables; what was told at the binding tier, or above, has to be so."""
        for finding in self.end_state(journal, server).findings(binding):
            raise Broken(finding.text)

    def check_committed(self, journal: Journal) -> None:
        """What was told by now, before the server can commit any more."""
        told = [write for write in journal.so_far().values() if Tier.COMMITTED in dict(write.told)]
        found = read_tables(self.catalog(), self.namespace) if told else Found()
        early = [write for write in told if write.name not in found.places]
        if early:
            raise Broken(f"writes that were told to be committed too early: {some(early)}")
