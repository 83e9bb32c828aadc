"""`headrace quarantine`, as a person calls it, against a real port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import headrace
from headrace.cli import cli
from headrace.errors import HeadraceError, Quarantined, SchemaError
from headrace.ingest.server import IngestServer
from headrace.model.tiers import Tier
from tests.ingest.support import FakeIceberg, running_server, write_all
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def iceberg(monkeypatch: pytest.MonkeyPatch) -> FakeIceberg:
    fake = FakeIceberg()
    monkeypatch.setattr("headrace.ingest.engine.CommitterProcess", fake.process)
    return fake


@pytest.fixture
def server(tmp_path: Path, iceberg: FakeIceberg) -> Iterator[IngestServer]:
    """Has one collection in quarantine, with one write in its table and one that is not."""
    with running_server(tmp_path) as server:
        write_all(server.engine, 1, collection="orders", level=Tier.COMMITTED)
        iceberg.hold()
        write_all(server.engine, 2, collection="orders", level=Tier.OBJECT_STORAGE)
        iceberg.problems["orders"] = SchemaError("its table is [odd]")
        iceberg.let_go()
        wait_until(lambda: server.engine.quarantine.names() == ["orders"], "a quarantine")
        # A commit of the next round: by now writes are refused, which they are just after it is listed.
        write_all(server.engine, 1, collection="good", level=Tier.COMMITTED)
        yield server


def call(server: IngestServer, *arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(cli, ["quarantine", *arguments, "--server", server.url], input=answer)


def test_list_release_and_write_again(server: IngestServer, iceberg: FakeIceberg) -> None:
    shown = call(server, "list")
    assert shown.exit_code == 0
    assert "orders" in shown.output
    assert "[odd]" in shown.output
    [one] = json.loads(call(server, "list", "--json").output)
    assert (one["collection"], one["reason"]) == ("orders", "its table is [odd]")
    with headrace.connect(server.url) as client:
        writer = client.writer("orders")
        with pytest.raises(
            Quarantined, match="release it with headrace quarantine release orders"
        ) as refused:
            writer.write({"id": 9}).wait(Tier.LOCAL_DISK, DEADLINE_SECONDS)
        assert (refused.value.collection, refused.value.reason) == ("orders", "its table is [odd]")
    failed = call(server, "release", "orders")
    assert isinstance(failed.exception, SchemaError)
    assert failed.exception.message == "its table is [odd]"
    iceberg.problems.clear()
    assert "orders is released" in call(server, "release", "orders").output
    write_all(server.engine, 3, collection="orders", level=Tier.COMMITTED)
    assert len(iceberg.lsns["orders"]) == 3
    assert call(server, "list").output == "no collection is in quarantine\n"


def test_a_release_of_what_is_not_there_is_one_sentence(server: IngestServer) -> None:
    refused = call(server, "release", "others")
    assert isinstance(refused.exception, HeadraceError)
    assert "'others' is not in quarantine" in refused.exception.message


def test_a_drop_wants_the_name_twice(server: IngestServer) -> None:
    for refused in (
        call(server, "drop", "orders", "--yes", "order"),
        call(server, "drop", "orders", answer="yes\n"),
    ):
        assert refused.exit_code == 2
        assert "nothing was dropped" in refused.output
    assert server.engine.quarantine.names() == ["orders"]
    dropped = call(server, "drop", "orders", "--json", answer="orders\n")
    assert json.loads(dropped.stdout.splitlines()[-1])["name"] == "orders"
    wait_until(lambda: server.engine.quarantine.names() == [])


def test_help_has_examples() -> None:
    for command in ("list", "release", "drop"):
        shown = CliRunner().invoke(cli, ["quarantine", command, "--help"])
        assert f"headrace quarantine {command}" in shown.output
