"""TLS, against a server that is reached by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.postgres_server import PostgresServer
from headrace.errors import EndpointError
from headrace.protocol.messages import Validate
from tests.connectors.postgres.driving import CLIENT
from tests.connectors.postgres.tls_front import TlsFront, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture
def root(certificates: Path) -> str:
    return str(certificates / "root.pem")


@pytest.fixture
def front(postgres_server: PostgresServer, certificates: Path) -> Iterator[TlsFront]:
    with TlsFront(postgres_server.port, certificates) as front:
        yield front


@pytest.fixture
def url(postgres_url: str, front: TlsFront) -> str:
    return through(front, postgres_url)


def through(front: TlsFront, url: str, host: str = "localhost") -> str:
    user, _, address = url.partition("@")
    return f"{user}@{host}:{front.port}/{address.partition('/')[2]}"


def connect(url: str, **config: Any) -> None:
    CLIENT.validate(Validate("view", "postgres", {"url": url, **config}, ()))


@pytest.mark.parametrize("sslmode", ["require", "verify-ca", "verify-full"])
def test_what_is_verified_is_let_in(url: str, front: TlsFront, root: str, sslmode: str) -> None:
    connect(url, sslmode=sslmode, sslrootcert=root)
    assert front.encrypted


def test_the_url_may_say_it_too(url: str, front: TlsFront, root: str) -> None:
    connect(f"{url}?sslmode=verify-full&sslrootcert={root}")
    assert front.encrypted


@pytest.mark.parametrize("sslmode", ["verify-ca", "verify-full"])
def test_another_authority_is_refused(url: str, certificates: Path, sslmode: str) -> None:
    with pytest.raises(EndpointError, match="certificate verify failed"):
        connect(url, sslmode=sslmode, sslrootcert=str(certificates / "other_root.pem"))


def test_another_host_is_refused(postgres_url: str, front: TlsFront, root: str) -> None:
    url = through(front, postgres_url, host="127.0.0.1")
    connect(url, sslmode="verify-ca", sslrootcert=root)
    with pytest.raises(EndpointError, match="does not match host name"):
        connect(url, sslmode="verify-full", sslrootcert=root)


def test_a_missing_authority_is_named(url: str) -> None:
    with pytest.raises(EndpointError, match=r'root certificate file "nowhere\.pem" does not exist'):
        connect(url, sslmode="verify-full", sslrootcert="nowhere.pem")


def test_a_client_certificate(
    postgres_server: PostgresServer, postgres_url: str, certificates: Path, root: str
) -> None:
    key = certificates / "client.key"
    certificate = {"sslcert": str(certificates / "client.pem"), "sslkey": str(key)}
    with TlsFront(postgres_server.port, certificates, wants_client_certificate=True) as front:
        url = through(front, postgres_url)
        connect(url, sslmode="verify-full", sslrootcert=root, **certificate)
        with pytest.raises(EndpointError, match="alert handshake failure"):
            connect(url, sslmode="verify-full", sslrootcert=root)
        key.chmod(0o644)
        with pytest.raises(EndpointError, match=r"private key file .* has group or world access"):
            connect(url, sslmode="verify-full", sslrootcert=root, **certificate)
