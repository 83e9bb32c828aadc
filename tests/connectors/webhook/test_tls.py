"""TLS, against a receiver that is reached by it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from headrace.errors import ConfigError, EndpointError, EndpointUnavailable
from tests.connectors.webhook.driving import planned, send, things
from tests.connectors.webhook_endpoint import Receiver


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def authorities_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "authorities.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


@pytest.fixture
def receiver(authority: trustme.CA) -> Iterator[Receiver]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with Receiver(tls=context) as receiver:
        yield receiver


def test_a_receiver_that_is_trusted(receiver: Receiver, authorities_file: str) -> None:
    address = f"https://localhost:{receiver.port}"
    send(planned(address, authorities_file=authorities_file), things(3))
    assert len(receiver.stored("things")) == 3


def test_an_authority_that_nobody_knows(receiver: Receiver) -> None:
    with pytest.raises(EndpointError, match=r"certificate of webhook https://localhost:\d+, .* not trusted"):
        send(planned(f"https://localhost:{receiver.port}"), things(1))
    assert receiver.received == []


def test_a_certificate_of_another_host(receiver: Receiver, authorities_file: str) -> None:
    address = f"https://127.0.0.1:{receiver.port}"
    with pytest.raises(EndpointError, match="IP address mismatch"):
        send(planned(address, authorities_file=authorities_file), things(1))
    assert receiver.received == []


def test_a_file_that_holds_no_certificate(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ConfigError, match=r"'authorities_file': .*empty.pem cannot be read as certificates"):
        planned(f"https://localhost:{receiver.port}", authorities_file=str(tmp_path / "empty.pem"))


def test_a_server_without_tls() -> None:
    with (
        Receiver() as receiver,
        pytest.raises(EndpointUnavailable, match="cannot be reached by TLS: wrong version number"),
    ):
        send(planned(f"https://localhost:{receiver.port}", retry_for=0), things(1))
