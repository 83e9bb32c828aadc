"""The client's other calls, its token, TLS, and its end."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

import headrace
from headrace.client import Client
from headrace.errors import (
    Closed,
    ConfigError,
    SchemaError,
    ServerUnavailable,
    Terminal,
    Unauthorized,
    WriteTimeout,
)
from tests.client.conftest import UNTIL_TOLD
from tests.client.scripted_server import ScriptedServer
from tests.waiting import DEADLINE_SECONDS


def test_actions(server: ScriptedServer, client: Client) -> None:
    schema = pa.schema([("a", pa.int64())])
    server.answers |= {
        "list_collections": {"collections": [{"name": "x"}]},
        "describe_collection": {"name": "x"},
    }
    assert client.health() == {"status": "ok"}
    assert client.collections() == [{"name": "x"}]
    assert client.describe("x") == {"name": "x"}
    client.create_collection("x", schema, key=["/a"])
    client.create_collection("y", key=["/a"], json_schema={"type": "object"})
    client.watermarks()
    client.watermarks("x", [1, 2])
    client.flush()
    client.flush("LOCAL_DISK", timeout=3)
    encoded = base64.b64encode(schema.serialize()).decode()
    assert server.actions == [
        ("health", None),
        ("list_collections", None),
        ("describe_collection", {"name": "x"}),
        ("create_collection", {"name": "x", "arrow_schema": encoded, "key": ["/a"]}),
        ("create_collection", {"name": "y", "schema": {"type": "object"}, "key": ["/a"]}),
        ("watermarks", {}),
        ("watermarks", {"collection": "x", "lsns": [1, 2]}),
        ("flush", {"level": "COMMITTED"}),
        ("flush", {"level": "LOCAL_DISK", "timeout": 3}),
    ]


@pytest.mark.parametrize("given", [{}, {"schema": pa.schema([]), "json_schema": {}}])
def test_a_collection_has_one_schema(client: Client, given: Any) -> None:
    with pytest.raises(ConfigError, match="made from an Arrow schema, or"):
        client.create_collection("x", **given)


def test_errors_of_actions_are_typed(server: ScriptedServer, client: Client) -> None:
    server.answers["describe_collection"] = SchemaError("no collection x")
    with pytest.raises(SchemaError, match=r"^no collection x$"):
        client.describe("x")
    server.answers["health"] = [1]
    with pytest.raises(Terminal, match="not a JSON object"):
        client.health()


def test_nobody_there() -> None:
    with headrace.connect("127.0.0.1:1") as client, pytest.raises(ServerUnavailable):
        client.health()


def test_reading(server: ScriptedServer, client: Client) -> None:
    assert client.read("x", from_lsn=0, committed_only=True).read_all().to_pylist() == [{"a": 1}]
    asked = {"collection": "x", "from_lsn": 0, "committed_only": True}
    assert server.actions == [("do_get", asked)]
    server.read_failure = Unauthorized("not this part")
    reader = client.read()
    with pytest.raises(Unauthorized, match="not this part"):
        reader.read_all()


def test_the_token_goes_with_every_call(server: ScriptedServer) -> None:
    with headrace.connect(server.url, token="s3cret") as client, client.writer() as writer:
        client.health()
        client.read().read_all()
        writer.write_durable({"a": 1})
    assert len(server.headers.seen) == 3
    assert all(headers["authorization"] == ["Bearer s3cret"] for headers in server.headers.seen)


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    key, chain = issued.private_key_pem.bytes(), b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    roots = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(roots)
    with ScriptedServer(location="grpc+tls://127.0.0.1:0", tls_certificates=[(chain, key)]) as server:
        url = f"grpc+tls://127.0.0.1:{server.port}"
        for known in (roots, str(roots), roots.read_bytes(), roots.read_text()):
            with headrace.connect(url, tls_roots=known) as client, client.writer() as writer:
                writer.write_durable({"a": 1})
        with headrace.connect(url) as stranger, pytest.raises(ServerUnavailable):
            stranger.health()
        server.kill()


def test_closing_a_client_closes_its_writers(server: ScriptedServer) -> None:
    client = headrace.connect(server.url)
    writers = [client.writer(linger=UNTIL_TOLD) for _ in range(3)]
    for writer in writers:
        writer.write({"a": 1})
    client.close()
    client.close()
    assert len(server.log) == 3
    with pytest.raises(Closed):
        writers[0].write({"a": 1})
    with pytest.raises(Closed, match="client is closed"):
        client.writer()


def test_closing_a_client_says_what_its_writers_say(server: ScriptedServer) -> None:
    server.auto = None
    client = headrace.connect(server.url)
    client.writer().write({"a": 1})
    with pytest.raises(WriteTimeout):
        client.close(timeout=0.01)


@pytest.mark.processes
def test_a_program_that_forgets_to_close(server: ScriptedServer, tmp_path: Path) -> None:
    """It ends by itself, with what it wrote sent."""
    # Arrow would load pandas, for seconds.
    (tmp_path / "pandas.py").write_text("raise ImportError")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    program = f"""
import headrace
writer = headrace.connect({server.url!r}).writer(linger={UNTIL_TOLD})
writer.write({{"a": 1}})
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        timeout=DEADLINE_SECONDS,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert server.rows() == [{"a": 1}]


@pytest.mark.processes
def test_importing_the_package_is_cheap() -> None:
    program = "import sys, headrace; print('pyarrow' in sys.modules, headrace.__version__ > '')"
    ended = subprocess.run(
        [sys.executable, "-c", program], timeout=DEADLINE_SECONDS, capture_output=True, text=True
    )
    assert ended.stdout.split() == ["False", "True"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        headrace.nothing  # noqa: B018
