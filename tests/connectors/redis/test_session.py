"""Replicas that must follow, and TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from devtools.ports import free_port
from devtools.redis_server import RedisServer
from headrace.connectors.redis.config import RedisEndpoint
from headrace.connectors.redis.session import Session
from headrace.errors import EndpointError, EndpointUnavailable
from headrace.protocol.messages import Apply, Validate, ValidateBinding
from headrace.testing import Runtime, materialization_of
from tests.connectors.redis.driving import CLIENT, ask, things
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes


@contextmanager
def impatient_sessions() -> Iterator[None]:
    """Shortens the time-out of waiting for replicas, but not that of waiting for the server itself."""
    init = Session.__init__

    def be_impatient(session: Session, endpoint: RedisEndpoint) -> None:
        init(session, endpoint)
        session._timeout = 0.05

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "__init__", be_impatient)
        yield


def test_a_transaction_waits_for_its_replicas() -> None:
    binding = ValidateBinding(things(), {"prefix": "things"})
    at_once = {"repl-diskless-sync-delay": "0"}
    with RedisServer(settings=at_once) as primary, RedisServer() as replica:
        config = {"url": primary.url, "replicas": 1, "timeout": DEADLINE_SECONDS}
        view = materialization_of(CLIENT, "view", "redis", config, [binding])
        too_few = pytest.raises(EndpointUnavailable, match=r"0 of 1 replicas have the writes after 0\.04")
        with impatient_sessions(), too_few:
            CLIENT.apply(Apply(view, "1"))
        ask(replica.url, "CONFIG", "SET", "masterauth", primary.password)
        ask(replica.url, "REPLICAOF", "127.0.0.1", primary.port)
        wait_until(lambda: ask(primary.url, "WAIT", 1, 100) == 1, "a replica that follows")
        CLIENT.apply(Apply(view, "1"))
        with Runtime(CLIENT, view) as runtime:
            runtime.transact([[{"id": 1}]], {"n": 1})
        assert ask(replica.url, "GET", "things:1") == '{"id":1}'
        replica.stop()
        too_few = pytest.raises(EndpointUnavailable, match="0 of 1 replicas")
        with impatient_sessions(), too_few, Runtime(CLIENT, view):
            pass


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_port(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RedisServer, int]]:
    folder = tmp_path_factory.mktemp("certificates")
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
    authority.cert_pem.write_to_path(folder / "root.pem")
    port = free_port()
    settings = {
        "tls-port": str(port),
        "tls-cert-file": str(folder / "server.pem"),
        "tls-key-file": str(folder / "server.key"),
        "tls-ca-cert-file": str(folder / "root.pem"),
        "tls-auth-clients": "no",
    }
    with RedisServer(settings=settings) as server:
        yield server, port


def connect(url: str, **config: Any) -> None:
    CLIENT.validate(Validate("view", "redis", {"url": url, **config}, ()))


def test_tls_verifies_the_server(
    tls_port: tuple[RedisServer, int], authority: trustme.CA, tmp_path: Path
) -> None:
    server, port = tls_port
    root = tmp_path / "root.pem"
    authority.cert_pem.write_to_path(root)
    connect(f"rediss://:{server.password}@localhost:{port}", ca_file=str(root))
    for url, config in (
        (f"rediss://:{server.password}@localhost:{port}", {}),
        (f"rediss://:{server.password}@127.0.0.1:{port}", {"ca_file": str(root)}),
    ):
        with pytest.raises(EndpointError, match="see to 'url' and 'ca_file'"):
            connect(url, **config)
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(EndpointError, match="see to 'url' and 'ca_file'"):
        connect(f"rediss://:{server.password}@localhost:{port}", ca_file=str(tmp_path / "empty.pem"))
    with pytest.raises(EndpointUnavailable):
        connect(f"rediss://:{server.password}@localhost:{server.port}", ca_file=str(root), timeout=0.5)
