"""The REST catalog that other tests rely on is Iceberg's own, over files that a client reads itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException

from devtools.iceberg_rest import IcebergRestCatalog

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": pa.array(["a", "b", "c"])})


@contextmanager
def client_of(server: IcebergRestCatalog) -> Iterator[Catalog]:
    client = load_catalog("test", **server.iceberg_properties())
    try:
        yield client
    finally:
        client.close()


def test_what_is_committed_is_read_from_s3(rest_catalog: IcebergRestCatalog) -> None:
    namespace = f"n{uuid4().hex}"
    with client_of(rest_catalog) as client:
        client.create_namespace(namespace)
        table = client.create_table(f"{namespace}.rows", ROWS.schema)
        table.append(ROWS)
        assert table.location() == f"s3://warehouse/rest/{namespace}/rows"
    with client_of(rest_catalog) as another:
        assert another.load_table(f"{namespace}.rows").scan().to_arrow().equals(ROWS)


def test_a_commit_that_builds_on_an_old_snapshot_is_refused(rest_catalog: IcebergRestCatalog) -> None:
    namespace = f"n{uuid4().hex}"
    with client_of(rest_catalog) as client:
        client.create_namespace(namespace)
        name = f"{namespace}.rows"
        table = client.create_table(name, ROWS.schema, properties={"commit.retry.num-retries": "0"})
        stale = client.load_table(name)
        table.append(ROWS)
        with pytest.raises(CommitFailedException):
            stale.append(ROWS)
        assert client.load_table(name).scan().to_arrow().num_rows == ROWS.num_rows


@pytest.mark.full
def test_it_keeps_its_port_and_data_while_it_is_down(tmp_path: Path) -> None:
    with IcebergRestCatalog(tmp_path.as_uri()) as server, client_of(server) as client:
        client.create_namespace("kept")
        client.create_table("kept.rows", ROWS.schema).append(ROWS)
        server.stop()
        with pytest.raises(OSError, match="Connection refused"):
            client.load_table("kept.rows")
        server.start()
        assert client.load_table("kept.rows").scan().to_arrow().equals(ROWS)
    assert list(tmp_path.rglob("*.parquet"))
