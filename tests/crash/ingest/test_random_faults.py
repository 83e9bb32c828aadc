"""Kills, torn files, restores of any part, clocks, full disks, slow and lying stores, as chance has it.

A server is under load all the time, and an oracle knows what it has announced: nothing of that is lost,
doubled, or told too early. A failure shows the seed and the schedule, and how to repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.s3_server import S3Server
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.proxy import Proxy
from tests.chance import SOAK_SEED
from tests.crash.ingest.random_faults.outside import Outside, folders_of, servers
from tests.crash.ingest.random_faults.play import play

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

KILLS = 20
"""In one run, with a log and tables of its own."""
RUNS_IN_FOLDERS, RUNS_ON_SERVERS = 40, 10
"""Of a soak: a thousand kills."""


@pytest.fixture
def real_servers(
    s3_server: S3Server, rest_catalog: IcebergRestCatalog, s3_and_rest: Surroundings
) -> Iterator[Outside]:
    """A store and a catalog behind relays: the servers are shared with other tests."""
    with Proxy("127.0.0.1", s3_server.port) as to_store, Proxy("127.0.0.1", rest_catalog.port) as to_catalog:
        endpoint = f"http://{to_store.address}"
        store = {**s3_and_rest.store, "options": {**s3_and_rest.store["options"], "endpoint": endpoint}}
        catalog = {
            **s3_and_rest.catalog_properties,
            "uri": f"http://{to_catalog.address}",
            "s3.endpoint": endpoint,
        }
        yield servers(replace(s3_and_rest, store=store, catalog_properties=catalog), to_store, to_catalog)


@pytest.mark.full
def test_twenty_kills(folders: Surroundings) -> None:
    play(folders_of(folders), SOAK_SEED, KILLS)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(RUNS_IN_FOLDERS))
def test_many_kills_in_folders(folders: Surroundings, number: int) -> None:
    play(folders_of(folders), SOAK_SEED + number, KILLS)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(RUNS_ON_SERVERS))
def test_many_kills_on_real_servers(real_servers: Outside, number: int) -> None:
    play(real_servers, SOAK_SEED + RUNS_IN_FOLDERS + number, KILLS)
