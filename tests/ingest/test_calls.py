"""Reads and actions over a real port, with real tables."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.ingest.server import IngestServer
from headrace.model.tiers import Tier
from tests.ingest.flight_client import Stream, our_error
from tests.ingest.support import running_server
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

PLACE = [pa.field("_lsn", pa.int64(), nullable=False), pa.field("_row", pa.int32(), nullable=False)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IngestServer]:
    """Commits only when it is asked to."""
    with running_server(tmp_path_factory.mktemp("data"), commit_interval=3600.0) as server:
        # It commits once when it starts, and whatever there is by then.
        write(server, "first", [1])
        server.engine.flush(Tier.COMMITTED, DEADLINE_SECONDS)
        yield server


@pytest.fixture
def client(server: IngestServer) -> Iterator[flight.FlightClient]:
    with flight.connect(server.url) as client:
        yield client


def call(client: flight.FlightClient, action: str, /, **body: Any) -> dict[str, Any]:
    return call_with(client, action, json.dumps(body).encode() if body else b"")


def call_with(client: flight.FlightClient, name: str, body: bytes) -> dict[str, Any]:
    [result] = client.do_action(flight.Action(name, body))
    answer: dict[str, Any] = json.loads(result.body.to_pybytes())
    return answer


def read(client: flight.FlightClient, collection: str, **ticket: Any) -> pa.Table:
    raw = json.dumps({"collection": collection, **ticket}).encode()
    return client.do_get(flight.Ticket(raw)).read_all()


def write(server: IngestServer, collection: str, *writes: list[int]) -> list[int]:
    with Stream(server.url, collection) as stream:
        for ids in writes:
            stream.send_ids(*ids)
        return stream.await_count("MEMORY", len(writes))


def test_a_schema_that_is_nested_too_deep_harms_nobody(
    server: IngestServer, client: flight.FlightClient
) -> None:
    """JSON is read that is nested 1,023 levels deep, and written only down to 254."""
    for levels in (99, 250, 1000):
        nested = "[" * (levels - 2) + "]" * (levels - 2)
        document = (
            '{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}, "examples": '
            f"{nested}}}"
        )
        body = f'{{"name": "deep_{levels}", "key": ["/id"], "schema": {document}}}'.encode()
        if levels < 100:
            call_with(client, "create_collection", body)
            continue
        with pytest.raises(flight.FlightError) as refused:
            call_with(client, "create_collection", body)
        assert "nested more than 100 levels deep" in our_error(refused.value)["message"]
    assert [
        one["name"] for one in call(client, "list_collections")["collections"] if "deep" in one["name"]
    ] == ["deep_99"]
    assert write(server, "shallow", [1])
    server.engine.flush(Tier.OBJECT_STORAGE, DEADLINE_SECONDS)  # seals a segment, and begins one with a state


def test_a_writer_reads_its_own_writes_committed_or_not(
    server: IngestServer, client: flight.FlightClient
) -> None:
    # The fixture's flush may be taken for two, and the second of them commits what it finds.
    for own in ("own", "own-again"):
        first, second = write(server, own, [1, 2], [3])
        assert read(client, own).to_pylist() == [
            {"id": 1, "_lsn": first, "_row": 0},
            {"id": 2, "_lsn": first, "_row": 1},
            {"id": 3, "_lsn": second, "_row": 0},
        ]
        if not read(client, own, committed_only=True).num_rows:
            break
    assert read(client, own, committed_only=True).num_rows == 0
    call(client, "flush", level="COMMITTED", timeout=DEADLINE_SECONDS)
    assert read(client, own, committed_only=True).num_rows == 3
    [third] = write(server, own, [4])
    rows = read(client, own)
    assert sorted(rows.column("id").to_pylist()) == [1, 2, 3, 4]
    assert rows.schema == pa.schema([("id", pa.int64()), *PLACE])
    assert read(client, own, from_lsn=second, to_lsn=second).column("id").to_pylist() == [3]
    assert read(client, own, from_lsn=third).column("id").to_pylist() == [4]
    # A column that came later is null in what was written before, in the table and beside it.
    wider = pa.record_batch({"id": pa.array([5], pa.int64()), "name": pa.array(["five"])})
    with Stream(server.url, own) as stream:
        stream.send(wider).await_count("MEMORY", 1)
    names = {row["id"]: row["name"] for row in read(client, own).to_pylist()}
    assert names == {1: None, 2: None, 3: None, 4: None, 5: "five"}


def test_collections_are_listed_with_their_schemas(server: IngestServer, client: flight.FlightClient) -> None:
    [lsn] = write(server, "listed", [1])
    infos = {info.descriptor.path[0].decode(): info for info in client.list_flights()}
    expected = pa.schema([("id", pa.int64()), *PLACE])
    assert infos["listed"].schema == expected
    descriptor = flight.FlightDescriptor.for_path("listed")
    info = client.get_flight_info(descriptor)
    assert info.schema == client.get_schema(descriptor).schema == expected
    [endpoint] = info.endpoints
    assert client.do_get(endpoint.ticket).read_all().column("_lsn").to_pylist() == [lsn]


@pytest.mark.parametrize(
    ("ticket", "message"),
    [
        (b"{", "a ticket is a JSON object such as"),
        (b"[]", "a ticket is a JSON object such as"),
        (b"{}", "a ticket is a JSON object such as"),
        (b'{"collection": "nowhere"}', "there is no collection 'nowhere'"),
        (b'{"collection": "x", "rows": 1}', "a ticket has no key 'rows'"),
        (b'{"collection": "x", "from_lsn": true}', "a ticket's from_lsn is True, which is not of type int"),
    ],
)
def test_a_wrong_ticket_is_refused_in_a_sentence(
    client: flight.FlightClient, ticket: bytes, message: str
) -> None:
    with pytest.raises(flight.FlightServerError) as caught:
        client.do_get(flight.Ticket(ticket)).read_all()
    assert message in our_error(caught.value)["message"]


def test_descriptors_that_name_no_collection_are_refused(client: flight.FlightClient) -> None:
    for descriptor in (flight.FlightDescriptor.for_path("a", "b"), flight.FlightDescriptor.for_command(b"x")):
        with pytest.raises(flight.FlightServerError, match="the descriptor"):
            client.get_flight_info(descriptor)
        # Of this one call pyarrow's server does not pass on the kind of error.
        with pytest.raises(pa.ArrowException, match="the descriptor"):
            client.get_schema(descriptor)
    with pytest.raises(flight.FlightServerError, match="there is no collection 'nowhere'"):
        client.get_flight_info(flight.FlightDescriptor.for_path("nowhere"))


def test_collections_are_created_and_described(client: flight.FlightClient) -> None:
    schema = pa.schema([("id", pa.int64())])
    encoded = b64encode(schema.serialize().to_pybytes()).decode()
    made = call(client, "create_collection", name="made", arrow_schema=encoded)
    assert made["fields"] == [{"name": "id", "type": "int64", "nullable": True}]
    assert (made["key"], made["committed_lsn"], made["snapshot_id"]) == ([], 0, None)
    assert made["table"].endswith("made")
    assert call(client, "create_collection", name="made", arrow_schema=encoded) == made
    assert call(client, "describe_collection", name="made") == made
    document = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    keyed = call(client, "create_collection", name="keyed", key=["/id"], schema=document)
    assert keyed["key"] == ["/id"]
    listed = {one["name"] for one in call(client, "list_collections")["collections"]}
    assert listed >= {"made", "keyed"}


def test_the_watermarks_say_how_far_single_writes_are(
    server: IngestServer, client: flight.FlightClient
) -> None:
    [lsn] = write(server, "asked", [1])
    answer = call(client, "watermarks", collection="asked", lsns=[lsn, lsn + 1_000_000_000])
    assert answer["watermarks"].keys() == {tier.name for tier in Tier}
    assert answer["lsns"][str(lsn)] in {tier.name for tier in Tier}
    assert answer["lsns"][str(lsn + 1_000_000_000)] == "UNKNOWN"
    assert answer["lost"] == []
    after = call(client, "flush", level="OBJECT_STORAGE")
    assert after["watermarks"]["OBJECT_STORAGE"] >= lsn
    call(client, "flush")
    described = call(client, "describe_collection", name="asked")
    assert described["committed_lsn"] >= lsn
    assert described["snapshot_id"] is not None
    assert call(client, "watermarks", collection="asked", lsns=[lsn])["lsns"] == {str(lsn): "COMMITTED"}


def test_health_says_that_all_is_well(server: IngestServer, client: flight.FlightClient) -> None:
    with Stream(server.url, "healthy") as stream:
        stream.options(producer="nurse")
        stream.said("session")
        wait_until(lambda: call(client, "health")["status"] == "ok")  # once the tables have answered
        health = call(client, "health")
    assert (health["status"], health["accepts_writes"], health["problems"]) == ("ok", True, [])
    assert ("healthy", "nurse") in [(one["collection"], one["producer"]) for one in health["sessions"]]


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("explode", b"", "there is no action 'explode'; there are create_collection"),
        ("flush", b"{", "flush: the body is not JSON"),
        ("flush", b"[]", "flush: the body is not a JSON object"),
        ("flush", b'{"levle": 1}', "key 'levle' is not known; the keys are level, timeout"),
        ("flush", b'{"level": "DISK"}', "'DISK' is not a durability level"),
        ("flush", b'{"timeout": true}', "flush: timeout is a number of seconds, at most 86,400, not True"),
        ("flush", b'{"timeout": -1}', "flush: timeout is a number of seconds, at most 86,400, not -1"),
        ("watermarks", b'{"lsns": "all"}', "watermarks: lsns is a list of at most 100,000 LSNs"),
        ("watermarks", b'{"collection": "nowhere"}', "there is no collection 'nowhere'"),
        ("describe_collection", b"{}", "name is missing or not a text"),
        ("describe_collection", b'{"name": "nowhere"}', "there is no collection 'nowhere'"),
        ("create_collection", b'{"name": "x"}', "give arrow_schema, or key and schema"),
        ("create_collection", b'{"name": "x", "arrow_schema": "AAAA"}', "not a schema in Arrow IPC form"),
        ("create_collection", b'{"name": "x", "arrow_schema": 5}', "not a schema in Arrow IPC form"),
        ("create_collection", b'{"name": "x", "schema": {}, "key": "/id"}', "key is a list of JSON pointers"),
        ("create_collection", b'{"name": "9", "schema": {}, "key": []}', "'9' is not a name of a collection"),
    ],
)
def test_wrong_actions_are_refused_in_a_sentence(
    client: flight.FlightClient, name: str, body: bytes, message: str
) -> None:
    with pytest.raises(flight.FlightServerError) as caught:
        call_with(client, name, body)
    said = our_error(caught.value)
    assert said["transient"] is False
    assert message in said["message"]
    assert "\n" not in said["message"]


def test_the_actions_are_listed(client: flight.FlightClient) -> None:
    names = {action.type for action in client.list_actions()}
    assert names == {
        "create_collection",
        "list_collections",
        "describe_collection",
        "watermarks",
        "flush",
        "health",
        "list_quarantine",
        "release_quarantine",
        "drop_quarantine",
    }


def test_a_flush_that_takes_too_long_may_be_tried_again(
    server: IngestServer, client: flight.FlightClient
) -> None:
    write(server, "slow", [1])
    with pytest.raises(flight.FlightUnavailableError) as caught:
        call(client, "flush", timeout=0)
    assert our_error(caught.value)["error"] == "WriteTimeout"
