"""The connector's page says what the connector does."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from devtools.ports import free_port
from headrace.connectors.config import read_config
from headrace.connectors.webhook.config import WebhookEndpoint, WebhookResource
from tests.connectors.webhook.driving import planned, send, things
from tests.connectors.webhook_endpoint import Receiver
from tests.waiting import wait_until

PAGE = (Path(__file__).parents[3] / "docs/connectors/webhook.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def examples() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(block) for block in blocks("json"))


def test_its_configurations_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIVER_TOKEN", "abc")
    endpoint, resource, _, _ = examples()
    target = read_config(WebhookEndpoint, endpoint, "endpoint").target
    path = read_config(WebhookResource, resource, "resource").path
    assert f"`{target.url(path)}`" in PAGE


def test_every_key_is_listed_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.partition("## Requests")[0], re.MULTILINE))
    properties = {
        **WebhookEndpoint.model_json_schema()["properties"],
        **WebhookResource.model_json_schema()["properties"],
    }
    assert listed.keys() == properties.keys()
    for name, schema in properties.items():
        if default := schema.get("default"):
            assert listed[name] == f"`{default}`".lower()


def test_what_is_sent_follows_its_schema(receiver: Receiver) -> None:
    _, _, example, schema = examples()
    jsonschema.Draft202012Validator.check_schema(schema)
    send(planned(receiver.address, "a", "b", batch_documents=2), things(5))
    for body in (example, *(request.body for request in receiver.received)):
        jsonschema.validate(body, schema)
        assert list(body) == schema["required"], "a new key belongs into the schema"


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.processes
def test_its_receiver_has_each_document_once(tmp_path: Path) -> None:
    (program,) = blocks("python")
    port = free_port()
    (tmp_path / "receiver.py").write_text(program.replace("8080", str(port)))
    process = subprocess.Popen([sys.executable, "receiver.py"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_open(port), "a receiver that listens")
        materialization = planned(f"http://127.0.0.1:{port}", batch_documents=2)
        send(materialization, things(5))
        send(materialization, things(5))  # again, as after a crash before the log had it
    finally:
        process.kill()
        process.wait()
    with closing(sqlite3.connect(tmp_path / "received.db")) as database:
        updates = database.execute("SELECT resource, document FROM updates").fetchall()
    assert sorted(json.loads(text)["id"] for _, text in updates) == [*range(5)]
    assert {resource for resource, _ in updates} == {"things"}
