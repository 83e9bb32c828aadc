"""Transactions are finished with brokers that want TLS and a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from devtools.kafka_broker import KafkaBroker
from devtools.ports import free_port
from headrace.errors import ConfigError, EndpointUnavailable, Unauthenticated
from headrace.kafka.security import Security
from headrace.kafka.transactions import Transactions
from tests.sinks.kafka_world import World, read_messages
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.processes

PASSWORD = 'a "b", c=d'


def as_pkcs8(key: bytes) -> bytes:
    """The only form that Java reads."""
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return load_pem_private_key(key, None).private_bytes(*form)


class SecureBroker(KafkaBroker):
    """With a second door, for who has a password, over TLS."""

    def __init__(self, authority: trustme.CA) -> None:
        super().__init__()
        self._authority = authority

    @property
    def secure(self) -> str:
        return f"127.0.0.1:{self._ports[2]}"

    def _draw_ports(self) -> None:
        super()._draw_ports()
        self._ports.append(free_port())

    def _properties(self, home: Path) -> dict[str, str]:
        certificate = self._authority.issue_cert("127.0.0.1")
        chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
        (home / "broker.pem").write_bytes(as_pkcs8(certificate.private_key_pem.bytes()) + chain)
        given = super()._properties(home)
        plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="simple";'
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            **given,
            "listeners": f"{given['listeners']},SASL_SSL://{self.secure}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(home / "broker.pem"),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
        }


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def broker(authority: trustme.CA) -> Iterator[SecureBroker]:
    with SecureBroker(authority) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = UserScramCredentialUpsertion(
                "bob", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            for future in admin.alter_user_scram_credentials([user]).values():
                future.result(DEADLINE_SECONDS)
        yield broker


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.cert_pem.bytes())
    return path


USERS = [
    ("PLAIN", "ann", "simple"),
    pytest.param("SCRAM-SHA-256", "bob", PASSWORD, marks=pytest.mark.full),
    ("SCRAM-SHA-512", "bob", PASSWORD),
]


@pytest.mark.parametrize(("mechanism", "user", "password"), USERS)
def test_an_epoch_with_a_password(
    broker: SecureBroker, ca_file: Path, mechanism: str, user: str, password: str
) -> None:
    world = World(broker)
    secure = {
        "bootstrap": broker.secure,
        "security__protocol": "SASL_SSL",
        "sasl__mechanism": mechanism,
        "sasl__username": user,
        "sasl__password": password,
        "ssl__ca__location": str(ca_file),
    }
    sink = world.sink(**secure)
    sink.start(None, None, 1)
    handle = world.handle(0, [1, 2], fence=1, **secure)
    assert password not in str(handle)
    world.sink(**secure).commit(0, handle)
    assert len(read_messages(broker.bootstrap, world.topic)) == 2


def secure_options(ca_file: Path, **options: str) -> dict[str, str]:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "bob",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(ca_file),
    }
    return {**given, **{key.replace("__", "."): value for key, value in options.items()}}


@pytest.mark.parametrize(("mechanism", "user"), [("PLAIN", "ann"), ("SCRAM-SHA-512", "bob")])
def test_a_wrong_password_is_refused_at_once(
    broker: SecureBroker, ca_file: Path, mechanism: str, user: str
) -> None:
    options = secure_options(ca_file, sasl__password="wrong", sasl__mechanism=mechanism, sasl__username=user)
    with (
        Transactions(broker.secure, Security.of(options)) as transactions,
        pytest.raises(Unauthenticated, match=f"refuses the user '{user}': ") as caught,
    ):
        transactions.describe("x")
    assert "wrong" not in caught.value.message


def test_a_broker_whose_certificate_is_not_known(
    broker: SecureBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.kafka.transactions._PATIENCE_SECONDS", 0.0)
    other = tmp_path / "other.pem"
    other.write_bytes(trustme.CA().cert_pem.bytes())
    with (
        Transactions(broker.secure, Security.of(secure_options(other))) as transactions,
        pytest.raises(EndpointUnavailable, match="certificate verify failed"),
    ):
        transactions.describe("x")


def test_a_file_that_is_not_there(broker: SecureBroker, tmp_path: Path) -> None:
    options = secure_options(tmp_path / "nothing.pem")
    with (
        Transactions(broker.secure, Security.of(options)) as transactions,
        pytest.raises(ConfigError, match=r"a file of the options ssl\.\* cannot be read: No such file"),
    ):
        transactions.describe("x")
