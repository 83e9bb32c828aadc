"""The HTTP port where others can reach it."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from headrace.errors import Unauthenticated
from headrace.observe import http as observe_http
from headrace.observe.http import ObserveServer
from headrace.observe.metrics import metrics_registry
from tests.observe.scripted import ScriptedServer
from tests.waiting import DEADLINE_SECONDS


def authorize(headers: Mapping[str, str]) -> None:
    if headers.get("authorization") != "Bearer good":
        raise Unauthenticated("this server wants a token")


def test_tokens_and_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe_http, "_IDLE_SECONDS", 2 * DEADLINE_SECONDS)  # longer than this test waits
    server = ScriptedServer()
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    server.problems = ["a secret path"]

    def ask_tls(path: str, headers: Mapping[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", observe.port, context=trusting, timeout=DEADLINE_SECONDS
        )
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body

    good = {"Authorization": "Bearer good"}
    registry = metrics_registry(server)
    observe = ObserveServer(server, registry, certificate=certificate, key=key, authorize=authorize)
    observe.start()
    try:
        response, body = ask_tls("/metrics", {})
        assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert json.loads(body) == {"error": "this server wants a token"}
        response, body = ask_tls("/metrics", good)
        assert response.status == 200
        assert b"headrace_epoch" in body
        # A probe brings no token, and learns no details.
        for path, status in (("/healthz", 200), ("/readyz", 200)):
            response, body = ask_tls(path, {})
            assert response.status == status
            assert b"secret" not in body
        assert b"a secret path" in ask_tls("/readyz", good)[1]
        # One that does not speak TLS holds up nobody.
        with socket.create_connection(("127.0.0.1", observe.port), timeout=DEADLINE_SECONDS) as plain:
            assert ask_tls("/healthz", {})[0].status == 200
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            plain.settimeout(DEADLINE_SECONDS)
            answer = plain.recv(4096)
            assert b"headrace" not in answer
    finally:
        observe.stop()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
